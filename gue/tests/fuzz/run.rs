//! What a tunnel does with bytes of strangers, and what must hold whatever they are.

use quicket_gue::super_packet::{Most, Segment, SuperPacket};
use quicket_gue::vnet::Vnet;
use quicket_gue::{
    Arrival, Ecn, EcnIngress, Gre, Gue, Kind, MAX_GRE_LEN, MAX_GUE_LEN, MAX_ICMP, Packet, Probe,
    Sum, decode, encapsulation_limit, flow, fragments, parameter_problem, set_ecn, too_big,
};

/// The first byte chooses where the input begins.
pub(crate) fn run(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else { return };
    match choice % 3 {
        0 => datagram(bytes),
        1 => gre(bytes),
        _ => packet(bytes, u16::from(*choice) * 8),
    }
}

fn datagram(bytes: &[u8]) {
    if let Some(probe) = Probe::decode(bytes) {
        assert!(matches!(decode(bytes).expect("it is GUE").kind, Kind::Control(_)));
        assert_eq!(Probe::decode(&probe.encode()), Some(probe));
    }
    let Ok(decoded) = decode(bytes) else { return };
    assert!(bytes.ends_with(decoded.payload), "the payload is the datagram's end");
    if decoded.version == 0 {
        let gue = Gue { kind: decoded.kind, remote_checksum: decoded.remote_checksum };
        let mut header = [0; MAX_GUE_LEN];
        let len = gue.encode(&mut header).expect("there is room");
        let again = [&header[..len], decoded.payload].concat();
        let again = decode(&again).expect("what is written is understood");
        assert_eq!((again.kind, again.remote_checksum), (decoded.kind, decoded.remote_checksum));
        assert_eq!(again.payload, decoded.payload);
    }
    let mut payload = decoded.payload.to_vec();
    if let Some(option) = decoded.remote_checksum {
        option.apply(&mut payload).expect("the offsets have been checked");
    }
    match decoded.kind {
        Kind::Data(47) => gre(&payload),
        Kind::Data(4 | 41) => packet(&payload, 1280),
        _ => {}
    }
}

fn gre(bytes: &[u8]) {
    let Ok((gre, payload)) = Gre::decode(bytes) else { return };
    assert!(bytes.ends_with(payload));
    let mut header = [0; MAX_GRE_LEN];
    let len = gre.encode(&mut header, Sum::new().bytes(payload)).expect("there is room");
    let again = [&header[..len], payload].concat();
    assert_eq!(Gre::decode(&again), Ok((gre, payload)));
    packet(payload, 1000);
}

/// A packet that is followed by one like it, and by that with one octet changed.
fn joined(bytes: &[u8]) {
    if let Some(vnet) = bytes.first_chunk().and_then(|header| Vnet::decode(*header)) {
        let again = Vnet::decode(vnet.encode(true, 40)).expect("what is written is understood");
        assert_eq!(again, vnet);
    }
    let Some(first) = Segment::read(bytes) else { return };
    assert!(first.headers < first.end && first.end <= bytes.len());
    let most = Most { packets: 3, len: 65_535 };
    let mut next = bytes[..first.end].to_vec();
    let sequence = first.transport + 4..first.transport + 8;
    if first.headers - first.transport >= 20 {
        let number = u32::from_be_bytes(bytes[sequence.clone()].try_into().expect("four octets"));
        let number = number.wrapping_add(first.payload() as u32);
        next[sequence].copy_from_slice(&number.to_be_bytes());
    }
    let mut whole = SuperPacket::new(first);
    let follows = Segment::read(&next).expect("another number changes no more");
    if !whole.take(bytes, &follows, &next, most) {
        let pushes = first.transport + 13 < first.headers && bytes[first.transport + 13] & 9 != 0;
        assert!(pushes || first.end + first.payload() > most.len, "it follows");
    }
    let at = usize::from(bytes[first.end - 1]) % first.headers;
    next[at] ^= 1 << (bytes[first.end - 1] >> 5);
    if let Some(changed) = Segment::read(&next) {
        let _ = whole.take(bytes, &changed, &next, most);
    }
    let mut headers = bytes[..first.headers].to_vec();
    let vnet = whole.write_headers(&mut headers).expect("these are the headers");
    assert_eq!(Vnet::decode(vnet.encode(first.is_v4, first.headers as u16)), Some(vnet));
    let payload = whole.octets() - first.headers;
    headers.resize(whole.octets(), 0);
    let packet = Packet::parse(&headers).expect("a super-packet is a packet");
    assert_eq!(packet.bytes.len(), whole.octets());
    assert_eq!(payload.div_ceil(first.payload()), whole.packets() as usize);
}

fn packet(bytes: &[u8], mtu: u16) {
    joined(bytes);
    let Ok(packet) = Packet::parse(bytes) else { return };
    assert!(bytes.starts_with(packet.bytes) && packet.transport <= packet.bytes.len());
    let _ = (packet.ports(), flow::hash(&packet, 1));
    if let Some((at, limit)) = encapsulation_limit(&packet) {
        assert_eq!(packet.bytes[at], limit);
    }
    let mut error = [0; MAX_ICMP];
    for len in [too_big(&packet, mtu, &mut error), parameter_problem(&packet, 6, &mut error)] {
        let len = len.expect("there is room");
        if len > 0 {
            let answer = Packet::parse(&error[..len]).expect("an error is a packet");
            assert_eq!(answer.destination, packet.source);
        }
    }
    if let Some(parts) = fragments(&packet, usize::from(mtu)) {
        let mut whole: Vec<u8> = Vec::new();
        for part in parts {
            let bytes = [part.header(), part.payload].concat();
            assert!(bytes.len() <= usize::from(mtu));
            let fragment = Packet::parse(&bytes).expect("a fragment is a packet");
            assert_eq!(fragment.bytes, bytes);
            whole.extend(part.payload);
        }
        assert_eq!(whole, packet.payload(), "nothing is lost");
    }
    let inner = Ecn::from_bits(packet.tos);
    let mut marked = packet.bytes.to_vec();
    if let Arrival::Forward { ecn, .. } = inner.decapsulate(inner.encapsulate(EcnIngress::Normal)) {
        assert_eq!(ecn, inner, "without congestion on the way nothing changes");
    }
    set_ecn(&mut marked, Ecn::Ce);
    let marked = Packet::parse(&marked).expect("a mark changes no length");
    assert_eq!(marked.tos, packet.tos | 3);
}
