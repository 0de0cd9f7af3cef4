//! What becomes of packets from the device: tests.

use super::*;
use crate::testing::{ip, is_intact, tcp, tunnel, udp};
use quicket_gue::{EcnIngress, Gre, Kind, decode};

const ENDS: &str = "remote 192.0.2.2 local 192.0.2.1";

fn build(words: &str, vnet: Vnet, bytes: &[u8], mtu: u16) -> (Verdict, Vec<Vec<u8>>, Vec<usize>) {
    let tunnel = tunnel(words);
    let sequence = AtomicU32::new(5);
    let context = Context {
        tunnel: &tunnel,
        secret: 1,
        sequence: &sequence,
        mtu,
        limit: tunnel.encaplimit,
        peers: None,
    };
    let mut outbound = Outbound::default();
    let verdict = outbound.build(context, vnet, bytes, 0..bytes.len());
    let datagrams = outbound.pieces().iter().map(|piece| {
        let mut whole = outbound.arena()[piece.header.clone()].to_vec();
        whole.extend(&bytes[piece.payload.clone()]);
        assert_eq!(whole.len(), piece.len());
        whole
    });
    let datagrams = datagrams.collect();
    (verdict, datagrams, bursts(outbound.pieces(), 64).map(<[Piece]>::len).collect())
}

fn super_packet(size: u16) -> Vnet {
    let partial = Some(Partial { start: 20, offset: 16 });
    Vnet { partial, offload: Some((Offload::Tcp, size)) }
}

#[test]
fn each_encapsulation_has_its_header() {
    let packet = udp(true, b"hello");
    for (words, protocol, header) in [
        (format!("a type ipip {ENDS} encap fou encap-dport 7"), 4, 0),
        (format!("a type ipip {ENDS} encap gue"), 4, 4),
        (format!("a type ipip {ENDS} encap gue encap-version 1"), 4, 0),
        (format!("a type gre {ENDS} encap gue"), 47, 8),
        (format!("a type gre {ENDS} encap fou"), 47, 4),
        ("a type ip6tnl remote 2001:db8::2 encap gue".to_owned(), 4, 4),
        (format!("a type sit {ENDS}"), 4, 0),
        (format!("a type gre {ENDS} encap none"), 47, 4),
        ("a type ip6tnl remote 2001:db8::2".to_owned(), 4, 0),
        ("a type ip6tnl remote 2001:db8::2 encaplimit 7".to_owned(), 60, 8),
    ] {
        let (verdict, datagrams, _) = build(&words, Vnet::default(), &packet, 1400);
        let Verdict::Send(sending) = verdict else { panic!("{words}: {verdict:?}") };
        if !words.contains("encap fou") && !words.contains("encap gue") {
            assert_eq!(sending.protocol, protocol, "{words}");
        }
        if protocol == 60 {
            assert_eq!(datagrams[0][..8], [4, 0, 4, 1, 7, 1, 1, 0]);
        }
        assert_eq!(datagrams.len(), 1);
        assert_eq!(datagrams[0].len(), packet.len() + header, "{words}");
        assert_eq!(datagrams[0][header..], packet);
        if words.contains("gue") {
            assert_eq!(decode(&datagrams[0]).unwrap().kind, Kind::Data(protocol));
        }
    }
}

#[test]
fn a_super_packet_becomes_one_burst_of_whole_segments() {
    let packet = tcp(true, 1, 0x18, &[9; 10_000]);
    let words = format!("a type gre {ENDS} encap gue key 7 seq csum");
    let (verdict, datagrams, bursts) = build(&words, super_packet(1400), &packet, 1440);
    assert!(matches!(verdict, Verdict::Send(_)));
    assert_eq!((datagrams.len(), bursts), (8, vec![8]));
    for (index, datagram) in datagrams.iter().enumerate() {
        let (gre, inner) = Gre::decode(decode(datagram).unwrap().payload).unwrap();
        assert_eq!((gre.key, gre.sequence), (Some(7), Some(5 + index as u32)));
        assert!(gre.checksum && is_intact(inner));
    }
}

#[test]
fn bursts_end_at_the_systems_limits() {
    let packet = tcp(true, 1, 0x18, &[9; 64_000]);
    let words = format!("a type ipip {ENDS} encap gue");
    let (_, datagrams, bursts) = build(&words, super_packet(500), &packet, 1440);
    assert_eq!((datagrams.len(), bursts), (128, vec![64, 64]));
    let (_, datagrams, bursts) = build(&words, super_packet(1400), &packet, 1440);
    assert_eq!(bursts.iter().sum::<usize>(), datagrams.len());
    assert_eq!(bursts.len(), 2, "{bursts:?}");
}

