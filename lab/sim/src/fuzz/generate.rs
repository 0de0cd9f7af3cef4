//! Random inputs that reach far: mostly well formed, with numbers at their edges.

use quicket_engine::random::Random;
use quicket_wire::Writer;

use crate::rng::SimRng;

/// Frame types that the engine knows.
const FRAME_TYPES: &[u64] = &[
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x0a, 0x0b, 0x0c, 0x0e, 0x0f, 0x10, 0x11,
    0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f, 0x30, 0x31,
    0xaf,
];
/// Those that do not end a connection soon.
const TAME_TYPES: &[u64] = &[
    0x01, 0x04, 0x05, 0x06, 0x0a, 0x0b, 0x0e, 0x0e, 0x0f, 0x0f, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15,
    0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x31, 0xaf,
];

/// A number: small, at an edge, or anything.
fn number(rng: &mut SimRng) -> u64 {
    match rng.below(8) {
        0..=3 => rng.below(8),
        4 => rng.below(1 << 14),
        5 => 10_000 + rng.below(100),
        6 => (1 << rng.below(62)) - rng.below(2),
        _ => (1 << 62) - 1 - rng.below(3),
    }
}

fn varint(out: &mut Vec<u8>, value: u64) {
    let mut buf = [0; 8];
    let mut writer = Writer::new(&mut buf);
    writer.varint(value.min((1 << 62) - 1)).expect("eight bytes are enough");
    let len = writer.position();
    out.extend_from_slice(&buf[..len]);
}

fn data(rng: &mut SimRng, out: &mut Vec<u8>, max: u64) {
    let len = rng.below(max);
    varint(out, len);
    let start = out.len();
    out.resize(start + len as usize, 0);
    rng.fill(&mut out[start..]);
}

fn frame(rng: &mut SimRng, out: &mut Vec<u8>) {
    let types = if rng.one_in(8) { FRAME_TYPES } else { TAME_TYPES };
    let kind = *rng.pick(types);
    varint(out, kind);
    let numbers = |rng: &mut SimRng, out: &mut Vec<u8>, count| {
        for _ in 0..count {
            let value = number(rng);
            varint(out, value);
        }
    };
    match kind {
        0x02 | 0x03 => {
            numbers(rng, out, 2);
            let ranges = rng.below(4);
            varint(out, ranges);
            numbers(rng, out, 1 + 2 * ranges);
            numbers(rng, out, if kind == 3 { 3 } else { 0 });
        }
        0x04 => numbers(rng, out, 3),
        0x05 | 0x11 | 0x15 => numbers(rng, out, 2),
        0x06 => {
            numbers(rng, out, 1);
            data(rng, out, 200);
        }
        0x07 => data(rng, out, 50),
        0x08..=0x0f => {
            numbers(rng, out, 1 + (kind >> 2 & 1));
            if kind & 2 != 0 {
                data(rng, out, 300);
            }
        }
        0x10 | 0x12 | 0x13 | 0x14 | 0x16 | 0x17 | 0x19 => numbers(rng, out, 1),
        0x18 => {
            let sequence = number(rng);
            varint(out, sequence);
            let prior = rng.below(sequence.min(1 << 20) + 2);
            varint(out, prior);
            out.push(8);
            out.extend_from_slice(&sequence.to_be_bytes());
            out.extend_from_slice(&[sequence as u8; 16]);
        }
        0x1a | 0x1b => out.extend_from_slice(&rng.next_u64().to_be_bytes()),
        0x1c => {
            numbers(rng, out, 2);
            data(rng, out, 20);
        }
        0x1d => {
            numbers(rng, out, 1);
            data(rng, out, 20);
        }
        0x31 => data(rng, out, 100),
        0xaf => numbers(rng, out, 4),
        _ => {}
    }
}

fn chunk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
    out.extend_from_slice(bytes);
}

