//! UDP sockets: the only place that does network I/O.
//!
//! quinn-udp brings segmentation offload in both directions, ECN marks and the local address of
//! each datagram; this module adds how sockets are made, what their buffers hold, and which
//! errors an endpoint lives through.

mod address;
mod bind;
mod complaints;
mod errors;
#[cfg(test)]
mod faults;
mod marked;
mod option;
mod receive;
mod send;

pub use bind::{BindError, UdpConfig};
pub(crate) use complaints::Complaints;
pub use option::UdpOption;
pub(crate) use receive::{Batch, ReceiveBuffers, Train};
pub use send::UdpStats;
pub(crate) use send::{Outgoing, SendOutcome, Sender};

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use address::canonical;
use socket2::SockRef;

/// The most segments of one burst; Linux takes no more in one system call.
pub(crate) const MAX_SEGMENTS: usize = 64;
/// The most bytes of one burst: an IPv4 packet's limit less its headers.
pub(crate) const MAX_BURST: usize = 65_507;

/// A bound UDP socket, its local address and what it can do.
#[derive(Debug)]
pub(crate) struct UdpSocket {
    io: std::net::UdpSocket,
    state: quinn_udp::UdpSocketState,
    local: SocketAddr,
    /// An IPv6 socket speaks to IPv4 hosts with mapped addresses.
    is_v6: bool,
    /// Unless it is told not to.
    only_v6: bool,
    classes: marked::Classes,
    #[cfg(test)]
    pub(crate) faults: faults::Faults,
}

impl UdpSocket {
    /// Lets sockets that are bound from now on share the port.
    pub(crate) fn share_port(&self) -> io::Result<()> {
        SockRef::from(&self.io).set_reuse_port(true)
    }

    /// Prepares a bound socket for QUIC: non-blocking, unfragmented, with ECN, local addresses
    /// and receive offload.
    pub(crate) fn new(io: std::net::UdpSocket) -> io::Result<Self> {
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
            #[cfg(test)]
            faults: faults::Faults::default(),
        })
    }

    /// The address that the socket is bound to.
    pub(crate) const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Sets an option, unless it says nothing to the socket.
    pub(crate) fn set_option(&self, option: &UdpOption) -> io::Result<()> {
        option.set((&self.io).into())?;
        self.classes.read(&self.io, self.is_v6)
    }

    /// Has the kernel choose by connection ID among the sockets that share the address. Without it
    /// all goes on, a little slower.
    pub(crate) fn choose_by(&self, program: &quicket_bpf::OwnerProgram) {
        if let Err(error) = quicket_bpf::attach_reuseport(self, program) {
            log::debug!("the kernel chooses among workers by address: {error}");
        }
    }

    /// A second handle of the socket.
    pub(crate) fn try_clone_io(&self) -> io::Result<std::net::UdpSocket> {
        self.io.try_clone()
    }

    /// True if `remote` is of a family that this socket can reach.
    pub(crate) const fn reaches(&self, remote: SocketAddr) -> bool {
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

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

#[cfg(test)]
mod tests;
