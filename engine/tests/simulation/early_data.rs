//! 0-RTT: RFC 9001, Section 4.6.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use quicket_engine::{ClientConfig, EarlyData, Event};
use quicket_sim::app::{WorkApp, Workload};
use quicket_sim::null_tls::NullTlsOptions;
use quicket_sim::sim::{Pair, PairOptions};

use crate::support::{CLEAN, P2P, RTT, ok, pair, secs, session, time_of};

/// Connects with a session from an earlier connection, and works early.
fn resume(options: PairOptions, work: Workload) -> Pair {
    let session = session(PairOptions::new(CLEAN));
    let mut pair = pair(options);
    let config = ClientConfig { session: Some(session), early_data: true, ..pair.config() };
    pair.connect_with(config, Box::new(WorkApp::new(Workload { early: true, ..work })));
    pair
}

#[test]
fn requests_are_answered_after_one_round_trip() {
    let mut pair = resume(PairOptions::new(CLEAN), Workload::requests(1, 1));
    let start = pair.now();
    let client = pair.client;
    ok(pair.sim.run_until(secs(10), "the response", |sim| {
        sim.host(client).sessions().any(|(_, s)| s.app.tally().streams_received == 1)
    }));
    assert_eq!(pair.now() - start, RTT);
    assert_eq!(pair.at_client().connection.early_data(), EarlyData::Accepted);
    ok(pair.run(secs(10)));
    assert_eq!(pair.at_server().connection.early_data(), EarlyData::Accepted);
    let summary = pair.at_client().connection.handshake_summary().unwrap();
    assert!(summary.resumed);
    ok(pair.close());
    assert_eq!(pair.ended(pair.server).tally.streams_early, 1);
    assert_eq!(pair.ended(pair.client).tally.streams_early, 0);
}

/// RFC 9001, Section 4.6.2: what is sent again after a refusal is not early data any more.
#[test]
fn nothing_is_early_data_without_a_session_or_after_a_refusal() {
    let mut options = PairOptions::new(CLEAN);
    let mut pair = pair(PairOptions::new(CLEAN));
    pair.transfer(Workload::requests(3, 3), secs(10));
    assert_eq!(pair.ended(pair.server).tally.streams_early, 0);
    options.server.early_data = false;
    let mut pair = resume(options, Workload::requests(3, 3));
    ok(pair.run(secs(10)));
    ok(pair.close());
    assert_eq!(pair.ended(pair.server).tally.streams_early, 0);
}

#[test]
fn much_early_data_arrives() {
    let work =
        Workload { request_len: (1_000, 20_000), unidirectional: 2, ..Workload::requests(40, 20) };
    let mut pair = resume(PairOptions::new(P2P), work);
    ok(pair.run(secs(20)));
    ok(pair.close());
}

/// RFC 9000, Section 17.2: where an MTU is configured that is larger than what the Length field of
/// our long headers can tell, 0-RTT packets are shorter.
#[test]
fn early_data_arrives_with_a_large_mtu_too() {
    let options = PairOptions::new("delay=20ms mtu=65535")
        .client_transport(|t| t.initial_udp_payload_size = 65_000);
    let mut pair = resume(options, Workload::upload(200_000));
    let largest = Arc::new(AtomicU32::new(0));
    let seen = largest.clone();
    pair.sim.network_mut().set_tap(move |_, datagram| {
        seen.fetch_max(datagram.payload.len() as u32, Ordering::Relaxed);
        true
    });
    ok(pair.run(secs(20)));
    assert_eq!(pair.at_client().connection.early_data(), EarlyData::Accepted);
    assert_eq!(pair.at_server().connection.stats().counters.packets_dropped, 0);
    assert_eq!(pair.at_client().connection.stats().counters.packets_lost, 0);
    assert!(largest.load(Ordering::Relaxed) > 16_000);
    ok(pair.close());
}

/// RFC 9001, Section 4.6.2: what was refused is sent again.
#[test]
fn refused_early_data_is_sent_again() {
    let refusals = [
        NullTlsOptions { early_data: false, ..NullTlsOptions::default() },
        NullTlsOptions { ticket_key: 99, ..NullTlsOptions::default() },
        NullTlsOptions { hello_retry: true, ..NullTlsOptions::default() },
    ];
    for tls in refusals {
        let work = Workload { request_len: (0, 5_000), ..Workload::requests(10, 5) };
        let mut pair = resume(PairOptions::new(CLEAN).server_tls(tls), work);
        ok(pair.run(secs(20)));
        assert_eq!(pair.at_client().connection.early_data(), EarlyData::Rejected);
        let rejected = time_of(&pair.at_client().events, |e| *e == Event::EarlyDataRejected);
        assert!(rejected.is_some());
        ok(pair.close());
        let (client, server) = (pair.ended(pair.client).tally, pair.ended(pair.server).tally);
        assert_eq!(client.sent, server.received);
        assert_eq!(client.streams_received, 10);
    }
}

