//! The handshake: RFC 9000, Section 7; RFC 9001, Section 4.

use std::cell::Cell;

use quicket_engine::crypto::{Aead, Alert, Level};
use quicket_engine::time::Time;
use quicket_engine::{ConnectionError, Event, TransportError};
use quicket_sim::app::Workload;
use quicket_sim::null_tls::{
    ClientAuth, Fault, MessageKind, Misbehaviour, NullTlsOptions, ParameterFault,
};
use quicket_sim::sim::{Pair, PairOptions};
use quicket_wire::{ConnectionId, Side, TransportErrorCode, TransportParameters};

use crate::support::{CLEAN, P2P, RTT, establish, fate, ms, ok, pair, secs, time_of};

fn tls() -> NullTlsOptions {
    NullTlsOptions::default()
}

fn faulty(message: MessageKind, what: Misbehaviour) -> NullTlsOptions {
    NullTlsOptions { fault: Some(Fault { message, what }), ..tls() }
}

/// The code with which we closed.
fn our_code(error: &Option<ConnectionError>) -> Option<TransportErrorCode> {
    match error {
        Some(ConnectionError::Transport(TransportError { code, .. })) => Some(*code),
        _ => None,
    }
}

/// The code with which the peer closed.
fn peer_code(error: &Option<ConnectionError>) -> Option<TransportErrorCode> {
    match error {
        Some(ConnectionError::PeerTransport { code, .. }) => Some(*code),
        _ => None,
    }
}

fn complete_at(pair: &mut Pair, side: Side) -> quicket_engine::time::Time {
    let session = if side.is_client() { pair.at_client() } else { pair.at_server() };
    time_of(&session.events, |event| *event == Event::HandshakeComplete).unwrap()
}

#[test]
fn client_is_done_after_one_round_trip_and_server_half_a_one_later() {
    let mut pair = pair(PairOptions::new(CLEAN));
    let start = pair.now();
    pair.connect(Workload::none());
    establish(&mut pair);
    assert_eq!(complete_at(&mut pair, Side::Client) - start, RTT);
    assert_eq!(complete_at(&mut pair, Side::Server) - start, RTT + RTT.over(2));
    let summary = pair.at_client().connection.handshake_summary().unwrap();
    assert_eq!(summary.alpn, b"sim");
    ok(pair.close());
}

/// RFC 9002, Section 6.2.4: a probe timeout is for all levels. What is lost of the first one is
/// sent again even if the window is full of packets that the client cannot open without it.
#[test]
fn heavy_loss_delays_the_handshake_but_does_not_stop_it() {
    let scenario = "delay=50ms jitter=30ms loss=30% ecn=mangle";
    for seed in 0..200 {
        let tls = |len| NullTlsOptions { client_hello_len: 1_700, certificate_len: len, ..tls() };
        let options = PairOptions::new(scenario)
            .client_tls(tls(0))
            .server_tls(tls(10_000))
            .transport(|t| t.handshake_timeout = secs(120).into());
        let mut pair = Pair::new(seed, options);
        pair.connect(Workload::download(100));
        ok(pair.run(secs(100)));
    }
}

/// RFC 9002, Section 6.2.4: a client whose HANDSHAKE_DONE was lost repeats its Finished, for which
/// the server has no keys any more. One that drops what follows in the datagram, as some do against
/// RFC 9000, Section 12.2, hears the client by 1-RTT packets in datagrams of their own.
#[test]
fn an_unconfirmed_client_is_heard_by_servers_that_drop_the_rest_of_a_datagram() {
    let heard = Cell::new(false);
    let mut pair = pair(PairOptions::new(CLEAN));
    pair.sim.network_mut().set_tap(move |now, datagram| {
        let long = datagram.payload[0] & 0x80 != 0;
        // The client's Finished comes at 150 ms.
        if now < Time::ZERO + ms(150) {
            return true;
        }
        if datagram.dst.port() == 443 {
            heard.set(heard.get() || !long);
            !long
        } else {
            heard.get()
        }
    });
    pair.connect(Workload::requests(3, 3));
    ok(pair.run(secs(5)));
    ok(pair.close());
}

