//! What the application hears, and when.

use alloc::vec;

use quicket_wire::frame::{MaxData, MaxStreamData};
use quicket_wire::varint;

use super::super::{ReadOutcome, StreamEvent, WriteError};
use super::*;

/// Send buffers that hold more than windows let go, but for a little.
fn bounded() -> StreamsConfig {
    StreamsConfig {
        stream_send_buffer: 1 << 20,
        send_buffer: 1 << 20,
        send_ahead: 16 << 10,
        ..config()
    }
}

/// The peer lets a stream send up to `maximum`.
fn raise(streams: &mut Streams, id: StreamId, maximum: u64) {
    streams.on_max_stream_data(&MaxStreamData { id, maximum }).unwrap();
}

fn events(streams: &mut Streams) -> Vec<StreamEvent> {
    core::iter::from_fn(|| streams.poll_event()).collect()
}

#[test]
fn many_causes_make_one_event() {
    let (mut client, mut server) = pair(config());
    let id = client.open(Dir::Uni).unwrap();
    let other = client.open(Dir::Uni).unwrap();
    client.write(id, b"a").unwrap();
    client.write(other, b"a").unwrap();
    flush(&mut client, &mut server);
    assert_eq!(events(&mut server), [StreamEvent::Opened { dir: Dir::Uni }]);
    assert_eq!(server.accept(Dir::Uni), Some(id));
    for _ in 0..5 {
        client.write(id, b"more").unwrap();
        flush(&mut client, &mut server);
    }
    assert_eq!(events(&mut server), [StreamEvent::Readable { id }]);
    assert_eq!(read_all(&mut server, id).0.len(), 21);
    assert_eq!(events(&mut server), []);
}

#[test]
fn data_behind_a_gap_is_no_event() {
    let (_, mut server) = pair(config());
    let id = client_stream(Dir::Uni, 0);
    server.on_stream(&stream_frame(id, 5, b"late", false)).unwrap();
    server.accept(Dir::Uni);
    events(&mut server);
    server.on_stream(&stream_frame(id, 9, b"later", false)).unwrap();
    assert_eq!(events(&mut server), []);
    server.on_stream(&stream_frame(id, 0, b"first", false)).unwrap();
    assert_eq!(events(&mut server), [StreamEvent::Readable { id }]);
}

#[test]
fn a_reset_is_read_once() {
    let (mut client, mut server) = pair(config());
    let id = client.open(Dir::Uni).unwrap();
    client.write(id, b"abc").unwrap();
    flush(&mut client, &mut server);
    server.accept(Dir::Uni);
    events(&mut server);
    client.reset(id, 77).unwrap();
    assert_eq!(client.write(id, b"x"), Err(WriteError::ClosedStream));
    flush(&mut client, &mut server);
    assert_eq!(events(&mut server), [StreamEvent::Readable { id }]);
    assert_eq!(server.peek(id), Err(ReadError::Reset(77)));
    assert_eq!(server.read(id, &mut [0; 9]), Err(ReadError::Reset(77)));
    assert_eq!(server.read(id, &mut [0; 9]), Err(ReadError::ClosedStream));
    assert_eq!(server.len(), 0);
}

#[test]
fn codes_too_large_for_a_frame_are_sent_as_the_largest() {
    // RFC 9000, Section 16
    let (mut client, mut server) = pair(config());
    let id = client.open(Dir::Bidi).unwrap();
    client.reset(id, u64::MAX).unwrap();
    client.stop_sending(id, u64::MAX).unwrap();
    flush(&mut client, &mut server);
    server.accept(Dir::Bidi);
    assert_eq!(server.read(id, &mut [0; 9]), Err(ReadError::Reset(varint::MAX)));
    assert_eq!(server.write(id, b"x"), Err(WriteError::Stopped(varint::MAX)));
}

#[test]
fn a_stream_that_was_stopped_before_it_was_accepted_says_so_then() {
    let (mut client, mut server) = pair(config());
    let id = client.open(Dir::Bidi).unwrap();
    client.write(id, b"abc").unwrap();
    client.finish(id).unwrap();
    client.stop_sending(id, 7).unwrap();
    flush(&mut client, &mut server);
    assert_eq!(events(&mut server), [StreamEvent::Opened { dir: Dir::Bidi }]);
    flush(&mut server, &mut client);
    assert_eq!(server.accept(Dir::Bidi), Some(id));
    assert_eq!(events(&mut server), [StreamEvent::Stopped { id, code: 7 }]);
    assert_eq!(read_all(&mut server, id).0, b"abc");
}

