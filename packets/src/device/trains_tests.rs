use quicket_gue::Sum;
use quicket_gue::vnet::{Partial, Vnet};

use super::*;
use crate::frame;

const TCP: u8 = 6;
/// Flags of TCP (RFC 9293, Section 3.1).
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
pub(in crate::device) const ACK: u8 = 0x10;
/// Where they are in its header.
const FLAGS: usize = 13;

const FROM: [&str; 2] = ["192.0.2.1", "2001:db8::1"];

/// What the frames of a test have in common.
#[derive(Clone, Copy)]
pub(in crate::device) struct Flow {
    is_v4: bool,
    port: u16,
    window: u16,
    options: bool,
}

pub(in crate::device) const FLOW: Flow =
    Flow { is_v4: true, port: 80, window: 500, options: false };

/// A frame in order.
pub(in crate::device) fn segment(flow: Flow, sequence: u32, flags: u8, len: usize) -> Vec<u8> {
    let Flow { is_v4, port, window, options } = flow;
    let mut tcp = port.to_be_bytes().to_vec();
    tcp.extend([1, 2]);
    tcp.extend(sequence.to_be_bytes());
    tcp.extend([0, 0, 0, 9, if options { 0x80 } else { 0x50 }, flags]);
    tcp.extend(window.to_be_bytes());
    tcp.extend([0; 4]);
    if options {
        tcp.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    }
    tcp.extend((0..len).map(|at| (sequence as usize + at) as u8));
    let mut frame = vec![2; 12];
    let addresses = if is_v4 {
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + tcp.len() as u16).to_be_bytes());
        frame.extend([0, sequence as u8, 0x40, 0, 64, TCP, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        let sum = Sum::new().bytes(&frame[14..]).checksum();
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        26..34
    } else {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend((tcp.len() as u16).to_be_bytes());
        frame.extend([TCP, 64]);
        for _ in 0..2 {
            frame.extend(FROM[1].parse::<std::net::Ipv6Addr>().unwrap().octets());
        }
        22..54
    };
    let sum = Sum::new().bytes(&frame[addresses]).add_u16(TCP.into());
    let sum = sum.add_u32(tcp.len() as u32).bytes(&tcp).checksum();
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    frame.extend(tcp);
    assert!(frame::check(&frame).is_ok());
    frame
}

/// What a device makes of a long frame: segments, by the header for the system alone.
fn cut(octets: &[u8]) -> Vec<Vec<u8>> {
    let (header, frame) = octets.split_first_chunk::<FRAME>().unwrap();
    let vnet = Vnet::decode(*header).unwrap();
    let Some((Offload::Tcp, size)) = vnet.offload else { panic!("{vnet:?}") };
    let Partial { start, offset } = vnet.partial.unwrap();
    let (size, start, offset) = (usize::from(size), usize::from(start), usize::from(offset));
    let head = usize::from(u16::from_ne_bytes([header[2], header[3]]));
    let is_v4 = frame[12] == 8;
    assert_eq!(*header, vnet.encode(is_v4, head as u16));
    let len = frame.len() - ETHERNET_LEN;
    let said = if is_v4 { [16, 0] } else { [18, 40] };
    let word = u16::from_be_bytes([frame[said[0]], frame[said[0] + 1]]);
    assert_eq!(usize::from(word) + said[1], len);
    let addresses = if is_v4 { 26..34 } else { 22..54 };
    let pseudo = |len: usize| {
        Sum::new().bytes(&frame[addresses.clone()]).add_u16(TCP.into()).add_u32(len as u32)
    };
    let sum = pseudo(frame.len() - start).folded();
    assert_eq!(frame[start + offset..][..2], sum.to_be_bytes());
    if is_v4 {
        assert!(Sum::new().bytes(&frame[14..34]).is_intact());
    }
    let all: Vec<_> = frame[head..].chunks(size).collect();
    let mut sequence = u32::from_be_bytes(*frame[start + 4..].first_chunk().unwrap());
    let mut frames = Vec::new();
    for (n, data) in all.iter().enumerate() {
        let mut one = [&frame[..head], *data].concat();
        let len = (one.len() - ETHERNET_LEN - said[1]) as u16;
        one[said[0]..said[0] + 2].copy_from_slice(&len.to_be_bytes());
        one[start + 4..start + 8].copy_from_slice(&sequence.to_be_bytes());
        if n + 1 < all.len() {
            one[start + FLAGS] &= !(PSH | FIN);
        }
        one[start + offset..][..2].fill(0);
        let sum = pseudo(one.len() - start).bytes(&one[start..]).checksum();
        one[start + offset..][..2].copy_from_slice(&sum.to_be_bytes());
        frames.push(without_number(one));
        sequence = sequence.wrapping_add(data.len() as u32);
    }
    frames
}

