//! Address validation: RFC 9000, Section 8.1.

use quicket_engine::time::Duration;
use quicket_engine::{Event, RetryPolicy};
use quicket_sim::app::{WorkApp, Workload};
use quicket_sim::null_tls::NullTlsOptions;
use quicket_sim::sim::{Pair, PairOptions};

use crate::support::{CLEAN, RTT, establish, ok, pair, secs, time_of};

fn retrying(scenario: &str) -> PairOptions {
    let mut options = PairOptions::new(scenario);
    options.server.retry = RetryPolicy::Always;
    options
}

/// How long the client's handshake took.
fn handshake_time(pair: &mut Pair) -> Duration {
    let start = pair.now();
    pair.connect(Workload::none());
    establish(pair);
    let events = &pair.at_client().events;
    time_of(events, |event| *event == Event::HandshakeComplete).unwrap() - start
}

/// RFC 9000, Section 8.1.2: one round trip more.
#[test]
fn retry_costs_one_round_trip() {
    let mut pair = pair(retrying(CLEAN));
    assert_eq!(handshake_time(&mut pair), RTT.times(2));
    assert_eq!(pair.sim.host(pair.server).stats().replies, 1);
    ok(pair.close());
}

/// A validated address is not held to three times what it sent.
#[test]
fn retry_lifts_the_amplification_limit() {
    let tls = NullTlsOptions { certificate_len: 10_000, ..NullTlsOptions::default() };
    let mut pair = pair(retrying(CLEAN).server_tls(tls));
    assert_eq!(handshake_time(&mut pair), RTT.times(2));
    ok(pair.close());
}

#[test]
fn retry_survives_losses() {
    for way in ["up", "down"] {
        for lost in 1..=6 {
            let text = format!("delay=20ms; {way} drop={lost}");
            pair(retrying(&text)).transfer(Workload::requests(2, 2), secs(9));
        }
    }
}

#[test]
fn retry_survives_impairments() {
    for seed in 0..10 {
        let mut options = retrying("delay=20ms loss=10% duplicate=20% reorder=10%,15ms corrupt=2%");
        options = options.transport(|t| t.handshake_timeout = secs(60).into());
        Pair::new(seed, options).transfer(Workload::requests(3, 3), secs(60));
    }
}

#[test]
fn retry_starts_above_a_number_of_handshakes() {
    let mut options = PairOptions::new(CLEAN);
    options.server.retry = RetryPolicy::AboveHandshakes(5);
    let mut pair = pair(options);
    for _ in 0..20 {
        pair.connect(Workload::requests(1, 1));
    }
    ok(pair.run(secs(20)));
    let stats = *pair.sim.host(pair.server).stats();
    assert_eq!(stats.accepted, 20);
    assert!((10..20).contains(&stats.replies), "{stats:?}");
    ok(pair.close());
}

/// RFC 9000, Section 8.1.3: a token from NEW_TOKEN spares the Retry, once.
#[test]
fn tokens_from_earlier_connections_spare_the_retry() {
    let mut pair = pair(retrying(CLEAN));
    pair.transfer(Workload::requests(1, 1), secs(10));
    let tokens: Vec<Vec<u8>> = pair
        .ended(pair.client)
        .events
        .iter()
        .filter_map(|(_, event)| match event {
            Event::NewToken(token) => Some(token.clone()),
            _ => None,
        })
        .collect();
    assert!(!tokens.is_empty());
    let replies = |pair: &Pair| pair.sim.host(pair.server).stats().replies;
    let before = replies(&pair);
    for (token, retries) in [(&tokens[0], 0), (&tokens[0], 1), (&b"garbage".to_vec(), 1)] {
        let seen = replies(&pair);
        let config = quicket_engine::ClientConfig { token: token.clone(), ..pair.config() };
        pair.connect_with(config, Box::new(WorkApp::new(Workload::requests(1, 1))));
        ok(pair.run(secs(10)));
        ok(pair.close());
        assert_eq!(replies(&pair) - seen, retries);
    }
    assert_eq!(replies(&pair) - before, 2);
}
