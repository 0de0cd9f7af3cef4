//! Whole transfers under each congestion controller: the link is used, the queue respected.

use quicket_engine::CongestionAlgorithm;
use quicket_engine::time::Duration;
use quicket_sim::app::Workload;
use quicket_sim::scenario::Way;
use quicket_sim::sim::{Pair, PairOptions};

use crate::support::{ok, pair, secs};

const ALGORITHMS: [CongestionAlgorithm; 3] =
    [CongestionAlgorithm::NewReno, CongestionAlgorithm::Cubic, CongestionAlgorithm::Bbr];

/// Downloads `bytes` and returns how long that took.
fn download(scenario: &str, algorithm: CongestionAlgorithm, bytes: u64) -> (Duration, Pair) {
    let options = PairOptions::new(scenario).transport(|t| t.congestion = algorithm);
    let mut pair = pair(options);
    let start = pair.now();
    pair.connect(Workload::download(bytes));
    ok(pair.run(secs(600)));
    let took = pair.now() - start;
    (took, pair)
}

/// Share of the link's rate that a transfer used, in percent.
fn utilisation(bytes: u64, rate: u64, took: Duration) -> u64 {
    bytes * 8 * 100 * 1_000 / rate / took.as_millis().max(1)
}

#[test]
fn clean_links_are_filled() {
    for algorithm in ALGORITHMS {
        let bytes = 10_000_000;
        let (took, _) = download("delay=15ms rate=10mbit queue=50 mtu=1500", algorithm, bytes);
        let used = utilisation(bytes, 10_000_000, took);
        assert!(used >= 85, "{algorithm:?} used {used} % in {took:?}");
    }
}

/// The other controller begins with a small window, and loses nothing of what is on its way.
#[test]
fn a_controller_is_exchanged_while_data_flows() {
    for (first, second) in
        ALGORITHMS.into_iter().flat_map(|one| ALGORITHMS.map(|other| (one, other)))
    {
        let bytes = 10_000_000;
        let options = PairOptions::new("delay=15ms rate=10mbit queue=50 mtu=1500")
            .transport(|t| t.congestion = first);
        let mut pair = pair(options);
        let start = pair.now();
        pair.connect(Workload::download(bytes));
        ok(pair.sim.run_for(secs(2)));
        let now = pair.now();
        let server = &mut pair.at_server().connection;
        let before = server.stats().path;
        server.set_congestion(now, second);
        let after = server.stats().path;
        let (name, other) = (before.congestion_controller, after.congestion_controller);
        assert_eq!(name == other, first == second, "{name} {other}");
        assert_eq!(before.bytes_in_flight, after.bytes_in_flight);
        if first == second {
            assert_eq!(before, after, "nothing has changed");
        }
        ok(pair.run(secs(600)));
        let took = pair.now() - start;
        let used = utilisation(bytes, 10_000_000, took);
        assert!(used >= 80, "{first:?}, then {second:?} used {used} % in {took:?}");
    }
}

#[test]
fn long_fat_links_are_filled() {
    for algorithm in ALGORITHMS {
        let bytes = 60_000_000;
        let scenario = "delay=50ms rate=100mbit queue=1.25MB mtu=1500";
        let (took, _) = download(scenario, algorithm, bytes);
        let used = utilisation(bytes, 100_000_000, took);
        assert!(used >= 70, "{algorithm:?} used {used} % in {took:?}");
    }
}

#[test]
fn bbr_keeps_going_where_losses_do_not_mean_congestion() {
    let bytes = 5_000_000;
    let scenario = "delay=30ms rate=10mbit queue=100 loss=1% mtu=1500";
    let (took, _) = download(scenario, CongestionAlgorithm::Bbr, bytes);
    let used = utilisation(bytes, 10_000_000, took);
    assert!(used >= 70, "{used} % in {took:?}");
}

/// RFC 9002, Section 7.7: pacing keeps bursts out of a short queue, here while the window grows
/// towards what the link takes.
#[test]
fn pacing_spares_short_queues() {
    let lost = |pacing| {
        let scenario = "delay=40ms rate=20mbit queue=20 mtu=1500";
        let options = PairOptions::new(scenario).transport(|t| t.pacing = pacing);
        let mut pair = pair(options);
        pair.transfer(Workload::download(250_000), secs(60));
        pair.sim.network().link_stats(pair.path, Way::Down).dropped_by_queue
    };
    assert_eq!(lost(true), 0);
    assert!(lost(false) > 0, "the queue is too long to show anything");
}

/// Two connections share a bottleneck; neither starves.
#[test]
fn connections_share_a_link() {
    for algorithm in ALGORITHMS {
        let options = PairOptions::new("delay=15ms rate=20mbit queue=75 mtu=1500")
            .transport(|t| t.congestion = algorithm);
        let mut pair = pair(options);
        for _ in 0..2 {
            pair.connect(Workload::download(60_000_000));
        }
        ok(pair.sim.run_for(secs(20)));
        let received: Vec<u64> = pair
            .sim
            .host(pair.client)
            .sessions()
            .map(|(_, session)| session.app.tally().received)
            .collect();
        let [a, b] = received[..] else { panic!("two connections: {received:?}") };
        assert!(a + b > 35_000_000, "{algorithm:?}: {received:?}");
        assert!(a.min(b) * 4 > a.max(b), "{algorithm:?}: {received:?}");
    }
}