#[test]
fn all_cipher_suites_and_a_second_client_hello_work() {
    for aead in Aead::ALL {
        for hello_retry in [false, true] {
            let options = PairOptions::new(P2P)
                .client_tls(NullTlsOptions { aead, ..tls() })
                .server_tls(NullTlsOptions { aead, hello_retry, ..tls() });
            pair(options).transfer(Workload::download(20_000), secs(10));
        }
    }
}

/// RFC 9000, Section 8.1: a certificate of more than three times the client's first datagram
/// takes another round trip; the simulation checks the limit.
#[test]
fn large_certificates_wait_for_the_address_to_be_validated() {
    for certificate_len in [2_000, 3_600, 10_000, 30_000] {
        let tls = NullTlsOptions { certificate_len, ..tls() };
        let mut pair = pair(PairOptions::new(CLEAN).server_tls(tls));
        let start = pair.now();
        pair.connect(Workload::none());
        establish(&mut pair);
        let took = complete_at(&mut pair, Side::Client) - start;
        assert_eq!(took > RTT, certificate_len > 2_000, "{certificate_len} bytes in {took:?}");
        assert!(took <= RTT.times(4), "{certificate_len} bytes in {took:?}");
        ok(pair.close());
    }
}

#[test]
fn client_hello_may_span_datagrams() {
    for client_hello_len in [1_100, 1_500, 3_000, 6_000] {
        let options =
            PairOptions::new(P2P).client_tls(NullTlsOptions { client_hello_len, ..tls() });
        pair(options).transfer(Workload::requests(1, 1), secs(10));
    }
}

#[test]
fn client_certificates_are_sent_when_asked_for() {
    let certified = NullTlsOptions { client_certificate_len: Some(1_500), ..tls() };
    for auth in [ClientAuth::Optional, ClientAuth::Required] {
        let server = NullTlsOptions { client_auth: auth, ..tls() };
        let options = PairOptions::new(P2P).client_tls(certified.clone()).server_tls(server);
        let mut pair = pair(options);
        pair.connect(Workload::none());
        establish(&mut pair);
        let summary = pair.at_server().connection.handshake_summary().unwrap();
        assert_eq!(summary.peer_certificates[0].len(), 1_500);
        ok(pair.close());
    }
}

/// RFC 9001, Section 4.8: alerts become CRYPTO_ERROR codes, and the peer hears of them.
#[test]
fn tls_failures_reach_the_peer_as_crypto_errors() {
    let unexpected = Alert::UNEXPECTED_MESSAGE.0;
    let cases = [
        // RFC 9001, Section 8.1.
        (Side::Server, NullTlsOptions { alpn: vec![b"x".to_vec()], ..tls() }, tls(), 120),
        (Side::Client, tls(), faulty(MessageKind::Finished, Misbehaviour::Garble), 51),
        (Side::Server, faulty(MessageKind::Finished, Misbehaviour::Garble), tls(), 51),
        (
            Side::Server,
            tls(),
            faulty(MessageKind::ClientHello, Misbehaviour::Refuse(Alert(42))),
            42,
        ),
        (
            Side::Client,
            faulty(MessageKind::ServerHello, Misbehaviour::Refuse(Alert(43))),
            tls(),
            43,
        ),
        (Side::Server, tls(), NullTlsOptions { client_auth: ClientAuth::Required, ..tls() }, 116),
        // RFC 9001, Section 6: TLS KeyUpdate must not be used.
        (
            Side::Client,
            tls(),
            faulty(MessageKind::NewSessionTicket, Misbehaviour::Before(MessageKind::KeyUpdate)),
            unexpected,
        ),
        // RFC 9001, Section 8.2.
        (Side::Server, NullTlsOptions { parameters: ParameterFault::Omit, ..tls() }, tls(), 109),
        (Side::Client, tls(), NullTlsOptions { parameters: ParameterFault::Omit, ..tls() }, 109),
    ];
    for (index, (finder, client, server, alert)) in cases.into_iter().enumerate() {
        let options = PairOptions::new(P2P).client_tls(client).server_tls(server);
        let (at_client, at_server) = fate(options);
        let (finds, hears) =
            if finder.is_client() { (&at_client, &at_server) } else { (&at_server, &at_client) };
        let code = Some(TransportErrorCode::crypto(alert));
        assert_eq!(our_code(finds), code, "case {index}: {finds:?}");
        assert_eq!(peer_code(hears), code, "case {index}: {hears:?}");
    }
}

