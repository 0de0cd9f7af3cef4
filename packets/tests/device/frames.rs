//! Frames at random: in order, and changed in a few places.

use quicket_gue::Sum;
use quicket_testing::Rng;

pub(crate) const UDP: u8 = 17;
pub(crate) const TCP: u8 = 6;

/// A frame, most of them in order, to one of a few destinations.
pub(crate) fn random(rng: &mut Rng) -> Vec<u8> {
    let mut frame = vec![0; 12];
    for _ in 0..rng.pick(&[0, 0, 0, 0, 0, 1, 1, 2, 3]) {
        let vlan = rng.pick(&[0_u16, 0, 0, 0xe000, 5]);
        frame.extend(rng.pick(&[[0x81, 0], [0x88, 0xa8]]));
        frame.extend(vlan.to_be_bytes());
    }
    let is_v4 = rng.index(2) == 0;
    frame.extend(if is_v4 { [8, 0] } else { [0x86, 0xdd] });
    let ip = frame.len();
    let protocol = rng.pick(&[UDP, UDP, UDP, TCP, TCP, 47, 50, 1, 58, 132, 59]);
    let transport = transport(rng, protocol);
    match is_v4 {
        true => v4(rng, &mut frame, protocol, &transport),
        false => v6(rng, &mut frame, protocol, &transport),
    }
    let whole = frame.len();
    // To the shortest frame, before or after the tags came.
    let tags = ip - 14;
    match rng.index(8) {
        0 => frame.resize(whole.max(60), 0),
        1 => frame.resize(whole.max(60 + tags), 0),
        2 => frame.resize(whole.max(61 + tags), 0),
        _ => {}
    }
    // Header octets, mostly.
    for _ in 0..rng.pick(&[0, 0, 1, 1, 2]) {
        let at = 12 + rng.index((whole - 12).min(70));
        let any = rng.next() as u8;
        frame[at] = rng.pick(&[0, 1, 5, 44, 0x45, 0xff, any]);
    }
    match rng.index(12) {
        0 => frame.truncate(14 + rng.index(frame.len() - 13)),
        1 => frame.extend(vec![0; 1 + rng.index(20)]),
        _ => {}
    }
    mend(&mut frame, ip);
    frame
}

fn transport(rng: &mut Rng, protocol: u8) -> Vec<u8> {
    let port = rng.pick(&[53_u16, 53, 53, 54]).to_be_bytes();
    let payload = rng.index(60);
    let mut bytes = vec![4, 0, port[0], port[1]];
    match protocol {
        UDP => {
            bytes.extend((8 + payload as u16).to_be_bytes());
            bytes.extend([0, 0]);
        }
        TCP => {
            let words = rng.pick(&[5_u8, 5, 6, 10]);
            bytes.extend([0, 0, 0, 1, 0, 0, 0, 0, words << 4, 2, 0, 9, 0, 0, 0, 0]);
            bytes.resize(usize::from(words) * 4, 1);
        }
        _ => {}
    }
    bytes.resize(bytes.len() + payload, 7);
    bytes
}

fn v4(rng: &mut Rng, frame: &mut Vec<u8>, protocol: u8, transport: &[u8]) {
    let options: &[u8] = rng.pick(&[&[][..], &[], &[], &[1, 1, 1, 0], &[131, 4, 4, 0]]);
    let header = 20 + options.len();
    let len = (header + transport.len()) as u16;
    let fragment = rng.pick(&[0_u16, 0x4000, 0x4000, 0x2000, 1]);
    frame.extend([0x40 | (header / 4) as u8, 0]);
    frame.extend(len.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, protocol, 0, 0, 192, 0, 2, 9]);
    let ours = [192, 0, 2, 1];
    frame.extend(rng.pick(&[ours, ours, ours, [192, 0, 2, 2], [127, 0, 0, 1]]));
    frame.extend(options);
    frame.extend(transport);
}

fn v6(rng: &mut Rng, frame: &mut Vec<u8>, protocol: u8, transport: &[u8]) {
    let count = rng.pick(&[0, 0, 0, 1, 2, 7, 8, 9]);
    let kinds: Vec<u8> = (0..count)
        .map(|at| rng.pick(&[60, 60, 60, 60, 60, if at == 0 { 0 } else { 60 }]))
        .collect();
    let mut chain = Vec::new();
    for at in 0..kinds.len() {
        let words = rng.pick(&[0_usize, 0, 1]);
        chain.extend([kinds.get(at + 1).copied().unwrap_or(protocol), words as u8]);
        chain.resize(chain.len() + 6 + words * 8, 0);
    }
    if rng.index(8) == 0 {
        // A fragment header, or one of routing, at the end of the chain. Its next header is the protocol.
        let last = rng.pick(&[44, 43]);
        if kinds.is_empty() {
            return v6_of(rng, frame, last, &[&[protocol, 0, 0, 1, 0, 0, 0, 0], transport]);
        }
    }
    let first = kinds.first().copied().unwrap_or(protocol);
    v6_of(rng, frame, first, &[&chain, transport]);
}

fn v6_of(rng: &mut Rng, frame: &mut Vec<u8>, first: u8, payload: &[&[u8]]) {
    let payload = payload.concat();
    frame.extend([0x60, 0, 0, 0]);
    frame.extend((payload.len() as u16).to_be_bytes());
    frame.extend([first, 64]);
    frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    match rng.index(8) {
        0 => frame.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]),
        1 => frame.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        _ => {
            frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            frame.push(rng.pick(&[1, 1, 1, 2]));
        }
    }
    frame.extend(payload);
}

/// Writes right checksums, where there is a place for them, so that more than checksums is tried.
fn mend(frame: &mut [u8], ip: usize) {
    let Some(packet) = frame.get_mut(ip..) else { return };
    let Some(&first) = packet.first() else { return };
    let (mut at, mut protocol) = match first >> 4 {
        4 if packet.len() >= 20 => {
            let header = usize::from(first & 0xf) * 4;
            if header < 20 || header > packet.len() {
                return;
            }
            packet[10..12].fill(0);
            let sum = Sum::new().bytes(&packet[..header]).checksum();
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            (header, packet[9])
        }
        6 if packet.len() >= 40 => (40, packet[6]),
        _ => return,
    };
    let (len, addresses) = match first >> 4 {
        4 => (usize::from(u16::from_be_bytes([packet[2], packet[3]])), 12..20),
        _ => (40 + usize::from(u16::from_be_bytes([packet[4], packet[5]])), 8..40),
    };
    while first >> 4 == 6 && matches!(protocol, 0 | 60) && at + 2 <= packet.len() {
        (protocol, at) = (packet[at], at + 8 + 8 * usize::from(packet[at + 1]));
    }
    if len > packet.len() || at > len {
        return;
    }
    let addresses = packet[addresses].to_vec();
    let payload = &mut packet[at..len];
    let place = match protocol {
        UDP => 6,
        TCP => 16,
        1 | 58 => 2,
        _ => return,
    };
    if payload.len() < place + 2 {
        return;
    }
    payload[place..place + 2].fill(0);
    let mut sum = Sum::new();
    if protocol != 1 {
        sum = sum.bytes(&addresses).add_u16(protocol.into()).add_u32(payload.len() as u32);
    }
    let sum = match sum.bytes(payload).checksum() {
        0 => 0xffff,
        sum => sum,
    };
    payload[place..place + 2].copy_from_slice(&sum.to_be_bytes());
}
