//! Packets without the fixed bit (RFC 9000, Sections 17.2 and 17.3.1; RFC 9287).

use quicket_engine::Side;
use quicket_engine::crypto::Level;
use quicket_sim::attack::{Duel, DuelOptions, Payload, Stage};
use quicket_wire::frame::Ping;

use crate::support::{BOTH, Flights, START, assert_alive, server, stranger};

fn received(duel: &mut Duel) -> u64 {
    duel.connection().stats().counters.packets_received
}

/// How many of three packets without the bit are taken, of which two come as a train.
fn taken(options: DuelOptions, stage: Stage, level: Level) -> u64 {
    let mut duel = Duel::new(options, stage);
    duel.forge.fixed_bit = false;
    let before = received(&mut duel);
    let ping = Payload::of(&Ping);
    duel.attack(level, &ping);
    let train = [duel.forge.seal(level, ping.bytes()), duel.forge.seal(level, ping.bytes())];
    let stride = train[0].len();
    duel.deliver_train(&mut train.concat(), stride);
    assert_alive(&mut duel);
    received(&mut duel) - before
}

#[test]
fn packets_without_the_fixed_bit_are_discarded_unless_we_agreed() {
    for side in BOTH {
        for (stage, level) in
            [(Stage::Handshake, Level::Handshake), (Stage::Confirmed, Level::OneRtt)]
        {
            let mut options = DuelOptions::new(side);
            options.endpoint.grease_quic_bit = false;
            assert_eq!(taken(options, stage, level), 0, "{side:?} {level:?}");
            let agreed = taken(DuelOptions::new(side), stage, level);
            assert_eq!(agreed, 3, "{side:?} {level:?}");
        }
    }
}

/// What is announced in place of the endpoint's configuration counts.
#[test]
fn what_was_announced_decides() {
    for announced in [false, true] {
        let mut options = DuelOptions::new(Side::Client);
        options.endpoint.grease_quic_bit = !announced;
        let transport = std::sync::Arc::make_mut(&mut options.server.transport);
        transport.announced.grease_quic_bit = Some(announced);
        let taken = taken(options, Stage::Confirmed, Level::OneRtt);
        assert_eq!(taken, if announced { 3 } else { 0 });
    }
}

/// RFC 9287, Section 3.1: clients that remember the parameter leave the bit out of their first
/// packets. The bit is authenticated, so that clearing it spoils the packet: what matters here is
/// whether the server looks at it.
#[test]
fn first_packets_without_the_fixed_bit_start_nothing_unless_we_agreed() {
    for agreed in [false, true] {
        let mut server = server(|config| {
            let transport = std::sync::Arc::make_mut(&mut config.transport);
            transport.announced.grease_quic_bit = Some(agreed);
        });
        let mut data = Flights::new().next(START, &[]);
        data[0] &= !0x40;
        server.receive(START, stranger(1), quicket_engine::EcnCodepoint::NotEct, &mut data);
        assert_eq!(server.invalid, usize::from(agreed), "looked at: {agreed}");
    }
}
