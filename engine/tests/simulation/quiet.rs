//! Connections that go quiet give memory and keys up, and make them anew when they are needed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use quicket_sim::app::Workload;
use quicket_sim::datagram::Datagram;
use quicket_sim::sim::{Pair, PairOptions};

use crate::support::{CLEAN, P2P, establish, ms, ok, pair, secs};

/// A pair that can be silent for a while, its handshake done.
fn established(scenario: &str, work: Workload) -> Pair {
    let options = PairOptions::new(scenario).transport(|t| t.max_idle_timeout = secs(200).into());
    let mut pair = pair(options);
    pair.connect(work);
    establish(&mut pair);
    pair
}

fn are_quiet(pair: &mut Pair) -> [bool; 2] {
    [pair.at_client().connection.is_quiet(), pair.at_server().connection.is_quiet()]
}

#[test]
fn silence_makes_a_connection_quiet_and_a_packet_wakes_both_ends() {
    let mut pair = established(CLEAN, Workload::none());
    assert_eq!(are_quiet(&mut pair), [false, false]);
    for round in 0..6 {
        ok(pair.sim.run_for(secs(20)));
        assert_eq!(are_quiet(&mut pair), [true, true], "round {round}");
        let before = pair.at_client().connection.stats().counters.packets_received;
        let session = if round % 2 == 0 { pair.at_client() } else { pair.at_server() };
        session.connection.ping();
        ok(pair.sim.run_for(ms(300)));
        assert_eq!(are_quiet(&mut pair), [false, false], "round {round}");
        let after = pair.at_client().connection.stats().counters.packets_received;
        assert!(after > before);
    }
    for host in [pair.client, pair.server] {
        let counters = pair.sim.host_mut(host).session().connection.stats().counters;
        assert_eq!((counters.packets_lost, counters.packets_dropped), (0, 0));
    }
    ok(pair.close());
}

/// RFC 9001, Section 6.1: header protection keeps its key, although the others are updated.
#[test]
fn keys_that_slept_are_those_of_the_current_phase() {
    let mut pair = established(CLEAN, Workload::none());
    for round in 1..=6 {
        ok(pair.sim.run_for(secs(20)));
        assert_eq!(are_quiet(&mut pair), [true, true]);
        let now = pair.now();
        let session = if round % 2 == 0 { pair.at_client() } else { pair.at_server() };
        session.connection.update_keys(now).unwrap();
        session.connection.ping();
        ok(pair.sim.run_for(secs(1)));
        pair.at_client().connection.ping();
        pair.at_server().connection.ping();
        ok(pair.sim.run_for(secs(20)));
        assert_eq!(are_quiet(&mut pair), [true, true]);
        pair.at_client().connection.ping();
        pair.at_server().connection.ping();
        ok(pair.sim.run_for(secs(20)));
        for host in [pair.client, pair.server] {
            let counters = pair.sim.host_mut(host).session().connection.stats().counters;
            assert_eq!(counters.key_updates, round);
            assert_eq!((counters.packets_lost, counters.packets_dropped), (0, 0));
        }
    }
    ok(pair.close());
}

/// On a path whose probe timeout is longer than the time after which connections are quiet, ACKs
/// of what was sent last are still understood.
#[test]
fn a_connection_with_packets_on_their_way_is_not_quiet() {
    let mut pair = established("delay=1500ms", Workload::none());
    ok(pair.sim.run_for(secs(60)));
    assert_eq!(are_quiet(&mut pair), [true, true]);
    let before = pair.at_client().connection.stats().counters;
    pair.at_client().connection.ping();
    ok(pair.sim.run_for(ms(2_900)));
    assert!(!pair.at_client().connection.is_quiet());
    ok(pair.sim.run_for(secs(60)));
    assert_eq!(are_quiet(&mut pair), [true, true]);
    let after = pair.at_client().connection.stats().counters;
    assert_eq!(after.packets_lost, before.packets_lost);
    assert_eq!(after.probe_timeouts, before.probe_timeouts);
    ok(pair.close());
}

