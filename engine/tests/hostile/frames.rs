//! Frames that do not exist, do not belong where they are, or end too soon
//! (RFC 9000, Section 12.4).

use quicket_engine::crypto::Level;
use quicket_engine::{Dir, Side, StreamId, TransportErrorCode};
use quicket_sim::attack::{Duel, DuelOptions, Payload, Stage};
use quicket_wire::frame::{self, HandshakeDone, NewToken};

use crate::memory::growth;
use crate::support::{BOTH, KIB, assert_alive, code, confirmed};

/// CVE-2023-42805 of quinn.
#[test]
fn unknown_frame_types_end_the_connection() {
    for side in BOTH {
        for kind in [0x20_u8, 0x2f, 0x32, 0x3f] {
            let mut duel = confirmed(side);
            duel.attack(Level::OneRtt, &Payload::new().raw(&[kind, 0, 0, 0]));
            assert_eq!(code(&mut duel), Some(TransportErrorCode::FRAME_ENCODING_ERROR));
        }
    }
}

/// An issue of XQUIC (GHSA-3x9f-rg77-hvch): application data under keys that anybody can derive.
#[test]
fn stream_data_in_initial_and_handshake_packets_is_refused() {
    for side in BOTH {
        for (stage, level) in [(Stage::First, Level::Initial), (Stage::Handshake, Level::Handshake)]
        {
            let mut duel = Duel::new(DuelOptions::new(side), stage);
            let mut payload = Payload::new();
            payload.stream(StreamId::new(side, Dir::Uni, 0), 0, b"GET /", true);
            duel.attack(level, &payload);
            assert_eq!(code(&mut duel), Some(TransportErrorCode::PROTOCOL_VIOLATION));
            assert_eq!(duel.connection().accept(Dir::Uni), None);
        }
    }
}

/// CVE-2025-59530 of quic-go (GHSA-47m2-4cr7-mhcw): HANDSHAKE_DONE before the handshake is.
#[test]
fn handshake_done_too_early_confirms_nothing() {
    let mut duel = Duel::new(DuelOptions::new(Side::Server), Stage::Handshake);
    assert!(duel.forge.can_seal(Level::OneRtt), "a server has the keys that early");
    let grown = growth(&mut duel, |duel| {
        for _ in 0..1_000 {
            duel.attack(Level::OneRtt, &Payload::of(&HandshakeDone));
        }
    });
    assert_alive(&mut duel);
    assert!(!duel.connection().is_confirmed());
    assert!(grown < 16 * KIB, "{grown} bytes");
}

/// RFC 9000, Sections 19.7 and 19.20: what only servers send.
#[test]
fn a_client_cannot_send_what_only_servers_send() {
    for payload in [Payload::of(&HandshakeDone), Payload::of(&NewToken { token: b"token" })] {
        let mut duel = confirmed(Side::Client);
        duel.attack(Level::OneRtt, &payload);
        assert_eq!(code(&mut duel), Some(TransportErrorCode::PROTOCOL_VIOLATION));
    }
}

/// Tokens that nobody asks for are forgotten, the oldest first.
#[test]
fn tokens_without_end_are_bounded() {
    let mut duel = confirmed(Side::Server);
    let grown = growth(&mut duel, |duel| {
        for n in 0..5_000_u32 {
            let token = [n as u8; 1_000];
            duel.attack(Level::OneRtt, &Payload::of(&NewToken { token: &token }));
            duel.follow();
        }
    });
    assert_alive(&mut duel);
    assert!(grown < 128 * KIB, "{grown} bytes");
}

/// CVE of picoquic in 2020, an endless loop: frames cut off anywhere.
#[test]
fn frames_that_end_too_soon_end_the_connection() {
    let id = StreamId::new(Side::Client, Dir::Uni, 0);
    let whole = Payload::of(&frame::Crypto { offset: 900, data: &[1; 20] });
    let mut stream = Payload::new();
    stream.stream(id, 1 << 20, &[1; 20], false);
    for payload in [whole, stream, Payload::new().ack(0, &[5..=9, 1..=3], None)] {
        for len in 1..payload.len() {
            let mut duel = confirmed(Side::Client);
            duel.attack(Level::OneRtt, &Payload::new().raw(&payload.bytes()[..len]));
            assert_eq!(code(&mut duel), Some(TransportErrorCode::FRAME_ENCODING_ERROR), "{len}");
        }
    }
}
