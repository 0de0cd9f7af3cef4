//! A worker's part in reading the address's socket, which the switch has otherwise: it may be lent to it.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

/// What waits for the channel, and for the socket while it is lent: one descriptor for both, so that who waits
/// need not know.
#[derive(Debug)]
pub(crate) struct Borrower {
    both: Epoll,
    socket: OwnedFd,
    has_it: AtomicBool,
}

impl Borrower {
    /// For a channel, and a handle of the address's socket.
    pub(crate) fn new(channel: BorrowedFd<'_>, socket: &UdpSocket) -> io::Result<Self> {
        let both = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        both.add(channel, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        let socket = socket.as_fd().try_clone_to_owned()?;
        Ok(Self { both, socket, has_it: AtomicBool::new(false) })
    }

    /// Readable when something is in the channel, or in the socket while it is lent.
    pub(crate) fn readable(&self) -> BorrowedFd<'_> {
        self.both.0.as_fd()
    }

    /// Whether the socket is lent.
    pub(crate) fn has_it(&self) -> bool {
        self.has_it.load(Ordering::Relaxed)
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
