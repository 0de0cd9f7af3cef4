//! Errors, one by one.

use quicket::message::raw::{ConnectionIdInfo, CryptoSecret, ErrInfo};
use quicket::message::{
    CryptoLevel, Errno, MessageKind, MsgFlags, Shutdown, Socket, StreamFlags, StreamInfo,
    TransportParam,
};

use crate::pair::{NEW, NEW_FIN, Tls, listener, pair, pair_by_relay, recv, send, settle, socket};

const NONE: StreamFlags = StreamFlags::NONE;

fn err(id: i64) -> ErrInfo {
    ErrInfo { stream_id: id, errcode: 1 }
}

#[test]
fn a_new_socket_has_nothing_to_send_to_or_receive_from() {
    let socket = socket();
    let mut buffer = [0; 8];
    assert_eq!(send(&socket, b"x", 0, NEW), Err(Errno::EPIPE));
    let level = CryptoLevel::Initial;
    assert_eq!(socket.send_handshake(b"x", level, MsgFlags::NONE), Err(Errno::EPIPE));
    assert_eq!(socket.recv_message(&mut buffer, MsgFlags::NONE), Err(Errno::ENOTCONN));
    assert_eq!(socket.open_stream(StreamInfo::new(-1, NONE)), Err(Errno::EPIPE));
    assert_eq!(socket.accept().unwrap_err(), Errno::EINVAL);
    assert_eq!(socket.local_addr(), "0.0.0.0:0".parse().unwrap());
    assert_eq!(socket.peer_addr(), Err(Errno::ENOTCONN));
    assert_eq!(socket.listen(0), Err(Errno::EINVAL));
    assert_eq!(socket.disconnect(), Err(Errno::EOPNOTSUPP));
    assert_eq!(socket.bytes_to_receive(), Ok(0));
    for option in [socket.reset_stream(err(0)), socket.stop_sending(err(0))] {
        assert_eq!(option, Err(Errno::EINVAL));
    }
    assert_eq!(socket.connection_id(true), Err(Errno::EINVAL));
    assert_eq!(socket.set_connection_id(ConnectionIdInfo::default()), Err(Errno::EINVAL));
    assert_eq!(socket.migrate("127.0.0.1:9".parse().unwrap()), Err(Errno::EPIPE));
    assert_eq!(socket.update_keys(), Err(Errno::EPIPE));
    assert_eq!(socket.transport_param_ext(), Err(Errno::EINVAL));
    assert_eq!(socket.set_transport_param_ext(b""), Err(Errno::EINVAL));
    let secret = CryptoSecret { send: 1, level: 2, kind: 51, secret: [0; 48] };
    assert_eq!(socket.set_crypto_secret(&secret), Err(Errno::EINVAL));
    let remote = TransportParam { remote: 1, ..TransportParam::default() };
    assert_eq!(socket.set_transport_param(&remote), Err(Errno::EINVAL));
}

#[test]
fn a_listener_neither_sends_nor_receives() {
    let (listener, address) = listener();
    let mut buffer = [0; 8];
    assert_eq!(send(&listener, b"x", 0, NEW), Err(Errno::EPIPE));
    assert_eq!(listener.recv_message(&mut buffer, MsgFlags::NONE), Err(Errno::ENOTCONN));
    assert_eq!(listener.open_stream(StreamInfo::new(-1, NONE)), Err(Errno::EPIPE));
    assert_eq!(listener.connect(address), Err(Errno::EINVAL));
    assert_eq!(listener.bind(address), Err(Errno::EINVAL));
    assert_eq!(listener.set_alpn(b"h3"), Err(Errno::EINVAL));
    assert_eq!(listener.session_ticket(), Err(Errno::EPIPE));
    assert_eq!(listener.token(), Err(Errno::EINVAL));
    assert_eq!(listener.set_token(b"x"), Err(Errno::EINVAL));
    assert_eq!(listener.migrate("127.0.0.1:9".parse().unwrap()), Err(Errno::EPIPE));
    for queue in [listener.bytes_to_receive(), listener.bytes_to_send(), listener.bytes_unsent()] {
        assert_eq!(queue, Err(Errno::EINVAL));
    }
    listener.set_nonblocking(true);
    assert_eq!(listener.accept().unwrap_err(), Errno::EAGAIN);
}

