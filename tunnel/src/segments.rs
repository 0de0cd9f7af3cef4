//! A super-packet from the device becomes packets: each has headers of its own, and a part of the
//! payload, which is not copied.

use std::ops::Range;

use quicket_gue::vnet::{Offload, Partial, Vnet};
use quicket_gue::{Packet, Sum, protocol, pseudo_header};

/// The longest headers of IP and transport together; beyond are extension headers that nobody
/// segments.
pub(crate) const MAX_HEADERS: usize = 256;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// What is wrong with a super-packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A packet as its parts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Segment<'a> {
    /// All headers, and perhaps some payload.
    pub(crate) headers: &'a [u8],
    /// Where the rest of the payload is in the super-packet.
    pub(crate) payload: Range<usize>,
    /// The checksum that the receiver has to complete, when that was asked for.
    pub(crate) partial: Option<Partial>,
}

/// Takes a super-packet apart, and calls `each` with each packet in order.
///
/// Checksums that the system left open are completed; or, with `keep_partial`, left open in each
/// packet, so that the other end of the tunnel completes them (remote checksum offload).
pub(crate) fn segments(
    packet: &Packet<'_>,
    vnet: Vnet,
    keep_partial: bool,
    mut each: impl FnMut(Segment<'_>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let len = packet.bytes.len();
    match (vnet.offload, vnet.partial) {
        (None, None) => each(Segment { headers: &[], payload: 0..len, partial: None }),
        (None, Some(partial)) if keep_partial => {
            checksum_field(packet, partial)?;
            each(Segment { headers: &[], payload: 0..len, partial: Some(partial) })
        }
        (None, Some(partial)) => complete(packet, partial, each),
        (Some((offload, size)), _) => {
            split(packet, offload, usize::from(size), keep_partial, &mut each)
        }
    }
}

/// Where the checksum is, if that is within the packet and behind the IP header.
fn checksum_field(packet: &Packet<'_>, partial: Partial) -> Result<usize, Malformed> {
    let field = usize::from(partial.start) + usize::from(partial.offset);
    if usize::from(partial.start) < packet.transport || field + 2 > packet.bytes.len() {
        return Err(Malformed);
    }
    Ok(field)
}

/// One packet whose checksum is open.
fn complete(
    packet: &Packet<'_>,
    partial: Partial,
    mut each: impl FnMut(Segment<'_>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let field = checksum_field(packet, partial)?;
    let end = field + 2;
    let mut buffer = [0; MAX_HEADERS];
    let headers = buffer.get_mut(..end).ok_or(Malformed)?;
    headers.copy_from_slice(&packet.bytes[..end]);
    let checksum = Sum::new().bytes(&packet.bytes[usize::from(partial.start)..]).checksum();
    headers[field..].copy_from_slice(&written(checksum, packet.protocol));
    each(Segment { headers, payload: end..packet.bytes.len(), partial: None })
}

/// Zero means "no checksum" in UDP (RFC 768).
fn written(checksum: u16, protocol: u8) -> [u8; 2] {
    if checksum == 0 && protocol == protocol::UDP { [0xff; 2] } else { checksum.to_be_bytes() }
}

/// Segments of TCP, datagrams of UDP.
fn split(
    packet: &Packet<'_>,
    offload: Offload,
    size: usize,
    keep_partial: bool,
    each: &mut impl FnMut(Segment<'_>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let (bytes, transport) = (packet.bytes, packet.transport);
    let payload = packet.payload();
    let (expected, transport_len, offset) = match offload {
        Offload::Tcp => {
            let words = payload.get(12).ok_or(Malformed)? >> 4;
            (protocol::TCP, usize::from(words) * 4, 16u16)
        }
        Offload::Udp => (protocol::UDP, 8, 6),
    };
    let headers_len = transport + transport_len;
    let least = if offload == Offload::Tcp { 20 } else { 8 };
    if packet.protocol != expected
        || packet.fragment
        || transport_len < least
        || headers_len > bytes.len()
        || headers_len > MAX_HEADERS
    {
        return Err(Malformed);
    }
    let partial = Partial { start: transport as u16, offset };
    let mut buffer = [0; MAX_HEADERS];
    let mut from = headers_len;
    let mut index = 0u16;
    loop {
        let to = bytes.len().min(from + size);
        let headers = &mut buffer[..headers_len];
        headers.copy_from_slice(&bytes[..headers_len]);
        let (ip, rest) = headers.split_at_mut(transport);
        let last = to == bytes.len();
        patch_ip(ip, packet.is_v4(), transport_len + (to - from), index);
        match offload {
            Offload::Tcp => patch_tcp(rest, from - headers_len, index == 0, last),
            Offload::Udp => {
                rest[4..6].copy_from_slice(&((transport_len + (to - from)) as u16).to_be_bytes());
            }
        }
        let field = usize::from(offset);
        let len = (transport_len + (to - from)) as u32;
        let sum = pseudo_header(packet.source, packet.destination, packet.protocol, len);
        if keep_partial {
            rest[field..field + 2].copy_from_slice(&sum.folded().to_be_bytes());
        } else {
            rest[field..field + 2].fill(0);
            let checksum = sum.bytes(rest).plus(Sum::new().bytes(&bytes[from..to])).checksum();
            rest[field..field + 2].copy_from_slice(&written(checksum, packet.protocol));
        }
        each(Segment { headers, payload: from..to, partial: keep_partial.then_some(partial) })?;
        if last {
            return Ok(());
        }
        from = to;
        index = index.wrapping_add(1);
    }
}

/// Length, identification and checksum of the IP header, extension headers included.
fn patch_ip(ip: &mut [u8], is_v4: bool, after: usize, index: u16) {
    if is_v4 {
        let len = (ip.len() + after) as u16;
        ip[2..4].copy_from_slice(&len.to_be_bytes());
        let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(index);
        ip[4..6].copy_from_slice(&id.to_be_bytes());
        ip[10..12].fill(0);
        let checksum = Sum::new().bytes(ip).checksum();
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    } else {
        let len = (ip.len() - 40 + after) as u16;
        ip[4..6].copy_from_slice(&len.to_be_bytes());
    }
}

/// Sequence number, and flags that are for the first or the last segment only.
fn patch_tcp(tcp: &mut [u8], offset: usize, first: bool, last: bool) {
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(offset as u32);
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    if !last {
        tcp[13] &= !(FIN | PSH);
    }
    if !first {
        // The congestion window was reduced once (RFC 3168, Section 6.1.2).
        tcp[13] &= !CWR;
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;
    use crate::testing::{ip, is_intact, tcp, udp};

    fn all(bytes: &[u8], vnet: Vnet, keep: bool) -> Result<Vec<Vec<u8>>, Malformed> {
        let packet = Packet::parse(bytes).map_err(|_| Malformed)?;
        let mut packets = Vec::new();
        segments(&packet, vnet, keep, |segment| {
            let mut whole = segment.headers.to_vec();
            whole.extend(&packet.bytes[segment.payload]);
            packets.push(whole);
            Ok(())
        })?;
        Ok(packets)
    }

    fn offload(offload: Offload, size: u16) -> Vnet {
        Vnet { partial: None, offload: Some((offload, size)) }
    }

    #[test]
    fn a_super_packet_of_tcp_becomes_segments_in_order() {
        for v4 in [true, false] {
            let data: Vec<u8> = (0..5000u32).map(|byte| byte as u8).collect();
            let bytes = tcp(v4, 0xffff_fff0, 0x18 | FIN | CWR, &data);
            let packets = all(&bytes, offload(Offload::Tcp, 1448), false).unwrap();
            assert_eq!(packets.len(), 4);
            let mut joined: Vec<u8> = Vec::new();
            for (index, bytes) in packets.iter().enumerate() {
                assert!(is_intact(bytes), "{index}");
                let packet = Packet::parse(bytes).unwrap();
                assert_eq!(packet.bytes.len(), bytes.len());
                let segment = packet.payload();
                let sequence = u32::from_be_bytes(segment[4..8].try_into().unwrap());
                assert_eq!(sequence, 0xffff_fff0u32.wrapping_add(joined.len() as u32));
                assert_eq!(segment[13] & (FIN | PSH) != 0, index == 3);
                assert_eq!(segment[13] & CWR != 0, index == 0);
                joined.extend(&segment[20..]);
            }
            assert_eq!(joined, data);
        }
    }

    #[test]
    fn a_super_packet_of_udp_becomes_datagrams() {
        for v4 in [true, false] {
            let packets = all(&udp(v4, &[7; 3000]), offload(Offload::Udp, 1200), false).unwrap();
            let lens: Vec<_> = packets
                .iter()
                .map(|bytes| {
                    assert!(is_intact(bytes));
                    let payload = Packet::parse(bytes).unwrap().payload();
                    assert_eq!(
                        usize::from(payload[4]) << 8 | usize::from(payload[5]),
                        payload.len()
                    );
                    payload.len() - 8
                })
                .collect();
            assert_eq!(lens, [1200, 1200, 600]);
        }
    }

    #[test]
    fn open_checksums_are_completed_or_left_to_the_other_end() {
        for v4 in [true, false] {
            let whole = tcp(v4, 1, 0x10, b"hello");
            let packet = Packet::parse(&whole).unwrap();
            let start = packet.transport;
            let len = packet.payload().len() as u32;
            let pseudo = pseudo_header(packet.source, packet.destination, 6, len).folded();
            let mut open = whole.clone();
            open[start + 16..start + 18].copy_from_slice(&pseudo.to_be_bytes());
            let partial = Partial { start: start as u16, offset: 16 };
            let vnet = Vnet { partial: Some(partial), offload: None };
            assert_eq!(all(&open, vnet, false).unwrap(), slice::from_ref(&whole));
            assert_eq!(all(&open, vnet, true).unwrap(), slice::from_ref(&open));
            let split = all(&whole, offload(Offload::Tcp, 1400), true).unwrap();
            assert_eq!(split, [open]);
        }
    }

    #[test]
    fn super_packets_that_contradict_themselves_are_refused() {
        let tcp_packet = tcp(true, 1, 0x10, &[0; 3000]);
        assert!(all(&udp(true, &[0; 3000]), offload(Offload::Tcp, 1000), false).is_err());
        assert!(all(&tcp_packet, offload(Offload::Udp, 1000), false).is_err());
        let mut short = tcp_packet.clone();
        short[32] = 0x40;
        assert!(all(&short, offload(Offload::Tcp, 1000), false).is_err(), "a header of 16 bytes");
        assert!(all(&ip(true, 6, 0, &[0; 10]), offload(Offload::Tcp, 1000), false).is_err());
        for (start, offset) in [(0, 16), (20, 65535), (65535, 65535), (3030, 16)] {
            let vnet = Vnet { partial: Some(Partial { start, offset }), offload: None };
            assert!(
                all(&tcp_packet, vnet, false).is_err() && all(&tcp_packet, vnet, true).is_err()
            );
        }
    }
}
