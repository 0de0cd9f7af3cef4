//! Path MTU discovery: RFC 9000, Section 14.3; RFC 8899.

use quicket_engine::MtuDiscovery;
use quicket_sim::app::Workload;
use quicket_sim::scenario::Way;
use quicket_sim::sim::{Pair, PairOptions};

use crate::support::{establish, ok, pair, secs};

/// Bytes of IPv4 and UDP header.
const HEADERS: u16 = 28;

fn mtu_at_server(pair: &mut Pair) -> u16 {
    pair.at_server().connection.stats().path.mtu
}

#[test]
fn the_path_mtu_is_found() {
    for mtu in [1_228, 1_300, 1_400, 1_428, 1_492, 1_500, 4_352, 9_000] {
        let mut pair = pair(PairOptions::new(&format!("delay=10ms mtu={mtu}")));
        pair.connect(Workload::download(2_000_000));
        ok(pair.run(secs(30)));
        ok(pair.sim.run_for(secs(10)));
        let found = mtu_at_server(&mut pair);
        let most = mtu - HEADERS;
        assert!(found <= most && found + 30 >= most, "{found} of {most}");
        ok(pair.close());
    }
}

/// RFC 9000, Section 14.4: lost probes say nothing about congestion.
#[test]
fn lost_probes_are_not_losses() {
    let mut pair = pair(PairOptions::new("delay=10ms rate=50mbit queue=1000 mtu=1400"));
    pair.connect(Workload::download(1_000_000));
    ok(pair.run(secs(30)));
    let stats = pair.at_server().connection.stats();
    assert!(stats.counters.mtu_probes_lost > 0, "{stats:?}");
    assert_eq!(stats.counters.packets_lost, 0, "{stats:?}");
    assert_eq!(stats.path.congestion_events, 0, "{stats:?}");
    ok(pair.close());
}

/// RFC 8899, Section 4.3: a path whose MTU shrinks swallows packets without a word.
#[test]
fn shrinking_paths_are_noticed() {
    for smaller in [1_228, 1_300, 1_400] {
        let scenario = format!("delay=10ms rate=20mbit queue=100 mtu=1500; at 2s mtu={smaller}");
        let mut pair = pair(PairOptions::new(&scenario));
        pair.connect(Workload::download(10_000_000));
        ok(pair.run(secs(60)));
        assert!(mtu_at_server(&mut pair) <= smaller - HEADERS);
        ok(pair.close());
    }
}

#[test]
fn growing_paths_are_noticed_later() {
    let options = PairOptions::new("delay=10ms mtu=1300; at 2s mtu=1500").transport(|t| {
        t.mtu_discovery =
            Some(MtuDiscovery { interval: secs(20).into(), ..MtuDiscovery::default() });
        t.max_idle_timeout = secs(120).into();
        t.keep_alive = secs(5).into();
    });
    let mut pair = pair(options);
    pair.connect(Workload::none());
    establish(&mut pair);
    ok(pair.sim.run_for(secs(100)));
    assert!(mtu_at_server(&mut pair) > 1_400);
    ok(pair.close());
}

/// RFC 9000, Section 14: without discovery no datagram is larger than the first ones.
#[test]
fn discovery_can_be_switched_off() {
    let options = PairOptions::new("delay=10ms mtu=1228").transport(|t| t.mtu_discovery = None);
    let mut pair = pair(options);
    pair.transfer(Workload::download(300_000), secs(30));
    for way in [Way::Up, Way::Down] {
        assert_eq!(pair.sim.network().link_stats(pair.path, way).dropped_by_mtu, 0);
    }
}

#[test]
fn upper_bound_holds() {
    let options = PairOptions::new("delay=10ms").transport(|t| {
        t.mtu_discovery = Some(MtuDiscovery { upper_bound: 1_350, ..MtuDiscovery::default() });
    });
    let mut pair = pair(options);
    pair.transfer(Workload::download(500_000), secs(30));
    let longest = pair.sim.network().log().entries().map(|entry| entry.len).max();
    assert!(longest > Some(1_300) && longest <= Some(1_350), "{longest:?}");
}

/// RFC 9000, Section 18.2: max_udp_payload_size is what the peer can take.
#[test]
fn peers_limit_holds() {
    let mut options = PairOptions::new("delay=10ms");
    options.client_endpoint.max_udp_payload_size = 1_280;
    let mut pair = pair(options);
    pair.transfer(Workload::download(500_000), secs(30));
    let to_client = pair.sim.network().log().entries().filter(|entry| entry.src.port() == 443);
    let longest = to_client.map(|entry| entry.len).max();
    assert!(longest <= Some(1_280), "{longest:?}");
}

/// RFC 9000, Section 14.1: datagrams with ack-eliciting Initial packets are 1200 bytes long.
#[test]
fn paths_below_the_minimum_fail_cleanly() {
    let mut pair = pair(PairOptions::new("delay=10ms mtu=1200"));
    pair.connect(Workload::none());
    ok(pair.run_to_end(secs(60)));
}
