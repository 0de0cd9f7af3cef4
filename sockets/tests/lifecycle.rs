//! Beginnings and ends: closes, resets, timeouts, refusals, dropped handles.

mod common;

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{ALPN, configs, configs_with, pair, pair_with};
use quicket::{
    AcceptError, Blame, ClientConfig, ClientTls, ConnectError, Connection, ConnectionError,
    Decision, Endpoint, EndpointConfig, Identity, ListenError, Listener, OpenError, ReadError,
    ReadToEndError, RetryPolicy, SendStream, ServerConfig, ServerTls, TicketKey, TransportConfig,
    WriteError, blame_of,
};

const SHORT: Duration = Duration::from_millis(50);

#[test]
fn a_close_is_heard_with_its_code_and_words() {
    let (client, server) = pair();
    let mut stream = client.open_bi().unwrap();
    server.close(42, b"enough");
    let expected = ConnectionError::PeerApplication { code: 42, reason: b"enough".to_vec() };
    assert_eq!(client.closed(), expected);
    assert_eq!(client.close_reason(), Some(expected.clone()));
    assert_eq!(blame_of(&expected), Blame::Peer);
    assert_eq!(stream.write_all(b"x").unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
    assert_eq!(client.open_bi().unwrap_err(), OpenError::Lost(expected));
    assert!(matches!(server.closed(), ConnectionError::Local { code: 42, .. }));
    assert_eq!(server.accept_bi().unwrap_err().blame(), Blame::Caller);
}

#[test]
fn a_silent_peer_is_given_up() {
    let transport = TransportConfig {
        max_idle_timeout: Duration::from_millis(300),
        ..TransportConfig::default()
    };
    let (client, server) = pair_with(configs_with(transport));
    let start = Instant::now();
    assert_eq!(client.closed(), ConnectionError::IdleTimeout);
    assert_eq!(server.closed(), ConnectionError::IdleTimeout);
    // Sooner than by the default of 30 seconds.
    assert!(start.elapsed() < Duration::from_secs(20));
}

/// That each packet puts the idle timeout off is among the engine's tests, in virtual time.
#[test]
fn keep_alive_keeps_a_silent_connection_talking() {
    let transport =
        TransportConfig { keep_alive: Duration::from_millis(20), ..TransportConfig::default() };
    let (client, server) = pair_with(configs_with(transport));
    let received = || [&client, &server].map(|end| end.stats().counters.packets_received);
    let before = received();
    // Far more than is left to say after a handshake.
    while received().iter().zip(before).any(|(now, before)| *now < before + 100) {
        assert_eq!((client.close_reason(), server.close_reason()), (None, None));
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_was_written_arrives_although_the_writer_let_go() {
    let (client, server) = pair();
    let data = vec![7; 3 << 20];
    let mut stream = client.open_uni().unwrap();
    stream.write_all(&data).unwrap();
    drop(stream);
    drop(client);
    let received = server.accept_uni().unwrap().read_to_end(4 << 20).unwrap();
    assert_eq!(received, data);
    // Then the connection is closed.
    assert!(matches!(server.closed(), ConnectionError::PeerApplication { code: 0, .. }));
}

#[test]
fn a_reset_and_a_stop_are_heard_with_their_codes() {
    let (client, server) = pair();
    let mut stream = client.open_bi().unwrap();
    stream.write_all(b"beginning").unwrap();
    let mut other = server.accept_bi().unwrap();
    let mut buffer = [0; 9];
    other.read_exact(&mut buffer).unwrap();
    stream.send().reset(5).unwrap();
    assert_eq!(other.recv().read_some(&mut buffer), Err(ReadError::Reset(5)));
    assert_eq!(other.recv().read_some(&mut buffer), Err(ReadError::Reset(5)));
    assert_eq!(stream.send().write_some(b"x"), Err(WriteError::Closed));

    stream.recv().stop(6).unwrap();
    assert_eq!(stream.recv().read_some(&mut buffer), Err(ReadError::Closed));
    assert_eq!(other.send().stopped(), Ok(Some(6)));
    assert_eq!(other.send().write_some(b"x"), Err(WriteError::Stopped(6)));
    assert_eq!(other.send().stopped(), Ok(Some(6)));
}

#[test]
fn a_finished_stream_is_known_to_have_arrived() {
    let (client, server) = pair();
    let mut stream = client.open_uni().unwrap();
    stream.write_all(b"all of it").unwrap();
    stream.finish().unwrap();
    assert_eq!(stream.stopped(), Ok(None));
    assert_eq!(stream.write_some(b"more"), Err(WriteError::Closed));
    let mut stream = server.accept_uni().unwrap();
    assert_eq!(stream.read_to_end(100).unwrap(), b"all of it");
    assert_eq!(stream.read_some(&mut [0; 5]), Ok(0));
}

/// Data that is acknowledged is not all: a close would overtake the end of the stream.
#[test]
fn closing_loses_nothing_once_all_is_delivered() {
    for _ in 0..20 {
        let (client, server) = pair();
        let mut sending = server.open_uni().unwrap();
        sending.write_all(b"all").unwrap();
        let mut receiving = client.accept_uni().unwrap();
        let mut read = [0; 3];
        receiving.read_exact(&mut read).unwrap();
        until(|| server.stats().send_buffered == 0);
        sending.finish().unwrap();
        until(|| server.is_delivered());
        server.close(0, b"");
        assert_eq!(receiving.read_to_end(10).unwrap(), b"");
    }
}

fn until(holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn dropping_a_half_ends_it() {
    let (client, server) = pair();
    let mut stream = client.open_bi().unwrap();
    stream.write_all(b"question").unwrap();
    let (send, recv) = stream.split();
    drop(send);
    drop(recv);
    let mut stream = server.accept_bi().unwrap();
    assert_eq!(stream.read_to_end(100).unwrap(), b"question");
    assert_eq!(stream.send().stopped(), Ok(Some(0)));
}

#[test]
fn half_a_message_of_a_panicking_thread_is_not_a_whole_one() {
    let (client, server) = pair();
    let writer = thread::spawn(move || {
        let mut stream = client.open_uni().unwrap();
        stream.write_all(b"half a mess").unwrap();
        let mut accepted = server.accept_uni().unwrap();
        let reader = thread::spawn(move || {
            let result = accepted.read_to_end(100);
            drop(server);
            result
        });
        let _stream = stream;
        std::panic::panic_any(reader);
    });
    let reader = writer.join().unwrap_err().downcast::<thread::JoinHandle<_>>().unwrap();
    let result: Result<Vec<u8>, ReadToEndError> = reader.join().unwrap();
    assert_eq!(result, Err(ReadToEndError::Read(ReadError::Reset(0))));
}

#[test]
fn a_stream_longer_than_allowed_is_not_read() {
    let (client, server) = pair();
    let mut stream = client.open_uni().unwrap();
    stream.write_all(&[1; 1001]).unwrap();
    stream.finish().unwrap();
    let mut accepted = server.accept_uni().unwrap();
    assert_eq!(accepted.read_to_end(1000), Err(ReadToEndError::TooLong(1000)));
}

#[test]
fn timeouts_end_calls_and_nothing_else() {
    let (client, server) = pair();
    client.set_timeout(Some(SHORT));
    let start = Instant::now();
    assert_eq!(client.accept_bi().unwrap_err(), AcceptError::TimedOut);
    assert!(start.elapsed() >= SHORT);
    let mut stream = client.open_bi().unwrap();
    stream.write_all(b"x").unwrap();
    let error = stream.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    stream.set_read_timeout(None);
    let mut accepted = server.accept_bi().unwrap();
    accepted.write_all(b"y").unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 1);
}

#[test]
fn a_writer_without_room_times_out() {
    let transport = TransportConfig {
        initial_stream_window: 1000,
        max_stream_window: 1000,
        stream_send_buffer: 5000,
        ..TransportConfig::default()
    };
    let (client, _server) = pair_with(configs_with(transport));
    let mut stream = client.open_uni().unwrap();
    stream.set_write_timeout(Some(SHORT));
    let error = stream.write_all(&[0; 10_000]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    stream.set_nonblocking(true);
    assert_eq!(stream.write_some(&[0]), Err(WriteError::WouldBlock));
}

#[test]
fn nothing_waits_in_non_blocking_mode() {
    let (client, server) = pair();
    client.set_nonblocking(true);
    assert_eq!(client.accept_bi().unwrap_err(), AcceptError::WouldBlock);
    assert_eq!(client.accept_uni().unwrap_err(), AcceptError::WouldBlock);
    let mut stream = client.open_bi().unwrap();
    let error = stream.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    stream.write_all(b"x").unwrap();
    let mut accepted = server.accept_bi().unwrap();
    assert_eq!(accepted.recv().try_read(&mut [0; 5]), Ok(1));
    assert_eq!(accepted.recv().try_read(&mut [0; 5]), Err(ReadError::WouldBlock));
}

#[test]
fn stream_limits_hold_until_streams_end() {
    let transport = TransportConfig { max_streams_bidi: 3, ..TransportConfig::default() };
    let (client, server) = pair_with(configs_with(transport));
    let mut streams: Vec<_> = (0..3).map(|_| client.open_bi().unwrap()).collect();
    assert_eq!(client.try_open_bi().unwrap_err(), OpenError::WouldBlock);
    thread::scope(|scope| {
        let fourth = scope.spawn(|| client.open_bi().unwrap().id());
        let mut first = streams.remove(0);
        first.write_all(b"x").unwrap();
        drop(first);
        drop(server.accept_bi().unwrap());
        assert_eq!(fourth.join().unwrap().index(), 3);
    });
}

#[test]
fn nobody_there_is_a_timeout() {
    let (_, client) = configs_with(TransportConfig {
        handshake_timeout: Duration::from_millis(200),
        ..TransportConfig::default()
    });
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let error = Connection::connect(address, "localhost", &client).unwrap_err();
    assert!(matches!(error, ConnectError::Lost(ConnectionError::HandshakeTimeout)), "{error}");
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::TimedOut);
}

#[test]
fn a_server_that_is_not_trusted_is_refused_by_name_of_the_problem() {
    let (server, _) = configs();
    let listener = Listener::bind("127.0.0.1:0", server).unwrap();
    let other = Identity::self_signed(["localhost"]).unwrap();
    let tls = ClientTls::builder().pinned([other.fingerprint()]).alpn(ALPN).build().unwrap();
    let client = ClientConfig::new(tls);
    let error = Connection::connect(listener.local_addr(), "localhost", &client).unwrap_err();
    assert!(matches!(error, ConnectError::Handshake(_)), "{error:?}");
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[test]
fn protocols_that_do_not_meet_are_refused() {
    let (server, _) = configs();
    let listener = Listener::bind("127.0.0.1:0", server).unwrap();
    let tls = ClientTls::builder().dangerous_no_verification().alpn(["other"]).build().unwrap();
    let error = Connection::connect(listener.local_addr(), "localhost", &ClientConfig::new(tls))
        .unwrap_err();
    assert!(matches!(error, ConnectError::Lost(ConnectionError::PeerTransport { .. })));
    assert_eq!(error.blame(), Blame::Peer);
}

#[test]
fn retry_is_transparent() {
    let (server, client) = configs();
    let (client, server) = pair_with((server.retry(RetryPolicy::Always), client));
    common::check(&client, &server);
}

#[test]
fn admission_decides() {
    for decision in [Decision::Refuse, Decision::Ignore, Decision::Retry] {
        let mut transport = TransportConfig::default();
        if decision == Decision::Ignore {
            transport.handshake_timeout = Duration::from_millis(500);
        }
        let (server, client) = configs_with(transport);
        let server = server.admission(
            move |attempt| {
                if attempt.validated { Decision::Accept } else { decision }
            },
        );
        let listener = Listener::bind("127.0.0.1:0", server).unwrap();
        let result = Connection::connect(listener.local_addr(), "localhost", &client);
        match (decision, result) {
            (Decision::Retry, Ok(_)) => {}
            (Decision::Refuse, Err(error)) => {
                assert_eq!(io::Error::from(error).kind(), io::ErrorKind::ConnectionRefused);
            }
            (Decision::Ignore, Err(error)) => {
                assert_eq!(io::Error::from(error).kind(), io::ErrorKind::TimedOut);
            }
            (decision, result) => panic!("{decision:?}: {result:?}"),
        }
    }
}

/// Its code may use connections of the endpoint.
#[test]
fn who_decides_about_admission_may_send_much() {
    let (server, client) = configs();
    let stream: Arc<Mutex<Option<SendStream>>> = Arc::default();
    let its = Arc::clone(&stream);
    let server = server.admission(move |_| {
        if let Some(mut stream) = its.lock().unwrap().take() {
            stream.write_all(&[7; 200_000]).unwrap();
        }
        Decision::Accept
    });
    let listener = Listener::bind("127.0.0.1:0", server).unwrap();
    let connect = || Connection::connect(listener.local_addr(), "localhost", &client).unwrap();
    let first = connect();
    let accepted = listener.accept().unwrap();
    *stream.lock().unwrap() = Some(accepted.open_uni().unwrap());
    let _second = connect();
    let data = first.accept_uni().unwrap().read_to_end(1 << 20).unwrap();
    assert_eq!(data, [7; 200_000]);
}

#[test]
fn a_full_backlog_refuses() {
    let (server, client) = configs();
    let listener = Listener::bind("127.0.0.1:0", server.backlog(2)).unwrap();
    let connect = || Connection::connect(listener.local_addr(), "localhost", &client);
    let waiting = [connect().unwrap(), connect().unwrap()];
    let error = connect().unwrap_err();
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::ConnectionRefused);
    listener.accept().unwrap();
    connect().unwrap();
    drop(waiting);
}

#[test]
fn a_listener_that_is_gone_leaves_accepted_connections() {
    let (server, client) = configs();
    let listener = Listener::bind("127.0.0.1:0", server).unwrap();
    let address = listener.local_addr();
    let first = Connection::connect(address, "localhost", &client).unwrap();
    let accepted = listener.accept().unwrap();
    let unaccepted = Connection::connect(address, "localhost", &client).unwrap();
    let endpoint = listener.endpoint().clone();
    drop(listener);
    assert!(matches!(unaccepted.closed(), ConnectionError::PeerApplication { code: 0, .. }));
    let mut stream = first.open_uni().unwrap();
    stream.write_all(b"still here").unwrap();
    drop(stream);
    assert_eq!(accepted.accept_uni().unwrap().read_to_end(100).unwrap(), b"still here");
    // And the endpoint can listen again.
    let (server, client) = configs();
    let listener = endpoint.listen(server).unwrap();
    assert!(matches!(endpoint.listen(configs().0), Err(ListenError::AlreadyListening)));
    Connection::connect(address, "localhost", &client).unwrap();
    drop(listener);
}

#[test]
fn closing_an_endpoint_ends_all_its_connections_and_calls() {
    let (server, client) = configs();
    let listener = Listener::bind("127.0.0.1:0", server).unwrap();
    let address = listener.local_addr();
    let endpoint = listener.endpoint().clone();
    let (accepted, both) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let listener = &listener;
        let accepting = scope.spawn(move || {
            let mut connections = Vec::new();
            for connection in listener.incoming() {
                connections.push(connection.unwrap());
                accepted.send(()).unwrap();
            }
            // Kept by the caller: dropped, they would close with code 0.
            connections
        });
        let first = Connection::connect(address, "localhost", &client).unwrap();
        let second = Connection::connect(address, "localhost", &client).unwrap();
        // Until the server's handshake is complete it may not tell the application's code
        // (RFC 9000, Section 10.2.3).
        both.iter().take(2).for_each(drop);
        endpoint.close(3, b"bye");
        for connection in [first, second] {
            let error = connection.closed();
            assert!(matches!(error, ConnectionError::PeerApplication { code: 3, .. }), "{error}");
        }
        assert_eq!(accepting.join().unwrap().len(), 2);
    });
    assert!(matches!(listener.accept(), Err(AcceptError::EndpointClosed)));
    let error = endpoint.connect(address, "localhost", &client).unwrap_err();
    assert!(matches!(error, ConnectError::EndpointClosed));
    endpoint.wait_idle();
}

#[test]
fn an_endpoint_ends_with_its_last_handle() {
    let before = threads();
    for _ in 0..5 {
        let (client, server) = pair();
        client.close(0, b"");
        server.closed();
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while threads() > before {
        assert!(Instant::now() < deadline, "{} threads, {before} before", threads());
        thread::sleep(Duration::from_millis(20));
    }
}

/// How many threads of endpoints there are in this process.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    tasks.filter_map(name).filter(|name| name.trim() == "quicket").count()
}

#[test]
fn keying_material_is_the_same_on_both_sides() {
    let (client, server) = pair();
    let (mut ours, mut theirs) = ([0; 40], [0; 40]);
    client.export_keying_material(b"label", b"context", &mut ours).unwrap();
    server.export_keying_material(b"label", b"context", &mut theirs).unwrap();
    assert_eq!(ours, theirs);
    server.export_keying_material(b"label", b"other", &mut theirs).unwrap();
    assert_ne!(ours, theirs);
}

#[test]
fn keys_are_updated_on_request() {
    let (client, server) = pair();
    let ping = || {
        let mut stream = client.open_bi().unwrap();
        stream.write_all(b"x").unwrap();
        let mut accepted = server.accept_bi().unwrap();
        accepted.write_all(b"y").unwrap();
        stream.read_exact(&mut [0; 1]).unwrap();
    };
    ping();
    client.update_keys().unwrap();
    ping();
    assert_eq!(client.stats().counters.key_updates, 1);
    assert_eq!(server.stats().counters.key_updates, 1);
    assert!(client.rotate_connection_ids());
    ping();
}

#[test]
fn a_name_that_does_not_resolve_says_so() {
    let (_, client) = configs();
    // A label has 63 bytes at most (RFC 1035, Section 2.3.4): nobody is asked for this one.
    let name = format!("{}.invalid:1", "x".repeat(64));
    let error = Connection::connect(name, "x", &client).unwrap_err();
    assert!(matches!(error, ConnectError::Resolve(_)), "{error:?}");
    assert_eq!(error.blame(), Blame::Environment);
    let endpoint = Endpoint::bind("127.0.0.1:0").unwrap();
    let error = endpoint.connect("127.0.0.1:0".parse().unwrap(), "x", &client).unwrap_err();
    assert_eq!(error.blame(), Blame::Caller);
}

/// Fails if a text has eight bytes of a secret in a row, in any of the ways in which bytes are
/// printed.
fn assert_hides(text: &str, secret: &[u8]) {
    let text = text.to_lowercase();
    let joined = |bytes: &[u8], separator: &str, hexadecimal: bool| {
        let each = |byte: &u8| if hexadecimal { format!("{byte:02x}") } else { byte.to_string() };
        bytes.iter().map(each).collect::<Vec<_>>().join(separator)
    };
    for part in secret.windows(8) {
        let ways = [
            joined(part, ", ", false),
            joined(part, "", true),
            joined(part, ":", true),
            joined(part, ", ", true),
            String::from_utf8_lossy(part).to_lowercase(),
        ];
        for way in ways {
            assert!(!text.contains(&way), "{way} is printed in {text}");
        }
    }
}

#[test]
#[should_panic(expected = "is printed in")]
fn secrets_that_are_printed_are_found() {
    assert_hides(&format!("{:?}", [1, 2, 3, 4, 5, 6, 7, 8, 9]), &[2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn configurations_are_printed_without_secrets() {
    let identity = Identity::self_signed(["localhost"]).unwrap();
    // An ECPrivateKey (RFC 5915) has its secret in the first OCTET STRING of 32 bytes; the public
    // key behind it is in the certificate, too.
    let der = identity.key();
    let place = der.windows(2).position(|tag| tag == [4, 32]).unwrap() + 2;
    let private_key = &der[place..place + 32];
    let ticket_key: [u8; 32] = std::array::from_fn(|i| 0x60 + i as u8);
    let client = ClientTls::builder().dangerous_no_verification().alpn(ALPN);
    let client = ClientConfig::new(client.client_certificate(identity.clone()).build().unwrap());
    let tls = ServerTls::builder(identity.clone()).alpn(ALPN);
    let tls = tls.ticket_keys([TicketKey::new(&ticket_key).unwrap()]).build().unwrap();
    let endpoint = EndpointConfig::default();
    let printed = [
        (format!("{:?}", ServerConfig::new(tls)), "backlog: 1024"),
        (format!("{client:?}"), "ClientConfig"),
        (format!("{endpoint:?}"), "EndpointConfig"),
        (format!("{identity:?}"), "Identity"),
    ];
    let secrets =
        [private_key, &ticket_key, &endpoint.protocol.reset_key, &endpoint.protocol.token_key];
    for (text, part) in &printed {
        assert!(text.contains(part) && !text.contains("PRIVATE KEY"), "{text}");
        secrets.iter().for_each(|secret| assert_hides(text, secret));
    }
}

#[test]
fn a_closed_listener_wakes_who_waits_and_makes_room_for_another() {
    let (server_config, client_config) = configs();
    let listener = Arc::new(Listener::bind("127.0.0.1:0", server_config.clone()).unwrap());
    let endpoint = listener.endpoint().clone();
    let address = listener.local_addr();
    let accept = |listener: &Arc<Listener>| {
        let listener = listener.clone();
        thread::spawn(move || listener.accept().map(drop))
    };
    let waiting = [accept(&listener), accept(&listener)];
    listener.close();
    for thread in waiting {
        assert_eq!(thread.join().unwrap().unwrap_err(), AcceptError::EndpointClosed);
    }
    assert_eq!(listener.try_accept().unwrap_err(), AcceptError::EndpointClosed);
    assert!(listener.incoming().next().is_none());

    // Another takes its place; the end of the closed one takes nothing away from it.
    let second = endpoint.listen(server_config).unwrap();
    assert_eq!(listener.try_accept().unwrap_err(), AcceptError::EndpointClosed);
    listener.close();
    drop(listener);
    let client = Connection::connect(address, "localhost", &client_config).unwrap();
    let server = second.accept().unwrap();
    assert_eq!(client.remote_addr(), address);
    assert_eq!(server.local_addr(), Some(address));
    let own = client.local_addr();
    assert!(own.is_none_or(|own| own.port() == server.remote_addr().port()), "{own:?}");
    // What was accepted goes on.
    second.close();
    client.open_bi().unwrap().finish().unwrap();
    assert!(server.accept_bi().is_ok());
}