#[test]
fn addresses_that_do_not_fit_are_refused() {
    let socket = socket();
    assert_eq!(socket.bind("[::1]:0".parse().unwrap()), Err(Errno::EINVAL));
    assert_eq!(socket.connect("127.0.0.1:0".parse().unwrap()), Err(Errno::EINVAL));
    assert_eq!(socket.connect("0.0.0.0:9".parse().unwrap()), Err(Errno::EINVAL));
    assert_eq!(socket.connect("[::1]:9".parse().unwrap()), Err(Errno::EINVAL));
    assert_eq!(socket.bind("192.0.2.1:0".parse().unwrap()), Err(Errno::EADDRNOTAVAIL));
    let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    assert_eq!(socket.bind(other.local_addr().unwrap()), Err(Errno::EADDRINUSE));
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    assert_eq!(socket.bind("127.0.0.1:0".parse().unwrap()), Err(Errno::EINVAL));
    socket.connect(other.local_addr().unwrap()).unwrap();
    assert_eq!(socket.connect(other.local_addr().unwrap()), Err(Errno::EINVAL));
    assert_eq!(socket.listen(1), Err(Errno::EINVAL));
}

#[test]
fn addresses_stand_for_one_host_and_are_of_a_family_that_fits() {
    let address = |text: &str| text.parse().unwrap();
    let v4 = Socket::new_v4();
    let v6 = Socket::new_v6();
    assert_eq!(v4.local_addr(), address("0.0.0.0:0"));
    assert_eq!(v6.local_addr(), address("[::]:0"));
    for (socket, bad) in
        [(&v4, "224.0.0.1:9"), (&v6, "224.0.0.1:9"), (&v6, "[ff02::1]:9"), (&v6, "[fe80::1]:9")]
    {
        assert_eq!(socket.bind(address(bad)), Err(Errno::EINVAL), "{bad}");
        assert_eq!(socket.connect(address(bad)), Err(Errno::EINVAL), "{bad}");
    }
    assert_eq!(v6.connect(address("[::]:9")), Err(Errno::EINVAL));
    // A socket for IPv6 serves IPv4 too, by whichever name.
    v6.bind(address("127.0.0.1:0")).unwrap();
    assert!(v6.local_addr().is_ipv4());
    let mapped = Socket::new_v6();
    mapped.bind(address("[::ffff:127.0.0.1]:0")).unwrap();
    assert!(mapped.local_addr().is_ipv4());
    v6.listen(1).unwrap();
    mapped.connect(v6.local_addr()).unwrap();
    assert_eq!(mapped.peer_addr(), Ok(v6.local_addr()));
    for bad in ["0.0.0.0:9", "224.0.0.1:9", "127.0.0.1:0"] {
        assert_eq!(mapped.migrate(address(bad)), Err(Errno::EINVAL), "{bad}");
    }
}

#[test]
fn only_a_connection_can_be_shut_down_and_only_once() {
    let ways = [Shutdown::Read, Shutdown::Write, Shutdown::Both];
    for how in ways {
        assert_eq!(Socket::new_v4().shutdown(how), Err(Errno::ENOTCONN));
        let (client, server) = pair();
        assert_eq!(client.shutdown(how), Ok(()));
        assert_eq!(client.peer_addr(), Err(Errno::ENOTCONN));
        settle(|| server.poll_state().hup);
        for again in ways {
            assert_eq!(client.shutdown(again), Err(Errno::ENOTCONN));
            assert_eq!(server.shutdown(again), Err(Errno::ENOTCONN));
        }
    }
    let (listener, _) = listener();
    assert_eq!(listener.shutdown(Shutdown::Write), Ok(()));
    assert_eq!(listener.shutdown(Shutdown::Read), Err(Errno::EOPNOTSUPP));
    assert_eq!(listener.shutdown(Shutdown::Both), Err(Errno::EOPNOTSUPP));
    assert_eq!(listener.set_alpn(b"h3"), Err(Errno::EINVAL), "it listens all the same");
}

