//! Notifications, one kind at a time.

use quicket::message::raw::{ErrInfo, StreamMaxData, StreamUpdate};
use quicket::message::{
    Config, Errno, EventType, MessageKind, MsgFlags, Notification, Shutdown, Socket, StreamFlags,
    StreamInfo, StreamState, TransportParam,
};

use crate::pair::{NEW, NEW_FIN, pair, pair_by_relay, pair_with, recv, send, settle};

/// The next message, which must be a notification.
#[track_caller]
fn told(socket: &Socket) -> Notification {
    let (bytes, message) = recv(socket);
    assert_eq!((message.kind, message.eor), (MessageKind::Notification, true), "{bytes:?}");
    Notification::from_bytes(&bytes).unwrap()
}

#[track_caller]
fn assert_nothing(socket: &Socket) {
    let mut buffer = [0; 256];
    let received = socket.recv_message(&mut buffer, MsgFlags::DONTWAIT);
    assert_eq!(received, Err(Errno::EAGAIN), "{:?}", Notification::from_bytes(&buffer));
}

fn update(id: i64, state: StreamState, errcode: u32, finalsz: u64) -> Notification {
    Notification::StreamUpdate(StreamUpdate { id, state: state.number(), errcode, finalsz })
}

#[test]
fn all_kinds_are_off_at_first_and_can_be_turned_off_again() {
    let (client, server) = pair();
    for number in 1..=9 {
        let kind = EventType::from_number(number).unwrap();
        assert!(!client.event(kind));
        client.set_event(kind, true);
        assert!(client.event(kind));
    }
    client.set_event(EventType::StreamUpdate, false);
    assert!(!client.event(EventType::StreamUpdate));
    send(&client, b"x", 0, NEW_FIN).unwrap();
    recv(&server);
    settle(|| client.bytes_to_send() == Ok(0));
    // Other kinds may have come: a ticket, a token.
    let mut buffer = [0; 4096];
    while let Ok(message) = client.recv_message(&mut buffer, MsgFlags::DONTWAIT) {
        let told = Notification::from_bytes(&buffer[..message.len]).unwrap();
        assert_ne!(told.event_type(), EventType::StreamUpdate);
    }
}

#[test]
fn a_stream_tells_its_steps_before_its_data() {
    let (client, server) = pair();
    for socket in [&client, &server] {
        socket.set_event(EventType::StreamUpdate, true);
    }
    send(&client, b"quic event test", 0, NEW_FIN).unwrap();
    assert_eq!(told(&server), update(0, StreamState::Recv, 0, 0));
    assert_eq!(told(&server), update(0, StreamState::RecvRecvd, 0, 15));
    assert_eq!(recv(&server).0, b"quic event test");
    assert_eq!(told(&client), update(0, StreamState::SendRecvd, 0, 0));
    server.send_message(b"back", None, StreamFlags::FIN.into()).unwrap();
    assert_eq!(told(&client), update(0, StreamState::Recv, 0, 0));
    assert_eq!(told(&client), update(0, StreamState::RecvRecvd, 0, 4));
    assert_eq!(recv(&client).0, b"back");
    assert_eq!(told(&server), update(0, StreamState::SendRecvd, 0, 0));
}

#[test]
fn a_reset_is_told_on_both_sides_and_drops_what_waits() {
    let (client, server) = pair();
    for socket in [&client, &server] {
        socket.set_event(EventType::StreamUpdate, true);
    }
    send(&client, b"given up", 2, NEW).unwrap();
    assert_eq!(told(&server), update(2, StreamState::Recv, 0, 0));
    settle(|| client.bytes_to_send() == Ok(0));
    client.reset_stream(ErrInfo { stream_id: 2, errcode: 7 }).unwrap();
    assert_eq!(told(&client), update(2, StreamState::SendResetRecvd, 7, 8));
    assert_eq!(told(&server), update(2, StreamState::RecvResetRecvd, 7, 8));
    assert_nothing(&server);
}

