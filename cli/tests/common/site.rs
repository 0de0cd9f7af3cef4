//! `quicket gateway` in a process of its own.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};

use quicket_testing::{free_port, until};
use tempfile::TempDir;

use super::{openssl, quicket};

/// A gateway, which ends with this, in a folder that has its certificate (`cert.pem`).
pub(crate) struct Site {
    pub(crate) dir: TempDir,
    pub(crate) port: u16,
    pub(crate) gateway: Child,
}

impl Site {
    /// A folder with a certificate, and a port for a gateway there.
    pub(crate) fn folder() -> (TempDir, u16) {
        let dir = tempfile::tempdir().unwrap();
        openssl(dir.path(), "cert", "DNS:localhost,IP:127.0.0.1");
        (dir, free_port())
    }

    /// Starts a gateway by the file `site.toml` of its folder.
    pub(crate) fn run(dir: TempDir, port: u16) -> Self {
        let mut command = quicket(dir.path());
        command.args(["gateway", "site.toml"]);
        Self::run_by(dir, port, command)
    }

    /// Starts it by a command.
    pub(crate) fn run_by(dir: TempDir, port: u16, mut command: Command) -> Self {
        let log = fs::File::create(dir.path().join("gateway.log")).unwrap();
        let gateway = command.stderr(log).spawn().unwrap();
        let site = Self { dir, port, gateway };
        until("the gateway", || site.log().contains("Gateway on"));
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What is in a file; nothing where there is none.
    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn log(&self) -> String {
        self.text("gateway.log")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.gateway.kill();
        let _ = self.gateway.wait();
    }
}
