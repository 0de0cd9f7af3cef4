//! Connections that do nothing, by the thousand.

use quicket_engine::{EndpointConfig, Side};
use quicket_sim::attack::{Duel, DuelOptions, Party, Stage};

use crate::memory::held;
use crate::support::{BOTH, KIB, SERVER, START, confirmed, ms, stranger};

/// What an idle connection of a server costs, and that it ends.
#[test]
fn an_idle_connection_costs_a_few_kilobytes_and_ends() {
    for side in BOTH {
        let mut duels = Vec::with_capacity(50);
        let before = held();
        for seed in 0..50 {
            let mut options = DuelOptions::new(side);
            options.seed = seed;
            let mut duel = Duel::new(options, Stage::Confirmed);
            drop(duel.pass(ms(5_000)));
            duels.push(duel);
        }
        // A duel holds both sides, and buffers of 64 KiB for each.
        let each = (held() - before) / 50 - 2 * 64 * KIB;
        assert!(each < 2 * 24 * KIB, "{each} bytes for two idle connections");
        for duel in &mut duels {
            drop(duel.pass(ms(31_000)));
            assert!(duel.connection().is_drained());
        }
    }
}

/// RFC 9000, Section 10.1: a connection may be silent for three probe timeouts. A peer whose ACKs
/// come later and later must not make that hours.
#[test]
fn late_acknowledgments_do_not_stretch_silence_without_end() {
    for side in BOTH {
        let mut duel = confirmed(side);
        for seconds in [20, 50, 120, 300, 700, 1_600, 3_600] {
            duel.connection().ping();
            duel.opened_answers();
            drop(duel.pass(ms(seconds * 1_000)));
            if duel.connection().is_closed() {
                break;
            }
            duel.acknowledge();
        }
        drop(duel.pass(ms(1_000_000)));
        assert!(duel.connection().is_drained(), "{side:?}");
    }
}

/// A server with this many connections whose clients are gone, after a second of silence.
fn server_with(clients: usize) -> Party {
    let DuelOptions { endpoint, client, server, crypto, .. } = DuelOptions::new(Side::Client);
    let mut server = Party::new(SERVER, endpoint, Some(server), crypto.clone(), 1);
    let config = EndpointConfig::new([8; 32], [9; 32]);
    let mut party = Party::new(stranger(1), config, None, crypto, 2);
    let mut now = START;
    for _ in 0..clients {
        let started = party.endpoint.connect(now, client.clone(), SERVER, None, "sim.example");
        let (handle, connection) = started.unwrap();
        party.connections.insert(handle, connection);
        party.settle(handle);
    }
    let end = now + ms(1_000);
    while now < end {
        let (up, down) = (party.transmit(now), server.transmit(now));
        if up.is_empty() && down.is_empty() {
            let next = party.next_timeout().into_iter().chain(server.next_timeout()).min();
            now = next.map_or(end, |at| at.max(now).min(end));
            party.handle_timeouts(now);
            server.handle_timeouts(now);
        }
        for mut sent in up {
            server.receive(now, party.address, sent.ecn, &mut sent.data);
        }
        for mut sent in down {
            party.receive(now, SERVER, sent.ecn, &mut sent.data);
        }
    }
    assert!(server.connections.values().all(|connection| connection.is_confirmed()));
    server
}

/// The same for connections of one endpoint, tables of the endpoint included.
#[test]
fn many_idle_connections_of_one_server_cost_each_the_same() {
    let held_by = |clients| {
        let before = held();
        let server = server_with(clients);
        let after = held();
        drop(server);
        after - before
    };
    let each = (held_by(600) - held_by(100)) / 500;
    assert!(each < 24 * KIB, "{each} bytes for each idle connection");
}
