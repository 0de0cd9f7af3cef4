//! Packets with the right protection and anything in them: what a file holds whose author has the secrets.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use pcap_parser::Linktype;
use quicket_engine::crypto::{Aead, CryptoProvider, SealJob, Secret, TAG_LEN};
use quicket_handshake::AwsLcProvider;
use quicket_trace::{KeyLog, Observer, headers};
use quicket_wire::header::{header_sample, protect};
use quicket_wire::{ConnectionId, EcnCodepoint, PacketKind, Side, Version};

use super::super::log::{Log, MAX_CONNECTIONS};
use super::super::page;
use super::blocks::{self, Way};
use super::{Counts, Flows, Reading, Teller};

const RANDOM: [u8; 32] = [5; 32];
const SECRET: [u8; 32] = [7; 32];
const CLIENT: &[u8] = b"client00";
const SERVER: &[u8] = b"server00";
/// Packet numbers are four bytes long, and lengths are two.
const PN_LEN: usize = 4;
/// How long a file of this kind may take, in a build that is not made for speed on a machine that does other things.
const PATIENCE: Duration = Duration::from_secs(60);

fn log_of_secrets() -> KeyLog {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut keys = KeyLog::default();
    for label in [
        "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
        "SERVER_HANDSHAKE_TRAFFIC_SECRET",
        "CLIENT_TRAFFIC_SECRET_0",
        "SERVER_TRAFFIC_SECRET_0",
    ] {
        keys.add(&format!("{label} {} {}\n", hex(&RANDOM), hex(&SECRET)));
    }
    keys
}

/// A packet as the client or the server would send it.
fn sealed(kind: PacketKind, from_client: bool, number: u32, payload: &[u8]) -> Vec<u8> {
    let secret = match kind {
        PacketKind::Initial => {
            let dcid = ConnectionId::new(SERVER).unwrap();
            let (server, client) = AwsLcProvider.initial_secrets(Version::V1, &dcid, Side::Client);
            if from_client { client } else { server }
        }
        _ => Secret::new(Aead::Aes128Gcm, &SECRET).unwrap(),
    };
    let (to, from) = if from_client { (SERVER, CLIENT) } else { (CLIENT, SERVER) };
    let first = match kind {
        PacketKind::Initial => 0xc3,
        PacketKind::Handshake => 0xe3,
        _ => 0x43,
    };
    let mut packet = vec![first];
    if kind == PacketKind::OneRtt {
        packet.extend(to);
    } else {
        packet.extend(Version::V1.0.to_be_bytes());
        packet.extend([&[8][..], to, &[8], from].concat());
        if kind == PacketKind::Initial {
            packet.push(0);
        }
        let length = PN_LEN + payload.len() + TAG_LEN;
        packet.extend((0x4000 | length as u16).to_be_bytes());
    }
    let pn_offset = packet.len();
    packet.extend(number.to_be_bytes());
    let header_len = packet.len();
    packet.extend(payload);
    packet.extend([0; TAG_LEN]);
    let job = &mut SealJob { packet_number: number.into(), header_len, packet: &mut packet };
    AwsLcProvider.packet_key(Version::V1, &secret).seal(job).unwrap();
    let header = AwsLcProvider.header_key(Version::V1, &secret);
    let mask = header.mask(header_sample(&packet, pn_offset).unwrap());
    protect(&mut packet, pn_offset, mask).unwrap();
    packet
}

/// A CRYPTO frame of less than 16,384 bytes at such an offset.
fn crypto(offset: u32, data: &[u8]) -> Vec<u8> {
    let mut frame = vec![6];
    frame.extend((0x8000_0000 | offset).to_be_bytes());
    frame.extend((0x4000 | data.len() as u16).to_be_bytes());
    frame.extend(data);
    frame
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Frames with any numbers in them, cut off anywhere.
fn frames(state: &mut u64) -> Vec<u8> {
    let mut payload = Vec::new();
    for _ in 0..1 + random(state) % 4 {
        payload.push((random(state) % 0x32) as u8);
        for _ in 0..random(state) % 8 {
            let value = random(state);
            match random(state) % 4 {
                0 => payload.push((value % 64) as u8),
                1 => payload.extend((0x4000 | (value as u16 & 0x3fff)).to_be_bytes()),
                2 => payload.extend((0xc000_0000_0000_0000 | value).to_be_bytes()),
                _ => payload.push(0),
            }
        }
    }
    payload.resize(payload.len().clamp(4, 1200), 0);
    payload
}

/// A capture of one connection that is read.
struct Capture {
    reading: Reading,
    log: Log,
    at: Duration,
    next: u32,
}

impl Capture {
    /// One whose secrets are known.
    fn begun() -> Self {
        let reading = Reading {
            observer: Observer::new(log_of_secrets()).most(MAX_CONNECTIONS),
            flows: Flows::default(),
            teller: Teller::default(),
            counts: Counts::default(),
        };
        let mut capture = Self { reading, log: Log::default(), at: Duration::ZERO, next: 0 };
        capture.log.begin_trace();
        let hello = [&[1, 0, 0, 40, 3, 3][..], &RANDOM, &[0; 6]].concat();
        capture.send(PacketKind::Initial, true, &crypto(0, &hello));
        capture.send(PacketKind::Initial, false, &crypto(0, b"anything"));
        capture
    }

    fn send(&mut self, kind: PacketKind, from_client: bool, payload: &[u8]) {
        self.next += 1;
        let packet = sealed(kind, from_client, self.next, payload);
        let client: SocketAddr = "192.0.2.1:5000".parse().unwrap();
        let server: SocketAddr = "192.0.2.2:443".parse().unwrap();
        let (from, to) = if from_client { (client, server) } else { (server, client) };
        let mut data = Vec::new();
        headers::write(&mut data, (from, to), EcnCodepoint::NotEct, &packet, packet.len());
        self.at += Duration::from_micros(100);
        let (at, link) = (self.at, Linktype(101));
        let packet = blocks::Packet { at, way: Way::Unknown, link, data: &data };
        self.reading.on_packet(&packet, &mut self.log);
    }

    /// The page, after so many packets that were opened.
    fn page(self) -> String {
        let Counts { others, strays, closed, .. } = self.reading.counts;
        assert_eq!((others, strays, closed), (0, 0, 0));
        assert!(self.log.known >= u64::from(self.next));
        let mut log = self.log;
        self.reading.finish(1, &mut log);
        page::page("capture", &log)
    }
}

#[test]
fn whatever_packets_hold_is_drawn_or_left_out() {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for _ in 0..20 {
        let mut capture = Capture::begun();
        for _ in 0..200 {
            let kinds = [PacketKind::Initial, PacketKind::Handshake, PacketKind::OneRtt];
            let kind = kinds[(random(&mut state) % 3) as usize];
            let from_client = random(&mut state).is_multiple_of(2);
            let payload = frames(&mut state);
            capture.send(kind, from_client, &payload);
        }
        assert!(capture.page().contains("<svg"));
    }
}

#[test]
fn messages_of_tls_in_pieces_without_end_take_little_time() {
    let begun = Instant::now();
    let mut capture = Capture::begun();
    // Empty messages, then pieces beyond a gap, and each byte by itself.
    for round in 0..200 {
        let many: Vec<u8> = (0..140).flat_map(|n| crypto(2 * n + 200 * round, &[0])).collect();
        capture.send(PacketKind::Handshake, false, &many);
        capture.send(PacketKind::Initial, true, &many);
    }
    for offset in 0..20_000 {
        capture.send(PacketKind::Handshake, false, &crypto(offset, &[0]));
    }
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    assert!(!capture.page().is_empty());
}
