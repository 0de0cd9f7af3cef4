use std::vec::Vec;

use super::*;
use crate::ip::tests::{v4, v6};
use crate::{Packet, pseudo_header};

const MOST: Most = Most { packets: 64, len: 65_535 };

fn packet(is_v4: bool, carried: u8, payload: &[u8]) -> Vec<u8> {
    if is_v4 { v4(carried, 64, 0, payload) } else { v6(carried, 64, 0, payload) }
}

/// With a checksum that is right.
fn checked(mut packet: Vec<u8>, offset: usize) -> Vec<u8> {
    let parsed = Packet::parse(&packet).unwrap();
    let (at, len) = (parsed.transport, parsed.payload().len() as u32);
    let sum = pseudo_header(parsed.source, parsed.destination, parsed.protocol, len);
    let sum = sum.bytes(parsed.payload()).checksum();
    packet[at + offset..at + offset + 2].copy_from_slice(&sum.to_be_bytes());
    packet
}

fn tcp(is_v4: bool, sequence: u32, flags: u8, len: usize) -> Vec<u8> {
    let mut segment = std::vec![0, 1, 0, 2];
    segment.extend(sequence.to_be_bytes());
    segment.extend([0, 0, 0, 9, 0x60, flags, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1]);
    segment.resize(24 + len, 7);
    checked(packet(is_v4, protocol::TCP, &segment), 16)
}

fn udp(is_v4: bool, len: usize) -> Vec<u8> {
    let mut datagram = std::vec![0, 1, 0, 2];
    datagram.extend((8 + len as u16).to_be_bytes());
    datagram.resize(8 + len, 7);
    datagram[6..8].fill(0);
    checked(packet(is_v4, protocol::UDP, &datagram), 6)
}

/// How many of these packets become one, and what that is.
fn join(packets: &[Vec<u8>], most: Most) -> (u32, Vec<u8>, Vnet) {
    let mut whole = SuperPacket::new(Segment::read(&packets[0]).unwrap());
    let mut bytes = packets[0].clone();
    for packet in &packets[1..] {
        let Some(next) = Segment::read(packet) else { break };
        if !whole.take(&packets[0], &next, packet, most) {
            break;
        }
        bytes.extend(&packet[next.headers..next.end]);
    }
    assert_eq!(bytes.len(), whole.octets());
    let vnet = whole.write_headers(&mut bytes).unwrap();
    (whole.packets(), bytes, vnet)
}

/// VIRTIO 1.2, Section 5.1.6.2: the field has the sum of the pseudo-header.
#[test]
fn who_completes_the_checksum_of_the_whole_has_a_packet_in_order() {
    for is_v4 in [true, false] {
        let segments = [
            tcp(is_v4, u32::MAX - 50, ACK, 100),
            tcp(is_v4, 49, ACK, 100),
            tcp(is_v4, 149, ACK | PSH, 30),
        ];
        let datagrams = [udp(is_v4, 100), udp(is_v4, 100), udp(is_v4, 30)];
        for (packets, offload, offset) in
            [(segments, Offload::Tcp, 16), (datagrams, Offload::Udp, 6)]
        {
            let (n, mut whole, vnet) = join(&packets, MOST);
            assert_eq!((n, vnet.offload), (3, Some((offload, 100))));
            let start = if is_v4 { 20 } else { 40 };
            assert_eq!(vnet.partial, Some(Partial { start, offset }));
            let at = usize::from(start + offset);
            let sum = Sum::new().bytes(&whole[usize::from(start)..]).checksum();
            whole[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            let parsed = Packet::parse(&whole).unwrap();
            assert_eq!(parsed.bytes, whole);
            assert!(!is_v4 || Sum::new().bytes(&whole[..20]).is_intact());
            let len = parsed.payload().len() as u32;
            let sum = pseudo_header(parsed.source, parsed.destination, parsed.protocol, len);
            assert!(sum.bytes(parsed.payload()).is_intact());
            match offload {
                Offload::Tcp => assert_eq!(parsed.payload()[FLAGS], ACK | PSH),
                Offload::Udp => assert_eq!(parsed.payload()[4..6], (len as u16).to_be_bytes()),
            }
        }
    }
}

#[test]
fn nothing_comes_behind_an_end_or_beyond_a_bound() {
    let full = |n: u32| tcp(true, n * 100, ACK, 100);
    let joined = |second, most| join(&[full(0), second, full(2)], most).0;
    assert_eq!(joined(full(1), MOST), 3);
    assert_eq!(joined(tcp(true, 100, ACK | PSH, 100), MOST), 2);
    assert_eq!(joined(tcp(true, 100, ACK | FIN, 100), MOST), 2);
    assert_eq!(joined(tcp(true, 100, ACK, 99), MOST), 2);
    assert_eq!(joined(tcp(true, 101, ACK, 100), MOST), 1);
    assert_eq!(joined(tcp(true, 100, ACK, 101), MOST), 1);
    assert_eq!(joined(tcp(false, 100, ACK, 100), MOST), 1);
    assert_eq!(joined(udp(true, 100), MOST), 1);
    assert_eq!(joined(full(1), Most { packets: 2, ..MOST }), 2);
    assert_eq!(joined(full(1), Most { len: 344, ..MOST }), 3);
    assert_eq!(joined(full(1), Most { len: 343, ..MOST }), 2);
    assert_eq!(joined(full(1), Most { packets: 0, len: 0 }), 1);
}

#[test]
fn what_is_unusual_goes_with_nothing() {
    for is_v4 in [true, false] {
        let (segment, datagram) = (tcp(is_v4, 0, ACK, 10), udp(is_v4, 10));
        for packet in [&segment, &datagram] {
            assert!(Segment::read(packet).is_some());
            for len in 0..packet.len() {
                assert_eq!(Segment::read(&packet[..len]), None, "{len} octets");
            }
            let padded = [packet, &[0; 6][..]].concat();
            assert_eq!(Segment::read(&padded), Segment::read(packet));
        }
        for flags in 0..=u8::MAX {
            let is_plain = flags & ACK != 0 && flags & !(ACK | PSH | FIN) == 0;
            assert_eq!(Segment::read(&tcp(is_v4, 0, flags, 10)).is_some(), is_plain, "{flags:#x}");
        }
        assert_eq!(Segment::read(&tcp(is_v4, 0, ACK, 0)), None, "no data");
        assert_eq!(Segment::read(&udp(is_v4, 0)), None, "no data");
        let transport = if is_v4 { 20 } else { 40 };
        let changed = |packet: &[u8], at: usize, octet: u8| {
            let mut packet = packet.to_vec();
            packet[at] = octet;
            Segment::read(&packet)
        };
        assert_eq!(changed(&segment, transport + 12, 0x40), None, "a header of 16 octets");
        assert_eq!(changed(&segment, transport + 12, 0xf0), None, "one beyond the end");
        assert_eq!(changed(&segment, transport + 12, 0x61), None, "a flag of later times");
        assert_eq!(changed(&datagram, transport + 5, 17), None, "another length");
        let mut unchecked = datagram.clone();
        unchecked[transport + 6..transport + 8].fill(0);
        assert_eq!(Segment::read(&unchecked), None, "no checksum");
    }
    let packet = tcp(true, 0, ACK, 10);
    for (at, octet) in [(0, 0x46), (0, 0x55), (6, 0), (6, 0x60), (7, 1), (9, 47)] {
        let mut changed = packet.clone();
        changed[at] = octet;
        assert_eq!(Segment::read(&changed), None, "{at}: {octet:#x}");
    }
}
