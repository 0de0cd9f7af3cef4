//! Data of streams and datagrams, both ways.

use quicket::message::{
    Errno, MessageKind, MsgFlags, Socket, StreamFlags, StreamInfo, TransportParam,
};

use crate::pair::{NEW, NEW_FIN, pair, pair_with, recv, send, settle};

fn stream(id: i64, flags: StreamFlags) -> MessageKind {
    MessageKind::Stream(StreamInfo::new(id, flags))
}

#[test]
fn a_request_is_answered_on_its_stream() {
    let (client, server) = pair();
    assert!(client.is_established() && server.is_established());
    assert_eq!(client.negotiated_alpn().as_deref(), Some(&b"test"[..]));
    assert_eq!(send(&client, b"request", 0, NEW_FIN), Ok(7));
    let (request, message) = recv(&server);
    assert_eq!(request, b"request");
    assert_eq!(message.kind, stream(0, StreamFlags::FIN));
    // Without a stream the answer goes to the latest one.
    assert_eq!(server.send_message(b"answer", None, StreamFlags::FIN.into()), Ok(6));
    let (answer, message) = recv(&client);
    assert_eq!(answer, b"answer");
    assert_eq!(message.kind, stream(0, StreamFlags::FIN));
    settle(|| send(&client, b"x", 0, StreamFlags::NONE) == Err(Errno::ENOSTR));
}

#[test]
fn flags_without_a_stream_go_to_the_latest_open_one_and_open_the_next_after_its_end() {
    let (client, server) = pair();
    let flags = |flags: StreamFlags| MsgFlags::from(flags);
    assert_eq!(client.send_message(b"quic ", None, flags(StreamFlags::NEW)), Ok(5));
    let again = client.send_message(b"x", None, flags(StreamFlags::NEW));
    assert_eq!(again, Err(Errno::EINVAL), "the latest one is still open");
    assert_eq!(client.send_message(b"test", None, flags(StreamFlags::FIN)), Ok(4));
    assert_eq!(read_stream(&server), (b"quic test".to_vec(), 0));
    let uni = StreamFlags::NEW | StreamFlags::FIN | StreamFlags::UNI;
    assert_eq!(client.send_message(b"uni", None, flags(uni)), Ok(3));
    assert_eq!(read_stream(&server), (b"uni".to_vec(), 2));
    assert_eq!(client.send_message(b"next", None, flags(NEW_FIN)), Ok(4));
    assert_eq!(read_stream(&server), (b"next".to_vec(), 4));
    // No stream is open, and none is opened without being asked for.
    assert_eq!(client.send_message(b"x", None, MsgFlags::NONE), Err(Errno::EINVAL));
}

#[test]
fn a_stream_with_a_higher_number_opens_those_below() {
    let (client, server) = pair();
    assert_eq!(send(&client, b"far", 40, NEW_FIN), Ok(3));
    assert_eq!(read_stream(&server), (b"far".to_vec(), 40));
    assert_eq!(send(&client, b"near", 8, StreamFlags::FIN), Ok(4), "open by the other");
    assert_eq!(read_stream(&server), (b"near".to_vec(), 8));
    assert_eq!(send(&client, b"own", 12, StreamFlags::NEW), Ok(3), "open and unused");
    let own = client.open_stream(StreamInfo::new(-1, StreamFlags::NONE)).unwrap();
    assert_eq!(own.stream_id, 44);
    let own = client.open_stream(StreamInfo::new(-1, StreamFlags::UNI)).unwrap();
    assert_eq!(own.stream_id, 2);
    let same = client.open_stream(StreamInfo::new(2, StreamFlags::NONE)).unwrap();
    assert_eq!(same.stream_id, 2);
}

#[test]
fn data_of_streams_is_never_mixed_and_comes_in_turn() {
    let (client, server) = pair();
    for round in 0..3 {
        for id in [0, 4, 8] {
            let flags = if round == 0 { StreamFlags::NEW } else { StreamFlags::NONE };
            send(&client, &[id as u8; 100], id, flags).unwrap();
        }
    }
    settle(|| server.bytes_to_receive() == Ok(900));
    let mut seen = Vec::new();
    let mut left = [300; 3];
    let mut buffer = [0; 60];
    while left != [0; 3] {
        let message = server.recv_message(&mut buffer, MsgFlags::NONE).unwrap();
        let MessageKind::Stream(info) = message.kind else { panic!("{message:?}") };
        assert!(message.len > 0 && !message.eor);
        assert!(buffer[..message.len].iter().all(|byte| i64::from(*byte) == info.stream_id));
        left[(info.stream_id / 4) as usize] -= message.len;
        seen.push(info.stream_id);
    }
    seen.dedup();
    assert_eq!(seen, [0, 4, 8]);
}

