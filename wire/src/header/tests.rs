use alloc::{vec, vec::Vec};

use super::*;
use crate::{Full, Writer};
use quicket_testing::Rng;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn cid(bytes: &[u8]) -> ConnectionId {
    ConnectionId::new(bytes).unwrap()
}

fn mask(text: &str) -> [u8; 5] {
    hex(text).try_into().unwrap()
}

/// A header followed by a payload and room for the tag, Length set.
fn packet(header: &LongHeader<'_>, pn: u64, pn_len: usize, payload: usize) -> Vec<u8> {
    let mut buffer = vec![0; 2000];
    let mut writer = Writer::new(&mut buffer);
    let marks = header.encode(&mut writer, pn, pn_len, true).unwrap();
    assert_eq!(writer.position(), header.encoded_len(pn_len));
    writer.zeros(payload).unwrap();
    marks.finish(&mut writer, 16).unwrap();
    writer.zeros(16).unwrap();
    writer.written().to_vec()
}

/// RFC 9001, Appendix A.2.
#[test]
fn the_client_initial_of_rfc_9001() {
    let header = LongHeader {
        kind: PacketKind::Initial,
        version: Version::V1,
        dcid: cid(&hex("8394c8f03e515708")),
        scid: ConnectionId::EMPTY,
        token: &[],
    };
    let mut packet = packet(&header, 2, 4, 1162);
    assert_eq!(packet.len(), 1200);
    assert_eq!(packet[..22], hex("c300000001088394c8f03e5157080000449e00000002"));
    let parsed = Header::parse(&packet, 0).unwrap();
    assert_eq!((parsed.pn_offset, parsed.end), (18, 1200));
    protect(&mut packet, 18, mask("437b9aec36")).unwrap();
    assert_eq!(packet[..22], hex("c000000001088394c8f03e5157080000449e7b9aec34"));
    assert_eq!(unprotect(&mut packet, 18, mask("437b9aec36")), Some((4, 2)));
    assert!(reserved_bits_are_zero(packet[0]));
}

/// RFC 9001, Appendix A.3.
#[test]
fn the_server_initial_of_rfc_9001() {
    let header = LongHeader {
        kind: PacketKind::Initial,
        version: Version::V1,
        dcid: ConnectionId::EMPTY,
        scid: cid(&hex("f067a5502a4262b5")),
        token: &[],
    };
    let mut packet = packet(&header, 1, 2, 99);
    assert_eq!(packet[..20], hex("c1000000010008f067a5502a4262b50040750001"));
    protect(&mut packet, 18, mask("2ec0d8356a")).unwrap();
    assert_eq!(packet[..20], hex("cf000000010008f067a5502a4262b5004075c0d9"));
    assert_eq!(Header::parse(&packet, 0).unwrap().scid, header.scid);
    assert_eq!(unprotect(&mut packet, 18, mask("2ec0d8356a")), Some((2, 1)));
    assert_eq!(packet[0], 0xc1);
}

/// RFC 9001, Appendix A.4, and RFC 9369, Appendix A.4.
#[test]
fn the_retry_packets_of_rfc_9001_and_rfc_9369() {
    let scid = cid(&hex("f067a5502a4262b5"));
    let samples = [
        ("ff000000010008f067a5502a4262b5746f6b656e04a265ba2eff4d829058fb3f0f2496ba", Version::V1),
        ("cf6b3343cf0008f067a5502a4262b5746f6b656ec8646ce8bfe33952d955543665dcc7b6", Version::V2),
    ];
    for (text, version) in samples {
        let bytes = hex(text);
        let header = Header::parse(&bytes, 8).unwrap();
        assert_eq!((header.kind, header.version, header.scid), (PacketKind::Retry, version, scid));
        assert_eq!(header.end, bytes.len());
        let retry = RetryPacket::parse(&bytes, &header).unwrap();
        assert_eq!(retry.token, b"token");
        assert_eq!(retry.tag[..], bytes[20..]);
        assert_eq!(retry.before_tag, &bytes[..20]);
        let encoder = RetryHeader {
            version,
            dcid: &ConnectionId::EMPTY,
            scid: &scid,
            token: b"token",
            unused: 0xff,
        };
        let mut buffer = [0; 20];
        let mut writer = Writer::new(&mut buffer);
        encoder.encode(&mut writer).unwrap();
        assert_eq!(writer.written(), retry.before_tag);
        assert_eq!(encoder.encode(&mut Writer::new(&mut [0; 19])), Err(Full));
    }
}