#[test]
fn a_request_to_stop_is_answered_by_a_reset() {
    let (client, server) = pair();
    for socket in [&client, &server] {
        socket.set_event(EventType::StreamUpdate, true);
    }
    send(&client, b"unwanted", 2, NEW).unwrap();
    assert_eq!(told(&server), update(2, StreamState::Recv, 0, 0));
    server.stop_sending(ErrInfo { stream_id: 2, errcode: 9 }).unwrap();
    assert_eq!(told(&client), update(2, StreamState::SendResetSent, 9, 8));
    assert_eq!(told(&client), update(2, StreamState::SendResetRecvd, 9, 8));
    assert_eq!(told(&server), update(2, StreamState::RecvResetRecvd, 9, 8));
    assert_eq!(send(&client, b"x", 2, StreamFlags::NONE), Err(Errno::ENOSTR));
}

#[test]
fn what_came_before_a_request_to_stop_can_be_received_and_nothing_after_it() {
    let (client, server, relay) = pair_by_relay(|socket| {
        socket.set_config(&Config { stream_data_nodelay: 1, ..Config::default() }).unwrap();
    });
    server.set_event(EventType::StreamUpdate, true);
    send(&client, b"still good", 0, NEW).unwrap();
    assert_eq!(told(&server), update(0, StreamState::Recv, 0, 0));
    relay.hold_to_client(true);
    server.stop_sending(ErrInfo { stream_id: 0, errcode: 9 }).unwrap();
    // The client does not know yet.
    send(&client, b" too late", 0, StreamFlags::NONE).unwrap();
    send(&client, b"another", 4, NEW_FIN).unwrap();
    settle(|| server.bytes_to_receive() == Ok(2 * 25 + 17));
    assert_eq!(told(&server), update(4, StreamState::Recv, 0, 0));
    assert_eq!(told(&server), update(4, StreamState::RecvRecvd, 0, 7));
    assert_eq!(server.bytes_to_receive(), Ok(17));
    assert_eq!(recv(&server).0, b"still good");
    assert_eq!(recv(&server).0, b"another");
    assert_nothing(&server);
    relay.hold_to_client(false);
    assert_eq!(told(&server), update(0, StreamState::RecvResetRecvd, 9, 19));
    assert_nothing(&server);
}

#[test]
fn raised_limits_are_told() {
    let (client, server) = pair_with(
        |_| (),
        |socket| {
            let param = TransportParam {
                max_stream_data_uni: 2000,
                max_streams_uni: 2,
                max_streams_bidi: 2,
                ..TransportParam::default()
            };
            socket.set_transport_param(&param).unwrap();
        },
    );
    client.set_event(EventType::StreamMaxData, true);
    client.set_event(EventType::StreamMaxStream, true);
    send(&client, &[1; 2000], 2, NEW).unwrap();
    settle(|| server.bytes_to_receive() == Ok(2000));
    recv(&server);
    let limit = StreamMaxData { id: 2, max_data: 4000 };
    assert_eq!(told(&client), Notification::StreamMaxData(limit));
    send(&client, b"", 2, StreamFlags::FIN).unwrap();
    recv(&server);
    assert_eq!(told(&client), Notification::StreamMaxStream(10), "the third of its kind");
    send(&client, b"x", 0, NEW_FIN).unwrap();
    recv(&server);
    server.send_message(b"", None, StreamFlags::FIN.into()).unwrap();
    settle(|| client.bytes_to_receive() == Ok(9));
    assert_eq!(told(&client), Notification::StreamMaxStream(8));
    assert_eq!(recv(&client).1.len, 0);
}

#[test]
fn the_end_is_told_with_its_reason_and_stays_to_be_asked_for() {
    for server_ends in [false, true] {
        let (client, server) = pair();
        let (one, other) = if server_ends { (server, client) } else { (client, server) };
        other.set_event(EventType::ConnectionClose, true);
        let close = quicket::message::ConnectionClose::new(10, 1, b"this is app err");
        one.set_connection_close(&close);
        let kept = one.connection_close();
        assert_eq!((kept.errcode, kept.frame, kept.words()), (10, 0, &b"this is app err"[..]));
        one.shutdown(Shutdown::Both).unwrap();
        let Notification::ConnectionClose(told) = told(&other) else { panic!() };
        assert_eq!(told, kept);
        assert_eq!(other.connection_close(), kept);
        let mut buffer = [0; 8];
        assert_eq!(other.recv_message(&mut buffer, MsgFlags::NONE), Err(Errno::ENOTCONN));
    }
}

