//! Key updates without end, and packets that do not open (RFC 9001, Section 6).

use quicket_engine::crypto::Level;
use quicket_engine::{Side, TransportErrorCode};
use quicket_sim::attack::{Duel, DuelOptions, Payload, Stage};
use quicket_wire::Version;
use quicket_wire::frame::Ping;

use crate::memory::growth;
use crate::support::{BOTH, KIB, assert_alive, code, confirmed, ms};

/// RFC 9001, Section 6.2: whoever updates twice without waiting for an answer is at fault.
#[test]
fn a_second_key_update_before_the_answer_to_the_first_ends_the_connection() {
    for side in BOTH {
        let mut duel = confirmed(side);
        for _ in 0..2 {
            duel.forge.update_keys();
            duel.attack(Level::OneRtt, &Payload::of(&Ping));
        }
        assert_eq!(code(&mut duel), Some(TransportErrorCode::KEY_UPDATE_ERROR));
        assert_eq!(duel.connection().stats().counters.key_updates, 1);
    }
}

/// RFC 9369, Section 4.1: after a compatible change, Handshake packets have the negotiated version.
#[test]
fn handshake_packets_of_the_version_before_a_compatible_change_are_dropped() {
    let mut options = DuelOptions::new(Side::Client);
    options.client.version = Version::V1;
    options.client.versions = vec![Version::V2, Version::V1];
    let mut duel = Duel::new(options, Stage::Handshake);
    assert_eq!(duel.forge.version, Version::V2);
    let received = |duel: &mut Duel| duel.connection().stats().counters.packets_received;
    let before = received(&mut duel);
    duel.forge.version = Version::V1;
    duel.attack(Level::Handshake, &Payload::of(&Ping));
    assert_eq!(received(&mut duel), before);
    duel.forge.version = Version::V2;
    duel.attack(Level::Handshake, &Payload::of(&Ping));
    assert_eq!(received(&mut duel), before + 1);
}

/// An attacker that waits is let: each update costs it a packet of ours.
#[test]
fn key_updates_that_wait_for_their_answers_leave_nothing() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let grown = growth(&mut duel, |duel| {
            for _ in 0..2_000 {
                duel.forge.update_keys();
                duel.attack(Level::OneRtt, &Payload::of(&Ping));
                duel.attack(Level::OneRtt, &Payload::of(&Ping));
                assert!(!duel.pass(ms(30)).is_empty(), "packets are acknowledged in time");
            }
        });
        assert_alive(&mut duel);
        assert_eq!(duel.connection().stats().counters.key_updates, 2_000);
        // 512 packets that are never acknowledged.
        assert!(grown < 96 * KIB, "{grown} bytes");
    }
}

/// Flipped bits of the key phase in packets of others change no keys.
#[test]
fn garbage_with_either_key_phase_changes_nothing() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let grown = growth(&mut duel, |duel| {
            for n in 0..10_000_usize {
                let mut packet = duel.forge.seal(Level::OneRtt, &[1; 40]);
                let at = packet.len() - 1 - n % 20;
                packet[at] ^= 0x55;
                packet[0] ^= (n as u8) & 0x1f;
                duel.deliver(&mut packet);
            }
        });
        assert_alive(&mut duel);
        assert_eq!(duel.connection().stats().counters.key_updates, 0);
        assert!(grown < 4 * KIB, "{grown} bytes");
    }
}