#[test]
fn open_checksums_are_left_to_the_other_end_on_request() {
    let packet = tcp(true, 1, 0x18, &[9; 3000]);
    for (words, start) in [("ipip", 20), ("gre", 24)] {
        let words = format!("a type {words} {ENDS} encap gue encap-remcsum");
        let (_, datagrams, _) = build(&words, super_packet(1400), &packet, 1440);
        for datagram in &datagrams {
            let decoded = decode(datagram).unwrap();
            let option = decoded.remote_checksum.unwrap();
            assert_eq!((option.start, option.offset), (start, start + 16));
            let mut payload = decoded.payload.to_vec();
            option.apply(&mut payload).unwrap();
            assert!(is_intact(&payload[usize::from(start) - 20..]));
        }
        let whole = udp(true, b"no open checksum");
        let (_, datagrams, _) = build(&words, Vnet::default(), &whole, 1440);
        assert_eq!(decode(&datagrams[0]).unwrap().remote_checksum, None);
    }
}

#[test]
fn what_is_too_long_is_split_or_its_sender_is_told() {
    let words = format!("a type ipip {ENDS} encap gue");
    let mut long = udp(true, &[3; 2000]);
    let told = build(&words, Vnet::default(), &long, 1000);
    assert_eq!(told.0, Verdict::TooBig(1000));
    assert!(told.1.is_empty());
    long[6] = 0;
    let (verdict, datagrams, _) = build(&words, Vnet::default(), &long, 1000);
    assert!(matches!(verdict, Verdict::Send(_)));
    assert_eq!(datagrams.len(), 3);
    assert!(datagrams.iter().all(|datagram| datagram.len() <= 1004));
    let segments = tcp(true, 1, 0x18, &[9; 3000]);
    assert_eq!(build(&words, super_packet(1400), &segments, 1000).0, Verdict::TooBig(1000));
    let mut segments = segments;
    segments[6] = 0;
    let (_, datagrams, _) = build(&words, super_packet(1400), &segments, 1000);
    assert!(datagrams.len() == 4 && datagrams.iter().all(|all| all.len() <= 1004));
}

#[test]
fn packets_of_the_tunnel_itself_and_of_other_families_do_not_enter() {
    let words = format!("a type ipip {ENDS} encap gue");
    let mut own = udp(true, b"x");
    own[12..16].copy_from_slice(&[192, 0, 2, 1]);
    own[16..20].copy_from_slice(&[192, 0, 2, 2]);
    own[22..24].copy_from_slice(&6080u16.to_be_bytes());
    assert_eq!(build(&words, Vnet::default(), &own, 1400).0, Verdict::Drop(Drop::Loop));
    let raw = format!("a type ipip {ENDS}");
    assert!(matches!(build(&raw, Vnet::default(), &own, 1400).0, Verdict::Send(_)));
    let mut nested = own.clone();
    nested[9] = 4;
    assert_eq!(build(&raw, Vnet::default(), &nested, 1400).0, Verdict::Drop(Drop::Loop));
    assert!(matches!(build(&words, Vnet::default(), &nested, 1400).0, Verdict::Send(_)));
    own[23] ^= 1;
    assert!(matches!(build(&words, Vnet::default(), &own, 1400).0, Verdict::Send(_)));
    let v6 = udp(false, b"x");
    assert_eq!(build(&words, Vnet::default(), &v6, 1400).0, Verdict::Drop(Drop::Family));
    let sit = format!("a type sit {ENDS} encap fou encap-dport 7");
    let v4 = udp(true, b"x");
    assert_eq!(build(&sit, Vnet::default(), &v4, 1400).0, Verdict::Drop(Drop::Family));
    let junk = build(&words, Vnet::default(), &[0x15; 40], 1400).0;
    assert_eq!(junk, Verdict::Drop(Drop::Malformed));
}

#[test]
fn frames_keep_their_headers_in_each_segment() {
    let link = [&[7; 12][..], &[0x81, 0, 0, 5, 8, 0]].concat();
    let segments = [&link[..], &tcp(true, 1, 0x18, &[9; 3000])].concat();
    let partial = Some(Partial { start: 38, offset: 16 });
    let vnet = Vnet { partial, offload: Some((Offload::Tcp, 1396)) };
    let words = format!("a type gretap {ENDS} encap gue csum");
    let (verdict, datagrams, _) = build(&words, vnet, &segments, 1440);
    assert!(matches!(verdict, Verdict::Send(_)));
    assert_eq!(datagrams.len(), 3);
    for datagram in &datagrams {
        let (gre, frame) = Gre::decode(decode(datagram).unwrap().payload).unwrap();
        assert!(gre.checksum && gre.protocol == Gre::ETHERNET);
        assert!(frame[..18] == link && is_intact(&frame[18..]));
    }
    assert_eq!(build(&words, vnet, &segments, 1439).0, Verdict::TooBig(1435), "a tag of 4");
    let arp = [&[7; 12][..], &[8, 6], &[1; 28]].concat();
    let (verdict, datagrams, _) = build(&words, Vnet::default(), &arp, 1440);
    let Verdict::Send(sending) = verdict else { panic!("{verdict:?}") };
    assert_eq!((sending.ttl, sending.tos), (64, 0));
    assert!(datagrams[0].ends_with(&arp));
    let cut = build(&words, Vnet::default(), &[7; 13], 1440).0;
    assert_eq!(cut, Verdict::Drop(Drop::Malformed));
    let long = [&arp[..], &[0; 1440]].concat();
    assert_eq!(build(&words, Vnet::default(), &long, 1440).0, Verdict::Drop(Drop::TooBig));
}

