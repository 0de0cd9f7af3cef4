//! What tests share.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quicket_gue::{Sum, protocol, pseudo_header};

use crate::config::Tunnel;
use crate::grammar::{Line, parse_line};

/// A tunnel from the words that follow `add`.
pub(crate) fn tunnel(words: &str) -> Tunnel {
    match parse_line(&format!("add {words}")).unwrap() {
        Some(Line::Tunnel(tunnel)) => *tunnel,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn addresses(v4: bool) -> (IpAddr, IpAddr) {
    if v4 {
        (Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(10, 0, 0, 2).into())
    } else {
        let address = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into();
        (address(1), address(2))
    }
}

/// A packet of a protocol, from and to `addresses`.
pub(crate) fn ip(v4: bool, protocol: u8, tos: u8, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = addresses(v4);
    let mut bytes = if v4 {
        let mut header = vec![0x45, tos, 0, 0, 0, 7, 0x40, 0, 64, protocol, 0, 0];
        header[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
        header
    } else {
        let mut header = (6u32 << 28 | u32::from(tos) << 20).to_be_bytes().to_vec();
        header.extend((payload.len() as u16).to_be_bytes());
        header.extend([protocol, 64]);
        header
    };
    for address in [source, destination] {
        match address {
            IpAddr::V4(address) => bytes.extend(address.octets()),
            IpAddr::V6(address) => bytes.extend(address.octets()),
        }
    }
    if v4 {
        let sum = Sum::new().bytes(&bytes).checksum();
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    bytes.extend(payload);
    bytes
}

/// A segment of TCP with a right checksum.
pub(crate) fn tcp(v4: bool, sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut segment = vec![0x12, 0x34, 0, 80];
    segment.extend(sequence.to_be_bytes());
    segment.extend([0, 0, 0, 9, 0x50, flags, 0x10, 0, 0, 0, 0, 0]);
    segment.extend(payload);
    let (source, destination) = addresses(v4);
    let sum = pseudo_header(source, destination, protocol::TCP, segment.len() as u32);
    let sum = sum.bytes(&segment).checksum();
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    ip(v4, protocol::TCP, 2, &segment)
}

/// A datagram of UDP with a right checksum.
pub(crate) fn udp(v4: bool, payload: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0x12, 0x34, 0, 80];
    datagram.extend((8 + payload.len() as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    let (source, destination) = addresses(v4);
    let sum = pseudo_header(source, destination, protocol::UDP, datagram.len() as u32);
    let sum = sum.bytes(&datagram).checksum();
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    ip(v4, protocol::UDP, 0, &datagram)
}

/// Whether the checksums of a packet of TCP or UDP are right.
pub(crate) fn is_intact(bytes: &[u8]) -> bool {
    let packet = quicket_gue::Packet::parse(bytes).unwrap();
    let payload = packet.payload();
    let sum =
        pseudo_header(packet.source, packet.destination, packet.protocol, payload.len() as u32);
    let header = !packet.is_v4() || Sum::new().bytes(&bytes[..packet.transport]).is_intact();
    header && sum.bytes(payload).is_intact()
}