#[test]
fn a_stream_with_much_to_read_does_not_starve_others() {
    let (client, server) = pair();
    send(&client, &[1; 4000], 0, NEW).unwrap();
    send(&client, &[2; 10], 4, NEW).unwrap();
    settle(|| server.bytes_to_receive() == Ok(4010));
    let mut buffer = [0; 1000];
    assert_eq!(server.recv_message(&mut buffer, MsgFlags::NONE).unwrap().len, 1000);
    send(&client, &[1; 4000], 0, StreamFlags::NONE).unwrap();
    settle(|| server.bytes_to_receive() == Ok(7010));
    let mut before_other = 1000;
    loop {
        let message = server.recv_message(&mut buffer, MsgFlags::NONE).unwrap();
        if message.kind == stream(4, StreamFlags::NONE) {
            break;
        }
        before_other += message.len;
    }
    assert!(before_other <= 4000, "what came later went first: {before_other}");
}

#[test]
fn peeking_leaves_the_message_where_it_is() {
    let (client, server) = pair();
    send(&client, b"peek at me", 0, NEW_FIN).unwrap();
    let mut buffer = [0; 64];
    for _ in 0..2 {
        let message = server.recv_message(&mut buffer, MsgFlags::PEEK).unwrap();
        assert_eq!(&buffer[..message.len], b"peek at me");
        assert_eq!(message.kind, stream(0, StreamFlags::FIN));
    }
    let message = server.recv_message(&mut buffer[..4], MsgFlags::PEEK).unwrap();
    assert_eq!((message.len, message.kind), (4, stream(0, StreamFlags::NONE)));
    assert_eq!(read_stream(&server), (b"peek at me".to_vec(), 0));
}

#[test]
fn the_end_of_a_stream_can_come_alone() {
    let (client, server) = pair();
    send(&client, b"data", 0, NEW).unwrap();
    assert_eq!(recv(&server).0, b"data");
    assert_eq!(send(&client, b"", 0, StreamFlags::FIN), Ok(0));
    let (data, message) = recv(&server);
    assert_eq!((data, message.kind), (vec![], stream(0, StreamFlags::FIN)));
    assert_eq!(send(&client, b"", 4, NEW_FIN), Ok(0), "a stream of nothing");
    assert_eq!(recv(&server).1.kind, stream(4, StreamFlags::FIN));
}

#[test]
fn more_to_follow_holds_small_data_back() {
    let (client, server) = pair();
    settle(|| client.bytes_to_send() == Ok(0));
    send_more(&client, b"part one, ", 0, NEW);
    assert_eq!(client.bytes_unsent(), Ok(10));
    // Other packets go to and fro meanwhile.
    for text in [&b"to"[..], b"fro"] {
        server.send_message(text, Some(StreamInfo::new(-1, NEW_FIN)), MsgFlags::NONE).unwrap();
        assert_eq!(recv(&client).0, text);
    }
    settle(|| server.bytes_to_send() == Ok(0));
    assert_eq!(client.bytes_unsent(), Ok(10), "it waits");
    assert_eq!(server.bytes_to_receive(), Ok(0));
    send(&client, b"part two", 0, StreamFlags::FIN).unwrap();
    assert_eq!(recv(&server).0, b"part one, part two");
}

fn send_more(socket: &Socket, data: &[u8], id: i64, flags: StreamFlags) {
    let info = Some(StreamInfo::new(id, flags));
    assert_eq!(socket.send_message(data, info, MsgFlags::MORE), Ok(data.len()));
}

#[test]
fn datagrams_keep_their_boundaries_in_both_directions() {
    let takes = |socket: &Socket| {
        let param = TransportParam { max_datagram_frame_size: 1400, ..Default::default() };
        socket.set_transport_param(&param).unwrap();
    };
    let (client, server) = pair_with(takes, takes);
    for (from, to) in [(&client, &server), (&server, &client)] {
        for text in [&b"one"[..], b"two"] {
            assert_eq!(from.send_message(text, None, MsgFlags::DATAGRAM), Ok(3));
            let (data, message) = recv(to);
            assert_eq!((data.as_slice(), message.kind), (text, MessageKind::Datagram));
            assert!(message.eor);
            assert_eq!(message.flags(false), MsgFlags::DATAGRAM | MsgFlags::EOR);
        }
    }
    assert_eq!(client.send_message(&[0; 4096], None, MsgFlags::DATAGRAM), Err(Errno::EMSGSIZE));
    assert_eq!(client.send_message(b"", None, MsgFlags::DATAGRAM), Err(Errno::EMSGSIZE));
    assert_eq!(client.bytes_unsent(), Ok(0), "none of them waits");
    client.send_message(b"in pieces", None, MsgFlags::DATAGRAM).unwrap();
    let mut buffer = [0; 5];
    let first = server.recv_message(&mut buffer, MsgFlags::NONE).unwrap();
    assert_eq!((first.len, first.eor), (5, false));
    let second = server.recv_message(&mut buffer, MsgFlags::NONE).unwrap();
    assert_eq!((&buffer[..second.len], second.eor), (&b"eces"[..], true));
}