#[test]
fn finished_is_said_once_everything_is_acknowledged() {
    let (mut client, mut server) = pair(config());
    let id = client.open(Dir::Uni).unwrap();
    client.write(id, &[1; 3000]).unwrap();
    client.finish(id).unwrap();
    assert_eq!(client.finish(id), Err(WriteError::ClosedStream));
    let mut sent = Vec::new();
    while client.has_pending() {
        let packet = packet_of(&mut client, PACKET);
        receive_all(&mut server, &packet);
        sent.extend(packet.sent);
    }
    acked(&mut client, &sent[1..]);
    assert_eq!(events(&mut client), []);
    assert_eq!(client.bytes_unacked(id), Ok(3000));
    acked(&mut client, &sent[..1]);
    assert_eq!(client.len(), 1, "kept for its event");
    assert_eq!(events(&mut client), [StreamEvent::Finished { id }]);
    assert_eq!((client.len(), client.held()), (0, 0));
}

#[test]
fn stop_sending_reaches_the_writer_and_brings_a_reset_back() {
    // RFC 9000, Section 3.5
    let (mut client, mut server) = pair(config());
    let id = client.open(Dir::Bidi).unwrap();
    client.write(id, b"abc").unwrap();
    flush(&mut client, &mut server);
    server.accept(Dir::Bidi);
    server.stop_sending(id, 5).unwrap();
    assert_eq!(server.read(id, &mut [0; 4]), Err(ReadError::ClosedStream));
    client.write(id, b"in vain").unwrap();
    flush(&mut server, &mut client);
    assert_eq!(events(&mut client), [StreamEvent::Stopped { id, code: 5 }]);
    assert_eq!(client.write(id, b"x"), Err(WriteError::Stopped(5)));
    assert_eq!(client.finish(id), Err(WriteError::Stopped(5)));
    let packet = packet_of(&mut client, PACKET);
    let resets = packet.frames();
    let [Frame::ResetStream(reset)] = resets[..] else { panic!("{resets:?}") };
    assert_eq!((reset.error_code, reset.final_size), (5, 3));
    receive_all(&mut server, &packet);
    assert_eq!(events(&mut server), [], "who wants no more hears no more");
    server.finish(id).unwrap();
    flush(&mut server, &mut client);
    events(&mut server);
    assert_eq!(server.len(), 0);
}

#[test]
fn a_writer_waits_for_a_quarter_of_its_buffer() {
    let (mut client, mut server) = pair(StreamsConfig { stream_send_buffer: 4000, ..config() });
    let id = client.open(Dir::Uni).unwrap();
    assert_eq!(client.send_capacity(id), Ok(4000));
    assert_eq!(client.write(id, &[0; 5000]), Ok(4000));
    assert_eq!(client.write(id, b"x"), Err(WriteError::Blocked));
    let first = packet_of(&mut client, 700);
    receive_all(&mut server, &first);
    acked(&mut client, &first.sent);
    assert_eq!(events(&mut client), []);
    let second = packet_of(&mut client, 700);
    acked(&mut client, &second.sent);
    assert_eq!(events(&mut client), [StreamEvent::Writable { id }]);
    assert!(client.send_capacity(id).unwrap() >= 1000);
    let third = packet_of(&mut client, 700);
    acked(&mut client, &third.sent);
    assert_eq!(events(&mut client), [], "nobody was refused since");
}

#[test]
fn writers_that_wait_for_the_common_buffer_are_all_woken() {
    let config = StreamsConfig { send_buffer: 4000, stream_send_buffer: 3000, ..config() };
    let (mut client, mut server) = pair(config);
    let ids: Vec<StreamId> = (0..3).map(|_| client.open(Dir::Uni).unwrap()).collect();
    assert_eq!(client.write(ids[0], &[0; 3000]), Ok(3000));
    assert_eq!(client.write(ids[1], &[0; 3000]), Ok(1000));
    assert_eq!(client.write(ids[2], &[0; 3000]), Err(WriteError::Blocked));
    flush(&mut client, &mut server);
    let woken = events(&mut client);
    assert_eq!(woken, [ids[1], ids[2]].map(|id| StreamEvent::Writable { id }));
    assert_eq!(client.held(), 0);
}

