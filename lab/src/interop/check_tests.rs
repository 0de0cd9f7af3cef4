//! Each rule passes when it is kept and fails when it is broken.

use std::time::Duration;

use quicket_wire::ConnectionId;

use super::check::*;
use crate::trace::{Content, Packet, Stray, Trace};
use quicket_engine::crypto::Aead;
use quicket_wire::{EcnCodepoint, PacketKind, Version};

const PING: &[u8] = &[0x01];
/// An ACK frame of packet 0 that reports one ECT(0) mark.
const ACK_ECN: &[u8] = &[0x03, 0, 0, 0, 0, 1, 0, 0];

fn packet(kind: PacketKind, from_client: bool, payload: &[u8]) -> Packet {
    let cid = |byte| ConnectionId::new(&[byte; 4]).unwrap();
    let (dcid, scid) = if from_client { (cid(2), cid(1)) } else { (cid(1), cid(2)) };
    Packet {
        at: Duration::ZERO,
        from_client,
        client: "127.0.0.1:1".parse().unwrap(),
        server: "127.0.0.1:2".parse().unwrap(),
        ecn: EcnCodepoint::NotEct,
        datagram_len: 1200,
        len: payload.len(),
        kind,
        version: Version::V1,
        dcid,
        scid,
        token: Vec::new(),
        content: Some(Content {
            connection: 0,
            number: 0,
            key_phase: false,
            payload: payload.to_vec(),
        }),
    }
}

/// Both ends see the same.
fn evidence(packets: Vec<Packet>) -> Evidence {
    let trace =
        |packets| Trace { packets, ciphers: vec![Some(Aead::Aes128Gcm)], ..Trace::default() };
    Evidence { client: trace(packets.clone()), server: trace(packets), server_is_ours: true }
}

fn content(packet: &mut Packet) -> &mut Content {
    packet.content.as_mut().unwrap()
}

fn crypto(offset: u8, data: &[u8]) -> Vec<u8> {
    let length = 0x4000 | data.len() as u16;
    let mut frame = vec![0x06, offset];
    frame.extend(length.to_be_bytes());
    frame.extend(data);
    frame
}

/// A TLS handshake message.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let [_, high, middle, low] = (body.len() as u32).to_be_bytes();
    [&[kind, high, middle, low], body].concat()
}

#[test]
fn handshakes_are_counted_by_the_servers_connection_ids() {
    let one = || packet(PacketKind::Initial, false, &crypto(0, b"x"));
    let mut two = one();
    two.scid = ConnectionId::EMPTY;
    let mut refusal = packet(PacketKind::Initial, false, PING);
    refusal.scid = ConnectionId::EMPTY;
    assert!(handshakes::<1>(&evidence(vec![one(), refusal])).is_ok());
    assert!(handshakes::<1>(&evidence(vec![one(), one()])).is_ok());
    assert!(handshakes::<1>(&evidence(vec![])).is_err());
    assert!(handshakes::<1>(&evidence(vec![one(), two.clone()])).is_err());
    assert!(handshakes::<2>(&evidence(vec![one(), two])).is_ok());
}

#[test]
fn versions_are_those_of_the_headers() {
    let initial =
        |from_client, version| Packet { version, ..packet(PacketKind::Initial, from_client, PING) };
    let handshake = |from_client, version| Packet {
        version,
        ..packet(PacketKind::Handshake, from_client, PING)
    };
    let (v1, v2) = (Version::V1, Version::V2);
    assert!(version_1(&evidence(vec![initial(false, v1)])).is_ok());
    assert!(version_1(&evidence(vec![initial(false, v1), initial(false, v2)])).is_err());
    let good =
        vec![initial(true, v1), initial(false, v2), handshake(true, v2), handshake(false, v2)];
    assert!(version_2(&evidence(good.clone())).is_ok());
    for spoiled in 0..good.len() {
        let mut packets = good.clone();
        packets[spoiled].version = if spoiled == 0 { v2 } else { v1 };
        assert!(version_2(&evidence(packets)).is_err(), "{spoiled}");
    }
}

