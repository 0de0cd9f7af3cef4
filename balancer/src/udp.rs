//! The sockets: those that clients send to, and those that packets to servers leave by.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt,
};
use nix::{setsockopt_impl, sockopt_impl};

/// Bytes of the system's buffers: room for what arrives while other datagrams have their turn.
const BUFFER: usize = 4 << 20;

sockopt_impl!(MtuDiscoverV4, SetOnly, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::c_int);
sockopt_impl!(MtuDiscoverV6, SetOnly, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::c_int);

/// A socket at an address of the site. All workers have one, and the system hands all datagrams of a
/// flow to the same.
pub(crate) fn listen(address: SocketAddr) -> io::Result<OwnedFd> {
    let fd = open(address.is_ipv6())?;
    setsockopt(&fd, sockopt::ReusePort, &true)?;
    if address.is_ipv6() {
        setsockopt(&fd, sockopt::Ipv6V6Only, &true)?;
        setsockopt(&fd, sockopt::Ipv6RecvTClass, &true)?;
        setsockopt(&fd, sockopt::Ipv6RecvHopLimit, &true)?;
    } else {
        setsockopt(&fd, sockopt::IpRecvTos, &true)?;
        setsockopt(&fd, sockopt::Ipv4RecvTtl, &true)?;
    }
    // Trains are faster; without them it works as well.
    let _ = setsockopt(&fd, sockopt::UdpGroSegment, &true);
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address)).map_err(|error| {
        let (ip, error) = (address.ip(), io::Error::from(error));
        let advice = match error.kind() {
            io::ErrorKind::AddrNotAvailable => format!(
                "{ip} is no address of this machine: ip addr add {ip} dev lo makes it one, if the \
                 network sends its packets here"
            ),
            io::ErrorKind::AddrInUse => {
                format!("another program has it; ss -lunp 'sport = :{}' says which", address.port())
            }
            io::ErrorKind::PermissionDenied => {
                "ports below 1024 need root, or the capability CAP_NET_BIND_SERVICE".to_owned()
            }
            _ => error.to_string(),
        };
        io::Error::new(error.kind(), format!("cannot listen on {address}: {advice}"))
    })?;
    Ok(fd)
}

/// A socket by which packets to servers leave, from a port that the system chooses.
pub(crate) fn sender(v6: bool, fragment: bool) -> io::Result<OwnedFd> {
    let fd = open(v6)?;
    // IPV6_PMTUDISC_DO and DONT have the same numbers.
    let value = if fragment { libc::IP_PMTUDISC_DONT } else { libc::IP_PMTUDISC_DO };
    match v6 {
        true => setsockopt(&fd, MtuDiscoverV6, &value)?,
        false => setsockopt(&fd, MtuDiscoverV4, &value)?,
    }
    let any: SocketAddr = match v6 {
        true => (Ipv6Addr::UNSPECIFIED, 0).into(),
        false => (Ipv4Addr::UNSPECIFIED, 0).into(),
    };
    bind(fd.as_raw_fd(), &SockaddrStorage::from(any))?;
    Ok(fd)
}

fn open(v6: bool) -> io::Result<OwnedFd> {
    let family = if v6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket(family, SockType::Datagram, flags, None)?;
    // More than the system's limit takes a right that not everybody has.
    if setsockopt(&fd, sockopt::RcvBufForce, &BUFFER).is_err() {
        let _ = setsockopt(&fd, sockopt::RcvBuf, &BUFFER);
    }
    if setsockopt(&fd, sockopt::SndBufForce, &BUFFER).is_err() {
        let _ = setsockopt(&fd, sockopt::SndBuf, &BUFFER);
    }
    Ok(fd)
}
