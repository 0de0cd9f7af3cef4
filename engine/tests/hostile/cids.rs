//! Connection IDs issued and retired without end (RFC 9000, Section 21.9).

use quicket_engine::crypto::Level;
use quicket_engine::{
    ConnectionError, ConnectionId, Side, StatelessResetToken, TransportErrorCode,
};
use quicket_sim::attack::{Duel, Payload};
use quicket_wire::frame::{NewConnectionId, Ping, RetireConnectionId};
use quicket_wire::{Frame, Frames};

use crate::memory::growth;
use crate::support::{BOTH, KIB, assert_alive, code, confirmed, ms};

fn new_cid(sequence_number: u64, retire_prior_to: u64) -> NewConnectionId {
    let bytes = sequence_number.to_be_bytes();
    let mut token = [0; 16];
    token[8..].copy_from_slice(&bytes);
    NewConnectionId {
        sequence_number,
        retire_prior_to,
        connection_id: ConnectionId::new(&bytes).unwrap(),
        stateless_reset_token: StatelessResetToken(token),
    }
}

/// RFC 9000, Section 10.3.1: a reset counts that comes from where the peer is, which may have moved.
#[test]
fn a_reset_token_follows_the_peer_to_its_next_address() {
    for moved in [false, true] {
        let mut duel = confirmed(Side::Client);
        let former = duel.address;
        let given = new_cid(10, 10);
        duel.attack(Level::OneRtt, &Payload::of(&given));
        duel.follow();
        // The same connection ID comes from another port: no other one is taken for it.
        duel.address.set_port(former.port() + 1);
        duel.attack(Level::OneRtt, &Payload::of(&Ping));
        duel.follow();
        assert_eq!(duel.connection().remote(), duel.address);
        let mut reset = [0x41; 60];
        reset[44..].copy_from_slice(&given.stateless_reset_token.0);
        let from = if moved { duel.address } else { former };
        duel.deliver_from(from, &mut reset);
        let reason = duel.connection().close_reason().cloned();
        assert_eq!(reason == Some(ConnectionError::StatelessReset), moved, "{reason:?}");
    }
}

/// CVE-2024-22189 of quic-go and CVE-2024-1410 of quiche: retirements that cannot be told,
/// because the peer does not acknowledge.
#[test]
fn retirements_that_are_never_acknowledged_end_the_connection() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let grown = growth(&mut duel, |duel| {
            for n in 10..5_000 {
                duel.attack(Level::OneRtt, &Payload::of(&new_cid(n, n)));
                drop(duel.answers());
            }
        });
        assert_eq!(code(&mut duel), Some(TransportErrorCode::CONNECTION_ID_LIMIT_ERROR));
        assert!(grown < 32 * KIB, "{grown} bytes");
    }
}

/// The same with acknowledgments: it goes on as long as the attacker pays for it.
#[test]
fn retirements_that_are_acknowledged_leave_nothing() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let grown = growth(&mut duel, |duel| {
            for n in 10..5_000 {
                duel.attack(Level::OneRtt, &Payload::of(&new_cid(n, n)));
                let sent = duel.pass(ms(5));
                sent.iter().for_each(|sent| drop(duel.forge.open(&sent.data)));
                duel.acknowledge();
            }
        });
        assert_alive(&mut duel);
        assert!(grown < 32 * KIB, "{grown} bytes");
    }
}

/// CVE-2025-7054 of quiche: a retirement of what is not there must end.
#[test]
fn late_and_repeated_announcements_of_connection_ids_are_bounded() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let grown = growth(&mut duel, |duel| {
            duel.attack(Level::OneRtt, &Payload::of(&new_cid(1 << 40, 1 << 40)));
            for n in 10..2_000 {
                duel.attack(Level::OneRtt, &Payload::of(&new_cid(n, 0)));
                drop(duel.answers());
            }
        });
        assert_eq!(code(&mut duel), Some(TransportErrorCode::CONNECTION_ID_LIMIT_ERROR));
        assert!(grown < 32 * KIB, "{grown} bytes");
    }
}

fn announced(duel: &mut Duel) -> Vec<u64> {
    let opened = duel.opened_answers();
    let frames = opened.iter().flat_map(|packet| Frames::new(&packet.payload));
    let sequences = frames.filter_map(|frame| match frame {
        Ok(Frame::NewConnectionId(frame)) => Some(frame.sequence_number),
        _ => None,
    });
    sequences.collect()
}

/// Every connection ID is retired as soon as it comes: new ones come at a rate.
#[test]
fn new_connection_ids_come_at_a_rate() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let before = duel.connection().stats().counters.frames_sent.of_type(NewConnectionId::TYPE);
        let mut retire: Vec<u64> = (1..4).collect();
        let grown = growth(&mut duel, |duel| {
            for _ in 0..2_000 {
                let mut payload = Payload::new();
                for sequence_number in retire.drain(..) {
                    payload.push(&RetireConnectionId { sequence_number });
                }
                duel.attack(Level::OneRtt, &payload.raw(&[1]));
                retire = announced(duel);
                duel.acknowledge();
            }
        });
        assert_alive(&mut duel);
        let after = duel.connection().stats().counters.frames_sent.of_type(NewConnectionId::TYPE);
        assert!(after - before <= 32, "{} came at once", after - before);
        assert!(grown < 64 * KIB, "{grown} bytes");
        drop(duel.pass(ms(1_000)));
        let later = duel.connection().stats().counters.frames_sent.of_type(NewConnectionId::TYPE);
        assert!(later - after <= 11, "{} came in a second", later - after);
    }
}

/// RFC 9000, Section 19.16.
#[test]
fn retiring_what_was_never_issued_ends_the_connection() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let retire = RetireConnectionId { sequence_number: 1 << 30 };
        duel.attack(Level::OneRtt, &Payload::of(&retire));
        assert_eq!(code(&mut duel), Some(TransportErrorCode::PROTOCOL_VIOLATION));
    }
}