/// RFC 9000, Section 17.2.5.2.
#[test]
fn a_retry_without_a_token_or_a_whole_tag_is_refused() {
    let bytes = hex("ff000000010008f067a5502a4262b504a265ba2eff4d829058fb3f0f2496ba");
    let header = Header::parse(&bytes, 8).unwrap();
    assert!(matches!(RetryPacket::parse(&bytes, &header), Err(DecodeError::InvalidValue(_))));
    let header = Header::parse(&bytes[..30], 8).unwrap();
    assert_eq!(RetryPacket::parse(&bytes[..30], &header), Err(DecodeError::Truncated));
}

/// RFC 9001, Appendix A.5.
#[test]
fn the_short_header_packet_of_rfc_9001() {
    let header =
        ShortHeader { dcid: ConnectionId::EMPTY, spin: false, key_phase: false, fixed_bit: true };
    let mut buffer = [0; 21];
    let mut writer = Writer::new(&mut buffer);
    assert_eq!(header.encode(&mut writer, 654_360_564, 3), Ok(1));
    assert_eq!(writer.written(), hex("4200bff4"));
    assert_eq!(writer.position(), header.encoded_len(3));
    let mut packet = hex("4200bff4655e5cd55c41f69080575d7999c25a5bfb");
    assert_eq!(header_sample(&packet, 1).unwrap()[..], hex("5e5cd55c41f69080575d7999c25a5bfb"));
    protect(&mut packet, 1, mask("aefefe7d03")).unwrap();
    assert_eq!(packet, hex("4cfe4189655e5cd55c41f69080575d7999c25a5bfb"));
    assert_eq!(unprotect(&mut packet, 1, mask("aefefe7d03")), Some((3, 0x00bff4)));
    assert_eq!(packet[..4], hex("4200bff4"));
}

#[test]
fn short_header_bits_are_where_they_belong() {
    let dcid = cid(&[1, 2, 3, 4, 5, 6, 7, 8]);
    for bits in 0..8 {
        let header = ShortHeader {
            dcid,
            spin: bits & 1 != 0,
            key_phase: bits & 2 != 0,
            fixed_bit: bits & 4 != 0,
        };
        let mut buffer = [0; 12];
        let mut writer = Writer::new(&mut buffer);
        let pn_offset = header.encode(&mut writer, 0x1234, 2).unwrap();
        let parsed = Header::parse(writer.written(), 8).unwrap();
        assert_eq!(parsed.kind, PacketKind::OneRtt);
        assert_eq!((parsed.dcid, parsed.pn_offset, parsed.end), (dcid, pn_offset, 11));
        assert_eq!(parsed.fixed_bit(), header.fixed_bit);
        assert!(!parsed.is_long());
        assert_eq!(spin(parsed.first_byte), header.spin);
        assert_eq!(key_phase(parsed.first_byte), header.key_phase);
        assert!(reserved_bits_are_zero(parsed.first_byte));
        assert_eq!(header.encode(&mut Writer::new(&mut [0; 10]), 0, 2), Err(Full));
    }
}

/// RFC 9000, Section 17.2, Table 5, and RFC 9369, Section 3.2.
#[test]
fn the_type_bits_depend_on_the_version() {
    let types = [
        (PacketKind::Initial, 0xc0, 0xd0),
        (PacketKind::ZeroRtt, 0xd0, 0xe0),
        (PacketKind::Handshake, 0xe0, 0xf0),
    ];
    for (kind, v1, v2) in types {
        for (version, first_byte) in [(Version::V1, v1), (Version::V2, v2)] {
            let header =
                LongHeader { kind, version, dcid: cid(&[1; 20]), scid: cid(&[2]), token: b"tok" };
            let bytes = packet(&header, 0, 1, 10);
            assert_eq!(bytes[0], first_byte);
            let parsed = Header::parse(&bytes, 8).unwrap();
            assert_eq!((parsed.kind, parsed.version), (kind, version));
            assert_eq!((parsed.dcid, parsed.scid), (header.dcid, header.scid));
            let token = if kind == PacketKind::Initial { &b"tok"[..] } else { b"" };
            assert_eq!(&bytes[parsed.token.clone()], token);
            assert_eq!(parsed.end, bytes.len());
            assert_eq!(parsed.end - parsed.pn_offset, 1 + 10 + 16);
        }
    }
}

#[test]
fn kinds_and_versions_without_a_long_header_are_not_written() {
    use PacketKind::{Initial, OneRtt, Retry, UnknownVersion, VersionNegotiation};
    let refused = [
        (OneRtt, Version::V1),
        (Retry, Version::V1),
        (VersionNegotiation, Version::V1),
        (UnknownVersion, Version::V1),
        (Initial, Version::NEGOTIATION),
    ];
    // RFC 9000, Section 6.3: a client may begin with a version that nobody speaks.
    let unspoken = LongHeader {
        kind: Initial,
        version: Version(0x1a2a_3a4a),
        dcid: ConnectionId::EMPTY,
        scid: ConnectionId::EMPTY,
        token: &[],
    };
    assert!(unspoken.encode(&mut Writer::new(&mut [0; 100]), 0, 1, true).is_ok());
    for (kind, version) in refused {
        let header = LongHeader {
            kind,
            version,
            dcid: ConnectionId::EMPTY,
            scid: ConnectionId::EMPTY,
            token: &[],
        };
        assert_eq!(header.encode(&mut Writer::new(&mut [0; 100]), 0, 1, true), Err(Full));
    }
}

