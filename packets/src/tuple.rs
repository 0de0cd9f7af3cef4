//! 3-tuples: what a port can own.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address, a protocol of IP, and a port of that protocol: exact, without wildcards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tuple {
    /// The address. One of IPv4 that is mapped into IPv6 is the same as that of IPv4.
    pub address: IpAddr,
    /// The number of the protocol (IANA): 6 for TCP, 17 for UDP.
    pub protocol: u8,
    /// The port, of TCP and UDP; 0 with protocols that have none.
    pub port: u16,
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, protocol, port } = self;
        match protocol {
            6 => write!(f, "TCP {address} port {port}"),
            17 => write!(f, "UDP {address} port {port}"),
            _ => write!(f, "protocol {protocol} {address}"),
        }
    }
}

/// A tuple as it is looked up: two words. IPv4 has the addresses ::ffff:0:0/96, which no frame of IPv6 may
/// have (`frame`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) address: u128,
    /// The protocol above the port.
    pub(crate) rest: u32,
}

/// What is above an address of IPv4.
const MAPPED: u128 = 0xffff_0000_0000;

impl Key {
    #[inline]
    pub(crate) const fn v4(address: [u8; 4], protocol: u8, port: u16) -> Self {
        let address = MAPPED | u32::from_be_bytes(address) as u128;
        Self { address, rest: (protocol as u32) << 16 | port as u32 }
    }

    /// None for an address of IPv4 in the form of IPv6.
    #[inline]
    pub(crate) const fn v6(address: [u8; 16], protocol: u8, port: u16) -> Option<Self> {
        let address = u128::from_be_bytes(address);
        if address >> 32 == MAPPED >> 32 {
            return None;
        }
        Some(Self { address, rest: (protocol as u32) << 16 | port as u32 })
    }
}

impl From<Tuple> for Key {
    fn from(Tuple { address, protocol, port }: Tuple) -> Self {
        let address = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        Self { address: address.to_bits(), rest: u32::from(protocol) << 16 | u32::from(port) }
    }
}

impl From<Key> for Tuple {
    fn from(Key { address, rest }: Key) -> Self {
        let address = match address >> 32 == MAPPED >> 32 {
            true => Ipv4Addr::from_bits(address as u32).into(),
            false => Ipv6Addr::from_bits(address).into(),
        };
        Self { address, protocol: (rest >> 16) as u8, port: rest as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_address_is_that_of_ipv4_and_frames_of_ipv6_have_none() {
        let tuple =
            |address: &str| Tuple { address: address.parse().unwrap(), protocol: 17, port: 53 };
        let key = Key::v4([192, 0, 2, 1], 17, 53);
        assert_eq!(Key::from(tuple("192.0.2.1")), key);
        assert_eq!(Key::from(tuple("::ffff:192.0.2.1")), key);
        assert_eq!(Tuple::from(key), tuple("192.0.2.1"));
        let octets = |address: &str| address.parse::<Ipv6Addr>().unwrap().octets();
        assert_eq!(Key::v6(octets("::ffff:192.0.2.1"), 17, 53), None);
        let key = Key::v6(octets("2001:db8::1"), 17, 53).unwrap();
        assert_eq!(
            (Tuple::from(key), Key::from(tuple("2001:db8::1"))),
            (tuple("2001:db8::1"), key)
        );
        // Not mapped, but compatible: an address of IPv6 like others.
        assert!(Key::v6(octets("::192.0.2.1"), 17, 53).is_some());
    }
}
