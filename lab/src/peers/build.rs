//! Builds the peers with the ordinary tools of their languages, once, into a cache.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Implementation, Program};

/// Where the peers' sources are and what was built of them is kept.
#[derive(Debug, Clone)]
pub struct Workshop {
    sources: PathBuf,
    cache: PathBuf,
}

impl Workshop {
    /// Sources from the checkout this program was built from, or from the folder that
    /// `QUICKET_LAB_PEERS` names; the cache in that checkout's `target/lab`, or in the folder that
    /// `QUICKET_LAB_CACHE` names.
    ///
    /// # Errors
    ///
    /// When there are no sources, or the cache cannot be made.
    pub fn new() -> Result<Self, PeerError> {
        let folder = |variable: &str, default: &str| {
            let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
            std::env::var_os(variable).map_or_else(|| checkout.join(default), PathBuf::from)
        };
        let sources = folder("QUICKET_LAB_PEERS", "peers");
        let cache = folder("QUICKET_LAB_CACHE", "../target/lab");
        if !sources.is_dir() {
            return Err(PeerError(format!(
                "there are no sources of peers in {}: run from a checkout of Quicket, or let \
                 QUICKET_LAB_PEERS name its folder lab/peers",
                sources.display()
            )));
        }
        std::fs::create_dir_all(&cache)
            .map_err(|error| PeerError(format!("cannot make {}: {error}", cache.display())))?;
        Ok(Self { sources, cache })
    }

    /// Builds the program of `implementation`, unless that was done before.
    ///
    /// # Errors
    ///
    /// When a tool is missing or the build fails.
    pub fn prepare(&self, implementation: Implementation) -> Result<Program, PeerError> {
        let _lock = self.lock(implementation.name())?;
        match implementation {
            Implementation::Quicket => self.build_quicket(),
            Implementation::Quinn => self.build_with_cargo("quinn"),
            Implementation::QuicGo => self.build_with_go("quic-go"),
            Implementation::Aioquic => self.install_aioquic(),
            Implementation::S2nQuic => self.build_with_cargo("s2n-quic"),
            Implementation::Noq => self.build_with_cargo("noq"),
            Implementation::Ngtcp2 => self.find_ngtcp2(),
            Implementation::Quiche => self.build_with_cargo("quiche"),
            Implementation::Tquic => self.build_with_cargo("tquic"),
        }
    }

    /// Builds a program of `peers` that takes part in the benchmark only, unless that was done
    /// before.
    ///
    /// # Errors
    ///
    /// When a tool is missing or the build fails.
    pub(crate) fn prepare_contender(&self, folder: &str) -> Result<Program, PeerError> {
        let _lock = self.lock(folder)?;
        self.build_with_cargo(folder)
    }

    /// The program `quicket`: this one, if it is that, or one that is built for it.
    ///
    /// # Errors
    ///
    /// When the build fails.
    pub(crate) fn prepare_program(&self, running: &Path) -> Result<PathBuf, PeerError> {
        if running.file_stem().is_some_and(|name| name == "quicket") {
            return Ok(running.to_owned());
        }
        let _lock = self.lock("program")?;
        self.build_in_workspace("quicket")
    }

    /// Builds Caddy, a web server in Go, with the modules that files over HTTP/3 need.
    ///
    /// # Errors
    ///
    /// When Go is missing or the build fails.
    pub fn prepare_caddy(&self) -> Result<Program, PeerError> {
        let _lock = self.lock("caddy")?;
        self.build_with_go("caddy")
    }

    /// Builds Pebble, a certificate authority for tests that speaks ACME, and the DNS server that comes with it.
    ///
    /// # Errors
    ///
    /// When Go is missing or the build fails.
    pub fn prepare_pebble(&self) -> Result<[Program; 2], PeerError> {
        const COMMANDS: &str = "github.com/letsencrypt/pebble/v2/cmd";
        let _lock = self.lock("pebble")?;
        let build = |command: &str| {
            self.build_package_with_go("pebble", &format!("{COMMANDS}/{command}"), command)
        };
        Ok([build("pebble")?, build("pebble-challtestsrv")?])
    }

    /// Builds h2spec, which tests servers of HTTP/2.
    ///
    /// # Errors
    ///
    /// When Go is missing or the build fails.
    pub fn prepare_h2spec(&self) -> Result<Program, PeerError> {
        let _lock = self.lock("h2spec")?;
        self.build_package_with_go("h2spec", "github.com/summerwind/h2spec/cmd/h2spec", "h2spec")
    }

    /// Makes a Python with niquests, an HTTP client.
    ///
    /// # Errors
    ///
    /// When Python is missing or the packages cannot be had.
    pub fn prepare_niquests(&self) -> Result<Program, PeerError> {
        let _lock = self.lock("niquests")?;
        Ok(Program { executable: self.install_python("niquests")?, arguments: Vec::new() })
    }

