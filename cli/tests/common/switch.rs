//! A switch of a test's own, and what programs need that share addresses by it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use quicket::Identity;
use quicket_testing::signal;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const QUICKET: &str = env!("CARGO_BIN_EXE_quicket");

/// A switch that programs start, and that ends with this, beside a certificate for them.
pub(crate) struct Switch {
    pub(crate) name: String,
    pub(crate) dir: TempDir,
}

impl Switch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = tempfile::tempdir().unwrap();
        let identity = Identity::self_signed(["localhost"]).unwrap();
        fs::write(dir.path().join("certificate"), identity.chain_pem()).unwrap();
        fs::write(dir.path().join("key"), identity.key_pem()).unwrap();
        Self { name: format!("quicket-test-{}-{count}", std::process::id()), dir }
    }

    /// What it reports; nothing if it does not run.
    fn report(&self) -> Option<Value> {
        let report = quicket_switch::client::status(&self.name).ok()?;
        Some(serde_json::from_str(&report).unwrap())
    }

    pub(crate) fn status(&self) -> Value {
        self.report().expect("the switch runs")
    }

    pub(crate) fn kill(&self) {
        signal(self.status()["pid"].as_u64().unwrap(), "-9");
    }

    /// A program in the surroundings of the test.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let file = |name: &str| self.dir.path().join(name);
        command.env("QUICKET_SWITCH", &self.name).env("QUICKET_SWITCH_PROGRAM", QUICKET);
        command.env("KEY", file("key")).env("CERTIFICATE", file("certificate"));
        command.env("XDG_CACHE_HOME", cache()).env("XDG_DATA_HOME", self.dir.path());
        command.env_remove("QUICKET_SWITCH_LISTENERS").env_remove("LATE").env_remove("POLLS");
        command
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if self.report().is_some() {
            self.kill();
        }
    }
}

/// A file of this crate's sources.
pub(crate) fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Where `quicket run` unpacks its library, once for all tests.
fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache")
}

/// Cargo puts them beside the tests that they are built for.
pub(crate) fn libraries() -> PathBuf {
    env::current_exe().unwrap().parent().unwrap().to_owned()
}
