//! Acknowledgments that lie, and packet numbers that are to make long acknowledgments
//! (RFC 9000, Sections 13.1, 13.2.3 and 21.4).

use std::collections::BTreeSet;

use quicket_engine::TransportErrorCode;
use quicket_engine::crypto::Level;
use quicket_engine::time::Duration;
use quicket_engine::{Dir, Side};
use quicket_sim::attack::{Duel, DuelOptions, Payload, Stage};
use quicket_wire::{ConnectionId, EcnCodepoint, Frame, Frames, StatelessResetToken, frame};

use crate::memory::growth;
use crate::support::{BOTH, KIB, MIB, assert_alive, code, confirmed, ms};

/// A victim that has much to send and may.
fn sender(attacker: Side, bytes: usize) -> Duel {
    let mut duel = confirmed(attacker);
    let credit = Payload::of(&frame::MaxData { maximum: 1 << 40 })
        .frame(&frame::MaxStreams { dir: Dir::Uni, maximum: 1 << 20 });
    duel.attack(Level::OneRtt, &credit);
    let id = duel.connection().open(Dir::Uni).unwrap();
    duel.attack(Level::OneRtt, &Payload::of(&frame::MaxStreamData { id, maximum: 1 << 40 }));
    duel.connection().write(id, &vec![7; bytes]).unwrap();
    duel
}

/// CVE-2025-4821 of quiche, among others.
#[test]
fn acknowledging_what_was_never_sent_ends_the_connection() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let grown = growth(&mut duel, |duel| {
            duel.attack(Level::OneRtt, &Payload::new().ack(0, &[0..=1 << 40], None));
        });
        assert_eq!(code(&mut duel), Some(TransportErrorCode::PROTOCOL_VIOLATION));
        assert!(grown < 8 * KIB, "{grown} bytes");
    }
}

/// CVE-2025-4820 of quiche: who acknowledges before anything arrived makes the sender flood the
/// path. It cannot know which numbers were left out.
#[test]
fn optimistic_acknowledgments_are_found_out() {
    for side in BOTH {
        let mut duel = sender(side, 4 << 20);
        let mut rounds = 0;
        while !duel.connection().is_closed() {
            let sent = duel.pass(ms(1));
            sent.iter().for_each(|sent| drop(duel.forge.open(&sent.data)));
            let largest = duel.forge.largest_opened[2];
            duel.attack(Level::OneRtt, &Payload::new().ack(0, &[0..=largest], None));
            rounds += 1;
            assert!(rounds < 5_000, "nothing is found out");
        }
        assert_eq!(code(&mut duel), Some(TransportErrorCode::PROTOCOL_VIOLATION));
        let sent = duel.connection().stats().counters.packets_sent;
        assert!(sent < 2_000, "{sent} packets went out before");
    }
}

/// The same for Initial packets, of which there are few: some numbers after the first are left out.
#[test]
fn optimistic_acknowledgments_of_initial_packets_are_found_out() {
    let mut skips = BTreeSet::new();
    for seed in 0..40 {
        for honest in [true, false] {
            // A client that hears nothing sends its first flight again.
            let options = DuelOptions { seed, ..DuelOptions::new(Side::Server) };
            let mut duel = Duel::new(options, Stage::First);
            let again = duel.pass(ms(2_000));
            let opened = again.iter().flat_map(|sent| duel.forge.open(&sent.data));
            let numbers: Vec<u64> = opened.map(|opened| opened.number).collect();
            let second = *numbers.first().expect("the flight is repeated");
            skips.insert(second - 1);
            let ranges = [second..=second, 0..=0];
            let ranges = if honest { &ranges[..] } else { &[0..=second] };
            duel.attack(Level::Initial, &Payload::new().ack(0, ranges, None));
            let expected = (!honest).then_some(TransportErrorCode::PROTOCOL_VIOLATION);
            assert_eq!(code(&mut duel), expected, "{numbers:?}");
        }
    }
    assert_eq!(skips, BTreeSet::from([1, 2, 3, 4]));
}

