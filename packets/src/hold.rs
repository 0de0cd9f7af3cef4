//! The socket by which the switch keeps an address and port for itself.
//!
//! What a program hands over proves a moment: it has another descriptor of that socket, and can free a port that the system has
//! chosen (connect(2) with AF_UNSPEC, shutdown(2) of a listener), or share any by SO_REUSEADDR, so that somebody else binds
//! it. So the switch binds a socket of its own beside it, to the very address and port. The system lets two sockets share them
//! if both have SO_REUSEPORT and one owner, and this is the owner of the socket that was handed over: that bind fails if
//! anybody else's has them, too. Then the option is taken back, and nobody can join any more.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{Uid, fchown, fstat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::evidence::{UDP, no_address};
use crate::protocol::Answer;
use crate::tuple::Tuple;

/// A socket of the switch for the tuple of TCP or UDP that a socket has proved. None for protocols without ports.
///
/// # Errors
///
/// The answer that the program gets: somebody else has the address and port, too, or the switch may not bind them.
pub(crate) fn hold(theirs: BorrowedFd<'_>, tuple: Tuple) -> Result<Option<OwnedFd>, Answer> {
    if tuple.port == 0 {
        return Ok(None);
    }
    let failed = |error: Errno| {
        Answer::refuse(error, format!("the switch for packets cannot keep {tuple}: {error}"))
    };
    let (ours, address) = new(tuple).map_err(failed)?;
    let [owner, own] = [fstat(theirs), fstat(&ours)].map(|stat| stat.map(|stat| stat.st_uid));
    let (owner, own) = (owner.map_err(failed)?, own.map_err(failed)?);
    if owner != own {
        fchown(&ours, Some(Uid::from_raw(owner)), None).map_err(|error| {
            let why = format!(
                "the socket is of user {owner}, and the switch for packets may not keep an address for others ({error}): \
                 start it as root, or with CAP_CHOWN"
            );
            Answer::refuse(Errno::PERM, why)
        })?;
    }
    // What is still delivered there is not read: it is not to take memory.
    let _ = sockopt::set_socket_recv_buffer_size(&ours, 0);
    sockopt::set_socket_reuseport(&ours, true).map_err(failed)?;
    sockopt::set_socket_reuseport(theirs, true).map_err(failed)?;
    let bound = rustix::net::bind(&ours, &address);
    // It is as it was, for who keeps it.
    let _ = sockopt::set_socket_reuseport(theirs, false);
    bound.map_err(|error| match error {
        Errno::ADDRINUSE => {
            Answer::refuse(Errno::BUSY, format!("{tuple} has an owner, or another socket has it, too"))
        }
        Errno::ADDRNOTAVAIL => no_address(tuple.address, &error.into()),
        Errno::ACCESS => {
            let why = format!(
                "the switch for packets may not bind {tuple} to keep it: start it as root, or with CAP_NET_BIND_SERVICE"
            );
            Answer::refuse(Errno::PERM, why)
        }
        _ => failed(error),
    })?;
    sockopt::set_socket_reuseport(&ours, false).map_err(failed)?;
    Ok(Some(ours))
}

/// A socket for that, and the address that it is to have. It is one of IPv6 also for addresses of IPv4: the kernel has datagrams go to a
/// socket of IPv4 rather than to one of both, and to the one of IPv6 last that came last with SO_REUSEPORT (`compute_score` of net/ipv4/udp.c,
/// `udp_lib_get_port`). So what comes for the system is the program's as long as that keeps its socket, and is swallowed afterwards.
fn new(tuple: Tuple) -> Result<(OwnedFd, SocketAddr), Errno> {
    let Tuple { address, protocol, port } = tuple;
    let kind = if protocol == UDP { SocketType::DGRAM } else { SocketType::STREAM };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let of = |family| rustix::net::socket_with(family, kind, flags, None);
    match (of(AddressFamily::INET6), address) {
        (Ok(socket), IpAddr::V4(address)) => {
            sockopt::set_ipv6_v6only(&socket, false)?;
            Ok((socket, (address.to_ipv6_mapped(), port).into()))
        }
        (Ok(socket), IpAddr::V6(_)) => Ok((socket, (address, port).into())),
        // A system without IPv6.
        (Err(Errno::AFNOSUPPORT), IpAddr::V4(_)) => {
            Ok((of(AddressFamily::INET)?, (address, port).into()))
        }
        (Err(error), _) => Err(error),
    }
}

/// Closes it. A child of this process that has not called exec yet may have it, too: its owner can have the address again all the same.
pub(crate) fn release(ours: OwnedFd) {
    // Of a raw socket that changes nothing.
    let _ = sockopt::set_socket_reuseport(&ours, true);
    drop(ours);
}
