//! What tests of the gateway share: the gateway itself, in this process, and programs that we did not write
//! in front of it and behind it.
#![allow(dead_code, reason = "each test uses some of it")]

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use quicket::{EndpointConfig, Identity, Workers};
use quicket_gateway::{Bound, Gateway, config};
use quicket_testing::until;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::oneshot;

/// How long anything here may take to come about.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes that differ from place to place.
pub(crate) fn content(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Writes a self-signed certificate as `NAME.pem` and `NAME.key`.
pub(crate) fn certificate(dir: &Path, name: &str, names: &[&str]) {
    let identity = Identity::self_signed(names.iter().copied()).unwrap();
    fs::write(dir.join(format!("{name}.pem")), identity.chain_pem()).unwrap();
    fs::write(dir.join(format!("{name}.key")), identity.key_pem()).unwrap();
}

/// A folder with a certificate for localhost, which other users may look into: nginx's workers do.
pub(crate) fn folder() -> TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    certificate(dir.path(), "cert", &["localhost", "127.0.0.1"]);
    dir
}

/// A file of a gateway before this origin alone.
pub(crate) fn before(origin: &str) -> String {
    format!("[origin.app]\n{origin}\n[[site]]\nnames = [\"*\"]\n[[site.route]]\norigin = \"app\"\n")
}

/// Python with the packages of `requirements.txt`, in an environment of its own.
pub(crate) fn python() -> Command {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    let python = PYTHON.get_or_init(|| {
        let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gateway-python");
        let requirements = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/requirements.txt");
        let wanted = fs::read(&requirements).unwrap();
        let stamp = environment.join("installed.txt");
        let python = environment.join("bin/python3");
        if fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
            return python;
        }
        let run = |command: &mut Command| {
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment));
        run(Command::new(&python).args(["-m", "pip", "install", "-q", "-r"]).arg(requirements));
        fs::write(stamp, wanted).unwrap();
        python
    });
    Command::new(python)
}

/// A gateway that runs in this process until it is dropped.
pub(crate) struct Site {
    pub(crate) dir: TempDir,
    pub(crate) address: SocketAddr,
    gateway: Gateway,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Site {
    /// Starts a gateway with its certificate for localhost, an access log, and what the rest of the file
    /// says.
    pub(crate) fn start(dir: TempDir, rest: &str) -> Self {
        Self::start_workers(dir, rest, 1)
    }

    /// The same with so many workers over QUIC.
    pub(crate) fn start_workers(dir: TempDir, rest: &str, workers: usize) -> Self {
        let snapshot = Self::read(&dir, "", rest);
        Self::start_by(dir, snapshot, workers)
    }

    /// The same, where the lines of the file's top come first.
    pub(crate) fn start_top(dir: TempDir, text: &str) -> Self {
        let snapshot = Self::read(&dir, text, "");
        Self::start_by(dir, snapshot, 1)
    }

    fn start_by(
        dir: TempDir,
        snapshot: quicket_gateway::snapshot::Snapshot,
        workers: usize,
    ) -> Self {
        let (started, address) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let sockets = EndpointConfig::default().workers(Workers::Count(workers));
                let bound = Bound::bind(snapshot, sockets).await.unwrap();
                started.send((bound.addresses()[0], bound.gateway())).unwrap();
                bound.run(async { _ = stopped.await }).await.unwrap();
            });
        });
        let (address, gateway) = address.recv_timeout(PATIENCE).unwrap();
        Self { dir, address, gateway, stop: Some(stop), thread: Some(thread) }
    }

    fn read(dir: &TempDir, top: &str, rest: &str) -> quicket_gateway::snapshot::Snapshot {
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\naccess_log = \"access.log\"\n{top}\
             [[certificate]]\nchain = \"cert.pem\"\nkey = \"cert.key\"\n{rest}"
        );
        config::parse(&text, dir.path()).unwrap_or_else(|problems| {
            let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
            panic!("{}", all.join("\n"))
        })
    }

    /// As SIGHUP does.
    pub(crate) fn reload(&self, rest: &str) {
        self.gateway.replace(Self::read(&self.dir, "", rest)).unwrap();
    }

    /// As [`Site::start_top`].
    pub(crate) fn reload_top(&self, text: &str) {
        self.gateway.replace(Self::read(&self.dir, text, "")).unwrap();
    }

    /// The same with what may be refused.
    pub(crate) fn try_reload(&self, rest: &str) -> Result<(), String> {
        let replaced = self.gateway.replace(Self::read(&self.dir, "", rest));
        replaced.map_err(|error| error.to_string())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.address.port())
    }

    /// The value of a counter of the only server of `app`, whose address begins with `scheme`. The file has the counters at
    /// `metrics.sock`.
    pub(crate) fn counter(&self, name: &str, scheme: &str) -> u64 {
        let text = self.curl(&["--unix-socket", "metrics.sock", "http://localhost/metrics"]).stdout;
        let text = String::from_utf8(text).unwrap();
        let name = format!("quicket_gateway_{name}{{origin=\"app\",server=\"{scheme}");
        let line = text.lines().find(|line| line.starts_with(&name));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.unwrap_or_else(|| panic!("no {name} in {text}"))
    }

    pub(crate) fn curl(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("curl");
        command.args(["-sS", "--cacert", "cert.pem", "--max-time", "20"]).args(arguments);
        command.current_dir(self.dir.path()).output().unwrap()
    }

    /// The status of an answer, and its body.
    pub(crate) fn get(&self, arguments: &[&str]) -> (String, Vec<u8>) {
        let output = self.curl(&[&["-w", "%{stderr}%{http_code}"], arguments].concat());
        (String::from_utf8_lossy(&output.stderr).into_owned(), output.stdout)
    }

    /// The lines of the access log, once there are so many.
    pub(crate) fn records(&self, count: usize) -> Vec<Value> {
        let read = || -> Vec<Value> {
            let log = fs::read_to_string(self.path("access.log")).unwrap_or_default();
            log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
        };
        until("the log", || read().len() >= count);
        read()
    }

    /// Stops the gateway as SIGTERM does; how long that took.
    pub(crate) fn stop(&mut self) -> Duration {
        let begun = Instant::now();
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        begun.elapsed()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}