#[test]
fn streams_that_nobody_reads_leave_room_for_others_to_begin() {
    let config = StreamsConfig {
        send_buffer: 1 << 20,
        stream_send_buffer: 1 << 18,
        max_streams_uni: 20,
        ..config()
    };
    let (mut client, _) = pair(config);
    let greedy: Vec<StreamId> = (0..5).map(|_| client.open(Dir::Uni).unwrap()).collect();
    let data = vec![0; 1 << 20];
    let written: Vec<_> = greedy.iter().map(|id| client.write(*id, &data)).collect();
    let reserve = ((1 << 20) - (64 << 10)) / 8;
    assert_eq!(written[..3], [Ok(1 << 18); 3]);
    assert_eq!(written[3], Ok((1 << 18) - reserve));
    assert_eq!(written[4], Ok(16 << 10), "it begins, and has no more for now");
    assert_eq!(client.write(greedy[4], &data), Err(WriteError::Blocked));
    let others = (0..6).map(|_| client.open(Dir::Uni).unwrap());
    let others: Vec<StreamId> = others.collect();
    for id in &others {
        assert_eq!(client.write(*id, &[0; 1000]), Ok(1000));
    }
    assert!(client.held() < 1 << 20, "and others still");
    // One whose data arrives goes on, whatever becomes of the others.
    client.set_priority(greedy[4], 1).unwrap();
    let packet = packet_of(&mut client, 9000);
    acked(&mut client, &packet.sent);
    assert_eq!(events(&mut client), [StreamEvent::Writable { id: greedy[4] }]);
    assert!(client.write(greedy[4], &data).unwrap() >= 8 << 10);
}

#[test]
fn what_the_peer_does_not_let_a_stream_send_is_not_taken() {
    const AHEAD: usize = 16 << 10;
    let (mut client, mut server) = pair(bounded());
    let id = client.open(Dir::Uni).unwrap();
    // A window of 10,000, and what goes out as soon as the next one is there.
    assert_eq!(client.write(id, &[0; 100_000]), Ok(10_000 + AHEAD));
    assert_eq!(client.write(id, &[0]), Err(WriteError::Blocked));
    // It comes, and nobody reads it.
    flush(&mut client, &mut server);
    assert_eq!(events(&mut client), [], "there is no more credit than before");
    assert_eq!(client.send_capacity(id), Ok(0));
    // A little is not worth it: what waits can use it.
    raise(&mut client, id, 10_001);
    assert_eq!(events(&mut client), []);
    raise(&mut client, id, 10_000 + AHEAD as u64 / 2);
    assert_eq!(events(&mut client), [StreamEvent::Writable { id }]);
    assert_eq!(client.write(id, &[0; 100_000]), Ok(AHEAD / 2));
}

#[test]
fn what_the_peer_does_not_let_all_streams_send_is_not_taken() {
    let config = StreamsConfig { window: 5000, max_window: 5000, ..bounded() };
    let (mut client, mut server) = pair(config);
    let ids = [(); 2].map(|()| client.open(Dir::Uni).unwrap());
    for id in ids {
        assert_eq!(client.write(id, &[0; 100_000]), Ok(5000 + (16 << 10)));
    }
    flush(&mut client, &mut server);
    assert_eq!(events(&mut client), []);
    client.on_max_data(&MaxData { maximum: 50_000 }).unwrap();
    let woken = events(&mut client);
    assert_eq!(woken, ids.map(|id| StreamEvent::Writable { id }));
}

#[test]
fn what_a_stream_holds_follows_the_congestion_window() {
    let config = StreamsConfig {
        stream_window: 4 << 20,
        max_stream_window: 4 << 20,
        window: 4 << 20,
        max_window: 4 << 20,
        send_buffer: 4 << 20,
        ..bounded()
    };
    let (mut client, _) = pair(config);
    let (id, other) = (client.open(Dir::Uni).unwrap(), client.open(Dir::Uni).unwrap());
    client.set_congestion_window(12_000);
    let limit = 2 * 12_000 + (128 << 10);
    assert_eq!(client.write(id, &[0; 1 << 20]), Ok(limit));
    assert_eq!(client.write(id, &[0; 1]), Err(WriteError::Blocked));
    assert_eq!(client.write(other, &[0; 1 << 20]), Ok(limit), "of others nothing is taken");
    let packet = packet_of(&mut client, 60_000);
    client.set_congestion_window(24_000);
    acked(&mut client, &packet.sent);
    assert!(events(&mut client).contains(&StreamEvent::Writable { id }));
    // It falls, as after a loss: nothing is dropped, and there is no room until enough has been acknowledged.
    client.write(id, &[0; 1 << 20]).unwrap();
    client.set_congestion_window(0);
    assert_eq!(client.send_capacity(id), Ok(0));
    client.set_congestion_window(u64::MAX);
    assert!(client.send_capacity(id).unwrap() > 1 << 19);
}

