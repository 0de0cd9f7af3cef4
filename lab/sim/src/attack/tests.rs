use quicket_engine::crypto::Level;
use quicket_wire::{Dir, Side, StreamId, frame};

use super::{Duel, DuelOptions, Payload, Stage};

#[test]
fn a_forged_packet_is_taken_at_every_stage_in_both_roles() {
    for side in [Side::Client, Side::Server] {
        for (stage, level) in [
            (Stage::First, Level::Initial),
            (Stage::Handshake, Level::Handshake),
            (Stage::Confirmed, Level::OneRtt),
        ] {
            let mut duel = Duel::new(DuelOptions::new(side), stage);
            let before = duel.connection().stats().counters.packets_received;
            duel.attack(level, &Payload::of(&frame::Ping));
            let after = duel.connection().stats().counters.packets_received;
            assert_eq!(after, before + 1, "{side:?} {stage:?}");
            assert!(!duel.connection().is_closed(), "{side:?} {stage:?}");
            assert_eq!(duel.connection().is_confirmed(), stage == Stage::Confirmed);
        }
    }
}

#[test]
fn the_victim_answers_and_its_answer_can_be_read() {
    for side in [Side::Client, Side::Server] {
        let mut duel = Duel::new(DuelOptions::new(side), Stage::Confirmed);
        let mut payload = Payload::new();
        let id = StreamId::new(side, Dir::Uni, 0);
        payload.stream(id, 0, b"hello", true);
        duel.attack(Level::OneRtt, &payload.frame(&frame::PathChallenge { data: [7; 8] }));
        assert_eq!(duel.connection().accept(Dir::Uni), Some(id));
        let opened = duel.opened_answers();
        let response = Payload::of(&frame::PathResponse { data: [7; 8] });
        let found = |bytes: &[u8]| bytes.windows(9).any(|w| w == response.bytes());
        assert!(opened.iter().any(|packet| found(&packet.payload)), "{opened:?}");
    }
}

#[test]
fn a_key_update_is_followed() {
    let mut duel = Duel::new(DuelOptions::new(Side::Client), Stage::Confirmed);
    duel.forge.update_keys();
    duel.attack(Level::OneRtt, &Payload::of(&frame::Ping));
    assert_eq!(duel.connection().stats().counters.key_updates, 1);
}
