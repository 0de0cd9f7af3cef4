//! IPv4 addresses on IPv6 sockets.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// The address as its own family writes it: an IPv4-mapped IPv6 address becomes IPv4.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(IpAddr::V4(v4), v6.port()),
            // The flow label belongs to a packet, not to the path.
            None => SocketAddr::V6(SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id())),
        },
        SocketAddr::V4(_) => address,
    }
}

/// The address as a socket of the given family takes it.
pub(super) fn for_socket(address: SocketAddr, socket_is_v6: bool) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if socket_is_v6 => {
            SocketAddr::new(IpAddr::V6(v4.ip().to_ipv6_mapped()), v4.port())
        }
        _ => address,
    }
}

/// Like [`for_socket`], for an address without a port.
pub(super) fn ip_for_socket(ip: IpAddr, socket_is_v6: bool) -> IpAddr {
    match ip {
        IpAddr::V4(v4) if socket_is_v6 => IpAddr::V6(v4.to_ipv6_mapped()),
        _ => ip,
    }
}

/// True if packets can be sent back from `ip`: it names one host.
pub(super) fn is_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => !v4.is_multicast() && !v4.is_broadcast() && !v4.is_unspecified(),
        IpAddr::V6(v6) => !v6.is_multicast() && !v6.is_unspecified(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_addresses_become_ipv4_and_back() {
        let v4: SocketAddr = "192.0.2.1:443".parse().unwrap();
        let mapped: SocketAddr = "[::ffff:192.0.2.1]:443".parse().unwrap();
        assert_eq!(canonical(mapped), v4);
        assert_eq!(for_socket(v4, true), mapped);
        assert_eq!(for_socket(v4, false), v4);
        assert_eq!(ip_for_socket(v4.ip(), true), mapped.ip());
    }

    #[test]
    fn the_scope_of_a_link_local_address_is_kept_and_its_flow_label_is_not() {
        let received = SocketAddr::V6(SocketAddrV6::new("fe80::1".parse().unwrap(), 1, 7, 3));
        let SocketAddr::V6(kept) = canonical(received) else { panic!("family changed") };
        assert_eq!((kept.flowinfo(), kept.scope_id()), (0, 3));
    }

    #[test]
    fn groups_are_not_unicast() {
        for group in ["224.0.0.1", "255.255.255.255", "0.0.0.0", "ff02::1", "::"] {
            assert!(!is_unicast(group.parse().unwrap()), "{group}");
        }
        assert!(is_unicast("192.0.2.1".parse().unwrap()));
        assert!(is_unicast("fe80::1".parse().unwrap()));
    }
}
