//! Addresses in messages.

use core::net::{IpAddr, SocketAddr};

/// Octets of one: the version of IP or 0 for none, a port, an address.
pub(crate) const LEN: usize = 20;

pub(crate) fn write(address: Option<SocketAddr>) -> [u8; LEN] {
    let mut octets = [0; LEN];
    let Some(address) = address else { return octets };
    let (head, place) = octets.split_at_mut(4);
    let version = match address.ip() {
        IpAddr::V4(ip) => {
            place[..4].copy_from_slice(&ip.octets());
            4
        }
        IpAddr::V6(ip) => {
            place.copy_from_slice(&ip.octets());
            6
        }
    };
    let [high, low] = address.port().to_be_bytes();
    head.copy_from_slice(&[version, 0, high, low]);
    octets
}

/// None if it is none of those that [`write`] writes.
pub(crate) fn read(octets: &[u8; LEN]) -> Option<Option<SocketAddr>> {
    let [version, _, high, low, place @ ..] = *octets;
    let port = u16::from_be_bytes([high, low]);
    match version {
        0 => Some(None),
        4 => {
            let [a, b, c, d, ..] = place;
            Some(Some(([a, b, c, d], port).into()))
        }
        6 => Some(Some((place, port).into())),
        _ => None,
    }
}
