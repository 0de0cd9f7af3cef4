//! Whole frames of UDP, for stacks that have no composer of their own.

use std::net::SocketAddr;

use quicket_gue::{Sum, pseudo_header};
use quicket_wire::EcnCodepoint;

use crate::frame::{ETHERNET_LEN, MIN_FRAME};

const UDP: u8 = 17;
const UDP_LEN: usize = 8;

/// Writes a frame of UDP into a slot: Ethernet with addresses of zeros, which mean nothing in memory; IPv4 or IPv6; and
/// the payload, padded to the shortest frame of Ethernet. Returns its length.
///
/// None if the slot has no room for it, it is longer than a packet can be, or one address is of IPv4 and the
/// other is not.
#[must_use]
pub fn udp(
    slot: &mut [u8],
    source: SocketAddr,
    destination: SocketAddr,
    payload: &[u8],
) -> Option<usize> {
    marked_udp(slot, source, destination, EcnCodepoint::NotEct, payload)
}

/// The same with an ECN mark in the header of IP (RFC 3168, Section 5).
#[must_use]
pub fn marked_udp(
    slot: &mut [u8],
    source: SocketAddr,
    destination: SocketAddr,
    mark: EcnCodepoint,
    payload: &[u8],
) -> Option<usize> {
    let header = match (source, destination) {
        (SocketAddr::V4(_), SocketAddr::V4(_)) => 20,
        (SocketAddr::V6(_), SocketAddr::V6(_)) => 40,
        _ => return None,
    };
    let transport = u16::try_from(UDP_LEN + payload.len()).ok()?;
    let len = ETHERNET_LEN + header + usize::from(transport);
    let padded = len.max(MIN_FRAME);
    let frame = slot.get_mut(..padded)?;
    frame[len..].fill(0);
    let (ethernet, packet) = frame[..len].split_at_mut(ETHERNET_LEN);
    ethernet.fill(0);
    let (ip, udp) = packet.split_at_mut(header);
    match (source, destination) {
        (SocketAddr::V4(source), SocketAddr::V4(destination)) => {
            ethernet[12..].copy_from_slice(&0x800_u16.to_be_bytes());
            let total = u16::try_from(header).ok()?.checked_add(transport)?;
            // Don't Fragment, and a time to live of 64.
            ip.copy_from_slice(&[
                0x45,
                mark.bits(),
                0,
                0,
                0,
                0,
                0x40,
                0,
                64,
                UDP,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
            ]);
            ip[2..4].copy_from_slice(&total.to_be_bytes());
            ip[12..16].copy_from_slice(&source.ip().octets());
            ip[16..].copy_from_slice(&destination.ip().octets());
            let sum = Sum::new().bytes(ip).checksum();
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (SocketAddr::V6(source), SocketAddr::V6(destination)) => {
            ethernet[12..].copy_from_slice(&0x86dd_u16.to_be_bytes());
            // The traffic class lies across two octets (RFC 8200, Section 3).
            ip[..8].copy_from_slice(&[0x60, mark.bits() << 4, 0, 0, 0, 0, UDP, 64]);
            ip[4..6].copy_from_slice(&transport.to_be_bytes());
            ip[8..24].copy_from_slice(&source.ip().octets());
            ip[24..].copy_from_slice(&destination.ip().octets());
        }
        _ => return None,
    }
    udp[..2].copy_from_slice(&source.port().to_be_bytes());
    udp[2..4].copy_from_slice(&destination.port().to_be_bytes());
    udp[4..6].copy_from_slice(&transport.to_be_bytes());
    udp[6..8].fill(0);
    udp[8..].copy_from_slice(payload);
    let sum = pseudo_header(source.ip(), destination.ip(), UDP, transport.into());
    let checksum = match sum.bytes(udp).checksum() {
        // None at all (RFC 768).
        0 => 0xffff,
        checksum => checksum,
    };
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    Some(padded)
}
