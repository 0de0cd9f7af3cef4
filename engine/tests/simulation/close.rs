//! The end of a connection: RFC 9000, Section 10.

use quicket_engine::time::Duration;
use quicket_engine::{ClientConfig, ConnectionError, Event};
use quicket_sim::app::{App, AppContext, WorkApp, Workload};
use quicket_sim::sim::{CLOSE_CODE, Pair, PairOptions};
use quicket_wire::TransportErrorCode;

use crate::support::{CLEAN, P2P, RTT, error_of, establish, ms, ok, pair, secs, session};

fn close_client(pair: &mut Pair) {
    let now = pair.now();
    pair.at_client().connection.close(now, 7, b"enough");
}

/// RFC 9000, Section 10.2: code and reason reach the peer's application.
#[test]
fn peers_learn_code_and_reason() {
    let mut pair = pair(PairOptions::new(CLEAN));
    pair.connect(Workload::none());
    establish(&mut pair);
    close_client(&mut pair);
    let start = pair.now();
    ok(pair.run_to_end(secs(10)));
    let ours = ConnectionError::Local { code: 7, reason: b"enough".to_vec() };
    let theirs = ConnectionError::PeerApplication { code: 7, reason: b"enough".to_vec() };
    assert_eq!(error_of(&pair, pair.client), Some(ours));
    assert_eq!(error_of(&pair, pair.server), Some(theirs));
    // RFC 9000, Section 10.2: closing and draining last three probe timeouts.
    let took = pair.now() - start;
    assert!(took >= RTT.times(3) && took < secs(3), "{took:?}");
    for host in [pair.client, pair.server] {
        assert_eq!(pair.sim.host_mut(host).endpoint().connections(), 0);
    }
}

#[test]
fn servers_may_close_too() {
    let mut pair = pair(PairOptions::new(CLEAN));
    pair.connect(Workload::none());
    establish(&mut pair);
    let now = pair.now();
    pair.at_server().connection.close(now, CLOSE_CODE, b"");
    ok(pair.run_to_end(secs(10)));
    let error = error_of(&pair, pair.client);
    let theirs = ConnectionError::PeerApplication { code: CLOSE_CODE, reason: Vec::new() };
    assert_eq!(error, Some(theirs));
}

/// RFC 9000, Section 10.2.1: a lost CONNECTION_CLOSE is sent again when the peer goes on.
#[test]
fn lost_closes_are_repeated_while_the_peer_sends() {
    let mut pair = pair(PairOptions::new("delay=50ms; at 1s up blackhole=10ms"));
    pair.connect(Workload { requests: 1, ..Workload::upload(100_000_000) });
    ok(pair.sim.run_until(secs(10), "the black hole", |sim| sim.now().as_nanos() >= 1_000_000_000));
    let now = pair.now();
    pair.at_server().connection.close(now, 9, b"");
    ok(pair.run_to_end(secs(20)));
    let expected = ConnectionError::PeerApplication { code: 9, reason: Vec::new() };
    assert_eq!(error_of(&pair, pair.client), Some(expected));
}

#[test]
fn closes_that_never_arrive_leave_the_peer_to_its_idle_timeout() {
    let options = PairOptions::new("delay=50ms; at 2s blackhole=1min")
        .transport(|t| t.max_idle_timeout = secs(3).into());
    let mut pair = pair(options);
    pair.connect(Workload::none());
    establish(&mut pair);
    ok(pair.sim.run_for(secs(2)));
    close_client(&mut pair);
    ok(pair.run_to_end(secs(30)));
    assert_eq!(error_of(&pair, pair.server), Some(ConnectionError::IdleTimeout));
}

#[test]
fn both_sides_may_close_at_once() {
    let mut pair = pair(PairOptions::new(CLEAN));
    pair.connect(Workload::none());
    establish(&mut pair);
    let now = pair.now();
    pair.at_client().connection.close(now, 1, b"client");
    pair.at_server().connection.close(now, 2, b"server");
    ok(pair.run_to_end(secs(10)));
    for (host, code) in [(pair.client, 1), (pair.server, 2)] {
        let error = error_of(&pair, host);
        assert!(matches!(error, Some(ConnectionError::Local { code: c, .. }) if c == code));
    }
}

/// A server that closes as soon as it has sent its first flight; how the client sees that.
fn close_before_the_client_finishes(scenario: &str) -> Option<ConnectionError> {
    let mut pair = pair(PairOptions::new(scenario));
    pair.connect(Workload::none());
    let server = pair.server;
    ok(pair.sim.run_until(secs(5), "the server's connection", |sim| {
        sim.host(server).sessions().next().is_some()
    }));
    let now = pair.now();
    let server = &mut pair.at_server().connection;
    assert!(server.is_handshaking());
    server.close(now, 77, b"secret");
    ok(pair.run_to_end(secs(60)));
    error_of(&pair, pair.client)
}

/// RFC 9000, Section 10.2.3: what stands for the application's code at lower levels does not hide
/// it from a peer that can read it.
#[test]
fn a_server_that_closes_during_the_handshake_tells_its_code_to_a_client_that_has_the_keys() {
    let error = close_before_the_client_finishes(CLEAN);
    let theirs = ConnectionError::PeerApplication { code: 77, reason: b"secret".to_vec() };
    assert_eq!(error, Some(theirs));
}

/// RFC 9000, Section 10.2.3: below 1-RTT, nothing is said of the application.
#[test]
fn closes_during_the_handshake_say_nothing_of_the_application_to_others() {
    // The server's first flight is lost, and with it the keys of all but Initial packets.
    let error = close_before_the_client_finishes("delay=50ms; down drop=1");
    let Some(ConnectionError::PeerTransport { code, reason, .. }) = error else {
        panic!("{error:?}")
    };
    assert_eq!(code, TransportErrorCode::APPLICATION_ERROR);
    assert!(reason.is_empty());
}