/// RFC 9001, Section 4.1.3: data at a level that TLS does not expect.
#[test]
fn messages_at_the_wrong_level_end_the_connection() {
    for (message, level) in [
        (MessageKind::EncryptedExtensions, Level::Initial),
        (MessageKind::CertificateVerify, Level::Initial),
    ] {
        let server = faulty(message, Misbehaviour::At(level));
        let (at_client, _) = fate(PairOptions::new(P2P).server_tls(server));
        assert!(our_code(&at_client).is_some(), "{message:?} at {level:?}: {at_client:?}");
    }
}

#[test]
fn handshakes_that_stall_time_out() {
    for (at_client, message) in [
        (false, MessageKind::ServerHello),
        (false, MessageKind::CertificateVerify),
        (true, MessageKind::Finished),
    ] {
        let stalled = faulty(message, Misbehaviour::Withhold);
        let (client, server) = if at_client { (stalled, tls()) } else { (tls(), stalled) };
        let options = PairOptions::new(P2P)
            .client_tls(client)
            .server_tls(server)
            .transport(|t| t.handshake_timeout = secs(5).into());
        let (_, at_server) = fate(options);
        // The client that withheld its Finished believes that all is well.
        assert_eq!(at_server, Some(ConnectionError::HandshakeTimeout), "{message:?}");
    }
}

/// RFC 9000, Section 7.5.
#[test]
fn crypto_data_far_ahead_exceeds_the_buffer() {
    let tls = NullTlsOptions { certificate_len: 12_000, ..tls() };
    // The Retry is the first datagram from the server; what follows the second leaves a gap.
    let mut options = PairOptions::new("delay=20ms; down drop=2")
        .server_tls(tls)
        .client_transport(|t| t.crypto_buffer = 4_096);
    options.server.retry = quicket_engine::RetryPolicy::Always;
    let (at_client, at_server) = fate(options);
    let code = Some(TransportErrorCode::CRYPTO_BUFFER_EXCEEDED);
    assert_eq!((our_code(&at_client), peer_code(&at_server)), (code, code));
}

#[test]
fn messages_without_an_end_are_waited_for_only_so_long() {
    let flood = faulty(MessageKind::Certificate, Misbehaviour::Flood(100_000));
    let (at_client, _) = fate(PairOptions::new("delay=5ms").server_tls(flood));
    assert_eq!(at_client, Some(ConnectionError::HandshakeTimeout));
}

fn with_parameters(side: Side, change: impl Fn(&mut TransportParameters)) -> NullTlsOptions {
    let mut parameters = TransportParameters {
        initial_source_connection_id: ConnectionId::new(b"wrong-id"),
        original_destination_connection_id: (!side.is_client())
            .then(|| ConnectionId::new(b"wrong-id"))
            .flatten(),
        ..TransportParameters::default()
    };
    change(&mut parameters);
    let mut bytes = Vec::new();
    parameters.encode(side, &mut bytes, None);
    NullTlsOptions { parameters: ParameterFault::Replace(bytes), ..tls() }
}