/// Without the identification of IPv4, and the checksum that is over it.
fn without_number(mut frame: Vec<u8>) -> Vec<u8> {
    if frame[12] == 8 {
        frame[18..20].fill(0);
        frame[24..26].fill(0);
    }
    frame
}

/// What has left: lengths of trains (0 for a frame that is none), and the frames that a receiver sees.
#[derive(Default)]
struct Left {
    lengths: Vec<u32>,
    seen: Vec<Vec<u8>>,
}

impl Left {
    fn part(&mut self, builder: &mut Builder) {
        match builder.close() {
            None => {}
            Some(Leaving::One(_, frame)) => {
                self.lengths.push(1);
                self.seen.push(without_number(frame.to_vec()));
            }
            Some(Leaving::Many(_, n)) => {
                let frames = cut(builder.octets());
                assert_eq!(frames.len(), n as usize);
                self.lengths.push(n);
                self.seen.extend(frames);
            }
        }
    }
}

fn leave(frames: &[(Vec<u8>, usize)]) -> Left {
    let (mut builder, mut left) = (Builder::new(), Left::default());
    for (frame, queue) in frames {
        match read(frame) {
            Some(segment) if builder.append(frame, &segment, *queue) => {}
            Some(segment) => {
                left.part(&mut builder);
                assert!(builder.begin(frame, segment, *queue));
            }
            None => {
                left.part(&mut builder);
                left.lengths.push(0);
                left.seen.push(without_number(frame.clone()));
            }
        }
    }
    left.part(&mut builder);
    left
}

fn check(frames: Vec<(Vec<u8>, usize)>, expected: &[u32]) {
    let Left { lengths, seen } = leave(&frames);
    assert_eq!(lengths, expected);
    let all: Vec<_> = frames.into_iter().map(|(frame, _)| without_number(frame)).collect();
    assert!(seen == all, "other frames come out");
}