#[test]
fn version_negotiation_mirrors_the_connection_ids() {
    let first = packet(PacketKind::UnknownVersion, true, &[]);
    let answer = packet(PacketKind::VersionNegotiation, false, &[]);
    assert!(version_negotiation(&evidence(vec![first.clone(), answer.clone()])).is_ok());
    assert!(version_negotiation(&evidence(vec![first.clone()])).is_err());
    let other = Packet { scid: ConnectionId::EMPTY, ..answer };
    assert!(version_negotiation(&evidence(vec![first, other])).is_err());
}

#[test]
fn a_retry_is_answered_with_its_token_and_packet_numbers_go_on() {
    let first = packet(PacketKind::Initial, true, PING);
    let retry_packet = Packet { token: vec![7], ..packet(PacketKind::Retry, false, &[]) };
    let mut second = Packet { token: vec![7], ..packet(PacketKind::Initial, true, PING) };
    content(&mut second).number = 1;
    let good = vec![first, retry_packet, second];
    assert!(retry(&evidence(good.clone())).is_ok());
    assert!(no_retry(&evidence(good.clone())).is_err());
    assert!(no_retry(&evidence(vec![])).is_ok());
    assert!(retry(&evidence(good[..2].to_vec())).is_err(), "no answer");
    assert!(retry(&evidence(vec![good[0].clone(), good[2].clone()])).is_err(), "no Retry");
    let mut again = good.clone();
    content(&mut again[2]).number = 0;
    assert!(retry(&evidence(again)).is_err(), "packet numbers begin anew");
    let mut other = good;
    other[2].token = vec![8];
    assert!(retry(&evidence(other)).is_err(), "another token");
}

#[test]
fn a_client_hello_is_repeated_from_its_start() {
    let hello = |offset| packet(PacketKind::Initial, true, &crypto(offset, b"x"));
    assert!(client_hello_repeated(&evidence(vec![hello(0), hello(0)])).is_ok());
    assert!(client_hello_repeated(&evidence(vec![hello(0), hello(1)])).is_err());
}

#[test]
fn chacha20_must_be_offered_alone_and_used() {
    let hello = |suites: &[u8]| {
        let body = [&[3, 3], &[0; 32][..], &[0], &[0, suites.len() as u8], suites].concat();
        evidence(vec![packet(PacketKind::Initial, true, &crypto(0, &message(1, &body)))])
    };
    let used = |mut evidence: Evidence, aead| {
        evidence.client.ciphers = vec![Some(aead)];
        only_chacha20(&evidence)
    };
    let alone: &[u8] = &[0x13, 3];
    assert!(used(hello(alone), Aead::ChaCha20Poly1305).is_ok());
    assert!(used(hello(alone), Aead::Aes128Gcm).is_err());
    assert!(used(hello(&[0x13, 3, 0x13, 1]), Aead::ChaCha20Poly1305).is_err());
}

#[test]
fn the_stream_limit_is_that_of_the_servers_transport_parameters() {
    let limited = |limit: &[u8]| {
        // initial_max_streams_bidi and initial_source_connection_id.
        let parameters = [&[0x08, limit.len() as u8], limit, &[0x0f, 0]].concat();
        let extension = [&[0, 0x39, 0, parameters.len() as u8], &parameters[..]].concat();
        let body = [&[0, extension.len() as u8], &extension[..]].concat();
        let bytes = crypto(0, &message(8, &body));
        stream_limit(&evidence(vec![packet(PacketKind::Handshake, false, &bytes)]))
    };
    assert_eq!(limited(&[0x40, 100]), Ok(()));
    assert!(limited(&[0x43, 0xe9]).unwrap_err().contains("1001"));
    assert!(stream_limit(&evidence(vec![])).unwrap_err().contains("could not be read"));
}