/// RFC 9000, Section 12.2.
#[test]
fn coalesced_packets_are_found_one_by_one() {
    let long = |kind| LongHeader {
        kind,
        version: Version::V1,
        dcid: cid(&[1; 8]),
        scid: cid(&[2; 8]),
        token: &[],
    };
    let mut datagram = packet(&long(PacketKind::Initial), 0, 1, 30);
    datagram.extend(packet(&long(PacketKind::Handshake), 0, 2, 40));
    datagram.extend(hex("400101010101010101"));
    datagram.extend([0; 30]);
    let mut rest = &datagram[..];
    let mut kinds = Vec::new();
    while !rest.is_empty() {
        let header = Header::parse(rest, 8).unwrap();
        assert_eq!(header.dcid, cid(&[1; 8]));
        kinds.push(header.kind);
        rest = &rest[header.end..];
    }
    assert_eq!(kinds, [PacketKind::Initial, PacketKind::Handshake, PacketKind::OneRtt]);
}

/// RFC 9000, Section 17.2.
#[test]
fn a_length_beyond_the_datagram_is_refused() {
    let header = LongHeader {
        kind: PacketKind::Handshake,
        version: Version::V1,
        dcid: cid(&[1; 8]),
        scid: cid(&[2; 8]),
        token: &[],
    };
    let bytes = packet(&header, 0, 1, 30);
    for size in 0..bytes.len() {
        assert_eq!(Header::parse(&bytes[..size], 8), Err(DecodeError::Truncated));
    }
}

#[test]
fn the_length_field_cannot_overflow() {
    let header = LongHeader {
        kind: PacketKind::Handshake,
        version: Version::V1,
        dcid: ConnectionId::EMPTY,
        scid: ConnectionId::EMPTY,
        token: &[],
    };
    let mut buffer = vec![0; 20_000];
    let mut writer = Writer::new(&mut buffer);
    let marks = header.encode(&mut writer, 0, 1, true).unwrap();
    writer.zeros(16_383 - 1 - 16).unwrap();
    assert_eq!(marks.finish(&mut writer, 16), Ok(()));
    assert_eq!(marks.finish(&mut writer, 17), Err(Full));
}

/// RFC 9000, Section 17.2: longer connection IDs are for other versions only.
#[test]
fn connection_ids_of_more_than_20_bytes_need_an_unknown_version() {
    for version in [Version::V1, Version::V2, Version::NEGOTIATION, Version(0x1a2a_3a4a)] {
        let mut bytes = vec![0xc0];
        bytes.extend(version.0.to_be_bytes());
        bytes.push(21);
        bytes.extend([1; 21]);
        bytes.push(255);
        bytes.extend([2; 255]);
        bytes.extend([0; 100]);
        let view = InvariantHeader::parse(&bytes).unwrap();
        assert_eq!((view.version, view.dcid, view.scid), (version, &[1; 21][..], &[2; 255][..]));
        assert_eq!(view.rest, [0; 100]);
        let parsed = Header::parse(&bytes, 8);
        if version == Version(0x1a2a_3a4a) {
            let header = parsed.unwrap();
            assert_eq!(header.kind, PacketKind::UnknownVersion);
            assert_eq!((header.dcid, header.scid), (ConnectionId::EMPTY, ConnectionId::EMPTY));
            assert_eq!(header.end, bytes.len());
        } else {
            assert!(matches!(parsed, Err(DecodeError::InvalidValue(_))));
        }
        for size in 0..bytes.len() - 100 {
            assert_eq!(InvariantHeader::parse(&bytes[..size]), Err(DecodeError::Truncated));
        }
    }
    assert!(matches!(InvariantHeader::parse(&[0x40; 50]), Err(DecodeError::InvalidValue(_))));
}

