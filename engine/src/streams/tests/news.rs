//! Streams followed step by step.

use quicket_wire::frame::{MaxStreamData, MaxStreams, StreamDataBlocked, StreamsBlocked};

use super::super::{RecvState, SendState, StreamNews};
use super::*;

fn followed(config: StreamsConfig) -> (Streams, Streams) {
    let (mut client, mut server) = pair(config);
    client.follow(true);
    server.follow(true);
    (client, server)
}

fn news(streams: &mut Streams) -> Vec<StreamNews> {
    core::iter::from_fn(|| streams.poll_news()).collect()
}

#[test]
fn nobody_follows_at_first() {
    let (mut client, mut server) = pair(config());
    let id = client.open(Dir::Uni).unwrap();
    client.write(id, b"abc").unwrap();
    flush(&mut client, &mut server);
    assert_eq!((news(&mut client), news(&mut server)), (alloc::vec![], alloc::vec![]));
}

#[test]
fn a_whole_stream_is_received_and_acknowledged() {
    let (mut client, mut server) = followed(config());
    let id = client.open(Dir::Uni).unwrap();
    client.write(id, b"abc").unwrap();
    client.finish(id).unwrap();
    flush(&mut client, &mut server);
    let received = StreamNews::Received { id, final_size: 3 };
    assert_eq!(news(&mut server), [StreamNews::Receiving { id }, received]);
    assert_eq!(news(&mut client), [StreamNews::Acked { id }]);
}

#[test]
fn a_gap_shows_as_a_known_size() {
    let (_, mut server) = followed(config());
    let id = client_stream(Dir::Bidi, 0);
    server.on_stream(&stream_frame(id, 4, b"tail", true)).unwrap();
    let known = StreamNews::SizeKnown { id, final_size: 8 };
    assert_eq!(news(&mut server), [StreamNews::Receiving { id }, known]);
    server.on_stream(&stream_frame(id, 0, b"head", false)).unwrap();
    assert_eq!(news(&mut server), [StreamNews::Received { id, final_size: 8 }]);
}

#[test]
fn resets_are_told_on_both_sides() {
    let (mut client, mut server) = followed(config());
    let id = client.open(Dir::Uni).unwrap();
    client.write(id, b"abc").unwrap();
    flush(&mut client, &mut server);
    news(&mut server);
    client.reset(id, 7).unwrap();
    flush(&mut client, &mut server);
    let (code, final_size) = (7, 3);
    assert_eq!(news(&mut server), [StreamNews::ResetReceived { id, code, final_size }]);
    assert_eq!(news(&mut client), [StreamNews::ResetAcked { id, code, final_size }]);
}

#[test]
fn a_request_to_stop_leaves_data_readable_until_the_reset() {
    let (mut client, mut server) = followed(config());
    let id = client.open(Dir::Bidi).unwrap();
    client.write(id, b"abc").unwrap();
    flush(&mut client, &mut server);
    server.accept(Dir::Bidi);
    server.request_stop(id, 9).unwrap();
    assert_eq!(read_all(&mut server, id), (b"abc".to_vec(), false));
    assert!(server.status(id).unwrap().recv.unwrap().stopped);
    exchange(&mut server, &mut client);
    let (code, final_size) = (9, 3);
    let stopped = StreamNews::Stopped { id, code, final_size };
    assert_eq!(news(&mut client), [stopped, StreamNews::ResetAcked { id, code, final_size }]);
    let reset = StreamNews::ResetReceived { id, code, final_size };
    assert_eq!(news(&mut server), [StreamNews::Receiving { id }, reset]);
    assert_eq!(server.read(id, &mut [0; 4]), Err(ReadError::Reset(9)));
}

#[test]
fn raised_limits_are_told_once() {
    let (mut client, _) = followed(config());
    let id = client.open(Dir::Bidi).unwrap();
    for maximum in [20_000, 20_000, 15_000] {
        receive(&mut client, &Frame::MaxStreamData(MaxStreamData { id, maximum })).unwrap();
    }
    let dir = Dir::Uni;
    for maximum in [9, 9, 8] {
        receive(&mut client, &Frame::MaxStreams(MaxStreams { dir, maximum })).unwrap();
    }
    let limit = StreamNews::MaxStreamData { id, limit: 20_000 };
    assert_eq!(news(&mut client), [limit, StreamNews::MaxStreams { dir, limit: 9 }]);
}