#[test]
fn a_resumed_session_has_no_certificate() {
    let handshake = |connection, kind| {
        let mut packet = packet(PacketKind::Handshake, false, &crypto(0, &message(kind, &[0; 10])));
        content(&mut packet).connection = connection;
        packet
    };
    assert!(resumed(&evidence(vec![handshake(0, 11), handshake(1, 8)])).is_ok());
    assert!(resumed(&evidence(vec![handshake(0, 11), handshake(1, 11)])).is_err());
    assert!(resumed(&evidence(vec![handshake(0, 11)])).is_err());
    assert!(resumed(&evidence(vec![handshake(0, 8), handshake(1, 8)])).is_err());
}

#[test]
fn early_data_is_sent_and_not_sent_again() {
    let sent = |kind, length| packet(kind, true, &vec![0; length]);
    let early = sent(PacketKind::ZeroRtt, 8000);
    let good = vec![early.clone(), sent(PacketKind::OneRtt, 5000)];
    assert!(early_data(&evidence(good)).is_ok());
    assert!(early_data(&evidence(vec![early, sent(PacketKind::OneRtt, 5001)])).is_err());
    assert!(early_data(&evidence(vec![sent(PacketKind::OneRtt, 10)])).is_err());
}

#[test]
fn both_ends_must_use_updated_keys() {
    let mut packets =
        vec![packet(PacketKind::OneRtt, true, PING), packet(PacketKind::OneRtt, false, PING)];
    assert!(key_update(&evidence(packets.clone())).is_err());
    content(&mut packets[0]).key_phase = true;
    assert!(key_update(&evidence(packets.clone())).unwrap_err().contains("server"));
    content(&mut packets[1]).key_phase = true;
    assert!(key_update(&evidence(packets)).is_ok());
}

#[test]
fn key_updates_are_counted_on_both_sides() {
    let phases = |from_client, phases: &[bool]| -> Vec<Packet> {
        let of = |&phase: &bool| {
            let mut packet = packet(PacketKind::OneRtt, from_client, PING);
            content(&mut packet).key_phase = phase;
            packet
        };
        phases.iter().map(of).collect()
    };
    let twice = [false, true, true, false];
    let both = [phases(true, &twice), phases(false, &twice)].concat();
    assert_eq!(key_updates::<2>(&evidence(both.clone())), Ok(()));
    assert!(key_updates::<1>(&evidence(both)).unwrap_err().contains("2 times"));
    let client_alone = [phases(true, &twice), phases(false, &[false, true])].concat();
    assert!(key_updates::<2>(&evidence(client_alone)).unwrap_err().contains("server"));
}

#[test]
fn both_ends_mark_and_report_and_none_says_ce() {
    let marked = |from_client, ecn, payload| Packet {
        ecn,
        ..packet(PacketKind::OneRtt, from_client, payload)
    };
    let ect = EcnCodepoint::Ect0;
    let good = vec![marked(true, ect, ACK_ECN), marked(false, ect, ACK_ECN)];
    assert_eq!(ecn(&evidence(good.clone())), Ok(()));
    for other in [marked(false, EcnCodepoint::NotEct, ACK_ECN), marked(false, ect, PING)] {
        assert!(ecn(&evidence(vec![good[0].clone(), other])).is_err());
    }
    let mut congested = good;
    congested.push(marked(true, EcnCodepoint::Ce, PING));
    assert!(ecn(&evidence(congested)).is_err());
}

#[test]
fn three_times_what_came_is_the_most_before_a_handshake_packet_comes() {
    let initial = || packet(PacketKind::Initial, true, PING);
    let answer = || packet(PacketKind::Handshake, false, &crypto(0, &[0; 8000]));
    let end = || packet(PacketKind::Handshake, true, PING);
    let good = vec![initial(), answer(), answer(), answer(), end(), answer(), answer()];
    assert_eq!(amplification(&evidence(good)), Ok(()));
    let bad = vec![initial(), answer(), answer(), answer(), answer(), end()];
    let mut others = evidence(bad.clone());
    others.server_is_ours = false;
    assert_eq!(amplification(&others), Ok(()), "the runner's rule");
    assert!(amplification(&evidence(bad)).unwrap_err().contains("4800 bytes for 1200"));
    assert!(amplification(&evidence(vec![initial(), answer()])).is_err(), "no end");
    let small = packet(PacketKind::Handshake, false, &crypto(0, &[0; 7000]));
    assert!(amplification(&evidence(vec![initial(), small, end()])).is_err(), "a short chain");
}

