//! A queue of a device: its socket, and what is to leave by that.

use std::os::fd::BorrowedFd;

use quicket_ring::Lie;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::xsk::Socket;

/// How often the kernel is asked to send what is ahead of others before those have to wait.
const FLUSHES: u32 = 4;

/// A queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) socket: Socket,
    /// Something was sent since the last flush, or the kernel has not taken all of it.
    pub(super) is_owed: bool,
    /// The kernel had not taken all of it by the last flush: nothing goes past that.
    pub(super) is_behind: bool,
    /// Something was sent since it was watched.
    has_sent: bool,
    /// Who has it watched is woken when frames come.
    is_watched: bool,
}

impl Queue {
    /// Of a socket that is watched.
    pub(super) const fn new(socket: Socket) -> Self {
        Self { socket, is_owed: false, is_behind: false, has_sent: false, is_watched: true }
    }

    /// Has the kernel send what is there. Returns whether something is left.
    pub(super) fn flush(&mut self) -> Result<bool, Errno> {
        (self.is_owed, self.is_behind) = match self.socket.flush() {
            Ok(is_owed) => (is_owed, is_owed),
            // It is down: what is there waits in the ring, and is sent with the next frame once it is up.
            Err(Errno::NETDOWN) => (false, true),
            Err(error) => return Err(error),
        };
        Ok(self.is_owed)
    }

    /// Has the socket watched, or not while frames leave by it, which costs more than a tenth of the time that they take: the kernel
    /// wakes who waits for a socket for each one that has left (`sock_def_write_space` of net/core/sock.c), whatever
    /// he waits for. Returns whether it is as it is to be.
    pub(super) fn watch(
        &mut self,
        events: BorrowedFd<'_>,
        data: EventData,
        is_active: bool,
    ) -> bool {
        if is_active && self.has_sent && self.is_watched {
            self.is_watched = epoll::delete(events, &self.socket).is_err();
        } else if !is_active && !self.is_watched {
            let added = epoll::add(events, &self.socket, data, EventFlags::IN);
            self.is_watched = matches!(added, Ok(()) | Err(Errno::EXIST));
            self.has_sent = false;
        }
        self.is_watched || is_active
    }

    /// Has the kernel send all, within a bound. Returns whether nothing is left.
    pub(super) fn drain(&mut self) -> Result<bool, Errno> {
        for _ in 0..FLUSHES {
            if !self.is_owed || !self.flush()? {
                break;
            }
        }
        Ok(!self.is_owed && !self.is_behind)
    }

    /// Puts the parts of a frame into the ring. Returns false if that is full.
    #[inline]
    pub(super) fn put<const N: usize>(&mut self, parts: [&[u8]; N]) -> Result<bool, Lie> {
        // A ring that is full is one to be sent from, too.
        (self.is_owed, self.has_sent) = (true, true);
        self.socket.send(parts)
    }
}
