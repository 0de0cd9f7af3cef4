//! Idle timeout and keep-alive: RFC 9000, Section 10.1.

use quicket_engine::ConnectionError;
use quicket_engine::time::Duration;
use quicket_sim::app::Workload;
use quicket_sim::sim::{Pair, PairOptions};

use crate::support::{CLEAN, error_of, establish, ms, ok, pair, secs};

/// Establishes a connection and says how long after that each side gave up.
fn idles_for(mut pair: Pair) -> [Duration; 2] {
    pair.connect(Workload::none());
    establish(&mut pair);
    let start = pair.now();
    let hosts = [pair.client, pair.server];
    let mut ends = [None; 2];
    ok(pair.sim.run_until(secs(600), "idle timeouts", |sim| {
        for (end, host) in ends.iter_mut().zip(hosts) {
            if sim.host(host).sessions().next().is_none() {
                end.get_or_insert(sim.now());
            }
        }
        ends.iter().all(Option::is_some)
    }));
    for host in hosts {
        assert_eq!(error_of(&pair, host), Some(ConnectionError::IdleTimeout));
    }
    ends.map(|end| end.map_or(Duration::MAX, |end| end - start))
}

#[test]
fn silent_connections_end() {
    let options = PairOptions::new(CLEAN).transport(|t| t.max_idle_timeout = secs(5).into());
    for took in idles_for(pair(options)) {
        assert!(took >= ms(4_500) && took <= ms(7_000), "{took:?}");
    }
}

/// RFC 9000, Section 10.1: the smaller of both values holds for both.
#[test]
fn the_smaller_idle_timeout_holds() {
    let options = PairOptions::new(CLEAN)
        .client_transport(|t| t.max_idle_timeout = secs(60).into())
        .server_transport(|t| t.max_idle_timeout = secs(4).into());
    for took in idles_for(pair(options)) {
        assert!(took <= ms(6_500), "{took:?}");
    }
    let options = PairOptions::new(CLEAN)
        .client_transport(|t| t.max_idle_timeout = secs(4).into())
        .server_transport(|t| t.max_idle_timeout = Duration::ZERO.into());
    for took in idles_for(pair(options)) {
        assert!(took <= ms(6_500), "{took:?}");
    }
}

/// RFC 9000, Section 10.1: never shorter than three probe timeouts.
#[test]
fn idle_timeouts_leave_time_for_probes() {
    let options =
        PairOptions::new("delay=500ms").transport(|t| t.max_idle_timeout = ms(200).into());
    for took in idles_for(pair(options)) {
        assert!(took >= secs(3), "{took:?}");
    }
}

/// RFC 9000, Section 10.1: those three are not longer for probes that were sent in vain.
#[test]
fn probes_into_silence_do_not_stretch_the_idle_timeout() {
    let options = PairOptions::new("delay=20ms; at 1s blackhole=10min")
        .transport(|t| t.max_idle_timeout = secs(5).into());
    let mut pair = pair(options);
    pair.connect(Workload::download(1_000_000_000));
    ok(pair.sim.run_for(ms(5_500)));
    let timeouts = pair.at_server().connection.stats().counters.probe_timeouts;
    assert!(timeouts >= 4, "{timeouts}");
    ok(pair.sim.run_for(ms(1_500)));
    let server = pair.sim.host(pair.server);
    assert!(server.sessions().next().is_none(), "three probe timeouts with back-off are longer");
}

#[test]
fn keep_alive_holds_a_silent_connection() {
    let options = PairOptions::new(CLEAN)
        .transport(|t| t.max_idle_timeout = secs(5).into())
        .client_transport(|t| t.keep_alive = secs(2).into());
    let mut pair = pair(options);
    pair.connect(Workload::none());
    establish(&mut pair);
    let before = pair.at_client().connection.stats().counters.datagrams_sent;
    ok(pair.sim.run_for(secs(60)));
    let after = pair.at_client().connection.stats().counters.datagrams_sent;
    assert!((25..=45).contains(&(after - before)), "{}", after - before);
    pair.sim.network_mut().set_tap(|_, _| false);
    ok(pair.run_to_end(secs(30)));
    assert_eq!(error_of(&pair, pair.client), Some(ConnectionError::IdleTimeout));
}

#[test]
fn connections_without_idle_timeout_stay() {
    let options = PairOptions::new(CLEAN).transport(|t| t.max_idle_timeout = Duration::ZERO.into());
    let mut pair = pair(options);
    pair.connect(Workload::none());
    establish(&mut pair);
    ok(pair.sim.run_for(secs(100_000)));
    assert!(pair.at_client().connection.is_established());
    assert!(pair.at_server().timeouts() < 1_000, "{}", pair.at_server().timeouts());
    ok(pair.close());
}

/// RFC 9000, Section 10.1: what is sent into silence does not put the end off for ever.
#[test]
fn sending_into_silence_does_not_keep_a_connection() {
    let options = PairOptions::new("delay=20ms; at 1s blackhole=10min")
        .transport(|t| t.max_idle_timeout = secs(5).into());
    let mut pair = pair(options);
    pair.connect(Workload { requests: 1, ..Workload::upload(1_000_000_000) });
    ok(pair.run_to_end(secs(60)));
    assert_eq!(error_of(&pair, pair.client), Some(ConnectionError::IdleTimeout));
    assert!(pair.now().as_nanos() < 14_000_000_000, "{:?}", pair.now());
}
