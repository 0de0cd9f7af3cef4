//! What somebody who sees or guesses a connection can inject into it (RFC 9000, Section 21).

use std::sync::Arc;

use quicket_engine::crypto::{Aead, CryptoProvider, Direction, Level, Secret};
use quicket_engine::random::Random;
use quicket_engine::{ConnectionError, ConnectionId, Side, TransportErrorCode, Version};
use quicket_sim::attack::{Duel, DuelOptions, Forge, Payload, Stage};
use quicket_sim::test_crypto::TestCrypto;
use quicket_wire::frame::{ConnectionClose, Ping};
use quicket_wire::{RetryHeader, Writer, encode_version_negotiation};

use crate::memory::growth;
use crate::support::{BOTH, KIB, assert_alive, confirmed, ms, stranger};

fn negotiation(dcid: &[u8], scid: &[u8], versions: &[Version]) -> Vec<u8> {
    let mut buf = vec![0; 1_200];
    let mut writer = Writer::new(&mut buf);
    encode_version_negotiation(&mut writer, 0, dcid, scid, versions.iter().copied()).unwrap();
    let len = writer.position();
    buf.truncate(len);
    buf
}

/// A client that has sent its first packet.
fn waiting_client() -> Duel {
    Duel::new(DuelOptions::new(Side::Server), Stage::First)
}

/// RFC 9000, Section 6.2: who has not seen the first packet does not know its connection IDs.
#[test]
fn version_negotiation_with_guessed_connection_ids_is_ignored() {
    let mut duel = waiting_client();
    let mut rng = duel.rng();
    let ours = duel.forge.dcid;
    for n in 0..1_000 {
        let mut guess = [0; 8];
        rng.fill(&mut guess);
        let dcid = if n % 2 == 0 { &guess[..] } else { ours.as_slice() };
        duel.deliver(&mut negotiation(dcid, &guess, &[Version(0x1a2a_3a4a)]));
    }
    assert_alive(&mut duel);
}

/// RFC 9000, Section 6.2: one that lists our version, or comes after a packet, is ignored.
#[test]
fn version_negotiation_that_contradicts_itself_or_comes_late_is_ignored() {
    let mut duel = waiting_client();
    let (dcid, scid) = (duel.forge.dcid, duel.original_dcid);
    let versions = [Version(0x1a2a_3a4a), Version::V1];
    duel.deliver(&mut negotiation(dcid.as_slice(), scid.as_slice(), &versions));
    assert_alive(&mut duel);
    duel.attack(Level::Initial, &Payload::of(&Ping));
    let others = [Version(0x1a2a_3a4a)];
    duel.deliver(&mut negotiation(dcid.as_slice(), scid.as_slice(), &others));
    assert_alive(&mut duel);
}

/// A list of thousands of versions is not kept.
#[test]
fn version_negotiation_without_end_costs_little() {
    let mut duel = waiting_client();
    let (dcid, scid) = (duel.forge.dcid, duel.original_dcid);
    let many: Vec<_> = (0..280).map(|n| Version(0x7000_0000 + n)).collect();
    let mut packet = negotiation(dcid.as_slice(), scid.as_slice(), &many);
    let grown = growth(&mut duel, |duel| duel.deliver(&mut packet));
    let reason = duel.connection().close_reason();
    let Some(ConnectionError::VersionNegotiation { versions }) = reason else {
        panic!("{reason:?}")
    };
    assert!(versions.len() <= 16, "{}", versions.len());
    assert!(grown < 2 * KIB, "{grown} bytes");
}

fn retry(duel: &Duel, scid: &[u8], token: &[u8]) -> Vec<u8> {
    let mut buf = vec![0; 200 + token.len()];
    let mut writer = Writer::new(&mut buf);
    let scid = ConnectionId::new(scid).unwrap();
    let dcid = duel.forge.dcid;
    let header = RetryHeader { version: Version::V1, dcid: &dcid, scid: &scid, token, unused: 0 };
    header.encode(&mut writer).unwrap();
    let len = writer.position();
    buf.truncate(len);
    let tag = TestCrypto.retry_tag(Version::V1, &duel.original_dcid, &buf);
    buf.extend_from_slice(&tag);
    buf
}

/// RFC 9001, Section 5.8: a Retry needs the tag of the first packet's connection ID.
#[test]
fn a_retry_without_its_tag_is_ignored() {
    let mut duel = waiting_client();
    drop(duel.answers());
    for bit in 0..128 {
        let mut packet = retry(&duel, b"new scid", b"token");
        let at = packet.len() - 1 - bit / 8;
        packet[at] ^= 1 << (bit % 8);
        duel.deliver(&mut packet);
        assert!(duel.answers().is_empty(), "bit {bit}");
    }
}

