//! UDP sockets for QUIC.
//!
//! quinn-udp brings segmentation offload in both directions, ECN marks and the local address of
//! each datagram; this crate adds how sockets are made, what their buffers hold, and which errors an
//! endpoint lives through.

mod address;
mod bind;
mod complaints;
mod errors;
#[cfg(any(test, feature = "faults"))]
mod faults;
mod marked;
mod option;
mod port;
mod receive;
mod send;
mod thread;

pub use bind::{BindError, UdpConfig, twin};
pub use complaints::Complaints;
pub use errors::{Undelivered, Unreachable};
#[cfg(any(test, feature = "faults"))]
pub use faults::Faults;
pub use option::UdpOption;
pub use port::{Arrival, Port};
pub use receive::{Batch, ReceiveBuffers, Train, TrainBuffer, receive_from_port};
pub use send::{Outgoing, SendOutcome, Sender, UdpStats};
pub use thread::spawn_quietly;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use address::canonical;
use socket2::SockRef;

/// The most segments of one burst; Linux takes no more in one system call.
pub const MAX_SEGMENTS: usize = 64;
/// The most bytes of one burst: an IPv4 packet's limit less its headers.
pub const MAX_BURST: usize = 65_507;

/// A bound UDP socket, its local address and what it can do.
#[derive(Debug)]
pub struct UdpSocket {
    io: std::net::UdpSocket,
    state: quinn_udp::UdpSocketState,
    local: SocketAddr,
    /// An IPv6 socket speaks to IPv4 hosts with mapped addresses.
    is_v6: bool,
    /// Unless it is told not to.
    only_v6: bool,
    classes: marked::Classes,
    /// Where datagrams come from, if it is not the socket itself.
    port: Option<Box<dyn Port>>,
    /// ... and where they go.
    sends_by_port: bool,
    /// Where others come from, beside those that come to the socket itself.
    beside: Option<Box<dyn Port>>,
    /// What ICMP says of datagrams that were sent.
    pub(crate) icmp: errors::Icmp,
    /// Refusals that are made up for tests.
    #[cfg(any(test, feature = "faults"))]
    pub faults: Faults,
}

impl UdpSocket {
    /// Lets sockets that are bound from now on share the port.
    ///
    /// # Errors
    ///
    /// Those of setsockopt(2).
    pub fn share_port(&self) -> io::Result<()> {
        SockRef::from(&self.io).set_reuse_port(true)
    }

    /// Keeps sockets that are bound from now on from the port.
    ///
    /// # Errors
    ///
    /// Those of setsockopt(2).
    pub fn share_port_no_more(&self) -> io::Result<()> {
        SockRef::from(&self.io).set_reuse_port(false)
    }

    /// Whether sockets that are bound may share the port.
    ///
    /// # Errors
    ///
    /// Those of getsockopt(2).
    pub fn shares_port(&self) -> io::Result<bool> {
        SockRef::from(&self.io).reuse_port()
    }

    /// Prepares a bound socket for QUIC: non-blocking, unfragmented, with ECN, local addresses
    /// and receive offload.
    ///
    /// # Errors
    ///
    /// When the system refuses an option that QUIC needs.
    pub fn new(io: std::net::UdpSocket) -> io::Result<Self> {
        let state = offload_state(&io)?;
        let local = io.local_addr()?;
        let is_v6 = local.is_ipv6();
        let classes = marked::Classes::default();
        classes.read(&io, is_v6)?;
        let only_v6 = is_v6 && SockRef::from(&io).only_v6()?;
        Ok(Self {
            io,
            state,
            local: canonical(local),
            is_v6,
            only_v6,
            classes,
            port: None,
            sends_by_port: false,
            beside: None,
            icmp: errors::Icmp::default(),
            #[cfg(any(test, feature = "faults"))]
            faults: Faults::default(),
        })
    }

    /// A socket that another process reads: datagrams come from `port`, and go out by `io`, a handle of
    /// that socket. Buffers and options are left as they are, and ICMP messages to who reads. As long as it is lent
    /// ([`Port::is_lent`]) this one reads it, too.
    ///
    /// # Errors
    ///
    /// When the system refuses an option that QUIC needs.
    pub fn behind(io: std::net::UdpSocket, port: Box<dyn Port>) -> io::Result<Self> {
        Ok(Self { port: Some(port), ..Self::new(io)? })
    }