#[test]
fn news_are_bounded() {
    let (mut client, _) = followed(config());
    let id = client.open(Dir::Bidi).unwrap();
    for maximum in 20_000..30_000 {
        receive(&mut client, &Frame::MaxStreamData(MaxStreamData { id, maximum })).unwrap();
    }
    assert_eq!(news(&mut client).len(), 4096);
}

#[test]
fn a_status_tells_where_halves_stand_and_changes_nothing() {
    let (mut client, mut server) = pair(config());
    let id = client.open(Dir::Bidi).unwrap();
    let send = client.status(id).unwrap().send.unwrap();
    assert_eq!((send.state, send.written, send.finished), (SendState::Ready, false, false));
    client.write(id, b"abc").unwrap();
    client.finish(id).unwrap();
    let send = client.status(id).unwrap().send.unwrap();
    assert_eq!((send.state, send.written, send.finished), (SendState::Ready, true, true));
    let far = client_stream(Dir::Bidi, 3);
    server.on_stream(&stream_frame(far, 0, b"x", false)).unwrap();
    let before = server.len();
    let untouched = server.status(id).unwrap();
    assert_eq!(untouched.recv.unwrap().state, RecvState::Recv);
    assert!(untouched.send.is_some());
    assert_eq!(server.len(), before, "only looked at");
    assert_eq!(server.status(client_stream(Dir::Bidi, 4)), None);
    let counts = server.counts(Dir::Bidi);
    assert_eq!((counts.opened, counts.permitted, counts.opened_by_peer), (0, 8, 4));
}

#[test]
fn room_counts_what_is_written_and_not_sent() {
    let (mut client, mut server) = pair(config());
    let id = client.open(Dir::Uni).unwrap();
    assert_eq!(client.send_room(id).unwrap().unwrap().credit, 10_000);
    client.write(id, &[1; 4000]).unwrap();
    let room = client.send_room(id).unwrap().unwrap();
    assert_eq!((room.credit, room.buffer), (6000, 16_384 - 4000));
    assert_eq!((client.unsent(), client.credit_left()), (4000, 26_000));
    flush(&mut client, &mut server);
    assert_eq!(client.send_room(id).unwrap().unwrap().credit, 6000);
    assert_eq!((client.unsent(), client.credit_left()), (0, 26_000));
    client.finish(id).unwrap();
    assert_eq!(client.send_room(id), Ok(None));
}

/// RFC 9000, Sections 4.1 and 4.6.
#[test]
fn the_peer_is_told_of_limits_on_request_only() {
    let (mut client, mut server) = pair(config());
    let id = client.open(Dir::Uni).unwrap();
    client.write(id, &[1; 10_000]).unwrap();
    flush(&mut client, &mut server);
    assert!(!client.has_pending(), "nothing waits to be sent");
    client.tell_blocked(id);
    let packet = packet_of(&mut client, PACKET);
    let blocked = Frame::StreamDataBlocked(StreamDataBlocked { id, limit: 10_000 });
    assert_eq!(packet.frames(), [blocked]);
    assert!(!client.has_pending(), "once");
    client.tell_streams_blocked(Dir::Bidi);
    let packet = packet_of(&mut client, PACKET);
    let blocked = Frame::StreamsBlocked(StreamsBlocked { dir: Dir::Bidi, limit: 8 });
    assert_eq!(packet.frames(), [blocked]);
}

#[test]
fn a_cork_holds_data_back_until_it_is_pulled_or_data_is_lost() {
    let (mut client, mut server) = pair(config());
    let id = client.open(Dir::Uni).unwrap();
    client.write(id, b"first").unwrap();
    let packet = packet_of(&mut client, PACKET);
    client.cork(true);
    client.write(id, b" second").unwrap();
    assert!(!client.has_pending());
    let other = client.open(Dir::Bidi).unwrap();
    client.request_stop(other, 1).unwrap();
    assert!(client.has_pending(), "control frames do not wait");
    flush(&mut client, &mut server);
    assert_eq!(server.accept(Dir::Uni), None);
    lost(&mut client, &packet.sent);
    flush(&mut client, &mut server);
    assert_eq!(server.accept(Dir::Uni), Some(id));
    assert_eq!(read_all(&mut server, id), (b"first second".to_vec(), false));
    client.cork(true);
    client.write(id, b" third").unwrap();
    client.cork(false);
    flush(&mut client, &mut server);
    assert_eq!(read_all(&mut server, id), (b" third".to_vec(), false));
}
