//! Addresses that programs listen on, and which of them exclude each other.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// A local UDP address as a socket is bound to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenAddress {
    address: SocketAddr,
    only_v6: bool,
}

impl ListenAddress {
    /// An address; `only_v6` is the socket option IPV6_V6ONLY, which means something for `[::]` only.
    ///
    /// An IPv4-mapped IPv6 address is the IPv4 address; flow labels do not count.
    #[must_use]
    pub fn new(address: SocketAddr, only_v6: bool) -> Self {
        let mut address =
            SocketAddr::new(address.ip().to_canonical(), address.port()).scoped(address);
        if let SocketAddr::V6(v6) = &mut address {
            v6.set_flowinfo(0);
        }
        let only_v6 = only_v6 && address.is_ipv6() && address.ip().is_unspecified();
        Self { address, only_v6 }
    }

    /// The address.
    #[must_use]
    pub const fn socket_addr(&self) -> SocketAddr {
        self.address
    }

    /// Whether a socket at `[::]` leaves IPv4 alone.
    #[must_use]
    pub const fn only_v6(&self) -> bool {
        self.only_v6
    }

    /// Whether a socket at one of them would take datagrams of the other, as the kernel sees it.
    /// An address overlaps itself.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        if self.address.port() != other.address.port() {
            return false;
        }
        if self.address == other.address {
            return true;
        }
        self.takes(other) || other.takes(self)
    }

    /// Whether this is a wildcard that includes the other.
    fn takes(&self, other: &Self) -> bool {
        match (self.address.ip(), other.address.ip()) {
            (IpAddr::V4(ip), IpAddr::V4(_)) => ip.is_unspecified(),
            (IpAddr::V6(ip), IpAddr::V6(_)) => ip.is_unspecified(),
            (IpAddr::V6(ip), IpAddr::V4(_)) => ip.is_unspecified() && !self.only_v6,
            (IpAddr::V4(_), IpAddr::V6(_)) => false,
        }
    }
}

/// Keeps the scope of a link-local address.
trait Scoped {
    fn scoped(self, from: SocketAddr) -> Self;
}

impl Scoped for SocketAddr {
    fn scoped(mut self, from: SocketAddr) -> Self {
        if let (Self::V6(to), Self::V6(from)) = (&mut self, from) {
            to.set_scope_id(from.scope_id());
        }
        self
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> ListenAddress {
        ListenAddress::new(address.parse().unwrap(), false)
    }

    #[test]
    fn wildcards_and_dual_stack_sockets_exclude_what_they_take() {
        let only_v6 = ListenAddress::new("[::]:443".parse().unwrap(), true);
        let all = [
            (at("[::]:443"), at("0.0.0.0:443"), true),
            (at("[::]:443"), at("192.0.2.1:443"), true),
            (at("[::]:443"), at("[2001:db8::1]:443"), true),
            (at("[::]:443"), only_v6, true),
            (only_v6, at("[2001:db8::1]:443"), true),
            (only_v6, at("0.0.0.0:443"), false),
            (only_v6, at("192.0.2.1:443"), false),
            (at("0.0.0.0:443"), at("192.0.2.1:443"), true),
            (at("0.0.0.0:443"), at("[2001:db8::1]:443"), false),
            (at("192.0.2.1:443"), at("192.0.2.1:443"), true),
            (at("192.0.2.1:443"), at("192.0.2.2:443"), false),
            (at("192.0.2.1:443"), at("192.0.2.1:444"), false),
            (at("[::]:443"), at("[::]:444"), false),
            (at("[fe80::1%1]:443"), at("[fe80::1%2]:443"), false),
        ];
        for (one, other, overlap) in all {
            assert_eq!(one.overlaps(&other), overlap, "{one} and {other}");
            assert_eq!(other.overlaps(&one), overlap, "{other} and {one}");
        }
    }

    #[test]
    fn there_is_one_way_to_write_an_address() {
        assert_eq!(at("[::ffff:192.0.2.1]:443"), at("192.0.2.1:443"));
        let with_option = ListenAddress::new("[2001:db8::1]:443".parse().unwrap(), true);
        assert_eq!(with_option, at("[2001:db8::1]:443"), "the option means nothing there");
    }
}