    /// A socket that is one of several at an address: datagrams come to it, and by `port` from who reads
    /// the others.
    ///
    /// # Errors
    ///
    /// When the system refuses an option that QUIC needs.
    pub fn beside(io: std::net::UdpSocket, port: Box<dyn Port>) -> io::Result<Self> {
        Ok(Self { beside: Some(port), ..Self::new(io)? })
    }

    /// A socket that another process has: datagrams come from `port`, and that process sends them, from
    /// `local`. Of the system this one has a socket that is bound to nothing and carries nothing; it says what
    /// there is to say of the family.
    ///
    /// # Errors
    ///
    /// When no descriptor is left.
    pub fn through(port: Box<dyn Port>, local: SocketAddr, only_v6: bool) -> io::Result<Self> {
        let domain = socket2::Domain::for_address(local);
        let io = socket2::Socket::new(domain, socket2::Type::DGRAM, Some(socket2::Protocol::UDP))?;
        if local.is_ipv6() {
            io.set_only_v6(only_v6)?;
        }
        let this = Self::new(io.into())?;
        Ok(Self { local: canonical(local), port: Some(port), sends_by_port: true, ..this })
    }

    /// Where datagrams come from beside those that come to the socket itself
    /// ([`Self::receive_beside`]).
    pub fn port_beside(&self) -> Option<&dyn Port> {
        self.beside.as_deref()
    }

    /// Where datagrams come from that another process has read, all of them or a part.
    pub fn port_to_switch(&self) -> Option<&dyn Port> {
        self.beside.as_deref().or(self.port.as_deref())
    }

    /// The descriptor that is readable when datagrams have come.
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.port.as_ref().map_or_else(|| self.io.as_fd(), |port| port.readable())
    }

    /// True if another process reads the socket: what is readable and what is writable are two
    /// descriptors then, unless that process sends, too.
    pub const fn is_behind_port(&self) -> bool {
        self.port.is_some()
    }

    /// The address that the socket is bound to.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// How much may wait in the kernel's socket, in bytes as the system counts them: with what it needs itself for each packet. 0 if
    /// it does not say.
    #[must_use]
    pub fn receive_room(&self) -> usize {
        SockRef::from(&self.io).recv_buffer_size().unwrap_or(0)
    }

    /// Sets an option, unless it says nothing to the socket.
    ///
    /// # Errors
    ///
    /// Those of setsockopt(2); `Unsupported` for a socket that another process has.
    pub fn set_option(&self, option: &UdpOption) -> io::Result<()> {
        if self.sends_by_port {
            return Err(io::ErrorKind::Unsupported.into());
        }
        option.set((&self.io).into())?;
        self.classes.read(&self.io, self.is_v6)
    }

    /// Whether it has an option with this value, or the option says nothing to it.
    ///
    /// # Errors
    ///
    /// Those of getsockopt(2).
    pub fn has_option(&self, option: &UdpOption) -> io::Result<bool> {
        option.is_set((&self.io).into())
    }

    /// Notes that the process which has the socket has set an option: that is what this one shows. What this process
    /// may not set itself it does not show.
    pub fn note_option(&self, option: &UdpOption) {
        if self.sends_by_port
            && let Err(error) = option.set((&self.io).into())
        {
            log::debug!("an option is not shown: {error}");
        }
    }

    /// True if another process has the socket, and sends for this one.
    pub const fn sends_by_port(&self) -> bool {
        self.sends_by_port
    }

    /// True if `remote` is of a family that this socket can reach.
    pub const fn reaches(&self, remote: SocketAddr) -> bool {
        match remote {
            SocketAddr::V4(_) => !self.only_v6,
            SocketAddr::V6(_) => self.is_v6,
        }
    }
}

/// Sets the socket's options for QUIC and finds out what the kernel can offload.
fn offload_state(io: &std::net::UdpSocket) -> io::Result<quinn_udp::UdpSocketState> {
    let state = quinn_udp::UdpSocketState::new(io.into())?;
    // quinn-udp 0.6.3 asks for receive timestamps and reads control messages into a buffer in
    // which they, the train's stride and the local address leave no room for the ECN mark.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    nix::sys::socket::setsockopt(io, nix::sys::socket::sockopt::ReceiveTimestampns, &false)?;
    Ok(state)
}

/// The socket itself, or the port by which it sends: writable when there is room.
impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let port = self.port.as_deref().filter(|_| self.sends_by_port);
        port.map_or_else(|| self.io.as_fd(), Port::writable)
    }
}

#[cfg(test)]
mod tests;