    /// The version of Caddy that is built.
    ///
    /// # Errors
    ///
    /// When the file that Go builds it from cannot be read or does not tell.
    pub(crate) fn caddy_version(&self) -> Result<String, PeerError> {
        self.version_after("caddy/go.mod", "github.com/caddyserver/caddy/v2 v")
    }

    /// Builds wireguard-go.
    ///
    /// # Errors
    ///
    /// When Go is missing or the build fails.
    pub(crate) fn prepare_wireguard(&self) -> Result<Program, PeerError> {
        let _lock = self.lock("wireguard-go")?;
        self.build_with_go("wireguard-go")
    }

    /// The version of wireguard-go that is built.
    ///
    /// # Errors
    ///
    /// When the file that Go builds it from cannot be read or does not tell.
    pub(crate) fn wireguard_version(&self) -> Result<String, PeerError> {
        self.version_after("wireguard-go/go.mod", "golang.zx2c4.com/wireguard v")
    }

    /// The version of an implementation, as the file tells that its tool builds it from.
    ///
    /// # Errors
    ///
    /// When that file cannot be read or does not tell.
    pub fn version(&self, implementation: Implementation) -> Result<String, PeerError> {
        let (file, before) = match implementation {
            Implementation::Quicket => return Ok(env!("CARGO_PKG_VERSION").to_owned()),
            Implementation::Quinn => return self.quinn_version(),
            Implementation::S2nQuic => return self.locked_version("s2n-quic", "s2n-quic"),
            Implementation::Noq => return self.locked_version("noq", "noq"),
            Implementation::Ngtcp2 => return ngtcp2_version(),
            Implementation::Quiche => return self.locked_version("quiche", "quiche"),
            Implementation::Tquic => return self.locked_version("tquic", "tquic"),
            Implementation::QuicGo => ("quic-go/go.mod", "github.com/quic-go/quic-go v"),
            Implementation::Aioquic => ("aioquic/requirements.txt", "aioquic=="),
        };
        self.version_after(file, before)
    }