#[test]
fn silence_is_told_without_a_reason() {
    let (client, server) = pair_with(
        |socket| {
            let param = TransportParam { max_idle_timeout: 1_000_000, ..Default::default() };
            socket.set_transport_param(&param).unwrap();
        },
        |_| (),
    );
    client.set_event(EventType::ConnectionClose, true);
    server.set_event(EventType::ConnectionClose, true);
    let none = quicket::message::ConnectionClose::default();
    assert_eq!(told(&client), Notification::ConnectionClose(none));
    assert_eq!(told(&server), Notification::ConnectionClose(none));
    assert!(client.poll_state().hup);
}

#[test]
fn a_key_update_of_the_peer_is_told_and_ones_own_is_not() {
    let (client, server) = pair();
    for socket in [&client, &server] {
        socket.set_event(EventType::KeyUpdate, true);
    }
    settle(|| client.update_keys() == Ok(()));
    send(&client, b"x", 0, NEW).unwrap();
    assert_eq!(told(&server), Notification::KeyUpdate(1));
    assert_eq!(recv(&server).0, b"x");
    settle(|| client.bytes_to_send() == Ok(0));
    assert_nothing(&client);
    settle(|| server.update_keys() == Ok(()));
    server.send_message(b"y", None, MsgFlags::NONE).unwrap();
    assert_eq!(told(&client), Notification::KeyUpdate(0));
    assert_eq!(recv(&client).0, b"y");
}

#[test]
fn tokens_and_tickets_are_told() {
    let (client, server) = pair_with(
        |socket| {
            socket.set_event(EventType::NewToken, true);
            socket.set_event(EventType::NewSessionTicket, true);
        },
        |_| (),
    );
    let (mut tokens, mut tickets) = (Vec::new(), Vec::new());
    while tokens.is_empty() || tickets.is_empty() {
        match told(&client) {
            Notification::NewToken(token) => tokens.push(token),
            Notification::NewSessionTicket(ticket) => tickets.push(ticket),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(client.token().as_ref(), Ok(&tokens[0]));
    settle(|| server.set_token(b"") == Ok(()));
    loop {
        if let Notification::NewToken(token) = told(&client) {
            assert_ne!(token, tokens[0]);
            assert_eq!(client.token(), Ok(token));
            break;
        }
    }
    assert!(!client.session_ticket().unwrap().is_empty());
}

#[test]
fn what_a_listener_wants_to_be_told_its_connections_do_too() {
    let (client, server) =
        pair_with(|_| (), |socket| socket.set_event(EventType::StreamUpdate, true));
    assert!(server.event(EventType::StreamUpdate) && !server.event(EventType::KeyUpdate));
    send(&client, b"x", 0, NEW).unwrap();
    assert_eq!(told(&server), update(0, StreamState::Recv, 0, 0));
}

#[test]
fn a_missing_piece_shows_as_a_known_size() {
    let (client, server, relay) = pair_by_relay(|socket| {
        socket.set_config(&Config { stream_data_nodelay: 1, ..Config::default() }).unwrap();
    });
    server.set_event(EventType::StreamUpdate, true);
    settle(|| client.bytes_to_send() == Ok(0));
    relay.drop_below(900);
    send(&client, b"head", 2, NEW).unwrap();
    send(&client, &[7; 1000], 2, StreamFlags::FIN).unwrap();
    assert_eq!(told(&server), update(2, StreamState::Recv, 0, 0));
    assert_eq!(told(&server), update(2, StreamState::RecvSizeKnown, 0, 1004));
    relay.drop_below(0);
    assert_eq!(told(&server), update(2, StreamState::RecvRecvd, 0, 1004));
    let (data, message) = recv(&server);
    assert_eq!((&data[..5], data.len()), (&b"head\x07"[..], 1004));
    assert_eq!(message.kind, MessageKind::Stream(StreamInfo::new(2, StreamFlags::FIN)));
}
