//! Explicit congestion notification: RFC 9000, Section 13.4.

use quicket_sim::app::Workload;
use quicket_sim::sim::{Pair, PairOptions};
use quicket_wire::EcnCodepoint;

use crate::support::{ok, pair, secs};

fn downloaded(scenario: &str) -> Pair {
    let mut pair = pair(PairOptions::new(scenario));
    pair.connect(Workload::download(500_000));
    ok(pair.run(secs(60)));
    pair
}

#[test]
fn capable_paths_are_found_capable() {
    let mut pair = downloaded("delay=20ms rate=20mbit queue=100 mtu=1500");
    assert!(pair.at_server().connection.stats().path.ecn_capable);
    let last = pair.sim.network().log().entries().last().unwrap();
    assert_eq!(last.ecn, EcnCodepoint::Ect0);
    ok(pair.close());
}

/// RFC 9000, Section 13.4.2.1: counts that do not add up switch marking off.
#[test]
fn bleached_paths_are_found_out() {
    let mut pair = downloaded("delay=20ms rate=20mbit queue=100 mtu=1500 ecn=bleach");
    assert!(!pair.at_server().connection.stats().path.ecn_capable);
    let last = pair.sim.network().log().entries().last().unwrap();
    assert_eq!(last.ecn, EcnCodepoint::NotEct);
    ok(pair.close());
}

/// A path that marks everything looks like a congested one: slow, but it works.
#[test]
fn mangled_paths_still_work() {
    let mut pair = downloaded("delay=20ms rate=20mbit queue=100 mtu=1500 ecn=mangle");
    ok(pair.close());
}

/// RFC 9002, Section 7.1: a mark is congestion without a loss.
#[test]
fn marks_slow_the_sender_without_losses() {
    let mut pair = downloaded("delay=20ms rate=10mbit queue=400 mtu=1500 mark-above=20");
    let stats = pair.at_server().connection.stats();
    assert!(stats.path.ecn_ce_events > 0, "{stats:?}");
    assert_eq!(stats.counters.packets_lost, 0, "{stats:?}");
    ok(pair.close());
}

#[test]
fn marking_can_be_switched_off() {
    let mut pair = pair(PairOptions::new("delay=20ms").transport(|t| t.ecn = false));
    pair.transfer(Workload::download(10_000), secs(10));
    assert!(pair.sim.network().log().entries().all(|entry| entry.ecn == EcnCodepoint::NotEct));
}

#[test]
fn paths_that_drop_marked_packets_still_work() {
    let mut pair = pair(PairOptions::new("delay=20ms"));
    pair.sim.network_mut().set_tap(|_, datagram| datagram.ecn == EcnCodepoint::NotEct);
    pair.connect(Workload::download(200_000));
    ok(pair.run(secs(60)));
    assert!(!pair.at_server().connection.stats().path.ecn_capable);
}