#[test]
fn packets_enter_as_many_tunnels_as_they_say() {
    let with_limit = |limit: u8| {
        let options = [&[17, 0, 4, 1, limit, 1, 1, 0][..], &[0; 8]].concat();
        ip(false, 60, 0, &options)
    };
    let send = |words: &str, limit| build(words, Vnet::default(), &with_limit(limit), 1400).0;
    let words = "a type ip6tnl remote 2001:db8::9 encap gue";
    assert_eq!(send(words, 0), Verdict::TooDeep(44));
    for (words, limit, expected) in [
        (words.to_owned(), 7, Some(6)),
        (format!("{words} encaplimit 2"), 7, Some(6)),
        (format!("a type sit {ENDS} encap gue"), 0, None),
    ] {
        let Verdict::Send(sending) = send(&words, limit) else { panic!("{words}") };
        assert_eq!(sending.limit, expected, "{words}");
    }
    let mut long = with_limit(1);
    long.resize(1396, 0);
    long[4..6].copy_from_slice(&1356u16.to_be_bytes());
    assert_eq!(build(words, Vnet::default(), &long, 1400).0, Verdict::TooBig(1392));
}

#[test]
fn outer_fields_follow_the_inner_ones() {
    let inner = ip(true, 17, 0xb8 | 3, &[0; 8]);
    let sending = |words: &str| match build(words, Vnet::default(), &inner, 1400).0 {
        Verdict::Send(sending) => (sending.tos, sending.ttl),
        other => panic!("{other:?}"),
    };
    let words = format!("a type ipip {ENDS} encap gue");
    assert_eq!(sending(&words), (3, 64));
    assert_eq!(sending(&format!("{words} tos inherit ttl 9")), (0xb8 | 3, 9));
    assert_eq!(sending(&format!("{words} tos 10 ecn reset-ce")), (0x12, 64));
    assert_eq!(sending(&format!("{words} ecn none")), (0, 64));
    assert_eq!(tunnel(&words).ecn, EcnIngress::Normal);
}

#[test]
fn outer_packets_may_be_fragmented_as_those_inside_and_for_the_least_of_ipv6() {
    let small = |v4: bool, df: bool, len: usize| {
        let mut packet = udp(v4, &vec![7; len]);
        if v4 && !df {
            packet[6] = 0;
            packet[10..12].fill(0);
            let sum = Sum::new().bytes(&packet[..20]).checksum().to_be_bytes();
            packet[10..12].copy_from_slice(&sum);
        }
        packet
    };
    let sent = |words: &str, packet: &[u8], mtu| match build(words, Vnet::default(), packet, mtu).0
    {
        Verdict::Send(sending) => Ok(sending.dont_fragment),
        Verdict::TooBig(mtu) => Err(mtu),
        other => panic!("{other:?}"),
    };
    let with = |words: &str| format!("a type sit {ENDS} encap gue {words}");
    let (plain, none, ignore) = (with(""), with("nopmtudisc"), with("nopmtudisc ignore-df"));
    for (words, v4, df, len, mtu, expected) in [
        (&plain, true, false, 500, 1400, Ok(true)),
        (&plain, false, true, 500, 1400, Ok(true)),
        (&plain, true, true, 1400, 1400, Err(1400)),
        // As Linux has it: Don't Fragment is copied, and counts.
        (&none, true, true, 500, 1400, Ok(true)),
        (&none, true, false, 500, 1400, Ok(false)),
        (&none, true, false, 1400, 1400, Ok(false)),
        (&none, true, true, 1400, 1400, Err(1400)),
        (&none, false, true, 1400, 1400, Ok(false)),
        (&ignore, true, true, 1400, 1400, Ok(false)),
        // RFC 2473, Section 7.1.
        (&plain, false, true, 1280 - 48, 1100, Ok(false)),
        (&plain, false, true, 1281 - 48, 1100, Err(1280)),
        (&plain, true, true, 1280 - 28, 1100, Err(1100)),
    ] {
        let packet = small(v4, df, len);
        assert_eq!(sent(words, &packet, mtu), expected, "{words} {v4} {df} {len}");
    }
}
