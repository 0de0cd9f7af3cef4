//! How many streams, and what they cost.

use quicket_wire::frame::{DataBlocked, StreamDataBlocked, StreamsBlocked};

use super::super::stream::Stream;
use super::super::{OpenError, RecvStream, SendStream, StreamEvent, WriteError};
use super::*;

/// Opens a stream, sends a question, gets an answer, and closes both halves.
fn one_request(client: &mut Streams, server: &mut Streams) -> StreamId {
    let id = client.open(Dir::Bidi).unwrap();
    client.write(id, b"question").unwrap();
    client.finish(id).unwrap();
    flush(client, server);
    assert_eq!(server.accept(Dir::Bidi), Some(id));
    assert_eq!(read_all(server, id), (b"question".to_vec(), true));
    server.write(id, b"answer").unwrap();
    server.finish(id).unwrap();
    flush(server, client);
    assert_eq!(read_all(client, id), (b"answer".to_vec(), true));
    while client.poll_event().is_some() || server.poll_event().is_some() {}
    exchange(server, client);
    id
}

#[test]
fn the_peers_limit_bounds_what_is_opened() {
    // RFC 9000, Section 4.6
    let (mut client, mut server) = pair(config());
    for _ in 0..8 {
        client.open(Dir::Uni).unwrap();
    }
    assert_eq!(client.open(Dir::Uni), Err(OpenError::StreamLimit));
    let packet = packet_of(&mut client, PACKET);
    assert!(matches!(packet.frames()[..], [Frame::StreamsBlocked(frame)] if frame.limit == 8));
    assert!(!client.has_pending(), "said once");
    let id = client_stream(Dir::Uni, 0);
    client.finish(id).unwrap();
    flush(&mut client, &mut server);
    server.accept(Dir::Uni);
    assert_eq!(read_all(&mut server, id), (alloc::vec![], true));
    flush(&mut server, &mut client);
    let events: Vec<_> = core::iter::from_fn(|| client.poll_event()).collect();
    assert!(events.contains(&StreamEvent::Available { dir: Dir::Uni }), "{events:?}");
    assert_eq!(client.open(Dir::Uni), Ok(client_stream(Dir::Uni, 8)));
}

#[test]
fn a_lost_max_streams_is_sent_again() {
    let (mut client, mut server) = pair(config());
    let id = client.open(Dir::Uni).unwrap();
    client.finish(id).unwrap();
    flush(&mut client, &mut server);
    server.accept(Dir::Uni);
    read_all(&mut server, id);
    let update = packet_of(&mut server, PACKET);
    assert!(matches!(update.frames()[..], [Frame::MaxStreams(frame)] if frame.maximum == 9));
    assert!(!server.has_pending());
    lost(&mut server, &update.sent);
    let again = packet_of(&mut server, PACKET);
    assert!(matches!(again.frames()[..], [Frame::MaxStreams(frame)] if frame.maximum == 9));
}

#[test]
fn a_hundred_thousand_streams_leave_nothing_behind() {
    let (mut client, mut server) = pair(config());
    // A stream that lives throughout, as the control streams of HTTP/3 do.
    let control = client.open(Dir::Uni).unwrap();
    client.write(control, b"settings").unwrap();
    flush(&mut client, &mut server);
    for index in 0..100_000 {
        let id = one_request(&mut client, &mut server);
        assert_eq!(id.index(), index);
    }
    assert_eq!((client.len(), server.len()), (1, 1));
    for side in [&client, &server] {
        assert!(side.table.capacity() <= 32, "{}", side.table.capacity());
        assert_eq!((side.held, side.pieces), (0, 0));
    }
    assert_eq!(server.remote.bidi.untouched_ranges(), 0);
}

#[test]
fn many_streams_open_at_once_are_freed_in_any_order() {
    let many = 20_000;
    let config = StreamsConfig {
        max_streams_uni: many,
        window: 1 << 22,
        max_window: 1 << 22,
        send_buffer: 1 << 22,
        ..config()
    };
    let (mut client, mut server) = pair(config);
    let mut ids: Vec<StreamId> = (0..many).map(|_| client.open(Dir::Uni).unwrap()).collect();
    for id in &ids {
        client.write(*id, &id.as_u64().to_be_bytes()).unwrap();
        client.finish(*id).unwrap();
    }
    flush(&mut client, &mut server);
    while server.accept(Dir::Uni).is_some() {}
    assert_eq!(server.len(), many as usize);
    let mut rng = crate::testing::XorShift::new(4);
    while !ids.is_empty() {
        let id = ids.swap_remove(rng.below(ids.len() as u64) as usize);
        assert_eq!(read_all(&mut server, id), (id.as_u64().to_be_bytes().to_vec(), true));
    }
    while client.poll_event().is_some() || server.poll_event().is_some() {}
    assert_eq!((client.len(), server.len(), client.held()), (0, 0, 0));
    assert_eq!((client.table.capacity(), server.table.capacity()), (0, 0));
}

