//! What tests have in common that run a switch in a thread: it, and the workers of a program that receives by hand.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use quicket_handshake::{Aes128, AwsLcProvider, SystemRandom};
use quicket_switch::channel::Inlet;
use quicket_switch::client::{Options, status};
use quicket_switch::daemon::{Daemon, Listener, Tools};
use serde_json::Value;

/// How long anything may take on a machine that is busy.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// A switch that ends with the test.
pub(crate) struct Switch {
    pub(crate) name: String,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Switch {
    /// A name that no other test has.
    pub(crate) fn new_name() -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("quicket-rig-{}-{count}", std::process::id());
        std::env::temp_dir().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn start(name: String, set_up: impl FnOnce(Daemon) -> Daemon) -> Self {
        let tools = Tools {
            crypto: Arc::new(AwsLcProvider),
            aes_128: |key| Arc::new(Aes128::new(key)),
            random: Box::new(SystemRandom::new()),
        };
        let daemon = Daemon::new(Listener::bind(&name).unwrap(), tools, None).unwrap();
        let daemon = set_up(daemon);
        let (stop, stopped) = UnixStream::pair().unwrap();
        let thread = thread::spawn(move || daemon.run(stopped.as_fd()));
        Self { name, stop: Some(stop), thread: Some(thread) }
    }

    /// Ends without a word to anybody, as if it were killed. Returns its name.
    pub(crate) fn kill(mut self) -> String {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap().unwrap();
        self.name.clone()
    }

    /// How a program finds it.
    pub(crate) fn options(&self) -> Options {
        Options { name: self.name.clone(), program: None, label: "program".into() }
    }

    /// What it says of its only address.
    pub(crate) fn address(&self) -> Value {
        let report: Value = serde_json::from_str(&status(&self.name).unwrap()).unwrap();
        report["addresses"][0].clone()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            let _ = std::fs::remove_file(format!("{}.lock", self.name));
            if !thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

/// A worker of a program.
pub(crate) struct Worker {
    pub(crate) inlet: Inlet,
    pub(crate) socket: Option<UdpSocket>,
}

impl Worker {
    pub(crate) fn new(mut inlet: Inlet) -> Self {
        let socket = inlet.take_socket();
        Self { inlet, socket }
    }
}