/// RFC 8999, Section 6.
#[test]
fn version_negotiation_lists_round_trip() {
    let mut buffer = [0; 1200];
    let mut writer = Writer::new(&mut buffer);
    let versions = [Version::V2, Version(0x1a2a_3a4a), Version::V1];
    encode_version_negotiation(&mut writer, 0xff, &[1; 20], &[], versions).unwrap();
    let bytes = writer.written().to_vec();
    assert_eq!(bytes[0], 0xff);
    let header = Header::parse(&bytes, 8).unwrap();
    assert_eq!((header.kind, header.dcid), (PacketKind::VersionNegotiation, cid(&[1; 20])));
    assert_eq!(header.end, bytes.len());
    let packet = VersionNegotiation::parse(&bytes).unwrap();
    assert_eq!((packet.dcid, packet.scid), (&[1; 20][..], &[][..]));
    assert!(packet.versions().eq(versions));
    assert_eq!(packet.versions().len(), 3);
    for cut in [1, 2, 3, 5] {
        let size = bytes.len() - cut;
        assert_eq!(VersionNegotiation::parse(&bytes[..size]), Err(DecodeError::Truncated));
    }
    let empty = &bytes[..bytes.len() - 12];
    assert!(matches!(VersionNegotiation::parse(empty), Err(DecodeError::InvalidValue(_))));
    let mut version_1 = bytes.clone();
    version_1[4] = 1;
    assert!(matches!(VersionNegotiation::parse(&version_1), Err(DecodeError::InvalidValue(_))));
    let long = [0; 256];
    let refused = encode_version_negotiation(&mut Writer::new(&mut buffer), 0, &long, &[], []);
    assert_eq!(refused, Err(Full));
}

#[test]
fn the_longest_connection_ids_are_answered() {
    let mut buffer = [0; 600];
    let mut writer = Writer::new(&mut buffer);
    encode_version_negotiation(&mut writer, 0, &[1; 255], &[2; 255], [Version::V1]).unwrap();
    let packet = VersionNegotiation::parse(writer.written()).unwrap();
    assert_eq!((packet.dcid.len(), packet.scid.len()), (255, 255));
}

/// RFC 9000, Sections 17.2 and 17.3.1.
#[test]
fn reserved_bits_differ_between_header_forms() {
    for first_byte in 0..=255 {
        let reserved = if first_byte >= 0x80 { 0b0000_1100 } else { 0b0001_1000 };
        assert_eq!(reserved_bits_are_zero(first_byte), first_byte & reserved == 0);
    }
}

/// RFC 9001, Section 5.4.2.
#[test]
fn packets_too_short_for_a_sample_stay_as_they_are() {
    let mut packet = [0x40; 20];
    assert!(header_sample(&packet, 1).is_none());
    assert!(header_sample(&packet, 0).is_some());
    assert!(header_sample(&packet, usize::MAX).is_none());
    for pn_offset in [0, 17, 20, 21, usize::MAX] {
        assert_eq!(unprotect(&mut packet, pn_offset, [0xff; 5]), None);
        assert_eq!(protect(&mut packet, pn_offset, [0xff; 5]), None);
    }
    assert_eq!(packet, [0x40; 20]);
}

#[test]
fn protection_is_undone_for_all_first_bytes_and_masks() {
    let mut rng = Rng::new(20);
    for first_byte in 0..=255 {
        let mut original = [0; 24];
        original.iter_mut().for_each(|byte| *byte = rng.next() as u8);
        original[0] = first_byte;
        let random = rng.next().to_be_bytes();
        let mask = [random[0], random[1], random[2], random[3], random[4]];
        let mut packet = original;
        protect(&mut packet, 5, mask).unwrap();
        let (pn_len, pn) = unprotect(&mut packet, 5, mask).unwrap();
        assert_eq!(packet, original);
        assert_eq!(pn_len, usize::from(first_byte & 3) + 1);
        let expected = original[5..5 + pn_len].iter().fold(0, |n, byte| n << 8 | u32::from(*byte));
        assert_eq!(pn, expected);
    }
}

#[test]
fn garbage_is_parsed_or_refused_and_offsets_stay_inside() {
    let mut rng = Rng::new(21);
    let mut parsed = 0;
    for round in 0..60_000 {
        let mut bytes = rng.bytes_up_to(70);
        if round % 2 == 0 && bytes.len() > 5 {
            let version = [Version::V1, Version::V2, Version::NEGOTIATION][round / 2 % 3];
            bytes[0] |= 0x80;
            bytes[1..5].copy_from_slice(&version.0.to_be_bytes());
            bytes[5] &= 0x0f;
        }
        let local_cid_len = rng.below(25) as usize;
        let Ok(header) = Header::parse(&bytes, local_cid_len) else { continue };
        parsed += 1;
        assert!(header.pn_offset <= header.end && header.end <= bytes.len());
        assert!(header.end > 0, "a datagram of empty packets would never end");
        assert!(header.token.start <= header.token.end && header.token.end <= header.pn_offset);
        let _ = RetryPacket::parse(&bytes, &header);
        let _ = VersionNegotiation::parse(&bytes);
        let _ = InvariantHeader::parse(&bytes);
        let _ = header_sample(&bytes, header.pn_offset);
        let _ = unprotect(&mut bytes[..header.end], header.pn_offset, [0xff; 5]);
    }
    assert!(parsed > 10_000, "only {parsed} headers parsed: the test lost its point");
}