/// RFC 9000, Section 17.2.5.2: one Retry, and none after a packet.
#[test]
fn only_the_first_retry_counts_and_none_after_a_packet() {
    let mut duel = waiting_client();
    let (mut first, mut second) =
        (retry(&duel, b"first id", b"a"), retry(&duel, b"other id", b"b"));
    duel.deliver(&mut first);
    assert!(!duel.answers().is_empty(), "the first is followed");
    duel.deliver(&mut second);
    assert!(duel.answers().is_empty(), "the second is not");

    let mut duel = waiting_client();
    duel.attack(Level::Initial, &Payload::of(&Ping));
    drop(duel.pass(ms(30)));
    let mut late = retry(&duel, b"first id", b"a");
    duel.deliver(&mut late);
    assert!(duel.answers().is_empty(), "too late");
}

/// A token that leaves no room for anything else stops the handshake, not the program.
#[test]
fn a_retry_token_as_large_as_a_datagram_is_survived() {
    for len in [1_000, 1_140, 1_180, 1_300, 60_000] {
        let mut duel = waiting_client();
        let mut packet = retry(&duel, b"first id", &vec![1; len]);
        let grown = growth(&mut duel, |duel| duel.deliver(&mut packet));
        drop(duel.pass(ms(20_000)));
        let reason = duel.connection().close_reason().cloned();
        assert_eq!(reason, Some(ConnectionError::HandshakeTimeout), "token of {len}");
        assert!(grown < 96 * KIB, "{grown} bytes");
    }
}

/// RFC 9001, Section 4.9.1: once the handshake is confirmed, what anybody can seal counts for
/// nothing: a close in an Initial packet is not even opened.
#[test]
fn closes_in_initial_packets_come_too_late() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let before = duel.connection().stats().counters.packets_received;
        let close = ConnectionClose::Transport {
            error_code: TransportErrorCode::PROTOCOL_VIOLATION,
            frame_type: 0,
            reason: b"spoofed",
        };
        for _ in 0..100 {
            duel.attack(Level::Initial, &Payload::of(&close));
        }
        assert_alive(&mut duel);
        assert_eq!(duel.connection().stats().counters.packets_received, before);
    }
}

/// Without the keys, no packet of any level counts, whatever it says.
#[test]
fn packets_sealed_with_other_keys_are_dropped() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let mut other = Forge::new(
            Arc::new(TestCrypto),
            Version::V1,
            side,
            &ConnectionId::new(b"somebody").unwrap(),
        );
        other.dcid = duel.forge.dcid;
        let close = ConnectionClose::Application { error_code: 0, reason: b"spoofed" };
        let secret = Secret::new(Aead::Aes128Gcm, &[9; 32]).unwrap();
        for level in [Level::Handshake, Level::OneRtt] {
            other.install(level, Direction::Send, secret.clone());
        }
        let grown = growth(&mut duel, |duel| {
            for n in 0..5_000 {
                let level = if n % 2 == 0 { Level::Handshake } else { Level::OneRtt };
                let mut packet = other.seal(level, Payload::of(&close).bytes());
                duel.deliver_from(stranger(n), &mut packet);
            }
        });
        assert_alive(&mut duel);
        assert!(grown < 4 * KIB, "{grown} bytes");
    }
}

/// RFC 9000, Section 10.3: a reset needs one of the peer's tokens, and its length tells nothing.
#[test]
fn guessed_stateless_resets_are_dropped() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let mut rng = duel.rng();
        let grown = growth(&mut duel, |duel| {
            for n in 0..5_000_u32 {
                let mut packet = vec![0; 21 + n as usize % 100];
                rng.fill(&mut packet);
                packet[0] = 0x40 | (packet[0] & 0x3f);
                let dcid = duel.forge.dcid;
                if n % 2 == 0 {
                    packet[1..=dcid.len()].copy_from_slice(dcid.as_slice());
                }
                duel.deliver(&mut packet);
                drop(duel.answers());
            }
        });
        assert_alive(&mut duel);
        assert!(grown < 4 * KIB, "{grown} bytes");
    }
}

/// RFC 9000, Section 12.2 and CVE-2025-54939 of lsquic: packets of other connections behind one
/// that counts are dropped, and the memory of the datagram with them.
#[test]
fn coalesced_packets_for_others_are_dropped() {
    for stage in Stage::ALL {
        let mut duel = Duel::new(DuelOptions::new(Side::Client), stage);
        let level = if stage == Stage::First { Level::Initial } else { Level::Handshake };
        let grown = growth(&mut duel, |duel| {
            for n in 0..200_u64 {
                let mut datagram = duel.forge.seal(level, Payload::of(&Ping).bytes());
                let dcid = duel.forge.dcid;
                let bytes = (n | 1 << 63).to_be_bytes();
                duel.forge.dcid = ConnectionId::new(&bytes).unwrap();
                datagram.extend(duel.forge.seal(level, &[1; 100]));
                duel.forge.dcid = dcid;
                duel.deliver(&mut datagram);
                drop(duel.answers());
            }
        });
        assert_alive(&mut duel);
        assert!(grown < 48 * KIB, "{grown} bytes at {stage:?}");
    }
}