fn by_first_queue(frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<(Vec<u8>, usize)> {
    frames.into_iter().map(|frame| (frame, 0)).collect()
}

#[test]
fn segments_that_follow_one_another_leave_as_one_and_are_the_same_once_cut() {
    for (is_v4, options) in [(true, false), (true, true), (false, false), (false, true)] {
        let flow = Flow { is_v4, options, ..FLOW };
        // Beyond the end of sequence numbers.
        let at = |n: u32| (u32::MAX - 3000).wrapping_add(n * 1400);
        let full = |n| segment(flow, at(n), ACK, 1400);
        check(by_first_queue((0..9).map(full)), &[9]);
        let last = segment(flow, at(9), ACK | PSH | FIN, 1400);
        check(by_first_queue((0..9).map(full).chain([last])), &[10]);
        let short = segment(flow, at(9), ACK | PSH, 7);
        let next = segment(flow, at(9).wrapping_add(7), ACK, 7);
        check(by_first_queue((0..9).map(full).chain([short, next])), &[10, 1]);
        // As long as a packet can be.
        let most =
            (MAX_LEN - ETHERNET_LEN - if is_v4 { 40 } else { 60 } - if options { 12 } else { 0 })
                / 1400;
        check(by_first_queue((0..60).map(full)), &[most as u32, 60 - most as u32]);
        let small = |n: u32| segment(flow, n * 10, ACK, 10);
        check(by_first_queue((0..70).map(small)), &[MAX_SEGMENTS, 6]);
    }
}

#[test]
fn what_does_not_follow_or_is_unusual_leaves_by_itself() {
    let full = |n: u32| segment(FLOW, n * 100, ACK, 100);
    let other = |flow: Flow| segment(flow, 200, ACK, 100);
    let v6 = Flow { is_v4: false, ..FLOW };
    for (third, expected) in [
        (full(3), &[2, 1][..]),
        (full(1), &[2, 1]),
        (segment(FLOW, 200, ACK, 101), &[2, 1]),
        (other(Flow { port: 81, ..FLOW }), &[2, 1]),
        (other(Flow { window: 501, ..FLOW }), &[2, 1]),
        (other(Flow { options: true, ..FLOW }), &[2, 1]),
        (other(v6), &[2, 1]),
        // A bare acknowledgment, a reset, urgent data, a mark of congestion.
        (segment(FLOW, 200, ACK, 0), &[2, 0]),
        (segment(FLOW, 200, ACK | 4, 100), &[2, 0]),
        (segment(FLOW, 200, ACK | 0x20, 100), &[2, 0]),
        (segment(FLOW, 200, ACK | 0x80, 100), &[2, 0]),
        (segment(FLOW, 200, FIN, 100), &[2, 0]),
    ] {
        check(by_first_queue([full(0), full(1), third]), expected);
    }
    let pushed = segment(FLOW, 100, ACK | PSH, 100);
    check(by_first_queue([full(0), pushed, full(2), full(3)]), &[2, 2]);
    check(vec![(full(0), 0), (full(1), 0), (full(2), 1)], &[2, 1]);
}

#[test]
fn frames_with_any_other_octet_in_their_headers_do_not_leave_together() {
    for (is_v4, options) in [(true, false), (true, true), (false, false), (false, true)] {
        let flow = Flow { is_v4, options, ..FLOW };
        let full = |n: u32| segment(flow, n * 100, ACK, 100);
        let Segment { transport, headers, .. } = read(&full(0)).unwrap();
        let (tcp, data) = (ETHERNET_LEN + transport, ETHERNET_LEN + headers);
        // Identification and checksum of IPv4; checksum of TCP.
        let differs = |at: usize| {
            is_v4 && matches!(at, 18 | 19 | 24 | 25) || matches!(at - tcp.min(at), 16 | 17)
        };
        // A shorter length makes a shorter segment, which may be the last one.
        let length = if is_v4 { [16, 17] } else { [18, 19] };
        for at in (0..data).filter(|at| !length.contains(at)) {
            for bit in 0..8 {
                let mut third = full(2);
                third[at] ^= 1 << bit;
                let pushes = at == tcp + FLAGS && matches!(1 << bit, PSH | FIN);
                let lengths = leave(&by_first_queue([full(0), full(1), third])).lengths;
                // What is no segment any more is none of one.
                let expected: &[&[u32]] = match differs(at) || pushes {
                    true => &[&[3]],
                    false => &[&[2, 1], &[2, 0]],
                };
                assert!(expected.contains(&&*lengths), "octet {at}, bit {bit}: {lengths:?}");
            }
        }
    }
}

#[test]
fn frames_leave_together_as_far_as_the_device_cuts_them() {
    let full = |n: u32| segment(FLOW, n * 100, ACK, 100);
    for (size, segments, expected) in [
        (65_536, 65_535, [8, 0]),
        // Shorter than this, with headers of 54 octets.
        (54 + 301, 65_535, [3, 5]),
        (54 + 300, 65_535, [2, 6]),
        (65_536, 2, [2, 6]),
        (0, 0, [1, 7]),
    ] {
        let mut builder = Builder::new();
        builder.limit(size, segments);
        let (first, mut n) = (full(0), 1);
        assert!(builder.begin(&first, read(&first).unwrap(), 0));
        while n < 8 && builder.append(&full(n), &read(&full(n)).unwrap(), 0) {
            n += 1;
        }
        assert_eq!([n, 8 - n], expected, "{size} octets, {segments} segments");
    }
}

#[test]
fn frames_of_other_kinds_are_not_segments() {
    let frame = segment(FLOW, 0, ACK, 100);
    assert!(read(&frame).is_some());
    // A tag, UDP, options, a fragment, one that may be fragmented, reserved bits, a header of TCP that is too short or too long.
    for (at, octet) in
        [(12, 0x81), (23, 17), (14, 0x46), (20, 0x60), (20, 0), (46, 0x51), (46, 0x40), (46, 0xf0)]
    {
        let mut changed = frame.clone();
        changed[at] = octet;
        let is_segment = read(&changed).is_some();
        assert_eq!(is_segment, (at, octet) == (46, 0xf0), "{at}: {octet:#x}");
    }
    for len in 0..frame.len() {
        assert_eq!(read(&frame[..len]), None);
    }
    // Octets that pad it do not count.
    let mut padded = segment(FLOW, 0, ACK, 1);
    padded.resize(60, 0);
    assert_eq!(read(&padded).unwrap().payload(), 1);
}
