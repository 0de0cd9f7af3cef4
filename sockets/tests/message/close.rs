//! Ends of connections, and of handshakes.

use std::time::{Duration, Instant};

use quicket::message::{Errno, EventType, MsgFlags, Notification, Shutdown, TransportParam};

use crate::pair::{NEW_FIN, Tls, listener, pair, recv, send, settle, socket};

#[test]
fn dropping_the_last_clone_ends_the_connection() {
    let (client, server) = pair();
    let clone = client.clone();
    drop(client);
    send(&clone, b"still here", 0, NEW_FIN).unwrap();
    assert_eq!(recv(&server).0, b"still here");
    assert!(!server.poll_state().hup);
    drop(clone);
    settle(|| server.poll_state().hup);
    assert_eq!(server.connection_close().errcode, 0);
}

#[test]
fn what_was_sent_goes_out_before_the_end() {
    let (client, server) = pair();
    send(&client, b"last words", 0, NEW_FIN).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(recv(&server).0, b"last words");
    settle(|| server.poll_state().hup);
}

#[test]
fn a_handshake_that_was_complete_counts_though_the_peer_has_left() {
    let (client, server) = pair();
    send(&client, b"last words", 0, NEW_FIN).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    settle(|| server.poll_state().hup);
    assert_eq!(server.wait_established(), Ok(()), "it may be asked only now");
    assert_eq!(recv(&server).0, b"last words");
}

#[test]
fn a_handshake_that_is_broken_off_says_so() {
    let (listening, address) = listener();
    let client = socket();
    client.connect(address).unwrap();
    client.set_nonblocking(true);
    assert_eq!(client.connect_tls(Tls::new().client("test"), "localhost"), Err(Errno::EAGAIN));
    let server = listening.accept().unwrap();
    server.shutdown(Shutdown::Both).unwrap();
    settle(|| client.poll_state().hup);
    // RFC 9000, Section 10.2.3: the application's own code is not for strangers.
    assert_eq!(client.connection_close().errcode, 0x0c);
    assert_eq!(client.wait_established(), Err(Errno::ECONNRESET));
}

#[test]
fn distrust_ends_the_handshake_on_both_sides() {
    let (listening, address) = listener();
    let client = socket();
    client.connect(address).unwrap();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let accepted = listening.accept().unwrap();
            accepted.set_event(EventType::ConnectionClose, true);
            assert!(accepted.accept_tls(Tls::new().server("test")).is_err());
            let (bytes, _) = recv(&accepted);
            let Some(Notification::ConnectionClose(close)) = Notification::from_bytes(&bytes)
            else {
                panic!("{bytes:?}")
            };
            close.errcode
        });
        let other = Tls::new();
        assert_eq!(client.connect_tls(other.client("test"), "localhost"), Err(Errno::EPROTO));
        assert_eq!(accepted.join().unwrap() & !0xff, 0x100, "an alert of TLS");
        assert_eq!(client.connection_close().errcode & !0xff, 0x100);
    });
}

#[test]
fn nobody_answers() {
    let nobody = std::net::UdpSocket::bind(crate::pair::ANY).unwrap();
    let client = socket();
    let param = TransportParam { max_idle_timeout: 1_000_000, ..TransportParam::default() };
    client.set_transport_param(&param).unwrap();
    client.connect(nobody.local_addr().unwrap()).unwrap();
    let start = Instant::now();
    let result = client.connect_tls(Tls::new().client("test"), "localhost");
    assert_eq!(result, Err(Errno::ETIMEDOUT));
    assert!(start.elapsed() >= Duration::from_millis(900));
    let mut buffer = [0; 8];
    assert_eq!(client.recv_message(&mut buffer, MsgFlags::NONE), Err(Errno::ENOTCONN));
}

#[test]
fn who_waits_to_receive_hears_of_the_end() {
    let (client, server) = pair();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut buffer = [0; 8];
            server.recv_message(&mut buffer, MsgFlags::NONE)
        });
        client.shutdown(Shutdown::Both).unwrap();
        assert_eq!(waiting.join().unwrap(), Err(Errno::ENOTCONN));
    });
}