/// Only 1-RTT packets carry it then: others would be thrown away, and fill the window meanwhile.
#[test]
fn refused_early_data_is_not_sent_again_in_0rtt_packets() {
    // The refusal arrives some time before the rest of the handshake.
    let tls =
        NullTlsOptions { certificate_len: 4_000, ticket_key: 99, ..NullTlsOptions::default() };
    let options = PairOptions::new("delay=50ms; down rate=1mbit").server_tls(tls);
    let mut pair = resume(options, Workload::upload(100_000));
    let count = Arc::new(AtomicU32::new(0));
    let (seen, refused_at) = (count.clone(), pair.now() + RTT);
    pair.sim.network_mut().set_tap(move |now, datagram| {
        // RFC 9000, Section 17.2.3: the first byte of a 0-RTT packet.
        let is_0rtt = datagram.payload[0] & 0xb0 == 0x90 && datagram.dst.port() == 443;
        seen.fetch_add(u32::from(is_0rtt && now >= refused_at), Ordering::Relaxed);
        true
    });
    ok(pair.run(secs(20)));
    assert_eq!(count.load(Ordering::Relaxed), 0);
    ok(pair.close());
}

#[test]
fn servers_may_refuse_by_configuration() {
    let mut options = PairOptions::new(CLEAN);
    options.server.early_data = false;
    let mut pair = resume(options, Workload::requests(3, 3));
    ok(pair.run(secs(10)));
    assert_eq!(pair.at_client().connection.early_data(), EarlyData::Rejected);
    ok(pair.close());
}

#[test]
fn early_data_survives_losses_and_reordering() {
    for scenario in [
        "delay=20ms; up drop=1",
        "delay=20ms; up drop=2",
        "delay=20ms; up drop=1,2,3",
        "delay=20ms; down drop=1,2",
        "delay=20ms; reorder=50%,10ms",
        "delay=20ms; up reorder=30%,100ms",
        "delay=20ms loss=20%",
        "delay=20ms duplicate=50%",
    ] {
        let work = Workload { request_len: (0, 3_000), ..Workload::requests(12, 6) };
        let mut pair = resume(PairOptions::new(scenario), work);
        ok(pair.run(secs(20)));
        ok(pair.close());
    }
}

/// RFC 9000, Section 8.1.2: early data is sent again after a Retry.
#[test]
fn early_data_survives_a_retry() {
    let mut options = PairOptions::new(CLEAN);
    options.server.retry = quicket_engine::RetryPolicy::Always;
    let mut pair = resume(options, Workload::requests(5, 5));
    ok(pair.run(secs(10)));
    assert_eq!(pair.at_client().connection.early_data(), EarlyData::Accepted);
    ok(pair.close());
}

/// RFC 9000, Section 7.4.1: a server that accepts early data must keep the limits remembered.
#[test]
fn lowered_limits_end_the_connection() {
    let lowered = PairOptions::new(CLEAN).server_transport(|t| t.max_streams_bidi = 1);
    let mut pair = resume(lowered, Workload::requests(3, 1));
    let error = pair.run(secs(10)).expect_err("a limit was lowered");
    assert!(error.what().contains("lowered a limit"), "{error}");
}

#[test]
fn garbled_sessions_are_ignored() {
    let mut good = session(PairOptions::new(CLEAN));
    let mut sessions = vec![Vec::new(), b"garbage".to_vec(), vec![1; 400]];
    sessions.extend((0..good.len()).step_by(7).map(|len| good[..len].to_vec()));
    for i in (0..good.len()).step_by(5) {
        good[i] ^= 0x40;
        sessions.push(good.clone());
        good[i] ^= 0x40;
    }
    for bytes in sessions {
        let mut pair = pair(PairOptions::new("delay=1ms"));
        let config = ClientConfig { session: Some(bytes), early_data: true, ..pair.config() };
        pair.connect_with(config, Box::new(WorkApp::new(Workload::requests(1, 1))));
        // A changed session may claim limits that the server does not keep.
        let _ = pair.run(secs(20));
        ok(pair.close());
    }
}
