//! What gets a thread out of poll(2).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;

/// The longest sleep; so that no time is too long for the kernel.
const LONGEST: Duration = Duration::from_secs(3600);

/// Interrupts a thread that polls an endpoint's socket.
#[derive(Debug)]
pub(crate) struct Kick {
    fd: EventFd,
    /// It was kicked since it was last cleared: for threads that watch, and do not poll.
    kicked: AtomicBool,
}

impl Kick {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Self { fd, kicked: AtomicBool::new(false) })
    }

    /// The poll in progress, or the next one, returns at once.
    pub(crate) fn kick(&self) {
        self.kicked.store(true, Ordering::Relaxed);
        // Fails only when 2^64 - 2 kicks are outstanding: it is readable then anyway.
        let _ = self.fd.write(1);
    }

    /// True if it was kicked since the last [`Kick::clear`]. A kick that is cleared this moment may
    /// still show, once.
    pub(super) fn is_kicked(&self) -> bool {
        self.kicked.load(Ordering::Relaxed)
    }

    /// Takes back all kicks.
    pub(crate) fn clear(&self) {
        // The order matters: a kick in between is in the descriptor, or shows in both.
        self.kicked.store(false, Ordering::Relaxed);
        // Fails only when there is none.
        let _ = self.fd.read();
    }

    /// Sleeps until kicked or for as long as is said; true if a signal ended it.
    pub(super) fn sleep(&self, time: Option<Duration>) -> bool {
        let mut fds = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        let time = TimeSpec::from(time.unwrap_or(LONGEST).min(LONGEST));
        ppoll(&mut fds, Some(time), None) == Err(Errno::EINTR)
    }
}

impl AsFd for Kick {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
