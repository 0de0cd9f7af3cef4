//! Sockets that listen: connections on their way to programs.

use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use quicket_tcp::{Stack, TcpListener, TcpStream, Watch};
use quicket_tcp_protocol::Accepted;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::addresses;
use crate::pump::AGAIN;

#[derive(Debug)]
pub(crate) struct Listening {
    /// As the program sees it.
    pub(crate) address: SocketAddr,
    listeners: Vec<TcpListener>,
    /// A connection that has been accepted and has had no room.
    pub(crate) waiting: Option<(Accepted, OwnedFd)>,
    /// When that one is sent again: too many descriptors were on their way.
    pub(crate) again: Option<Instant>,
    /// The stack has no more connections for it: its switch has gone.
    pub(crate) is_over: bool,
}

impl Listening {
    /// Listens at an address, or at all of this host.
    pub(crate) fn begin(
        stack: &Stack,
        watch: &Watch,
        id: u64,
        address: SocketAddr,
        v6_only: bool,
        backlog: usize,
    ) -> io::Result<Self> {
        let mut listeners = Vec::new();
        for at in addresses::all(stack.reserved(), address, v6_only)? {
            let listener = TcpListener::with_backlog(stack, at, backlog)?;
            listener.set_nonblocking(true)?;
            listener.watch(watch, id)?;
            listeners.push(listener);
        }
        if listeners.is_empty() {
            return Err(ErrorKind::AddrNotAvailable.into());
        }
        Ok(Self { address, listeners, waiting: None, again: None, is_over: false })
    }

    /// The next connection. None if there is none now.
    pub(crate) fn accept(&self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        for listener in &self.listeners {
            match listener.accept() {
                Ok(accepted) => return Ok(Some(accepted)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // One that was accepted, and has ended meanwhile.
                Err(error) if error.kind() == ErrorKind::NotConnected => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Sends the program the connection that waits. False if it has to wait on.
    pub(crate) fn hand_over(&mut self, end: BorrowedFd<'_>) -> Result<bool, Errno> {
        let Some((accepted, theirs)) = &self.waiting else { return Ok(true) };
        match send_with(end, &accepted.write(), Some(theirs.as_fd())) {
            Ok(()) => {
                self.waiting = None;
                self.again = None;
                Ok(true)
            }
            Err(Errno::AGAIN) => {
                self.again = None;
                Ok(false)
            }
            Err(Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) => {
                self.again = Some(Instant::now() + AGAIN);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// Sends a message, perhaps with a descriptor, without waiting.
pub(crate) fn send_with(
    end: impl AsFd,
    message: &[u8],
    with: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = with.map(|fd| [fd]);
    if let Some(descriptors) = &descriptors {
        // There is room for one.
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(end, &[IoSlice::new(message)], &mut control, flags).map(drop)
}