#[test]
fn datagrams_to_a_peer_that_takes_none_are_refused() {
    let (client, server) = pair();
    assert_eq!(client.send_message(b"x", None, MsgFlags::DATAGRAM), Err(Errno::EINVAL));
    assert_eq!(server.send_message(b"x", None, MsgFlags::DATAGRAM), Err(Errno::EINVAL));
}

#[test]
fn megabytes_go_both_ways_at_once_over_many_streams() {
    const STREAMS: usize = 8;
    const SIZE: usize = 1 << 20;
    let (client, server) = pair();
    let pattern = |id: usize, at: usize| (id * 31 + at * 7 + at / 251) as u8;
    let send_all = |socket: &Socket, first: usize| {
        std::thread::scope(|scope| {
            for number in 0..STREAMS {
                let socket = socket.clone();
                scope.spawn(move || {
                    let id = first + 4 * number;
                    let data: Vec<u8> = (0..SIZE).map(|at| pattern(id, at)).collect();
                    let id = id as i64;
                    assert_eq!(send(&socket, &data[..SIZE / 2], id, NEW), Ok(SIZE / 2));
                    assert_eq!(
                        send(&socket, &data[SIZE / 2..], id, StreamFlags::FIN),
                        Ok(SIZE / 2)
                    );
                });
            }
        });
    };
    let receive_all = |socket: &Socket| {
        let mut at = std::collections::HashMap::new();
        let (mut ended, mut buffer) = (0, vec![0; 30_000]);
        while ended < STREAMS {
            let message = socket.recv_message(&mut buffer, MsgFlags::NONE).unwrap();
            let MessageKind::Stream(info) = message.kind else { panic!("{message:?}") };
            let (id, at) = (info.stream_id as usize, at.entry(info.stream_id).or_insert(0));
            for byte in &buffer[..message.len] {
                assert_eq!(*byte, pattern(id, *at));
                *at += 1;
            }
            ended += usize::from(info.flags.contains(StreamFlags::FIN));
        }
        assert!(at.values().all(|at| *at == SIZE));
    };
    std::thread::scope(|scope| {
        scope.spawn(|| send_all(&client, 0));
        scope.spawn(|| send_all(&server, 1));
        scope.spawn(|| receive_all(&client));
        receive_all(&server);
    });
}

/// Reads one stream to its end.
fn read_stream(socket: &Socket) -> (Vec<u8>, i64) {
    let mut all = Vec::new();
    loop {
        let (data, message) = recv(socket);
        let MessageKind::Stream(info) = message.kind else { panic!("{message:?}") };
        all.extend(data);
        if info.flags.contains(StreamFlags::FIN) {
            return (all, info.stream_id);
        }
    }
}

/// Whether data and end come together is for packets to decide in the kernel. Here the end comes with
/// the last of the data if it is known by then, even if the buffer is full, else by itself.
#[test]
fn an_end_comes_with_the_last_data_if_it_is_known_and_else_by_itself() {
    let (client, server) = pair();
    let mut buffer = [0; 5];
    let mut receive = |flags: MsgFlags| {
        let message = server.recv_message(&mut buffer, flags)?;
        Ok((message.len, message.kind))
    };
    send(&client, b"first", 0, NEW).unwrap();
    settle(|| client.bytes_to_send() == Ok(0));
    send(&client, b"", 0, StreamFlags::FIN).unwrap();
    let whole: Result<_, Errno> = Ok((5, stream(0, StreamFlags::FIN)));
    settle(|| receive(MsgFlags::PEEK | MsgFlags::DONTWAIT) == whole);
    assert_eq!(receive(MsgFlags::NONE), whole);
    send(&client, b"again", 4, NEW).unwrap();
    assert_eq!(receive(MsgFlags::NONE), Ok((5, stream(4, StreamFlags::NONE))));
    send(&client, b"", 4, StreamFlags::FIN).unwrap();
    assert_eq!(receive(MsgFlags::NONE), Ok((0, stream(4, StreamFlags::FIN))));
}