/// RFC 9000, Section 7.3 and 7.4.
#[test]
fn wrong_transport_parameters_end_the_connection() {
    let code = Some(TransportErrorCode::TRANSPORT_PARAMETER_ERROR);
    let wrong_ids = with_parameters(Side::Server, |_| {});
    let (at_client, at_server) = fate(PairOptions::new(P2P).server_tls(wrong_ids));
    assert_eq!((our_code(&at_client), peer_code(&at_server)), (code, code));

    let wrong_ids = with_parameters(Side::Client, |_| {});
    let (at_client, at_server) = fate(PairOptions::new(P2P).client_tls(wrong_ids));
    assert_eq!((peer_code(&at_client), our_code(&at_server)), (code, code));

    // Truncated, a value out of range, one that is there twice.
    for bytes in [&[0x01, 0x08, 0x00][..], &[0x0a, 0x01, 21], &[0x0e, 0x01, 0x03, 0x0e, 0x01, 0x03]]
    {
        let broken =
            NullTlsOptions { parameters: ParameterFault::Replace(bytes.to_vec()), ..tls() };
        let (at_client, _) = fate(PairOptions::new(P2P).server_tls(broken));
        assert_eq!(our_code(&at_client), code, "{bytes:?}: {at_client:?}");
    }
}

/// RFC 9002, Section 6.2: whichever packet of the handshake is lost, it completes.
#[test]
fn any_one_or_two_datagrams_may_be_lost() {
    for way in ["up", "down"] {
        for first in 1..=8 {
            for second in first..=8 {
                let text = format!("delay=20ms; {way} drop={first},{second}");
                let tls = NullTlsOptions { certificate_len: 4_000, ..tls() };
                let mut pair = pair(PairOptions::new(&text).server_tls(tls));
                pair.transfer(Workload::requests(2, 2), secs(9));
            }
        }
    }
}

#[test]
fn handshakes_survive_heavy_loss_both_ways() {
    for seed in 0..20 {
        let options = PairOptions::new("delay=10ms loss=30%")
            .transport(|t| t.handshake_timeout = secs(120).into())
            .transport(|t| t.max_idle_timeout = secs(120).into());
        let mut pair = Pair::new(seed, options);
        pair.connect(Workload::requests(1, 1));
        ok(pair.run(secs(120)));
    }
}

/// RFC 9002, Section 6.2.1: the probe timer backs off, so that little is sent into the void.
#[test]
fn unreachable_servers_cost_few_packets() {
    let options = PairOptions::new("delay=10ms; up loss=100%");
    let mut pair = pair(options);
    pair.connect(Workload::none());
    ok(pair.run_to_end(secs(60)));
    let ended = pair.ended(pair.client);
    assert_eq!(ended.error, Some(ConnectionError::HandshakeTimeout));
    assert!(ended.stats.counters.datagrams_sent <= 16, "{:?}", ended.stats.counters);
}

#[test]
fn many_clients_connect_at_once() {
    let mut pair = pair(PairOptions::new("delay=10ms rate=100mbit queue=500"));
    for _ in 0..50 {
        pair.connect(Workload::requests(3, 2));
    }
    ok(pair.run(secs(20)));
    assert_eq!(pair.sim.host(pair.server).stats().accepted, 50);
    ok(pair.close());
    assert_eq!(pair.sim.host_mut(pair.server).endpoint().connections(), 0);
    assert_eq!(pair.sim.host_mut(pair.client).endpoint().connections(), 0);
}

/// RFC 9000, Section 5.1: a client that needs no connection ID.
#[test]
fn zero_length_connection_ids_work_on_the_client() {
    let mut options = PairOptions::new(P2P);
    let none = quicket_engine::RandomConnectionIds::new(0);
    options.client_endpoint.cid_generator = std::sync::Arc::new(none);
    let mut pair = pair(options);
    pair.transfer(Workload::requests(20, 4), secs(20));
}

#[test]
fn connections_are_quiet_when_there_is_nothing_to_say() {
    let mut pair = pair(PairOptions::new(CLEAN));
    pair.connect(Workload::none());
    establish(&mut pair);
    ok(pair.sim.run_for(secs(3)));
    let before = pair.at_client().connection.stats().counters;
    ok(pair.sim.run_for(secs(20)));
    let after = pair.at_client().connection.stats().counters;
    assert_eq!(before.datagrams_sent, after.datagrams_sent);
    assert!(pair.at_client().timeouts() < 60, "{}", pair.at_client().timeouts());
    ok(pair.sim.run_for(ms(1)));
}
