//! Limits of the peer: waiting for them, and not.

use std::time::Duration;

use quicket::message::{
    Config, Errno, EventType, MsgFlags, Notification, Socket, StreamFlags, StreamInfo,
    TransportParam,
};

use crate::pair::{NEW, NEW_FIN, pair, pair_with, recv, send, settle};

/// Lets the peer send little at a time.
fn tight(socket: &Socket) {
    let param = TransportParam {
        max_data: 8000,
        max_stream_data_bidi_local: 2000,
        max_stream_data_bidi_remote: 2000,
        max_stream_data_uni: 3000,
        max_streams_bidi: 2,
        max_streams_uni: 1,
        ..TransportParam::default()
    };
    socket.set_transport_param(&param).unwrap();
}

fn try_send(socket: &Socket, data: &[u8], info: Option<StreamInfo>) -> Result<usize, Errno> {
    socket.send_message(data, info, MsgFlags::DONTWAIT)
}

#[test]
fn without_waiting_what_fits_is_taken_and_then_nothing() {
    let (client, server) = pair_with(|_| (), tight);
    let info = |id, flags| Some(StreamInfo::new(id, flags));
    assert_eq!(try_send(&client, &[1; 5000], info(0, NEW)), Ok(2000), "the stream's limit");
    assert_eq!(try_send(&client, b"x", info(0, StreamFlags::NONE)), Err(Errno::ENOSPC));
    assert_eq!(try_send(&client, b"x", None), Err(Errno::EAGAIN), "no stream was named");
    let uni = NEW | StreamFlags::UNI;
    assert_eq!(try_send(&client, &[2; 5000], info(2, uni)), Ok(3000));
    settle(|| server.bytes_to_receive() == Ok(5000));
    recv(&server);
    settle(|| try_send(&client, b"x", info(0, StreamFlags::NONE)) == Ok(1));
}

#[test]
fn the_limit_of_all_streams_holds_too() {
    let (client, server) = pair_with(
        |_| (),
        |socket| {
            let param = TransportParam { max_data: 3000, ..TransportParam::default() };
            socket.set_transport_param(&param).unwrap();
        },
    );
    let info = |id, flags| Some(StreamInfo::new(id, flags));
    assert_eq!(try_send(&client, &[1; 2500], info(0, NEW)), Ok(2500));
    assert_eq!(try_send(&client, &[1; 2500], info(4, NEW)), Ok(500));
    assert!(!client.poll_state().writable);
    settle(|| server.bytes_to_receive() == Ok(3000));
    while server.bytes_to_receive() != Ok(0) {
        recv(&server);
    }
    settle(|| client.poll_state().writable);
}

#[test]
fn waiting_sends_all_as_limits_are_raised() {
    let (client, server) = pair_with(|_| (), tight);
    let data: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
    let received = std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(send(&client, &data, 0, NEW_FIN), Ok(data.len())));
        let mut all = Vec::new();
        while all.len() < data.len() {
            all.extend(recv(&server).0);
        }
        all
    });
    assert!(received == data);
}

#[test]
fn waiting_for_room_ends_with_the_time_for_it() {
    let (client, _server) = pair_with(|_| (), tight);
    client.set_send_timeout(Some(Duration::from_millis(30)));
    assert_eq!(send(&client, &[1; 5000], 0, NEW), Ok(2000), "what was taken counts");
    assert_eq!(send(&client, &[1; 5000], 0, StreamFlags::NONE), Err(Errno::ENOSPC));
    assert_eq!(client.send_message(b"x", None, MsgFlags::NONE), Err(Errno::EAGAIN));
}

#[test]
fn streams_beyond_the_limit_wait_or_do_not() {
    let (client, server) = pair_with(|_| (), tight);
    for id in [0, 4] {
        send(&client, b"x", id, NEW_FIN).unwrap();
    }
    let dontwait = NEW_FIN | StreamFlags::DONTWAIT;
    assert_eq!(send(&client, b"x", 8, dontwait), Err(Errno::EAGAIN));
    let flags = StreamFlags::DONTWAIT;
    assert_eq!(client.open_stream(StreamInfo::new(8, flags)), Err(Errno::EAGAIN));
    assert_eq!(client.open_stream(StreamInfo::new(6, flags)), Err(Errno::EAGAIN));
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(send(&client, b"late", 8, NEW_FIN), Ok(4)));
        for _ in 0..2 {
            let (_, message) = recv(&server);
            let quicket::message::MessageKind::Stream(info) = message.kind else { panic!() };
            // The client's limit rises once the stream is closed on both sides.
            send(&server, b"", info.stream_id, StreamFlags::FIN).unwrap();
            recv(&client);
        }
        assert_eq!(recv(&server).0, b"late");
    });
}

#[test]
fn the_peer_is_told_of_limits_on_request_and_answers() {
    let (client, server) = pair_with(|_| (), tight);
    client.set_event(EventType::StreamMaxData, true);
    let told = |flags| {
        let info = Some(StreamInfo::new(0, flags));
        try_send(&client, &[1; 4000], info)
    };
    assert_eq!(told(NEW), Ok(2000));
    settle(|| server.bytes_to_receive() == Ok(2000));
    let mut buffer = [0; 500];
    // Too little is read for the limit to rise by itself.
    server.recv_message(&mut buffer, MsgFlags::NONE).unwrap();
    assert_eq!(told(StreamFlags::SNDBLOCK), Err(Errno::ENOSPC));
    let (bytes, _) = recv(&client);
    let Some(Notification::StreamMaxData(limit)) = Notification::from_bytes(&bytes) else {
        panic!("{bytes:?}")
    };
    assert_eq!((limit.id, limit.max_data), (0, 2500));
}

#[test]
fn small_data_waits_for_what_is_in_flight_unless_told_not_to() {
    for nodelay in [false, true] {
        let (client, server) = pair_with(
            |socket| {
                let stream_data_nodelay = u8::from(nodelay);
                socket.set_config(&Config { stream_data_nodelay, ..Config::default() }).unwrap();
            },
            |_| (),
        );
        settle(|| client.bytes_to_send() == Ok(0));
        send(&client, b"x", 0, NEW).unwrap();
        let mut count = 1;
        let mut waits = || {
            count += 1;
            send(&client, b"x", 0, StreamFlags::NONE).unwrap();
            client.bytes_unsent().unwrap() > 0
        };
        if nodelay {
            assert!((0..5).all(|_| !waits()));
        } else {
            // Nearly always the one before is still in flight.
            settle(waits);
        }
        settle(|| server.bytes_to_receive() == Ok(count));
    }
}

#[test]
fn nothing_comes_in_time() {
    let (client, _server) = pair();
    let mut buffer = [0; 8];
    assert_eq!(client.recv_message(&mut buffer, MsgFlags::DONTWAIT), Err(Errno::EAGAIN));
    client.set_receive_timeout(Some(Duration::from_millis(20)));
    assert_eq!(client.recv_message(&mut buffer, MsgFlags::NONE), Err(Errno::EAGAIN));
    client.set_nonblocking(true);
    client.set_receive_timeout(None);
    assert_eq!(client.recv_message(&mut buffer, MsgFlags::NONE), Err(Errno::EAGAIN));
}