#[test]
fn a_new_path_is_challenged_at_once_and_the_challenge_answered() {
    let to = |port: u16, payload: &[u8]| Packet {
        client: format!("127.0.0.1:{port}").parse().unwrap(),
        ..packet(PacketKind::OneRtt, false, payload)
    };
    let challenge = [&[0x1a][..], &[5; 8]].concat();
    let response = [&[0x1b][..], &[5; 8]].concat();
    let answer = packet(PacketKind::OneRtt, true, &response);
    let good = vec![to(1, PING), to(2, &challenge), answer.clone(), to(2, PING)];
    assert_eq!(paths_validated(&evidence(good.clone())), Ok(()));
    assert!(paths_validated(&evidence(good[..2].to_vec())).is_err(), "no answer");
    assert!(paths_validated(&evidence(vec![to(1, PING), to(2, PING), answer.clone()])).is_err());
    assert!(paths_validated(&evidence(vec![to(1, PING)])).is_err(), "one path");
    assert!(addresses_changed(&evidence(good.clone())).is_err());
    // Others may challenge later than in the first packet.
    let late = vec![to(1, PING), to(2, PING), to(2, &challenge), answer];
    assert!(paths_validated(&evidence(late.clone())).is_err(), "ours may not");
    let theirs = Evidence { server_is_ours: false, ..evidence(late.clone()) };
    assert_eq!(paths_validated(&theirs), Ok(()));
    // What the link has dropped needs no answer, if what is sent later has one.
    let mut lossy = evidence(good.clone());
    lossy.server.packets.insert(1, to(2, &[&[0x1a][..], &[6; 8]].concat()));
    assert_eq!(paths_validated(&lossy), Ok(()));
    lossy.client.packets.remove(1);
    assert!(paths_validated(&lossy).unwrap_err().contains("none came"));
    let mut moved = good;
    moved[1].client = "127.64.0.1:2".parse().unwrap();
    assert!(addresses_changed(&evidence(moved)).is_ok());
}

#[test]
fn ipv6_means_no_ipv4() {
    let old = packet(PacketKind::Initial, true, PING);
    let new = Packet { server: "[::1]:2".parse().unwrap(), ..old.clone() };
    assert!(only_ipv6(&evidence(vec![new.clone()])).is_ok());
    assert!(only_ipv6(&evidence(vec![new, old])).is_err());
}

#[test]
fn echoes_are_as_long_as_what_was_sent() {
    // STREAM with FIN, offset and length; DATAGRAM with length.
    let stream = |from_client, len: u8| {
        let frame = [&[0x0f, 0, 0, len][..], &vec![1; len.into()]].concat();
        packet(PacketKind::OneRtt, from_client, &frame)
    };
    assert!(echoed_streams::<1>(&evidence(vec![stream(true, 5), stream(false, 5)])).is_ok());
    assert!(echoed_streams::<1>(&evidence(vec![stream(true, 5), stream(false, 4)])).is_err());
    let datagram =
        |from_client, byte| packet(PacketKind::OneRtt, from_client, &[0x31, 2, byte, byte]);
    let both = vec![datagram(true, 1), datagram(false, 1)];
    assert!(echoed_datagrams::<1>(&evidence(both)).is_ok());
    let other = vec![datagram(true, 1), datagram(false, 2)];
    assert!(echoed_datagrams::<1>(&evidence(other)).is_err());
}

#[test]
fn a_migration_changes_the_connection_id() {
    let to = |server: &str, dcid: u8| Packet {
        server: server.parse().unwrap(),
        dcid: ConnectionId::new(&[dcid; 4]).unwrap(),
        ..packet(PacketKind::OneRtt, true, PING)
    };
    let (first, second) = ("127.0.0.1:2", "127.0.0.1:3");
    assert_eq!(client_migrated(&evidence(vec![to(first, 2), to(second, 4)])), Ok(()));
    let same = vec![to(first, 2), to(second, 2)];
    assert!(client_migrated(&evidence(same)).unwrap_err().contains("path before"));
    assert!(client_migrated(&evidence(vec![to(first, 2), to(first, 4)])).is_err(), "one path");
}