/// RFC 9002, Section 5.3: a server whose first ACK was lost acknowledges the same Initial again,
/// later. It says how long it had it: that is no round trip, from which probe and idle timeouts of
/// a minute would follow.
#[test]
fn an_initial_that_is_acknowledged_again_is_no_sample_of_the_round_trip() {
    let rtt_after = |delay_ms: u64| -> Duration {
        let mut duel = Duel::new(DuelOptions::new(Side::Server), Stage::First);
        drop(duel.pass(ms(3_000)));
        let ack = Payload::new().ack(delay_ms * 1_000 / 8, &[0..=0], None);
        duel.attack(Level::Initial, &ack);
        assert_eq!(duel.connection().stats().counters.packets_acked, 1);
        duel.connection().stats().path.smoothed_rtt.into()
    };
    assert!(rtt_after(2_950) < ms(500), "{:?}", rtt_after(2_950));
    assert!(rtt_after(0) >= ms(3_000), "{:?}", rtt_after(0));
}

/// Every other packet is acknowledged: nothing piles up, and the window closes.
#[test]
fn acknowledgments_with_gaps_cost_no_memory() {
    let mut duel = sender(Side::Client, 1 << 20);
    let grown = growth(&mut duel, |duel| {
        for _ in 0..2_000 {
            let sent = duel.pass(ms(5));
            sent.iter().for_each(|sent| drop(duel.forge.open(&sent.data)));
            let even = duel.forge.opened.iter().cloned().flatten().filter(|n| n % 2 == 0);
            let mut even: Vec<_> = even.map(|n| n..=n).collect();
            even.reverse();
            even.truncate(300);
            if !even.is_empty() {
                duel.attack(Level::OneRtt, &Payload::new().ack(0, &even, None));
            }
        }
    });
    assert_alive(&mut duel);
    assert!(grown < 2 * MIB, "{grown} bytes");
}

/// RFC 9000, Section 13.2.3: ranges to acknowledge are bounded, and so is the frame.
#[test]
fn numbers_with_gaps_make_short_acknowledgments() {
    for side in BOTH {
        let mut duel = confirmed(side);
        let mut ranges = 0;
        let grown = growth(&mut duel, |duel| {
            for _ in 0..60_000 {
                duel.forge.next_number[2] += 1;
                duel.attack(Level::OneRtt, &Payload::of(&frame::Ping));
                for packet in duel.opened_answers() {
                    for frame in Frames::new(&packet.payload) {
                        if let Ok(Frame::Ack(ack)) = frame {
                            ranges = ranges.max(ack.ranges.len());
                        }
                    }
                }
            }
        });
        assert_alive(&mut duel);
        assert!((2..=64).contains(&ranges), "{ranges} ranges");
        // 16384 packets that are not acknowledged.
        assert!(grown < 4 * MIB, "{grown} bytes");
    }
}

/// RFC 9000, Section 9.3: a server may send little to a client that has moved and does not show that
/// it is there, and perhaps less than an ACK needs. Its time comes with the next packet: until then
/// no timer is due.
#[test]
fn an_acknowledgment_that_there_is_no_room_for_is_not_due() {
    let mut duel = confirmed(Side::Client);
    // The longest connection IDs, and numbers.
    for n in 10..12 {
        let cid = frame::NewConnectionId {
            sequence_number: n,
            retire_prior_to: 10,
            connection_id: ConnectionId::new(&[n as u8; 20]).unwrap(),
            stateless_reset_token: StatelessResetToken([n as u8; 16]),
        };
        duel.attack(Level::OneRtt, &Payload::of(&cid));
        duel.forge.next_number[2] += 1 << 30;
    }
    let mut rng = duel.rng();
    for step in 0..2_000 {
        if step % 8 == 0 {
            duel.address.set_port(10_000 + step);
        }
        let padding = vec![0; rng.between(0, 60) as usize];
        let payload = Payload::of(&frame::Ping).raw(&padding);
        let mut packet = duel.forge.seal(Level::OneRtt, payload.bytes());
        duel.victim.receive(duel.now, duel.address, EcnCodepoint::Ect0, &mut packet);
        drop(duel.pass(ms(30)));
    }
    assert_alive(&mut duel);
    let moves = duel.connection().stats().counters.path_changes;
    assert!(moves >= 250, "the attacker moved {moves} times");
}

/// A peer that never acknowledges is remembered for as long as its window, not for ever.
#[test]
fn silence_keeps_a_bounded_number_of_packets() {
    let mut duel = confirmed(Side::Client);
    let grown = growth(&mut duel, |duel| {
        for _ in 0..30_000 {
            duel.attack(Level::OneRtt, &Payload::of(&frame::Ping));
            drop(duel.pass(ms(1)));
        }
    });
    assert_alive(&mut duel);
    assert!(grown < 256 * KIB, "{grown} bytes");
}