#[test]
fn flags_that_there_are_not_are_refused() {
    let (client, _server) = pair();
    let unknown = MsgFlags::from_bits(0x1);
    let info = Some(StreamInfo::new(0, NEW));
    assert_eq!(client.send_message(b"x", info, unknown), Err(Errno::EINVAL));
    assert_eq!(client.send_message(b"x", info, MsgFlags::PEEK), Err(Errno::EINVAL));
    let info = StreamInfo::new(0, StreamFlags::from_bits(0x1));
    assert_eq!(client.send_message(b"x", Some(info), MsgFlags::NONE), Err(Errno::EINVAL));
    assert_eq!(client.open_stream(info), Err(Errno::EINVAL));
    for harmless in [MsgFlags::NOSIGNAL, MsgFlags::WAITALL, MsgFlags::BATCH] {
        assert_eq!(client.send_message(b"x", None, harmless | NEW_FIN.into()), Ok(1));
    }
}

#[test]
fn streams_of_the_wrong_kind_are_refused() {
    let (client, server) = pair();
    for id in [1, 3, 5, -2, i64::MAX, i64::MIN] {
        assert_eq!(send(&client, b"x", id, NEW), Err(Errno::EINVAL), "{id}");
    }
    for id in [0, 2] {
        assert_eq!(send(&server, b"x", id, NEW), Err(Errno::EINVAL), "{id}");
    }
    assert_eq!(send(&client, b"x", 0, NONE), Err(Errno::EINVAL), "not open, and not to be opened");
    assert_eq!(send(&client, b"", 0, NEW), Err(Errno::EMSGSIZE));
    assert_eq!(send(&client, b"x", 0, NONE), Ok(1), "it is open all the same");
    assert_eq!(send(&client, b"x", 0, NEW), Err(Errno::EINVAL), "in use");
    assert_eq!(send(&client, b"x", 0, StreamFlags::FIN), Ok(1));
    assert_eq!(send(&client, b"x", 0, NONE), Err(Errno::EINVAL), "ended");
    assert_eq!(client.open_stream(StreamInfo::new(0, NONE)), Err(Errno::EINVAL));
    recv(&server);
    // A unidirectional stream is over for its sender once all is acknowledged.
    send(&client, b"x", 2, NEW_FIN).unwrap();
    recv(&server);
    settle(|| send(&client, b"x", 2, NONE) == Err(Errno::ENOSTR));
    assert_eq!(client.open_stream(StreamInfo::new(2, NONE)), Err(Errno::ENOSTR));
    assert_eq!(client.reset_stream(err(2)), Err(Errno::ENOSTR));
}

#[test]
fn resets_and_requests_to_stop_need_a_stream_for_it() {
    let (client, server, relay) = pair_by_relay(|_| ());
    assert_eq!(client.reset_stream(err(0)), Err(Errno::EINVAL), "not open");
    assert_eq!(client.reset_stream(err(1)), Err(Errno::EINVAL));
    assert_eq!(client.reset_stream(err(3)), Err(Errno::EINVAL), "the server's to send on");
    assert_eq!(client.stop_sending(err(0)), Err(Errno::EINVAL), "not open");
    assert_eq!(client.stop_sending(err(1)), Err(Errno::EINVAL));
    assert_eq!(client.stop_sending(err(2)), Err(Errno::EINVAL), "the client's to send on");
    send(&client, b"x", 0, NEW).unwrap();
    // The server answers a request to stop with a reset, after which there is nothing to ask for.
    relay.hold_to_client(true);
    assert_eq!(client.stop_sending(err(0)), Ok(()));
    assert_eq!(client.stop_sending(err(0)), Err(Errno::EAGAIN), "asked already");
    assert_eq!(client.reset_stream(err(0)), Ok(()));
    assert_eq!(client.reset_stream(err(0)), Err(Errno::EINVAL), "given up already");
    relay.hold_to_client(false);
    assert_eq!(send(&client, b"x", 0, NONE), Err(Errno::EINVAL));
    send(&client, b"x", 4, NEW_FIN).unwrap();
    settle(|| server.stop_sending(err(4)) == Err(Errno::EINVAL));
    recv(&server);
    send(&client, b"x", 2, NEW_FIN).unwrap();
    settle(|| server.stop_sending(err(2)) == Err(Errno::ENOSTR));
}