    /// What stands behind `before` in a file of the sources, up to the next space.
    fn version_after(&self, file: &str, before: &str) -> Result<String, PeerError> {
        let path = self.sources.join(file);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| PeerError(format!("{}: {error}", path.display())))?;
        let version = text.split(before).nth(1).and_then(|rest| rest.split_whitespace().next());
        let version = version.map(str::to_owned);
        version.ok_or_else(|| PeerError(format!("{} has no {before}", path.display())))
    }

    /// The version of quinn that is built, as its lock file tells.
    ///
    /// # Errors
    ///
    /// When the lock file cannot be read or does not tell.
    pub fn quinn_version(&self) -> Result<String, PeerError> {
        self.locked_version("quinn", "quinn")
    }

    /// The version of a package in the lock file of a peer.
    fn locked_version(&self, folder: &str, package: &str) -> Result<String, PeerError> {
        let path = self.sources.join(folder).join("Cargo.lock");
        let lock = std::fs::read_to_string(&path)
            .map_err(|error| PeerError(format!("{}: {error}", path.display())))?;
        let name = format!("name = \"{package}\"");
        let mut lines = lock.lines().skip_while(|line| *line != name);
        let version = lines.nth(1).and_then(|line| line.strip_prefix("version = "));
        let version = version.map(|version| version.trim_matches('"').to_owned());
        version.ok_or_else(|| PeerError(format!("{} does not name {package}", path.display())))
    }

    fn build_quicket(&self) -> Result<Program, PeerError> {
        let executable = self.build_in_workspace("quicket-peer")?;
        Ok(Program { executable, arguments: Vec::new() })
    }

    /// Builds a program of this workspace, and the other one that the lab needs: what both stand on is then compiled once. Alone, each would ask
    /// for other features of it, and for another kind of link-time optimization.
    fn build_in_workspace(&self, program: &str) -> Result<PathBuf, PeerError> {
        // Where the rest of the workspace is built too.
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
        // The Cargo that runs this program, if one does, is the one that it was built with.
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["build", "--release", "--locked", "--quiet"]);
        command.args(["--package", "quicket-cli", "--bin", "quicket"]);
        command.args(["--package", "quicket-peer", "--bin", "quicket-peer"]);
        command.current_dir(&self.sources).arg("--target-dir").arg(&target);
        run(&mut command, "install Rust with Cargo")?;
        Ok(target.join("release").join(program))
    }

    /// Builds a peer that is a Cargo workspace of its own.
    fn build_with_cargo(&self, folder: &str) -> Result<Program, PeerError> {
        let target = self.cache.join("cargo");
        let manifest = self.sources.join(folder).join("Cargo.toml");
        // The Cargo that runs this program, if one does, is the one that it was built with.
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["build", "--release", "--locked", "--quiet", "--manifest-path"]);
        command.arg(manifest).arg("--target-dir").arg(&target);
        run(
            &mut command,
            "install Rust with Cargo; quiche and TQUIC want CMake too, quiche libclang, OpenSSL \
             make and Perl",
        )?;
        let executable = target.join(format!("release/quicket-peer-{folder}"));
        Ok(Program { executable, arguments: Vec::new() })
    }

    /// Builds a peer that is a Go module.
    fn build_with_go(&self, folder: &str) -> Result<Program, PeerError> {
        self.build_package_with_go(folder, ".", &format!("{folder}-peer"))
    }

    /// Builds a package that a Go module is, or depends on.
    fn build_package_with_go(
        &self,
        folder: &str,
        package: &str,
        name: &str,
    ) -> Result<Program, PeerError> {
        let executable = self.cache.join(name);
        let mut command = Command::new("go");
        command.args(["build", "-mod=readonly", "-o"]).arg(&executable).arg(package);
        command.current_dir(self.sources.join(folder));
        run(&mut command, "install Go 1.26 or later")?;
        Ok(Program { executable, arguments: Vec::new() })
    }

    fn install_aioquic(&self) -> Result<Program, PeerError> {
        let executable = self.install_python("aioquic")?;
        let main = self.sources.join("aioquic/main.py");
        let arguments = vec!["-B".into(), main.to_string_lossy().into_owned()];
        Ok(Program { executable, arguments })
    }

    /// A Python with the packages that a folder asks for.
    fn install_python(&self, folder: &str) -> Result<PathBuf, PeerError> {
        let environment = self.cache.join(format!("{folder}-venv"));
        let executable = environment.join("bin/python");
        let requirements = self.sources.join(folder).join("requirements.txt");
        let wanted = std::fs::read(&requirements)
            .map_err(|error| PeerError(format!("{}: {error}", requirements.display())))?;
        let stamp = environment.join("installed-requirements.txt");
        if std::fs::read(&stamp).ok().as_ref() != Some(&wanted) {
            let mut command = Command::new("python3");
            command.args(["-m", "venv", "--clear"]).arg(&environment);
            run(&mut command, "install Python 3.11 or later with its venv module")?;
            let mut command = Command::new(&executable);
            command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
            run(command.arg(&requirements), "see what pip says")?;
            std::fs::write(&stamp, wanted)
                .map_err(|error| PeerError(format!("{}: {error}", stamp.display())))?;
        }
        Ok(executable)
    }

    /// Debian's programs behind a script of ours.
    fn find_ngtcp2(&self) -> Result<Program, PeerError> {
        ngtcp2_version()?;
        let main = self.sources.join("ngtcp2/main.py");
        let arguments = vec!["-B".into(), main.to_string_lossy().into_owned()];
        Ok(Program { executable: "python3".into(), arguments })
    }

    /// Keeps other processes from building the same peer at the same time.
    fn lock(&self, name: &str) -> Result<File, PeerError> {
        let path = self.cache.join(format!("{name}.lock"));
        let lock = || {
            let file = File::create(&path)?;
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
            Ok(file)
        };
        lock().map_err(|error: std::io::Error| PeerError(format!("{}: {error}", path.display())))
    }
}

/// The version of the packages, both of which must be installed.
fn ngtcp2_version() -> Result<String, PeerError> {
    let packages = ["ngtcp2-client", "ngtcp2-server"];
    let mut command = Command::new("dpkg-query");
    command.args(["--show", "--showformat", "${Version}\n"]).args(packages);
    let said = run(&mut command, "install ngtcp2-client and ngtcp2-server of Debian")?;
    let version = said.lines().next().and_then(|line| line.split(['+', '-']).next());
    version.map(str::to_owned).ok_or_else(|| PeerError("dpkg-query says no version".into()))
}

/// Runs a tool, and returns what it printed.
fn run(command: &mut Command, advice: &str) -> Result<String, PeerError> {
    let program = command.get_program().to_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| {
        PeerError(format!("cannot run {}: {error}; {advice}", program.display()))
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(PeerError(format!("{} failed; {advice}:\n{}", program.display(), said.trim())))
}

/// Why a peer cannot be built.
#[derive(Debug, Clone)]
pub struct PeerError(String);

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PeerError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_quinn_is_the_one_locked() {
        let version = Workshop::new().unwrap().quinn_version().unwrap();
        assert!(version.starts_with("0.11."), "{version}");
    }

    #[test]
    fn every_implementation_has_a_version() {
        let workshop = Workshop::new().unwrap();
        // That of ngtcp2 is what this machine has.
        for implementation in
            Implementation::ALL.into_iter().filter(|it| *it != Implementation::Ngtcp2)
        {
            let version = workshop.version(implementation).unwrap();
            assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{version}");
        }
    }
}
