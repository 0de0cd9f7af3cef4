//! Processes that end with the test that started them, and what is waited for.

use std::net::{TcpListener, UdpSocket};
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take on a machine that is busy.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// A process that is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Process(pub(crate) Child);

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a signal: `-9`, `-HUP`.
pub(crate) fn signal(process: impl std::fmt::Display, signal: &str) {
    let sent = Command::new("kill").args([signal, &process.to_string()]).status();
    assert!(sent.unwrap().success(), "{signal} to {process}");
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "{what} did not come about");
        thread::sleep(PAUSE);
    }
}

/// A port that nobody has, neither for UDP nor for TCP.
pub(crate) fn free_port() -> u16 {
    loop {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = udp.local_addr().unwrap();
        if TcpListener::bind(address).is_ok() {
            return address.port();
        }
    }
}