#[test]
fn tls_messages_need_a_level_with_keys() {
    let (listener, address) = listener();
    let client = socket();
    client.connect(address).unwrap();
    let none = MsgFlags::NONE;
    assert_eq!(client.send_handshake(b"x", CryptoLevel::Early, none), Err(Errno::EINVAL));
    assert_eq!(client.send_handshake(b"x", CryptoLevel::Handshake, none), Err(Errno::EINVAL));
    assert_eq!(client.send_handshake(b"x", CryptoLevel::App, none), Err(Errno::EINVAL));
    assert_eq!(client.send_handshake(b"", CryptoLevel::Initial, none), Err(Errno::EMSGSIZE));
    let unknown = MsgFlags::from_bits(0x1);
    assert_eq!(client.send_handshake(b"x", CryptoLevel::Initial, unknown), Err(Errno::EINVAL));
    let secret = |level, kind| CryptoSecret { send: 1, level, kind, secret: [0; 48] };
    assert_eq!(client.set_crypto_secret(&secret(1, 51)), Err(Errno::EINVAL), "Initial");
    assert_eq!(client.set_crypto_secret(&secret(4, 51)), Err(Errno::EINVAL));
    assert_eq!(client.set_crypto_secret(&secret(2, 55)), Err(Errno::EINVAL), "no such cipher");
    assert_eq!(client.set_transport_param_ext(&[0; 513]), Err(Errno::EINVAL));
    // Early data without a session to tell the limits.
    assert_eq!(send(&client, b"x", 0, NEW), Err(Errno::EINVAL));
    drop(listener);
}

#[test]
fn a_closed_socket_reports_what_waits_and_then_that_it_is_closed() {
    let (client, server) = pair();
    send(&client, b"last words", 0, NEW_FIN).unwrap();
    settle(|| server.bytes_to_receive() == Ok(10));
    client.shutdown(Shutdown::Both).unwrap();
    assert_eq!(send(&client, b"x", 4, NEW), Err(Errno::EPIPE));
    assert_eq!(client.open_stream(StreamInfo::new(-1, NONE)), Err(Errno::EPIPE));
    assert_eq!(client.update_keys(), Err(Errno::EPIPE));
    assert_eq!(client.reset_stream(err(0)), Err(Errno::EINVAL));
    settle(|| server.poll_state().hup);
    assert_eq!(recv(&server).0, b"last words");
    let mut buffer = [0; 8];
    assert_eq!(server.recv_message(&mut buffer, MsgFlags::NONE), Err(Errno::ENOTCONN));
    assert_eq!(send(&server, b"x", 1, NEW), Err(Errno::EPIPE));
    assert_eq!(server.session_ticket(), Err(Errno::EPIPE));
}

#[test]
fn a_message_without_a_stream_does_not_go_to_one_that_was_given_up() {
    let (client, server) = pair();
    // By this side ...
    client.send_message(b"a", None, StreamFlags::NEW.into()).unwrap();
    recv(&server);
    client.reset_stream(err(0)).unwrap();
    client.send_message(b"b", None, StreamFlags::NEW.into()).unwrap();
    let (data, message) = recv(&server);
    let MessageKind::Stream(info) = message.kind else { panic!("{message:?}") };
    assert_eq!((&data[..], info.stream_id), (&b"b"[..], 4));
    // ... and by the peer, who wants no more.
    server.stop_sending(err(4)).unwrap();
    settle(|| client.send_message(b"c", None, MsgFlags::NONE).is_err());
    client.send_message(b"d", None, StreamFlags::NEW.into()).unwrap();
    settle(|| matches!(recv(&server).1.kind, MessageKind::Stream(info) if info.stream_id == 8));
}

/// RFC 9000, Section 14.2.1: ICMP says so at once.
#[test]
fn where_nobody_listens_the_connection_is_refused() {
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let socket = socket();
    socket.connect(closed).unwrap();
    let refused = socket.connect_tls(Tls::new().client("test"), "localhost");
    assert_eq!(refused, Err(Errno::ECONNREFUSED));
}
