//! Addresses of this host, and as programs see them.

use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::os::fd::OwnedFd;

/// An address as the stack has it: one of IPv4 that is mapped is one of IPv4.
pub(crate) fn plain(address: SocketAddr) -> SocketAddr {
    (address.ip().to_canonical(), address.port()).into()
}

/// An address as a socket shows it: in one for IPv6, those of IPv4 are mapped (RFC 3493, Section 3.7).
pub(crate) fn shown(address: SocketAddr, is_v6: bool) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if is_v6 => (ip.to_ipv6_mapped(), address.port()).into(),
        ip => (ip, address.port()).into(),
    }
}

/// The addresses that a socket listens at: all of this host in place of none (RFC 3493, Section 5.3 for those of IPv4).
pub(crate) fn all(address: SocketAddr, v6_only: bool) -> io::Result<Vec<SocketAddr>> {
    let address_ip = address.ip();
    if !address_ip.is_unspecified() {
        return Ok(vec![plain(address)]);
    }
    let wants = |ip: &IpAddr| match ip {
        IpAddr::V4(_) => address_ip.is_ipv4() || !v6_only,
        IpAddr::V6(ip) => address_ip.is_ipv6() && !ip.is_unicast_link_local(),
    };
    let mut all: Vec<SocketAddr> =
        own()?.filter(wants).map(|ip| SocketAddr::new(ip, address.port())).collect();
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// The addresses of devices that are up.
fn own() -> io::Result<impl Iterator<Item = IpAddr>> {
    let found = getifaddrs()?.filter(|found| found.flags.contains(InterfaceFlags::IFF_UP));
    Ok(found.filter_map(|found| {
        let address = found.address?;
        let v4 = address.as_sockaddr_in().map(|v4| v4.ip().into());
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| v6.ip().into()))
    }))
}

/// Has the system keep an address until somebody listens there: it says whether it is free, and chooses a port.
pub(crate) fn reserve(address: SocketAddr, v6_only: bool) -> io::Result<(OwnedFd, SocketAddr)> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, v6_only)?;
    }
    rustix::net::bind(&socket, &address)?;
    let bound = rustix::net::getsockname(&socket)?;
    Ok((socket, SocketAddr::try_from(bound)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_at_no_address_listens_at_all_of_this_host() {
        let at = |text: &str| -> SocketAddr { text.parse().unwrap() };
        assert_eq!(all(at("192.0.2.1:80"), false).unwrap(), [at("192.0.2.1:80")]);
        assert_eq!(all(at("[::ffff:192.0.2.1]:80"), false).unwrap(), [at("192.0.2.1:80")]);
        let v4 = all(at("0.0.0.0:80"), false).unwrap();
        assert!(v4.contains(&at("127.0.0.1:80")) && v4.iter().all(SocketAddr::is_ipv4));
        let both = all(at("[::]:80"), false).unwrap();
        assert!(both.contains(&at("127.0.0.1:80")));
        assert!(all(at("[::]:80"), true).unwrap().iter().all(SocketAddr::is_ipv6));
    }

    #[test]
    fn a_socket_for_ipv6_shows_those_of_ipv4_mapped() {
        let v4: SocketAddr = "192.0.2.1:80".parse().unwrap();
        assert_eq!(shown(v4, false), v4);
        assert_eq!(shown(v4, true).to_string(), "[::ffff:192.0.2.1]:80");
        assert_eq!(plain(shown(v4, true)), v4);
    }
}
