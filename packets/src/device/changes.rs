//! That something has become different about this host's networks: an address, a route, a rule of routing, or a device.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::netlink;

/// The groups that hear of devices, addresses, routes and rules (RTMGRP_LINK, _IPV4_IFADDR, _IPV4_ROUTE, _IPV4_RULE,
/// _IPV6_IFADDR, _IPV6_ROUTE, and RTNLGRP_IPV6_RULE of linux/rtnetlink.h).
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 1 << 18;
/// Messages that are read at a time; what is left is heard the next time.
const MAX_MESSAGES: usize = 1024;

/// Hears that devices, addresses, routes or rules of a network namespace have changed, but not what: who wants to know asks the
/// system how things are now. So a message that is lost, because too many came, costs nothing.
#[derive(Debug)]
pub struct Changes {
    socket: OwnedFd,
}

impl Changes {
    /// Of the network namespace of this thread.
    ///
    /// # Errors
    ///
    /// When the system has no rtnetlink(7), or no descriptor is left.
    pub fn open() -> io::Result<Self> {
        Ok(Self { socket: netlink::subscribe(GROUPS)? })
    }

    /// Takes what has come without waiting, and says whether there was anything. The descriptor ([`AsFd`]) is readable when
    /// there is.
    ///
    /// # Errors
    ///
    /// What recv(2) says, but for ENOBUFS: more came than was kept, which is a change as any other.
    pub fn hear(&self) -> io::Result<bool> {
        let mut changed = false;
        for _ in 0..MAX_MESSAGES {
            // The rest of the message is dropped.
            match rustix::net::recv(&self.socket, &mut [0_u8; 16], RecvFlags::DONTWAIT) {
                Ok(_) | Err(Errno::NOBUFS) => changed = true,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(changed)
    }
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