#[test]
fn streams_are_given_up_by_both_ends() {
    // RESET_STREAM with code and final size, STOP_SENDING with code, both of stream 0.
    let (reset, stop): (&[u8], &[u8]) = (&[0x04, 0, 8, 0], &[0x05, 0, 8]);
    let of =
        |from_client, frames: &[&[u8]]| packet(PacketKind::OneRtt, from_client, &frames.concat());
    let good = vec![of(true, &[reset, stop]), of(false, &[reset])];
    assert_eq!(given_up::<1>(&evidence(good.clone())), Ok(()));
    assert!(given_up::<2>(&evidence(good.clone())).is_err());
    assert!(given_up::<1>(&evidence(good[..1].to_vec())).unwrap_err().contains("the server"));
    assert!(given_up::<1>(&evidence(vec![of(true, &[reset]), good[1].clone()])).is_err());
    assert!(given_up::<1>(&evidence(vec![of(true, &[stop]), good[1].clone()])).is_err());
}

#[test]
fn a_client_proves_the_certificate_that_it_is_asked_for() {
    let messages = |from_client, kinds: &[u8]| {
        let bytes: Vec<u8> = kinds.iter().flat_map(|&kind| message(kind, &[0; 4])).collect();
        packet(PacketKind::Handshake, from_client, &crypto(0, &bytes))
    };
    let judge = |server: &[u8], client: &[u8]| {
        client_certificate(&evidence(vec![messages(false, server), messages(true, client)]))
    };
    assert_eq!(judge(&[8, 13, 11, 15, 20], &[11, 15, 20]), Ok(()));
    assert!(judge(&[8, 11, 15, 20], &[11, 15, 20]).unwrap_err().contains("asked"));
    assert!(judge(&[8, 13, 11, 15, 20], &[20]).is_err());
    assert!(judge(&[8, 13, 11, 15, 20], &[11, 20]).unwrap_err().contains("prove"));
}

#[test]
fn a_stateless_reset_has_a_token_that_was_given_and_is_the_last_word() {
    let token = [9; 16];
    // NEW_CONNECTION_ID 1 of four bytes, which retires none.
    let new = [&[0x18, 1, 0, 4, 5, 5, 5, 5][..], &token].concat();
    let at = Duration::from_secs;
    let given = packet(PacketKind::OneRtt, false, &new);
    let said = |when| Packet { at: at(when), ..packet(PacketKind::OneRtt, true, PING) };
    let judge = |packets: Vec<Packet>, tail| {
        let mut seen = evidence(packets);
        seen.client.strays.push(Stray { at: at(5), from_client: false, tail });
        stateless_reset(&seen)
    };
    assert_eq!(judge(vec![given.clone(), said(4)], token), Ok(()));
    assert!(judge(vec![given.clone()], [8; 16]).unwrap_err().contains("1 tokens"));
    assert!(judge(vec![given, said(6)], token).unwrap_err().contains("after the stateless reset"));
}

#[test]
fn acknowledgements_are_fewer_after_ack_frequency() {
    let asks = packet(PacketKind::OneRtt, false, &[0x40, 0xaf, 0, 10, 10, 0]);
    let data = packet(PacketKind::OneRtt, false, &[0x08, 0, 1]);
    let ack = packet(PacketKind::OneRtt, true, &[0x02, 0, 0, 0, 0]);
    let of = |data_packets: usize, acks: usize| {
        let mut packets = vec![asks.clone()];
        packets.extend(std::iter::repeat_n(data.clone(), data_packets));
        packets.extend(std::iter::repeat_n(ack.clone(), acks));
        packets
    };
    assert_eq!(ack_frequency(&evidence(of(30, 10))), Ok(()));
    assert!(ack_frequency(&evidence(of(30, 15))).unwrap_err().contains("15 ACKs for 30"));
    assert!(ack_frequency(&evidence(of(30, 0)[1..].to_vec())).is_err(), "nobody asked");
}
