//! `quicket gateway` with `watch = true`: files that change are read again, however they do.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use common::{openssl, quicket};
use quicket_testing::until;
use tempfile::TempDir;

/// A gateway that answers with a word of its file.
struct Gateway {
    dir: TempDir,
    port: u16,
    process: Child,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn file(port: u16, word: &str, certificate: &str) -> String {
    format!(
        "listen = [\"127.0.0.1:{port}\"]\nwatch = true\n\
         [[certificate]]\nchain = \"{certificate}.pem\"\nkey = \"{certificate}.key\"\n\
         [[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = {{ body = \"{word}\" }}\n"
    )
}

impl Gateway {
    /// Starts it with a file that `prepare` puts somewhere; it is called `path`.
    fn start(path: &str, prepare: impl FnOnce(&Path, u16)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        prepare(dir.path(), port);
        let log = fs::File::create(dir.path().join("gateway.log")).unwrap();
        let mut command = quicket(dir.path());
        let process = command.args(["gateway", path]).stderr(log).spawn().unwrap();
        let gateway = Self { dir, port, process };
        until("the gateway", || gateway.log().contains("Gateway on"));
        gateway
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("gateway.log")).unwrap_or_default()
    }

    /// What it answers to those who trust this certificate; nothing if it has another one.
    fn says(&self, certificate: &str) -> String {
        let url = format!("https://localhost:{}/", self.port);
        let mut command = Command::new("curl");
        let command = command.args(["-s", "--max-time", "10", "--cacert", certificate, &url]);
        String::from_utf8(command.current_dir(self.dir.path()).output().unwrap().stdout).unwrap()
    }

    fn will_say(&self, word: &str, certificate: &str) {
        until(&format!("{word}: {}", self.log()), || self.says(certificate) == word);
    }
}

#[test]
fn files_that_are_written_replaced_broken_and_gone() {
    let gateway = Gateway::start("site.toml", |dir, port| {
        openssl(dir, "cert", "DNS:localhost");
        fs::write(dir.join("site.toml"), file(port, "one", "cert")).unwrap();
    });
    let site = gateway.path("site.toml");
    gateway.will_say("one", "cert.pem");
    // By another of its name, as editors do.
    fs::write(gateway.path("site.new"), file(gateway.port, "two", "cert")).unwrap();
    fs::rename(gateway.path("site.new"), &site).unwrap();
    gateway.will_say("two", "cert.pem");
    // In its place.
    fs::write(&site, file(gateway.port, "three", "cert")).unwrap();
    gateway.will_say("three", "cert.pem");
    // A certificate, and its key a while later: what does not belong together is not taken.
    fs::create_dir(gateway.path("next")).unwrap();
    openssl(&gateway.path("next"), "cert", "DNS:localhost");
    fs::copy(gateway.path("cert.pem"), gateway.path("before.pem")).unwrap();
    fs::rename(gateway.path("next/cert.pem"), gateway.path("cert.pem")).unwrap();
    until("a refusal", || gateway.log().contains("cert.pem has changed. All stays as it was"));
    assert_eq!(gateway.says("before.pem"), "three");
    fs::rename(gateway.path("next/cert.key"), gateway.path("cert.key")).unwrap();
    gateway.will_say("three", "cert.pem");
    // What cannot be read leaves all as it was; what its certificate is named by is watched on.
    fs::write(&site, "listen = [\n").unwrap();
    until("a refusal", || gateway.log().contains("site.toml has changed. All stays as it was"));
    assert_eq!(gateway.says("cert.pem"), "three");
    fs::write(&site, file(gateway.port, "four", "cert")).unwrap();
    gateway.will_say("four", "cert.pem");
    fs::remove_file(&site).unwrap();
    until("a refusal", || gateway.log().contains("cannot read site.toml"));
    assert_eq!(gateway.says("cert.pem"), "four");
    fs::write(&site, file(gateway.port, "five", "cert")).unwrap();
    gateway.will_say("five", "cert.pem");
    // A file that was named before it was there.
    fs::write(&site, file(gateway.port, "six", "sub/cert")).unwrap();
    until("a refusal", || {
        gateway.log().contains("cannot read sub/cert.pem")
            || gateway.log().contains("sub/cert.pem: No such")
    });
    fs::create_dir(gateway.path("sub")).unwrap();
    openssl(&gateway.path("sub"), "cert", "DNS:localhost");
    gateway.will_say("six", "sub/cert.pem");
}

/// As Kubernetes replaces all files of a volume at once.
#[test]
fn a_symbolic_link_on_the_way_leads_elsewhere() {
    let version = |dir: &Path, port: u16, name: &str| {
        let to = dir.join("volume").join(name);
        fs::create_dir(&to).unwrap();
        openssl(&to, "cert", "DNS:localhost");
        fs::write(to.join("site.toml"), file(port, name.trim_matches('.'), "cert")).unwrap();
    };
    let gateway = Gateway::start("volume/site.toml", |dir, port| {
        fs::create_dir(dir.join("volume")).unwrap();
        version(dir, port, "..one");
        symlink("..one", dir.join("volume/..data")).unwrap();
        for name in ["site.toml", "cert.pem", "cert.key"] {
            symlink(Path::new("..data").join(name), dir.join("volume").join(name)).unwrap();
        }
    });
    gateway.will_say("one", "volume/cert.pem");
    for name in ["..two", "..three"] {
        version(gateway.dir.path(), gateway.port, name);
        symlink(name, gateway.path("volume/..next")).unwrap();
        fs::rename(gateway.path("volume/..next"), gateway.path("volume/..data")).unwrap();
        gateway.will_say(name.trim_matches('.'), "volume/cert.pem");
    }
    fs::remove_dir_all(gateway.path("volume/..one")).unwrap();
    assert!(!gateway.log().contains("All stays as it was"), "{}", gateway.log());
}
