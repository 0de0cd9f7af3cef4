//! What a socket proves: that the system has given its owner an address, a protocol and a port.
//!
//! These calls may wait as long as its owner likes, who can keep a socket locked. So they run on a thread of that
//! user (`daemon/clerk`). They say how things are at that moment; `hold` has them stay so.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::frame::is_portless;
use crate::protocol::Answer;
use crate::sys;
use crate::tuple::Tuple;

const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// The network namespace of this thread, by a socket made for the question.
///
/// # Errors
///
/// When the system has no sockets left, or is older than Linux 5.14.
pub(crate) fn namespace() -> io::Result<u64> {
    let family = [AddressFamily::INET, AddressFamily::INET6].into_iter();
    let socket = family.map(|family| rustix::net::socket(family, SocketType::DGRAM, None));
    let socket = socket.reduce(Result::or).unwrap_or(Err(Errno::AFNOSUPPORT))?;
    sys::namespace(socket.as_fd()).map_err(|error| {
        let text = format!(
            "cannot tell network namespaces apart: {error}; a switch for packets needs Linux 5.14"
        );
        io::Error::new(error.kind(), text)
    })
}

/// The tuple that a socket proves, in the switch's own network namespace.
///
/// # Errors
///
/// The answer that its program gets.
pub(crate) fn tuple_of(socket: BorrowedFd<'_>, namespace: u64) -> Result<Tuple, Answer> {
    let invalid = |why: &str| Err(Answer::refuse(Errno::INVAL, why));
    let failed = |error: io::Error| {
        let code = error.raw_os_error().map_or(Errno::INVAL, Errno::from_raw_os_error);
        Answer::refuse(code, format!("cannot look into the socket: {error}"))
    };
    // Who has a namespace of his own may bind what he likes in there.
    if sys::namespace(socket).map_err(failed)? != namespace {
        let why = "the socket is of another network namespace than the switch for packets";
        return Err(Answer::refuse(Errno::PERM, why));
    }
    let (protocol, has_ports) = protocol_of(socket).map_err(|error| failed(error.into()))??;
    let option = |set: Result<bool, Errno>| set.map_err(|error| failed(error.into()));
    // Raw sockets have the former from the beginning, and the system never keeps two apart.
    let is_shared =
        option(sockopt::socket_reuseaddr(socket))? || option(sockopt::socket_reuseport(socket))?;
    if has_ports && is_shared {
        return invalid(
            "the socket has SO_REUSEADDR or SO_REUSEPORT: others may have its address, too; hand over one without",
        );
    }
    if sys::device(socket).map_err(failed)? != 0 {
        return invalid("the socket is bound to a device: hand over one that is not");
    }
    if option(sockopt::socket_acceptconn(socket))? || rustix::net::getpeername(socket).is_ok() {
        return invalid(
            "the socket listens or is connected: hand over one that is bound, and nothing else",
        );
    }
    let address = rustix::net::getsockname(socket).map_err(|error| failed(error.into()))?;
    let Ok(address) = SocketAddr::try_from(address) else {
        return invalid("the socket has no address of IP");
    };
    // With protocols without ports, the system has the number of the protocol there.
    let port = if has_ports { address.port() } else { 0 };
    if has_ports && port == 0 {
        return invalid(
            "the socket is not bound: bind it to the address and port to be registered",
        );
    }
    let address = address.ip().to_canonical();
    check_address(address)?;
    // Of TCP and UDP the switch binds a socket of its own there.
    if !has_ports {
        UdpSocket::bind((address, 0)).map(drop).map_err(|error| no_address(address, &error))?;
    }
    Ok(Tuple { address, protocol, port })
}

/// The protocol of a socket, and whether it has ports.
fn protocol_of(socket: BorrowedFd<'_>) -> Result<Result<(u8, bool), Answer>, Errno> {
    let refuse = |code: Errno, why: &str| Ok(Err(Answer::refuse(code, why)));
    let domain = sockopt::socket_domain(socket)?;
    if domain != AddressFamily::INET && domain != AddressFamily::INET6 {
        return refuse(Errno::AFNOSUPPORT, "the socket is none of IP");
    }
    let kind = sockopt::socket_type(socket)?;
    let number = sockopt::socket_protocol(socket)?.map_or(0, |protocol| protocol.as_raw().get());
    match u8::try_from(number) {
        Ok(TCP) if kind == SocketType::STREAM => Ok(Ok((TCP, true))),
        Ok(UDP) if kind == SocketType::DGRAM => Ok(Ok((UDP, true))),
        // The system has asked for CAP_NET_RAW when it was made.
        Ok(protocol) if kind == SocketType::RAW && is_portless(protocol) => {
            Ok(Ok((protocol, false)))
        }
        _ => refuse(
            Errno::PROTONOSUPPORT,
            "hand over a socket of TCP or UDP, or a raw one of a protocol without ports",
        ),
    }
}

/// A tuple has an address of this host, and exactly one.
fn check_address(address: IpAddr) -> Result<(), Answer> {
    let invalid = |why: String| Err(Answer::refuse(Errno::INVAL, why));
    if address.is_unspecified() {
        return invalid(
            "the socket is bound to all addresses: bind it to the one to be registered".to_owned(),
        );
    }
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    if address.is_multicast() || is_link_local {
        return invalid(format!("{address} is not the address of one host on all links"));
    }
    Ok(())
}

/// Who has bound an address that the host has not (IP_FREEBIND) may have taken the option back since.
pub(crate) fn no_address(address: IpAddr, error: &io::Error) -> Answer {
    Answer::refuse(Errno::ADDRNOTAVAIL, format!("{address} is no address of this host: {error}"))
}