#[test]
fn opening_stream_4000_costs_one_stream() {
    // RFC 9000, Section 3.2
    let (_, mut server) = pair(StreamsConfig { max_streams_bidi: 5000, ..config() });
    server.on_stream(&stream_frame(client_stream(Dir::Bidi, 4000), 0, b"x", false)).unwrap();
    assert_eq!(server.len(), 1);
    for index in 0..=4000 {
        assert_eq!(server.accept(Dir::Bidi), Some(client_stream(Dir::Bidi, index)));
    }
    assert_eq!((server.accept(Dir::Bidi), server.len()), (None, 1));
    let early = client_stream(Dir::Bidi, 17);
    assert_eq!(server.read(early, &mut [0; 4]), Err(ReadError::Blocked));
    server.write(early, b"answer before the question").unwrap();
    server.on_stream(&stream_frame(client_stream(Dir::Bidi, 3), 0, b"x", true)).unwrap();
    assert_eq!(server.len(), 3);
}

#[test]
fn a_byte_at_the_end_of_every_window_costs_no_more_than_the_windows() {
    let (_, mut server) = pair(config());
    for index in 0..3 {
        let frame = stream_frame(client_stream(Dir::Uni, index), 9_999, b"x", false);
        server.on_stream(&frame).unwrap();
    }
    let streams = server.table.slots().filter_map(|slot| server.table.get(slot));
    let allocated: usize = streams.filter_map(|s| Some(s.recv.as_ref()?.capacity())).sum();
    assert!(allocated <= 2 * 30_000, "{allocated}");
}

#[test]
fn buffers_of_closed_streams_are_used_again_and_can_be_given_back() {
    let (mut client, mut server) = pair(config());
    for _ in 0..10 {
        one_request(&mut client, &mut server);
    }
    assert_eq!((client.pool.len(), server.pool.len()), (1, 1));
    server.trim();
    assert_eq!(server.pool.len(), 0);
}

#[test]
fn a_stream_stays_small() {
    let sizes = [size_of::<Stream>(), size_of::<SendStream>(), size_of::<RecvStream>()];
    assert!(sizes[0] <= 128 && sizes[1] + sizes[2] <= 528, "{sizes:?}");
}

/// A server that has read `len` bytes of a stream, too few for an update on its own.
fn reader(len: usize) -> (Streams, StreamId) {
    let (mut client, mut server) = pair(config());
    let id = client.open(Dir::Uni).unwrap();
    client.write(id, &alloc::vec![0; len]).unwrap();
    flush(&mut client, &mut server);
    server.accept(Dir::Uni);
    read_all(&mut server, id);
    assert!(!server.has_pending());
    (server, id)
}

#[test]
fn a_peer_that_says_it_is_blocked_gets_what_there_is() {
    // RFC 9000, Section 4.1
    let (mut server, id) = reader(1000);
    receive(&mut server, &Frame::DataBlocked(DataBlocked { limit: 30_000 })).unwrap();
    let answer = packet_of(&mut server, PACKET);
    assert!(matches!(answer.frames()[..], [Frame::MaxData(frame)] if frame.maximum == 31_000));
    let blocked = Frame::StreamDataBlocked(StreamDataBlocked { id, limit: 10_000 });
    receive(&mut server, &blocked).unwrap();
    let answer = packet_of(&mut server, PACKET);
    let frames = answer.frames();
    assert!(matches!(frames[..], [Frame::MaxStreamData(frame)] if frame.maximum == 11_000));
    receive(&mut server, &blocked).unwrap();
    assert!(!server.has_pending(), "there is no more to give");
}

#[test]
fn a_peer_that_wants_more_streams_gets_what_there_is() {
    // RFC 9000, Section 4.6
    let config = StreamsConfig { max_streams_uni: 100, ..config() };
    let (mut client, mut server) = pair(config);
    let id = client.open(Dir::Uni).unwrap();
    client.finish(id).unwrap();
    flush(&mut client, &mut server);
    server.accept(Dir::Uni);
    read_all(&mut server, id);
    assert!(!server.has_pending(), "one stream in a hundred is not worth a frame");
    let blocked = Frame::StreamsBlocked(StreamsBlocked { dir: Dir::Uni, limit: 100 });
    receive(&mut server, &blocked).unwrap();
    let answer = packet_of(&mut server, PACKET);
    assert!(matches!(answer.frames()[..], [Frame::MaxStreams(frame)] if frame.maximum == 101));
}

#[test]
fn with_less_memory_writers_wait_until_enough_is_acknowledged() {
    let (mut client, mut server) = pair(config());
    let id = client.open(Dir::Uni).unwrap();
    client.set_allowance(100);
    assert_eq!(client.write(id, &[7; 1000]), Ok(100));
    assert_eq!(client.write(id, &[7]), Err(WriteError::Blocked));
    assert_eq!(client.poll_event(), None);
    client.set_allowance(1000);
    assert_eq!(client.poll_event(), Some(StreamEvent::Writable { id }), "there is more");
    assert_eq!(client.write(id, &[7; 1000]), Ok(900));
    client.set_allowance(100);
    assert_eq!(client.write(id, &[7]), Err(WriteError::Blocked));
    assert_eq!(client.poll_event(), None, "ten times as much is held as may be");
    flush(&mut client, &mut server);
    assert_eq!(client.poll_event(), Some(StreamEvent::Writable { id }));
    assert_eq!(client.write(id, &[7; 1000]), Ok(100), "what is held is on the way");
    assert!(server.footprint() >= 1000, "unread");
    server.accept(Dir::Uni);
    assert_eq!(read_all(&mut server, id).0.len(), 1000);
    server.set_allowance(0);
    assert_eq!(server.footprint(), 0, "read, and nothing is kept");
}
