//! Refusals of the operating system, made up for tests.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use nix::errno::Errno;

/// What the calls of one socket fail with.
#[derive(Debug, Default)]
pub struct Faults {
    send: AtomicI32,
    receive: AtomicI32,
    /// Larger datagrams are refused with EMSGSIZE; zero: none.
    largest: AtomicUsize,
}

impl Faults {
    /// Sending fails with this from now on; [`Errno::UnknownErrno`] ends it.
    pub fn on_sending(&self, errno: Errno) {
        self.send.store(errno as i32, Ordering::SeqCst);
    }

    /// Receiving fails with this from now on; [`Errno::UnknownErrno`] ends it.
    pub fn on_receiving(&self, errno: Errno) {
        self.receive.store(errno as i32, Ordering::SeqCst);
    }

    /// Datagrams are refused that are larger.
    pub fn above(&self, largest: usize) {
        self.largest.store(largest, Ordering::SeqCst);
    }

    pub(super) fn check_send(&self, datagram: usize) -> io::Result<()> {
        let largest = self.largest.load(Ordering::SeqCst);
        if largest != 0 && datagram > largest {
            return Err(Errno::EMSGSIZE.into());
        }
        check(&self.send)
    }

    pub(super) fn check_receive(&self) -> io::Result<()> {
        check(&self.receive)
    }
}

fn check(errno: &AtomicI32) -> io::Result<()> {
    match errno.load(Ordering::SeqCst) {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}
