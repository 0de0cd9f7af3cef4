//! A worker's part in reading the address's socket, which the switch has otherwise: it may be lent to it.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

/// How often the switch is told at most that the socket is read.
const TELL: Duration = Duration::from_millis(25);

/// What waits for the channel, and for the socket while it is lent: one descriptor for both, so that who waits
/// need not know.
#[derive(Debug)]
pub(crate) struct Borrower {
    both: Epoll,
    socket: OwnedFd,
    has_it: AtomicBool,
    begun: Instant,
    /// When the switch is told next that the socket is read, in milliseconds since then.
    tell_at: AtomicU64,
}

impl Borrower {
    /// For a channel, and a handle of the address's socket.
    pub(crate) fn new(channel: BorrowedFd<'_>, socket: &UdpSocket) -> io::Result<Self> {
        let both = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        both.add(channel, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        let socket = socket.as_fd().try_clone_to_owned()?;
        let (has_it, tell_at) = (AtomicBool::new(false), AtomicU64::new(0));
        Ok(Self { both, socket, has_it, begun: Instant::now(), tell_at })
    }

    /// Readable when something is in the channel, or in the socket while it is lent.
    pub(crate) fn readable(&self) -> BorrowedFd<'_> {
        self.both.0.as_fd()
    }

    /// Whether the socket is lent.
    pub(crate) fn has_it(&self) -> bool {
        self.has_it.load(Ordering::Relaxed)
    }

    /// Something was read from the socket: whether it is time to tell the switch so.
    pub(crate) fn is_to_tell(&self) -> bool {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let now = millis(self.begun.elapsed());
        let is_time = now >= self.tell_at.load(Ordering::Relaxed);
        if is_time {
            self.tell_at.store(now.saturating_add(millis(TELL)), Ordering::Relaxed);
        }
        is_time
    }

    /// The socket is lent from now on.
    pub(crate) fn borrow(&self) -> io::Result<()> {
        if !self.has_it() {
            self.both.add(&self.socket, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
            self.has_it.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// It is lent no more.
    pub(crate) fn give_back(&self) {
        if self.has_it.swap(false, Ordering::Relaxed)
            && let Err(error) = self.both.delete(&self.socket)
        {
            log::debug!("a socket that is not read is still watched: {error}");
        }
    }
}
