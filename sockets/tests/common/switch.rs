//! A switch in this process, which ends with the test.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use quicket_handshake::{Aes128, AwsLcProvider, SystemRandom};
use quicket_switch::daemon::{Daemon, Listener, Tools};
use serde_json::Value;

/// One that runs.
pub(crate) struct Switch {
    pub(crate) name: String,
    forwards: bool,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

/// A name that no other switch has.
pub(crate) fn free_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let file = format!("quicket-test-switch-{}-{count}", std::process::id());
    std::env::temp_dir().join(file).to_str().unwrap().to_owned()
}

/// One that does not run yet: programs that connect wait until it does.
pub(crate) fn daemon(name: &str) -> Daemon {
    let tools = Tools {
        crypto: Arc::new(AwsLcProvider),
        aes_128: |key| Arc::new(Aes128::new(key)),
        random: Box::new(SystemRandom::new()),
    };
    Daemon::new(Listener::bind(name).unwrap(), tools, None).unwrap()
}

/// What a switch tells of its programs.
pub(crate) fn status(name: &str) -> Option<Value> {
    let report = quicket_switch::client::status(name).ok()?;
    Some(serde_json::from_str(&report).unwrap())
}

impl Switch {
    pub(crate) fn new() -> Self {
        let name = free_name();
        Self::run(daemon(&name), name, false)
    }

    /// One that forwards every datagram, without the kernel's help.
    pub(crate) fn forwarding() -> Self {
        let name = free_name();
        Self::run(daemon(&name), name, true)
    }

    pub(crate) fn run(daemon: Daemon, name: String, forwards: bool) -> Self {
        let (stop, stopped) = UnixStream::pair().unwrap();
        let thread = thread::spawn(move || match forwards {
            true => daemon.forwarding().run(stopped.as_fd()),
            false => daemon.run(stopped.as_fd()),
        });
        Self { name, forwards, stop: Some(stop), thread: Some(thread) }
    }

    /// Ends as if it were killed; the next one takes its place.
    pub(crate) fn next(mut self) -> Self {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap().unwrap();
        let name = self.name.clone();
        Self::run(daemon(&name), name, self.forwards)
    }

    /// What it tells of its first address.
    pub(crate) fn address(&self) -> Value {
        status(&self.name).unwrap()["addresses"][0].clone()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        drop(self.stop.take());
        let Some(thread) = self.thread.take() else { return };
        let ended = thread.join();
        let _ = std::fs::remove_file(format!("{}.lock", self.name));
        if !thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}
