//! Streams and datagrams of whole connections: RFC 9000, Sections 2 to 4; RFC 9221.

use quicket_engine::time::Duration;
use quicket_sim::app::{DatagramLoad, Workload};
use quicket_sim::sim::PairOptions;

use crate::support::{CLEAN, P2P, ms, pair, secs};

/// RFC 9000, Section 4.6.
#[test]
fn many_streams_pass_a_small_limit() {
    let options = PairOptions::new(CLEAN).transport(|t| {
        t.max_streams_bidi = 3;
        t.max_streams_uni = 2;
    });
    let work = Workload { unidirectional: 3, ..Workload::requests(200, 20) };
    let (client, server) = pair(options).transfer(work, secs(120));
    assert_eq!(client.streams_sent, 200);
    assert_eq!(server.streams_received, 200);
}

/// RFC 9000, Section 4.6: whoever may have one stream open waits a round trip for each, and for no
/// delayed acknowledgment.
#[test]
fn one_stream_at_a_time_takes_a_round_trip_each() {
    let options = PairOptions::new(CLEAN).transport(|t| t.max_streams_bidi = 1);
    let mut pair = pair(options);
    let start = pair.now();
    pair.connect(Workload::requests(20, 1));
    crate::support::ok(pair.run(secs(60)));
    let round_trips = (pair.now() - start).as_millis() / crate::support::RTT.as_millis();
    assert!(round_trips <= 22, "{round_trips} round trips for 20 requests");
    crate::support::ok(pair.close());
}

#[test]
fn two_thousand_streams_over_a_lossy_path() {
    let work = Workload { response_len: (0, 300), ..Workload::requests(2_000, 80) };
    let options = PairOptions::new(&format!("{P2P}; loss=2%"));
    let (client, _) = pair(options).transfer(work, secs(120));
    assert_eq!(client.streams_received, 2_000);
}

/// RFC 9000, Section 4.1.
#[test]
fn small_windows_let_everything_through() {
    for (stream, connection) in [(1_000, 1_000), (5_000, 3_000), (1, 1)] {
        let options = PairOptions::new("delay=2ms loss=1%").transport(|t| {
            t.initial_stream_window = stream;
            t.max_stream_window = stream;
            t.initial_receive_window = connection;
            t.max_receive_window = connection;
        });
        let len = 100 * stream.min(connection);
        let work = Workload {
            request_len: (len, len),
            response_len: (len, len),
            ..Workload::requests(2, 2)
        };
        pair(options).transfer(work, secs(120));
    }
}

/// Windows grow to what the path needs (100 Mbit/s at 100 ms are 1.25 MB).
#[test]
fn windows_are_tuned_to_the_path() {
    let options =
        PairOptions::new("delay=50ms rate=100mbit queue=1.25MB mtu=1500").transport(|t| {
            t.initial_stream_window = 64 << 10;
            t.initial_receive_window = 64 << 10;
        });
    let mut pair = pair(options);
    let start = pair.now();
    pair.transfer(Workload::download(50_000_000), secs(60));
    let took = pair.now() - start;
    assert!(took < secs(10), "{took:?} for what takes 4 s at the full rate");
}

#[test]
fn empty_streams_end_on_both_sides() {
    let work = Workload { request_len: (0, 0), response_len: (0, 0), ..Workload::requests(50, 10) };
    let (client, server) = pair(PairOptions::new(CLEAN)).transfer(work, secs(30));
    assert_eq!((client.received, server.received), (0, 50 * 8));
    assert_eq!(client.streams_received, 50);
}

/// RFC 9000, Sections 3.1 and 3.5: both sides agree on what was given up, and go on.
#[test]
fn resets_and_stops_leave_the_connection_whole() {
    for scenario in [CLEAN, "delay=20ms loss=5% reorder=5%,10ms"] {
        let work = Workload {
            request_len: (0, 50_000),
            response_len: (0, 50_000),
            reset_one_in: 3,
            stop_one_in: 3,
            unidirectional: 3,
            ..Workload::requests(120, 10)
        };
        let (client, server) = pair(PairOptions::new(scenario)).transfer(work, secs(120));
        assert!(client.streams_given_up > 0 && server.streams_given_up > 0);
    }
}

#[test]
fn servers_may_open_streams() {
    let mut options = PairOptions::new(P2P);
    options.server_work =
        Workload { request_len: (0, 20_000), unidirectional: 2, ..Workload::requests(30, 5) };
    let mut pair = pair(options);
    pair.connect(Workload::requests(30, 5));
    crate::support::establish(&mut pair);
    crate::support::ok(pair.run(secs(30)));
    let received = pair.at_client().app.tally().streams_received;
    assert!(received >= 60, "30 responses and 30 requests: {received}");
    crate::support::ok(pair.close());
}

fn datagrams(count: u64, len: (u64, u64), interval: Duration) -> Workload {
    let datagrams = Some(DatagramLoad { count, len, interval });
    Workload { datagrams, ..Workload::none() }
}

/// RFC 9221, Section 5: unreliable, but nothing is lost on a path that loses nothing.
#[test]
fn datagrams_arrive_and_are_answered() {
    let mut pair = pair(PairOptions::new(CLEAN));
    pair.connect(datagrams(500, (8, 1_100), ms(2)));
    crate::support::ok(pair.run(secs(30)));
    crate::support::ok(pair.sim.run_for(secs(1)));
    crate::support::ok(pair.close());
    let (client, server) = (pair.ended(pair.client).tally, pair.ended(pair.server).tally);
    assert_eq!((client.datagrams_sent, server.datagrams_received), (500, 500));
    assert_eq!(client.datagrams_received, 500);
}

#[test]
fn lost_datagrams_are_not_repeated() {
    let mut pair = pair(PairOptions::new(&format!("{P2P}; loss=10% duplicate=10%")));
    pair.connect(datagrams(1_000, (8, 400), ms(5)));
    crate::support::ok(pair.run(secs(60)));
    crate::support::ok(pair.sim.run_for(secs(1)));
    let received = pair.at_server().app.tally().datagrams_received;
    assert!((800..1_000).contains(&received), "{received}");
    crate::support::ok(pair.close());
}

#[test]
fn datagrams_and_streams_share_a_connection() {
    let options = PairOptions::new(&format!("{P2P}; loss=1%"));
    let load = DatagramLoad { count: 300, len: (8, 1_000), interval: ms(10) };
    let work = Workload {
        response_len: (10_000, 100_000),
        datagrams: Some(load),
        ..Workload::requests(20, 4)
    };
    let (client, server) = pair(options).transfer(work, secs(60));
    assert!(server.datagrams_received > 250 && client.streams_received == 20);
}
