//! What keeps the sockets of an address open, in their order.
//!
//! A classic BPF program counts the sockets of an address in the order in which they were bound, and when
//! one closes the last one takes its place. So none closes as long as anybody has the address: they lie
//! in the queue of a pair of local sockets, of which the switch and each program have both ends. Programs
//! end and switches die; the order stays, and the next switch reads it here.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt};

use crate::sys;

/// The most sockets of workers at one address: what finds room in the queue.
pub const MAX_STEERED: usize = 256;
/// ... and at all addresses of a switch: they count as descriptors on their way, of which a user has as many
/// as a process may have open (RLIMIT_NOFILE), 1,024 mostly.
pub const MAX_KEPT: usize = 512;
/// What the system is asked to keep, in bytes: a message takes about 800.
const BUFFER: usize = 512 << 10;

/// The sockets of an address but the first, in their order.
#[derive(Debug)]
pub(crate) struct Keep {
    put: OwnedFd,
    look: OwnedFd,
}

impl Keep {
    /// Keeps nothing yet.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (put, look) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        setsockopt(&put, sockopt::SndBuf, &BUFFER)?;
        Ok(Self { put, look })
    }

    /// Both ends, as somebody hands them over.
    pub(crate) const fn from_ends(put: OwnedFd, look: OwnedFd) -> Self {
        Self { put, look }
    }

    /// Both ends, to be handed over.
    pub(crate) fn ends(&self) -> [BorrowedFd<'_>; 2] {
        [self.put.as_fd(), self.look.as_fd()]
    }

    /// Keeps one more socket, behind the others.
    ///
    /// # Errors
    ///
    /// When there is no room, or this user has too many descriptors on their way (RLIMIT_NOFILE).
    pub(crate) fn add(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        sys::send_with(self.put.as_fd(), b"socket", &[socket])
    }

    /// All of them, in their order. They stay.
    ///
    /// # Errors
    ///
    /// When there is something else, or this process may have no more descriptors.
    pub(crate) fn sockets(&self) -> io::Result<Vec<UdpSocket>> {
        let mut sockets = Vec::new();
        sys::look_from_the_first(self.look.as_fd())?;
        loop {
            let mut buffer = [0; 16];
            let came = match sys::look_with(self.look.as_fd(), &mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(sockets),
                came => came?,
            };
            let (len, descriptors) = came;
            let [socket] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| wrong())?;
            if len == 0 || sockets.len() >= MAX_STEERED {
                return Err(wrong());
            }
            sockets.push(UdpSocket::from(socket));
        }
    }
}

fn wrong() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what keeps an address's sockets has others in it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_stay_in_order_whoever_goes() {
        let keep = Keep::new().unwrap();
        assert!(keep.sockets().unwrap().is_empty());
        let bind = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let addresses: Vec<_> = (0..MAX_STEERED)
            .map(|_| {
                let socket = bind();
                keep.add(socket.as_fd()).unwrap();
                socket.local_addr().unwrap()
            })
            .collect();
        let [put, look] = keep.ends().map(|end| end.try_clone_to_owned().unwrap());
        drop(keep);
        let next = Keep::from_ends(put, look);
        for _ in 0..2 {
            let found = next.sockets().unwrap();
            let found: Vec<_> = found.iter().map(|each| each.local_addr().unwrap()).collect();
            assert_eq!(found, addresses);
        }
        assert!(UdpSocket::bind(addresses[7]).is_err(), "it is open");
        // One more than there may be.
        if next.add(bind().as_fd()).is_ok() {
            assert_eq!(next.sockets().unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        drop(next);
        UdpSocket::bind(addresses[7]).unwrap();
    }

    #[test]
    fn what_is_no_socket_is_refused() {
        let keep = Keep::new().unwrap();
        sys::send_with(keep.ends()[0], b"nothing", &[]).unwrap();
        assert_eq!(keep.sockets().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
