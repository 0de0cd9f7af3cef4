//! Every rule whose breach closes the connection.

use quicket_wire::frame::{MaxStreamData, ResetStream, StopSending, StreamDataBlocked};
use quicket_wire::{TransportErrorCode, varint};

use super::*;

fn code(result: Result<(), TransportError>) -> TransportErrorCode {
    result.expect_err("must be refused").code
}

fn reset(id: StreamId, final_size: u64) -> Frame<'static> {
    Frame::ResetStream(ResetStream { id, error_code: 1, final_size })
}

fn stop(id: StreamId) -> Frame<'static> {
    Frame::StopSending(StopSending { id, error_code: 1 })
}

fn max_stream_data(id: StreamId) -> Frame<'static> {
    Frame::MaxStreamData(MaxStreamData { id, maximum: 1 << 30 })
}

fn blocked(id: StreamId) -> Frame<'static> {
    Frame::StreamDataBlocked(StreamDataBlocked { id, limit: 5 })
}

fn data(id: StreamId) -> Frame<'static> {
    Frame::Stream(stream_frame(id, 0, b"x", false))
}

/// The frames of a sender and those of a receiver about `id`.
fn by_role(id: StreamId) -> ([Frame<'static>; 3], [Frame<'static>; 2]) {
    ([data(id), reset(id, 1), blocked(id)], [stop(id), max_stream_data(id)])
}

#[test]
fn a_senders_frames_on_a_send_only_stream_are_a_state_error() {
    // RFC 9000, Sections 19.4, 19.8 and 19.13
    let (_, mut server) = pair(config());
    let id = server.open(Dir::Uni).unwrap();
    for frame in by_role(id).0 {
        assert_eq!(code(receive(&mut server, &frame)), TransportErrorCode::STREAM_STATE_ERROR);
    }
    for frame in by_role(id).1 {
        receive(&mut server, &frame).unwrap();
    }
}

#[test]
fn a_receivers_frames_on_a_receive_only_stream_are_a_state_error() {
    // RFC 9000, Sections 19.5 and 19.10
    let (_, mut server) = pair(config());
    let id = client_stream(Dir::Uni, 0);
    for frame in by_role(id).1 {
        assert_eq!(code(receive(&mut server, &frame)), TransportErrorCode::STREAM_STATE_ERROR);
    }
    for frame in by_role(id).0 {
        receive(&mut server, &frame).unwrap();
    }
}

#[test]
fn frames_for_streams_that_this_side_has_not_opened_are_a_state_error() {
    // RFC 9000, Sections 19.5, 19.8 and 19.10
    let (_, mut server) = pair(config());
    server.open(Dir::Bidi).unwrap();
    let (sender, receiver) = by_role(server_stream(Dir::Bidi, 1));
    for frame in sender.iter().chain(&receiver) {
        assert_eq!(code(receive(&mut server, frame)), TransportErrorCode::STREAM_STATE_ERROR);
    }
    let (sender, receiver) = by_role(server_stream(Dir::Bidi, 0));
    for frame in sender.iter().chain(&receiver) {
        receive(&mut server, frame).unwrap();
    }
}

#[test]
fn streams_beyond_the_limit_are_a_limit_error() {
    // RFC 9000, Section 4.6
    for dir in [Dir::Bidi, Dir::Uni] {
        let (sender, receiver) = by_role(client_stream(dir, 8));
        let receiver = receiver.iter().filter(|_| dir == Dir::Bidi);
        for frame in sender.iter().chain(receiver) {
            let (_, mut server) = pair(config());
            assert_eq!(code(receive(&mut server, frame)), TransportErrorCode::STREAM_LIMIT_ERROR);
            receive(&mut server, &data(client_stream(dir, 7))).unwrap();
        }
    }
}

#[test]
fn any_frame_of_the_peer_opens_its_bidirectional_stream() {
    // RFC 9000, Section 3.1
    let (sender, receiver) = by_role(client_stream(Dir::Bidi, 2));
    for frame in sender.iter().chain(&receiver) {
        let (_, mut server) = pair(config());
        receive(&mut server, frame).unwrap();
        for index in 0..3 {
            assert_eq!(server.accept(Dir::Bidi), Some(client_stream(Dir::Bidi, index)));
        }
        assert_eq!(server.accept(Dir::Bidi), None);
    }
}

#[test]
fn data_beyond_a_limit_is_a_flow_control_error() {
    // RFC 9000, Section 4.1
    let (_, mut server) = pair(config());
    let over_stream = Frame::Stream(stream_frame(client_stream(Dir::Uni, 0), 9_999, b"ab", false));
    let error = receive(&mut server, &over_stream).unwrap_err();
    assert_eq!(error.code, TransportErrorCode::FLOW_CONTROL_ERROR);
    assert_eq!(error.frame_type, 0x0e, "STREAM with offset and length");
    for index in 0..3 {
        let frame = Frame::Stream(stream_frame(client_stream(Dir::Uni, index), 9_999, b"a", false));
        receive(&mut server, &frame).unwrap();
    }
    let over_connection = data(client_stream(Dir::Uni, 3));
    let result = receive(&mut server, &over_connection);
    assert_eq!(code(result), TransportErrorCode::FLOW_CONTROL_ERROR);
    // RFC 9000, Section 4.5: the final size of a reset counts like data.
    let result = receive(&mut server, &reset(client_stream(Dir::Uni, 3), 1));
    assert_eq!(code(result), TransportErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn a_changed_final_size_is_a_final_size_error() {
    // RFC 9000, Section 4.5
    let (_, mut server) = pair(config());
    let id = client_stream(Dir::Uni, 0);
    receive(&mut server, &Frame::Stream(stream_frame(id, 5, b"", true))).unwrap();
    for frame in [
        Frame::Stream(stream_frame(id, 5, b"x", false)),
        Frame::Stream(stream_frame(id, 4, b"", true)),
        reset(id, 4),
        reset(id, 6),
    ] {
        assert_eq!(code(receive(&mut server, &frame)), TransportErrorCode::FINAL_SIZE_ERROR);
    }
}

#[test]
fn offsets_beyond_a_varint_are_refused() {
    // RFC 9000, Section 19.8
    let (_, mut server) = pair(config());
    let frame = stream_frame(client_stream(Dir::Uni, 0), varint::MAX, b"x", false);
    let result = server.on_stream(&frame);
    assert_eq!(code(result), TransportErrorCode::FRAME_ENCODING_ERROR);
}

#[test]
fn late_frames_for_closed_streams_are_ignored() {
    let (mut client, mut server) = pair(config());
    let id = client.open(Dir::Bidi).unwrap();
    client.write(id, b"question").unwrap();
    client.finish(id).unwrap();
    flush(&mut client, &mut server);
    assert_eq!(server.accept(Dir::Bidi), Some(id));
    read_all(&mut server, id);
    server.finish(id).unwrap();
    exchange(&mut server, &mut client);
    read_all(&mut client, id);
    while client.poll_event().is_some() || server.poll_event().is_some() {}
    assert_eq!((client.len(), server.len()), (0, 0));
    let (sender, receiver) = by_role(id);
    for frame in sender.iter().chain(&receiver) {
        receive(&mut server, frame).unwrap();
        receive(&mut client, frame).unwrap();
    }
    assert_eq!((client.len(), server.len()), (0, 0), "nothing was opened anew");
    assert_eq!(server.poll_event(), None);
}