pub(super) fn frames(rng: &mut SimRng) -> Vec<u8> {
    let mut out = vec![rng.below(6) as u8];
    for _ in 0..rng.between(1, 40) {
        let step = rng.below(16) as u8;
        out.push(step);
        match step {
            0..=8 | 15 => {
                if step == 15 {
                    out.push(rng.below(256) as u8);
                }
                let mut payload = Vec::new();
                for _ in 0..rng.between(1, 6) {
                    frame(rng, &mut payload);
                }
                if rng.one_in(20) {
                    let at = rng.below(payload.len() as u64) as usize;
                    payload.truncate(at);
                }
                chunk(&mut out, &payload);
            }
            9 => out.extend_from_slice(&(rng.below(3_000) as u16).to_be_bytes()),
            13 | 14 => out.push(rng.below(256) as u8),
            _ => {}
        }
    }
    out
}

pub(super) fn datagrams(rng: &mut SimRng) -> Vec<u8> {
    let mut out = vec![rng.next_u64() as u8];
    for _ in 0..rng.between(1, 40) {
        let step = rng.next_u64() as u8;
        out.push(step);
        match step % 8 {
            0 | 1 => {
                let mut datagram = vec![0; rng.below(1_400) as usize];
                rng.fill(&mut datagram);
                if datagram.len() > 6 && rng.one_in(2) {
                    datagram[0] |= 0xc0;
                    datagram[1..5].copy_from_slice(&[0, 0, 0, rng.below(2) as u8]);
                    datagram[5] %= 21;
                }
                chunk(&mut out, &datagram);
            }
            5 => {
                let mut change = [0; 16];
                rng.fill(&mut change);
                out.extend_from_slice(&change);
            }
            6 => out.extend_from_slice(&(rng.below(5_000) as u16).to_be_bytes()),
            _ => {}
        }
    }
    out
}

pub(super) fn parameters(rng: &mut SimRng) -> Vec<u8> {
    let mut out = vec![rng.below(2) as u8];
    for _ in 0..rng.below(20) {
        let id = match rng.below(10) {
            0 => number(rng),
            1 => *rng.pick(&[0x20, 0x2ab2, 0xbaad, 0xff04_de1b]),
            _ => rng.below(0x12),
        };
        varint(&mut out, id);
        let mut value = Vec::new();
        match id {
            0x00 | 0x0f | 0x10 => value.resize(rng.below(22) as usize, 7),
            0x02 => value.resize(16 - rng.below(8) as usize / 7, 7),
            0x0d => {
                value.resize(24, 1);
                value.push(8);
                value.resize(25 + 8 + 16, 3);
            }
            0x11 => value.resize(4 * rng.below(300) as usize, 1),
            0x0c | 0x2ab2 | 0xbaad => {}
            _ => {
                let content = number(rng);
                varint(&mut value, content);
            }
        }
        if rng.one_in(20) {
            value.push(0);
        }
        varint(&mut out, value.len() as u64);
        out.extend_from_slice(&value);
    }
    out
}

pub(super) fn tokens(rng: &mut SimRng) -> Vec<u8> {
    let mut out = vec![rng.below(4) as u8];
    let mut nonce = [0; 12];
    rng.fill(&mut nonce);
    out.extend_from_slice(&nonce);
    out.push(rng.below(3) as u8);
    // Near the time at which tokens are judged, mostly.
    let issued = if rng.one_in(4) { rng.next_u64() } else { 1_700_000_000 + rng.below(8) - 4 };
    out.extend_from_slice(&issued.to_be_bytes());
    let address: &[u8] = if rng.one_in(4) { &[6, 0, 0, 0] } else { &[4, 10, 0, 0, 1] };
    out.extend_from_slice(address);
    out.extend_from_slice(&50_000_u16.to_be_bytes());
    for _ in 0..2 {
        let len = rng.below(24) as u8;
        out.push(len);
        out.resize(out.len() + usize::from(len), 5);
    }
    if rng.one_in(3) {
        let len = rng.below(out.len() as u64) as usize;
        out.truncate(len.max(1));
    }
    out
}
