//! Connections to the switch that go from who opens them to another program.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::ask::{ask, connect};
use crate::protocol::{Answer, Request};
use crate::sys;
use crate::tuple::Tuple;

/// In the environment of a program to which a connection was handed: the number of its descriptor.
pub const VARIABLE: &str = "QUICKET_PACKETS_FD";

/// A connection to the switch without a port, for a program that is to have one and cannot prove its addresses: one in another network
/// namespace. Who opens it is charged for all that the program takes there.
#[derive(Debug)]
pub struct Opening(OwnedFd);

impl Opening {
    /// Connects to the switch that listens at a path.
    ///
    /// # Errors
    ///
    /// What the system says, such as `NotFound` and `ConnectionRefused` when no switch is there.
    pub fn connect(path: &Path) -> io::Result<Self> {
        connect(path).map(Self)
    }

    /// Reserves what a socket is bound to, which is to be one as [`Port::register`](crate::client::Port::register) takes. The switch
    /// keeps the address from now on; the socket may be closed, and the program need not have it.
    ///
    /// # Errors
    ///
    /// Those of [`Port::register`](crate::client::Port::register); `InvalidInput` for more than there may be.
    pub fn reserve(&mut self, socket: impl AsFd) -> io::Result<Tuple> {
        match ask(self.0.as_fd(), Request::Reserve, &[socket.as_fd()])? {
            (Answer::Registered(tuple), _) => Ok(tuple),
            (answer, _) => Err(answer.into_error()),
        }
    }

    /// The descriptor for the program ([`Port::open_on`](crate::client::Port::open_on)). Whoever has it may open one port, with
    /// what was reserved and what sockets of the host prove, and may neither see other ports nor devices, nor attach any,
    /// also if root has connected.
    ///
    /// # Errors
    ///
    /// When the switch has gone.
    pub fn confine(self) -> io::Result<OwnedFd> {
        match ask(self.0.as_fd(), Request::Confine, &[])? {
            (Answer::Done, _) => Ok(self.0),
            (answer, _) => Err(answer.into_error()),
        }
    }
}

/// A descriptor of that number, which this process was started with, for [`Port::open_on`](crate::client::Port::open_on). It is
/// another one of the same connection; programs that this process starts have neither. As the one of that number stays, the port ends
/// with this process.
///
/// # Errors
///
/// When there is no such descriptor.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    sys::with_number(number, |descriptor: BorrowedFd<'_>| {
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?;
        Ok(rustix::io::fcntl_dupfd_cloexec(descriptor, 3)?)
    })
}