/// What cannot be opened costs a quiet connection its keys for a second, not for ever.
#[test]
fn garbage_does_not_keep_a_connection_awake() {
    let mut pair = established(CLEAN, Workload::none());
    let last: Arc<Mutex<Option<Datagram>>> = Arc::default();
    let seen = Arc::clone(&last);
    let server = pair.sim.host(pair.server).address();
    pair.sim.network_mut().set_tap(move |_, datagram| {
        if datagram.dst == server {
            *seen.lock().unwrap() = Some(datagram.clone());
        }
        true
    });
    pair.at_client().connection.ping();
    ok(pair.sim.run_for(secs(20)));
    let mut garbage = last.lock().unwrap().clone().expect("the PING was seen");
    if let Some(byte) = garbage.payload.last_mut() {
        *byte ^= 1;
    }
    for round in 1..=3 {
        assert_eq!(are_quiet(&mut pair), [true, true]);
        let now = pair.now();
        pair.sim.network_mut().send(now, garbage.clone());
        ok(pair.sim.run_for(ms(200)));
        assert_eq!(are_quiet(&mut pair), [true, false]);
        assert_eq!(pair.at_server().connection.stats().counters.packets_dropped, round);
        ok(pair.sim.run_for(secs(5)));
    }
    assert_eq!(are_quiet(&mut pair), [true, true]);
    ok(pair.close());
}

/// RFC 9001, Section 6.1: the header protection key of an end that slept is that of one that did
/// not, although the others were updated.
#[test]
fn keys_that_slept_are_those_of_a_peer_that_did_not_sleep() {
    let mut pair = established(CLEAN, Workload::none());
    let (client, deaf) = (pair.sim.host(pair.client).address(), Arc::new(AtomicBool::new(false)));
    let is_deaf = Arc::clone(&deaf);
    pair.sim
        .network_mut()
        .set_tap(move |_, datagram| datagram.dst != client || !is_deaf.load(Ordering::Relaxed));
    for updates in 1..=3 {
        let now = pair.now();
        pair.at_server().connection.update_keys(now).unwrap();
        pair.at_server().connection.ping();
        ok(pair.sim.run_for(secs(1)));
        deaf.store(true, Ordering::Relaxed);
        for _ in 0..40 {
            pair.at_server().connection.ping();
            ok(pair.sim.run_for(ms(500)));
            assert!(!pair.at_server().connection.is_quiet());
        }
        assert!(pair.at_client().connection.is_quiet());
        deaf.store(false, Ordering::Relaxed);
        let before = pair.at_client().connection.stats().counters.packets_received;
        pair.at_server().connection.ping();
        ok(pair.sim.run_for(secs(2)));
        let counters = pair.at_client().connection.stats().counters;
        assert_eq!((counters.packets_dropped, counters.key_updates), (0, updates));
        assert!(counters.packets_received > before);
    }
    ok(pair.close());
}

/// The packet that wakes a connection is lost as often as others.
#[test]
fn each_request_after_silence_is_answered_on_a_bad_path() {
    for scenario in [format!("{P2P}; loss=30%"), format!("{P2P}; duplicate=20% corrupt=10%")] {
        let work = Workload { pause: secs(30), ..Workload::requests(20, 1) };
        let mut pair = established(&scenario, work);
        for round in 1..20 {
            let answered = |pair: &mut Pair| pair.at_client().app.tally().streams_received == round;
            step_until(&mut pair, answered);
            step_until(&mut pair, |pair| are_quiet(pair) == [true, true]);
            assert!(answered(&mut pair), "{scenario}: no request went out while all was quiet");
        }
        ok(pair.run(secs(60)));
        ok(pair.close());
        ok(pair.check_sums());
        let lost = pair.ended(pair.client).stats.counters.packets_lost;
        assert!(lost > 0, "{scenario}");
    }
}

/// Runs until something is true, which it must be soon.
fn step_until(pair: &mut Pair, mut done: impl FnMut(&mut Pair) -> bool) {
    for _ in 0..600 {
        if done(pair) {
            return;
        }
        ok(pair.sim.run_for(ms(100)));
    }
    panic!("{}", pair.sim.failure("a minute was not enough"));
}