/// RFC 9000, Section 10.2.3: a client's close comes in Handshake and 1-RTT packets until the
/// handshake is confirmed.
#[test]
fn a_client_that_closes_before_confirmation_tells_its_code() {
    let mut pair = pair(PairOptions::new(CLEAN));
    pair.connect(Workload::none());
    let client = pair.client;
    ok(pair.sim.run_until(secs(5), "the handshake", |sim| {
        sim.host(client).sessions().any(|(_, session)| session.connection.is_established())
    }));
    assert!(!pair.at_client().connection.is_confirmed());
    close_client(&mut pair);
    ok(pair.run_to_end(secs(20)));
    let theirs = ConnectionError::PeerApplication { code: 7, reason: b"enough".to_vec() };
    assert_eq!(error_of(&pair, pair.server), Some(theirs));
}

/// An application that closes as soon as the handshake is complete.
#[derive(Debug)]
struct Hasty;

impl App for Hasty {
    fn on_event(&mut self, cx: &mut AppContext<'_>, event: &Event) -> Result<(), String> {
        if *event == Event::HandshakeComplete {
            cx.connection.close(cx.now, 7, b"enough");
        }
        Ok(())
    }
}

/// RFC 9001, Section 5.7: the server reads no 1-RTT packet before the client's last flight.
#[test]
fn a_client_that_closes_before_its_last_flight_has_left_tells_its_code() {
    let mut pair = pair(PairOptions::new(CLEAN));
    let config = pair.config();
    pair.connect_with(config, Box::new(Hasty));
    ok(pair.run_to_end(secs(20)));
    let theirs = ConnectionError::PeerApplication { code: 7, reason: b"enough".to_vec() };
    assert_eq!(error_of(&pair, pair.server), Some(theirs));
}

/// RFC 9000, Section 10.2.3: a client that has sent early data may tell its code in 0-RTT packets.
#[test]
fn a_client_that_closes_before_the_server_has_answered_tells_its_code_early() {
    let options = || PairOptions::new(CLEAN);
    let mut pair = pair(options());
    let session = Some(session(options()));
    let config = ClientConfig { session, early_data: true, ..pair.config() };
    let work = Workload { early: true, ..Workload::requests(1, 1) };
    pair.connect_with(config, Box::new(WorkApp::new(work)));
    ok(pair.sim.run_for(ms(1)));
    close_client(&mut pair);
    ok(pair.run_to_end(secs(20)));
    let theirs = ConnectionError::PeerApplication { code: 7, reason: b"enough".to_vec() };
    assert_eq!(error_of(&pair, pair.server), Some(theirs));
}

#[test]
fn clients_may_close_before_the_server_has_answered() {
    for delay in [0, 1, 49, 51, 99, 101, 149, 151, 250] {
        let mut pair = pair(PairOptions::new(CLEAN));
        pair.connect(Workload::requests(3, 3));
        ok(pair.sim.run_for(ms(delay)));
        close_client(&mut pair);
        ok(pair.run_to_end(secs(60)));
        let error = error_of(&pair, pair.client);
        assert!(matches!(error, Some(ConnectionError::Local { .. })), "{delay} ms: {error:?}");
    }
}

/// RFC 9000, Section 10.3: a server that has lost its state says so with a stateless reset.
#[test]
fn crashed_servers_reset_their_peers() {
    let mut pair = pair(PairOptions::new(CLEAN));
    pair.connect(Workload::upload(100_000_000));
    ok(pair.sim.run_for(secs(1)));
    let server = pair.server;
    pair.sim.host_mut(server).crash();
    let start = pair.now();
    ok(pair.run_to_end(secs(20)));
    assert_eq!(error_of(&pair, pair.client), Some(ConnectionError::StatelessReset));
    assert!(pair.now() - start <= RTT.times(2));
    assert!(pair.sim.host(server).stats().replies >= 1);
}

/// RFC 9000, Section 10.3.3: two endpoints without state do not reset each other for ever.
#[test]
fn stateless_resets_do_not_loop() {
    let mut pair = pair(PairOptions::new(P2P));
    pair.connect(Workload::download(10_000_000));
    ok(pair.sim.run_for(secs(1)));
    for host in [pair.client, pair.server] {
        pair.sim.host_mut(host).crash();
    }
    ok(pair.sim.run_for(secs(30)));
    assert_eq!(pair.sim.network().in_flight(), 0);
    let replies: u64 =
        [pair.client, pair.server].map(|host| pair.sim.host(host).stats().replies).iter().sum();
    // About 75 packets were in flight; each answer is shorter than what it answers.
    assert!(replies < 75 * 50, "{replies}");
}

#[test]
fn all_data_sent_before_a_close_in_good_order_arrives() {
    for bytes in [1, 10_000, 1_000_000] {
        let mut pair = pair(PairOptions::new(&format!("{P2P}; loss=2%")));
        let (client, server) = pair.transfer(Workload::upload(bytes), secs(60));
        assert_eq!(client.sent, bytes + 8);
        assert_eq!(server.received, bytes + 8);
    }
}

#[test]
fn nothing_is_sent_after_the_end() {
    let mut pair = pair(PairOptions::new(CLEAN));
    pair.transfer(Workload::requests(5, 5), secs(10));
    let before = pair.sim.network().log().total();
    ok(pair.sim.run_for(Duration::from_secs(600)));
    assert_eq!(pair.sim.network().log().total(), before);
}
