//! Addresses of this host, and as programs see them.

use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use quicket_tcp::Stack;
use rustix::io::Errno;
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

/// The addresses that a socket listens at: all of this host in place of none (RFC 3493, Section 5.3 for those of IPv4); or, of a
/// stack for which some are reserved, those of them that have its port.
pub(crate) fn all(
    reserved: &[SocketAddr],
    address: SocketAddr,
    v6_only: bool,
) -> io::Result<Vec<SocketAddr>> {
    let address_ip = address.ip();
    if !address_ip.is_unspecified() {
        return Ok(vec![plain(address)]);
    }
    if !reserved.is_empty() {
        return Ok(of_those(reserved, address, v6_only).collect());
    }
    let mut all: Vec<SocketAddr> = own()?
        .filter(|ip| is_meant(*ip, address_ip, v6_only))
        .map(|ip| SocketAddr::new(ip, address.port()))
        .collect();
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// Whether a socket that is bound to `to` has what comes to `ip`.
fn is_meant(ip: IpAddr, to: IpAddr, v6_only: bool) -> bool {
    match ip {
        _ if !to.is_unspecified() => ip == to.to_canonical(),
        IpAddr::V4(_) => to.is_ipv4() || !v6_only,
        IpAddr::V6(ip) => to.is_ipv6() && !ip.is_unicast_link_local(),
    }
}

/// Those that a socket may have which is bound to an address, whose port 0 stands for any.
fn of_those(
    reserved: &[SocketAddr],
    address: SocketAddr,
    v6_only: bool,
) -> impl Iterator<Item = SocketAddr> {
    let is_port = move |port| address.port() == 0 || address.port() == port;
    let all = reserved.iter().copied();
    all.filter(move |own| is_port(own.port()) && is_meant(own.ip(), address.ip(), v6_only))
}

/// Whether a socket that is bound there has this address.
fn has((address, v6_only): Taken, own: SocketAddr) -> bool {
    own.port() == address.port() && is_meant(own.ip(), address.ip(), v6_only)
}

/// The port of a socket among those that are reserved; where it may be any, one all of whose addresses are free.
fn choose(
    reserved: &[SocketAddr],
    address: SocketAddr,
    v6_only: bool,
    is_taken: impl Fn(SocketAddr) -> bool,
) -> Result<u16, Errno> {
    let of_port = |port| of_those(reserved, (address.ip(), port).into(), v6_only);
    let mut ports = of_port(address.port()).map(|own| own.port()).peekable();
    ports.peek().ok_or(Errno::ADDRNOTAVAIL)?;
    // Whether a port that is named is free is told when it is listened.
    let mut free = ports.filter(|port| address.port() != 0 || !of_port(*port).any(&is_taken));
    free.next().ok_or(Errno::ADDRINUSE)
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

/// Where a socket is bound that does not listen yet, as its program sees it, and whether it is for IPv6 alone.
pub(crate) type Taken = (SocketAddr, bool);

/// Has the system keep an address until somebody listens there: it says whether it is free, and chooses a port. Those that are
/// reserved for a stack are kept already; `taken` are those that programs are bound to.
pub(crate) fn reserve(
    stack: &Stack,
    taken: &[Taken],
    address: SocketAddr,
    v6_only: bool,
) -> io::Result<(Option<OwnedFd>, SocketAddr)> {
    let reserved = stack.reserved();
    if !reserved.is_empty() {
        let has = |own: SocketAddr| stack.has(own) || taken.iter().any(|taken| has(*taken, own));
        let port = choose(reserved, address, v6_only, has)?;
        return Ok((None, (address.ip(), port).into()));
    }
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, v6_only)?;
    }
    rustix::net::bind(&socket, &address)?;
    let bound = rustix::net::getsockname(&socket)?;
    Ok((Some(socket), SocketAddr::try_from(bound)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_at_no_address_listens_at_all_of_this_host() {
        let at = |text: &str| -> SocketAddr { text.parse().unwrap() };
        assert_eq!(all(&[], at("192.0.2.1:80"), false).unwrap(), [at("192.0.2.1:80")]);
        assert_eq!(all(&[], at("[::ffff:192.0.2.1]:80"), false).unwrap(), [at("192.0.2.1:80")]);
        let v4 = all(&[], at("0.0.0.0:80"), false).unwrap();
        assert!(v4.contains(&at("127.0.0.1:80")) && v4.iter().all(SocketAddr::is_ipv4));
        let both = all(&[], at("[::]:80"), false).unwrap();
        assert!(both.contains(&at("127.0.0.1:80")));
        assert!(all(&[], at("[::]:80"), true).unwrap().iter().all(SocketAddr::is_ipv6));
    }

    #[test]
    fn of_a_stack_that_has_reserved_addresses_a_socket_listens_at_those() {
        let at = |text: &str| -> SocketAddr { text.parse().unwrap() };
        let own = [at("192.0.2.1:80"), at("[2001:db8::1]:80"), at("192.0.2.1:443")];
        assert_eq!(all(&own, at("0.0.0.0:80"), false).unwrap(), [own[0]]);
        assert_eq!(all(&own, at("[::]:80"), false).unwrap(), own[..2]);
        assert_eq!(all(&own, at("[::]:80"), true).unwrap(), [own[1]]);
        assert_eq!(all(&own, at("0.0.0.0:81"), false).unwrap(), []);
        let of = |address, v6_only| of_those(&own, at(address), v6_only).collect::<Vec<_>>();
        assert_eq!(of("192.0.2.1:0", false), [own[0], own[2]]);
        assert_eq!(of("[::ffff:192.0.2.1]:443", false), [own[2]]);
        assert_eq!(of("192.0.2.2:80", false), []);
    }

    /// ip(7): any port is one that nobody is bound to.
    #[test]
    fn any_port_is_one_that_nobody_has_at_any_of_its_addresses() {
        let at = |text: &str| -> SocketAddr { text.parse().unwrap() };
        let own = ["192.0.2.1:80", "[2001:db8::1]:80", "192.0.2.1:443", "192.0.2.2:8000"].map(at);
        let chosen = |address: &str, v6_only, taken: &[(&str, bool)]| {
            let taken: Vec<Taken> = taken.iter().map(|(text, only)| (at(text), *only)).collect();
            let is_taken = |own| taken.iter().any(|taken| has(*taken, own));
            choose(&own, at(address), v6_only, is_taken)
        };
        assert_eq!(chosen("192.0.2.1:0", false, &[]), Ok(80));
        assert_eq!(chosen("192.0.2.1:0", false, &[("192.0.2.1:80", false)]), Ok(443));
        assert_eq!(chosen("192.0.2.1:0", false, &[("0.0.0.0:80", false)]), Ok(443));
        assert_eq!(chosen("192.0.2.1:0", false, &[("[::]:80", false)]), Ok(443));
        assert_eq!(chosen("192.0.2.1:0", false, &[("[::]:80", true)]), Ok(80));
        assert_eq!(chosen("192.0.2.1:0", false, &[("[::ffff:192.0.2.1]:80", false)]), Ok(443));
        let both = [("192.0.2.1:80", false), ("192.0.2.1:443", false)];
        assert_eq!(chosen("192.0.2.1:0", false, &both), Err(Errno::ADDRINUSE));
        assert_eq!(chosen("0.0.0.0:0", false, &both), Ok(8000));
        // One of both addresses of a port is not enough.
        assert_eq!(chosen("[::]:0", false, &both[..1]), Ok(443));
        assert_eq!(chosen("[::]:0", true, &both[..1]), Ok(80));
        assert_eq!(chosen("[::]:0", true, &[("[2001:db8::1]:80", false)]), Err(Errno::ADDRINUSE));
        // One that is named, and one that there is not.
        assert_eq!(chosen("192.0.2.1:80", false, &both), Ok(80));
        for address in ["192.0.2.1:81", "192.0.2.3:0", "[2001:db8::2]:0"] {
            assert_eq!(chosen(address, false, &[]), Err(Errno::ADDRNOTAVAIL), "{address}");
        }
    }

    #[test]
    fn a_socket_for_ipv6_shows_those_of_ipv4_mapped() {
        let v4: SocketAddr = "192.0.2.1:80".parse().unwrap();
        assert_eq!(shown(v4, false), v4);
        assert_eq!(shown(v4, true).to_string(), "[::ffff:192.0.2.1]:80");
        assert_eq!(plain(shown(v4, true)), v4);
    }
}