#[test]
fn streams_that_nobody_reads_hold_up_no_other() {
    let config =
        StreamsConfig { max_streams_uni: 100, window: 1 << 20, max_window: 1 << 20, ..bounded() };
    let (mut client, mut server) = pair(config);
    client.set_congestion_window(12_000);
    for _ in 0..40 {
        let id = client.open(Dir::Uni).unwrap();
        client.write(id, &[0; 100_000]).unwrap();
        assert_eq!(client.write(id, &[0]), Err(WriteError::Blocked));
    }
    flush(&mut client, &mut server);
    let id = client.open(Dir::Uni).unwrap();
    assert_eq!(client.write(id, &[0; 20_000]), Ok(20_000));
    raise(&mut client, id, 1 << 20);
    assert_eq!(client.write(id, &[0; 100_000]), Ok(100_000));
}

#[test]
fn without_any_credit_a_stream_takes_a_little() {
    let mut client = Streams::new(Side::Client, bounded(), 1);
    client.set_peer_limits(PeerLimits { initial_max_streams_uni: 1, ..PeerLimits::default() });
    let id = client.open(Dir::Uni).unwrap();
    assert_eq!(client.write(id, &[0; 100_000]), Ok(16 << 10));
    client.set_peer_limits(limits_of(&config()));
    assert_eq!(events(&mut client), [StreamEvent::Writable { id }]);
}

#[test]
fn a_writer_with_a_full_buffer_is_woken_even_when_others_fill_the_common_one() {
    let config = StreamsConfig { send_buffer: 4000, stream_send_buffer: 2000, ..config() };
    let (mut client, _) = pair(config);
    let (a, b) = (client.open(Dir::Uni).unwrap(), client.open(Dir::Uni).unwrap());
    assert_eq!(client.write(a, &[0; 2500]), Ok(2000));
    let of_a = packet_of(&mut client, 2100);
    assert_eq!(client.write(b, &[0; 2000]), Ok(2000));
    let of_b = packet_of(&mut client, 2100);
    acked(&mut client, &of_a.sent);
    assert_eq!(events(&mut client), [StreamEvent::Writable { id: a }]);
    acked(&mut client, &of_b.sent);
    assert_eq!(events(&mut client), []);
}

#[test]
fn peeked_data_is_taken_with_consume() {
    let (mut client, mut server) = pair(config());
    let id = client.open(Dir::Uni).unwrap();
    client.write(id, b"hello").unwrap();
    client.finish(id).unwrap();
    flush(&mut client, &mut server);
    server.accept(Dir::Uni);
    let peek = server.peek(id).unwrap();
    assert_eq!((peek.first, peek.second, peek.fin), (&b"hello"[..], &b""[..], true));
    assert_eq!(server.consume(id, 2), Ok(ReadOutcome { len: 2, fin: false }));
    assert_eq!(server.peek(id).unwrap().first, b"llo");
    assert_eq!(server.consume(id, 9), Ok(ReadOutcome { len: 3, fin: true }));
    assert_eq!(server.len(), 0);
}

#[test]
fn a_send_only_stream_is_not_read_and_a_receive_only_one_not_written() {
    let (mut client, mut server) = pair(config());
    let id = client.open(Dir::Uni).unwrap();
    assert_eq!(client.read(id, &mut [0; 4]), Err(ReadError::ClosedStream));
    assert_eq!(client.stop_sending(id, 0), Err(ReadError::ClosedStream));
    client.write(id, b"x").unwrap();
    flush(&mut client, &mut server);
    server.accept(Dir::Uni);
    assert_eq!(server.write(id, b"x"), Err(WriteError::ClosedStream));
    assert_eq!(server.reset(id, 0), Err(WriteError::ClosedStream));
    assert_eq!(server.write(client_stream(Dir::Bidi, 7), b"x"), Err(WriteError::ClosedStream));
}
