//! 0-RTT data: its volume (RFC 9001, Section 9.2). Its replay is refused by the server's TLS:
//! `handshake/src/server/replay.rs`.

use quicket_engine::crypto::Level;
use quicket_engine::{Dir, EcnCodepoint, Event, Side, StreamId, TransportErrorCode};
use quicket_sim::attack::{Duel, DuelOptions, Payload, Stage};

use crate::memory::growth;
use crate::support::{KIB, MIB, code, stranger};

/// A client that resumes a session and offers 0-RTT.
fn resuming() -> Duel {
    let mut first = Duel::new(DuelOptions::new(Side::Server), Stage::Confirmed);
    let mut session = None;
    while let Some(event) = first.connection().poll_event() {
        if let Event::SessionTicket(ticket) = event {
            session = Some(ticket);
        }
    }
    let mut options = DuelOptions::new(Side::Client);
    options.client.session = Some(session.expect("the server sends tickets"));
    options.client.early_data = true;
    let duel = Duel::new(options, Stage::First);
    assert!(duel.forge.can_seal(Level::EarlyData), "0-RTT is offered");
    duel
}

#[test]
fn early_data_is_bounded_by_the_windows() {
    let mut duel = resuming();
    let grown = growth(&mut duel, |duel| {
        for index in 0..8 {
            let id = StreamId::new(Side::Client, Dir::Uni, index);
            for at in 0..200 {
                let mut payload = Payload::new();
                payload.stream(id, at * 1_000, &[1; 1_000], false);
                duel.attack(Level::EarlyData, &payload);
            }
        }
    });
    assert_eq!(code(&mut duel), Some(TransportErrorCode::FLOW_CONTROL_ERROR));
    assert!(grown < 2 * MIB, "{grown} bytes");
}

/// What is in 0-RTT packets of the same first flight, replayed from many addresses, costs each
/// of them a handshake: no connection gets the data of another.
#[test]
fn replayed_first_flights_reach_one_connection() {
    let mut duel = resuming();
    let mut payload = Payload::new();
    payload.stream(StreamId::new(Side::Client, Dir::Uni, 0), 0, b"transfer", true);
    let packet = duel.forge.seal(Level::EarlyData, payload.bytes());
    let grown = growth(&mut duel, |duel| {
        duel.deliver(&mut packet.clone());
        duel.deliver(&mut packet.clone());
        for n in 0..1_000 {
            let from = stranger(n);
            duel.victim.receive(duel.now, from, EcnCodepoint::NotEct, &mut packet.clone());
        }
    });
    let counters = duel.connection().stats().counters;
    assert_eq!(counters.frames_received.of_type(0x08 | 0x02 | 0x01), 1, "taken once");
    assert!(grown < 8 * KIB, "{grown} bytes");
}
