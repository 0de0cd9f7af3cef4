//! Loss, reordering, duplication, corruption, jitter and black holes: all bytes arrive, once and
//! in order.

use quicket_sim::app::Workload;
use quicket_sim::scenario::{Scenario, Way};
use quicket_sim::sim::PairOptions;

use crate::support::{P2P, ms, ok, pair, secs};

const KB: u64 = 1_000;

/// Transfers both ways over `scenario`, and gives back the pair for a closer look.
fn both_ways(scenario: &str, limit: u64) -> quicket_sim::sim::Pair {
    let work = Workload {
        requests: 6,
        parallel: 3,
        request_len: (1, 60 * KB),
        response_len: (1, 120 * KB),
        unidirectional: 4,
        ..Workload::default()
    };
    let mut pair = pair(PairOptions::new(scenario));
    let (client, server) = pair.transfer(work, secs(limit));
    assert_eq!(client.streams_given_up + server.streams_given_up, 0);
    pair
}

#[test]
fn independent_loss() {
    for percent in [1, 5, 10] {
        let pair = both_ways(&format!("{P2P}; loss={percent}%"), 60);
        let lost = pair.ended(pair.server).stats.counters.packets_lost;
        assert!(lost > 0, "at {percent} %");
    }
    both_ways(&format!("{P2P}; loss=25%"), 300);
}

#[test]
fn burst_loss() {
    both_ways(&format!("{P2P}; burst-loss=1%,20%"), 60);
    both_ways(&format!("{P2P}; burst-loss=0.5%,15%"), 120);
}

#[test]
fn loss_of_acknowledgments_only() {
    both_ways(&format!("{P2P}; up loss=20%"), 60);
    both_ways(&format!("{P2P}; down loss=20%"), 120);
}

#[test]
fn listed_losses() {
    both_ways(&format!("{P2P}; drop=3,5-8,20-26,50"), 60);
}

/// RFC 9002, Section 6.1.1: reordering within the packet threshold must not look like loss.
#[test]
fn reordering() {
    both_ways(&format!("{P2P}; reorder=5%,3ms"), 60);
    both_ways(&format!("{P2P}; reorder=20%,40ms jitter=5ms"), 60);
}

#[test]
fn spurious_losses_are_recognised() {
    let pair = both_ways("delay=20ms rate=20mbit queue=200 mtu=1500; reorder=2%,15ms", 60);
    let counters = &pair.ended(pair.server).stats.counters;
    assert!(counters.spurious_losses > 0, "{counters:?}");
    assert_eq!(counters.packets_lost, counters.spurious_losses, "nothing was lost");
}

#[test]
fn jitter_alone_loses_nothing() {
    let pair = both_ways("delay=30ms jitter=25ms rate=10mbit queue=500 mtu=1500", 60);
    for host in [pair.client, pair.server] {
        let counters = &pair.ended(host).stats.counters;
        assert_eq!(counters.packets_lost, 0, "{counters:?}");
    }
}

/// RFC 9000, Section 12.3: a duplicate is dropped, whatever it carries.
#[test]
fn duplicates_are_dropped() {
    let pair = both_ways(&format!("{P2P}; duplicate=30%"), 60);
    let stats = pair.sim.network().link_stats(pair.path, Way::Up);
    assert!(stats.duplicated > 0);
    let dropped = pair.ended(pair.server).stats.counters.packets_dropped;
    assert!(dropped > 0, "duplicates are counted as dropped");
    both_ways(&format!("{P2P}; duplicate=100%"), 60);
}

/// RFC 9001, Section 5.5: packets that do not authenticate change nothing.
#[test]
fn corrupted_packets_are_as_good_as_lost() {
    for percent in [1, 10] {
        let pair = both_ways(&format!("{P2P}; corrupt={percent}%"), 120);
        assert!(pair.sim.network().link_stats(pair.path, Way::Down).corrupted > 0);
    }
}

#[test]
fn all_at_once() {
    both_ways(
        "delay=20ms jitter=5ms rate=5mbit queue=30 loss=2% burst-loss=0.2%,20% corrupt=1% \
         reorder=2%,10ms duplicate=2% mtu=1500",
        120,
    );
}

#[test]
fn named_scenarios() {
    for name in Scenario::NAMES {
        both_ways(name, 120);
    }
}

#[test]
fn black_hole_ends_and_the_transfer_goes_on() {
    let mut pair = pair(PairOptions::new(&format!("{P2P}; at 500ms blackhole=3s")));
    let start = pair.now();
    pair.transfer(Workload::download(2_000 * KB), secs(30));
    assert!(pair.now() - start > secs(4));
}

#[test]
fn one_way_black_hole_ends_too() {
    for way in ["up", "down"] {
        let mut pair = pair(PairOptions::new(&format!("{P2P}; at 500ms {way} blackhole=3s")));
        pair.transfer(Workload::download(1_000 * KB), secs(30));
    }
}

/// RFC 9002, Section 6.2.4: while nothing comes back, probes are few and ever rarer.
#[test]
fn little_is_sent_into_a_black_hole() {
    let mut pair = pair(PairOptions::new(&format!("{P2P}; at 1s blackhole=1min")));
    pair.connect(Workload::download(10_000 * KB));
    ok(pair.sim.run_for(ms(1_500)));
    let before = pair.at_server().connection.stats().counters.datagrams_sent;
    ok(pair.sim.run_for(secs(20)));
    let after = pair.at_server().connection.stats().counters.datagrams_sent;
    assert!(after - before <= 20, "{} datagrams", after - before);
}
