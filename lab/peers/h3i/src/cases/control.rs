//! Unidirectional streams, and what comes on the control stream.

use h3i::actions::h3::Action;
use h3i::quiche::h3::frame::Frame;

use crate::case::{
    CLOSED_CRITICAL_STREAM, CONTROL, CONTROL_TYPE, Case, DECODER_TYPE, ENCODER_TYPE, FRAME_ERROR,
    FRAME_UNEXPECTED, ID_ERROR, MISSING_SETTINGS, NO_ERROR, Outcome, PUSH_TYPE, REQUEST, SECOND,
    SETTINGS_ERROR, STREAM_CREATION_ERROR, THIRD, answered, bare, case, data, get, open, other,
    raw, raw_last, send, settings,
};

pub fn cases() -> Vec<Case> {
    [creation(), closed(), first_frames(), later_frames(), identifiers(), of_settings()].concat()
}

fn creation() -> Vec<Case> {
    let second = |kind| vec![open(SECOND, kind), open(THIRD, kind)];
    let of = [
        (
            "a second control stream",
            "RFC 9114, Section 6.2.1",
            vec![open(SECOND, CONTROL_TYPE), send(SECOND, settings(&[]))],
        ),
        (
            "a push stream of a client",
            "RFC 9114, Section 6.2.2",
            vec![open(SECOND, PUSH_TYPE), raw(SECOND, b"\0")],
        ),
        ("a second encoder stream", "RFC 9204, Section 4.2", second(ENCODER_TYPE)),
        ("a second decoder stream", "RFC 9204, Section 4.2", second(DECODER_TYPE)),
    ];
    let wrong = Outcome::Closed(STREAM_CREATION_ERROR);
    of.map(|(name, section, actions)| case(name, section, wrong.clone(), actions)).into()
}

/// The server knows what the streams are before they end: a reset would discard their types.
fn closed() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, section, stream_id) in [
        ("control", "RFC 9114, Section 6.2.1", CONTROL),
        ("encoder", "RFC 9204, Section 4.2", SECOND),
        ("decoder", "RFC 9204, Section 4.2", THIRD),
    ] {
        let reset = Action::ResetStream { stream_id, error_code: NO_ERROR };
        for (how, end) in [("ends", raw_last(stream_id, b"")), ("is reset", reset)] {
            let streams = [open(SECOND, ENCODER_TYPE), open(THIRD, DECODER_TYPE)];
            let actions = streams.into_iter().chain([get(), answered(REQUEST), end]).collect();
            let name = format!("the {name} stream {how}");
            cases.push(case(name, section, Outcome::Closed(CLOSED_CRITICAL_STREAM), actions));
        }
    }
    cases
}

fn first_frames() -> Vec<Case> {
    let of = [
        ("GOAWAY before SETTINGS", Frame::GoAway { id: 0 }),
        ("MAX_PUSH_ID before SETTINGS", Frame::MaxPushId { push_id: 0 }),
        ("an unknown frame before SETTINGS", other(0x21, b"")),
    ];
    let missing = Outcome::Closed(MISSING_SETTINGS);
    let case = |(name, frame)| {
        let actions = vec![open(CONTROL, CONTROL_TYPE), send(CONTROL, frame)];
        bare(name, "RFC 9114, Section 6.2.1", missing.clone(), actions)
    };
    of.map(case).into()
}

fn later_frames() -> Vec<Case> {
    let header_block = b"\0\0\xd1".to_vec();
    let promised = Frame::PushPromise { push_id: 0, header_block: header_block.clone() };
    let of = [
        ("DATA", "RFC 9114, Section 7.2.1", data(b"abc")),
        ("HEADERS", "RFC 9114, Section 7.2.2", Frame::Headers { header_block }),
        ("a second SETTINGS", "RFC 9114, Section 7.2.4", settings(&[])),
        ("PUSH_PROMISE", "RFC 9114, Section 7.2.5", promised),
        ("PRIORITY of HTTP/2", "RFC 9114, Section 7.2.8", other(2, b"\0")),
        ("PING of HTTP/2", "RFC 9114, Section 7.2.8", other(6, b"")),
    ];
    let unexpected = Outcome::Closed(FRAME_UNEXPECTED);
    let case = |(name, section, frame)| {
        let name = format!("{name} on the control stream");
        case(name, section, unexpected.clone(), vec![send(CONTROL, frame)])
    };
    of.map(case).into()
}

fn identifiers() -> Vec<Case> {
    let (max, goaway) = (|push_id| Frame::MaxPushId { push_id }, |id| Frame::GoAway { id });
    let mut cases = Vec::new();
    for (name, section, frames) in [
        ("MAX_PUSH_ID that shrinks", "RFC 9114, Section 7.2.7", vec![max(2), max(1)]),
        ("GOAWAY that grows", "RFC 9114, Section 5.2", vec![goaway(1), goaway(2)]),
        (
            "CANCEL_PUSH above MAX_PUSH_ID",
            "RFC 9114, Section 7.2.3",
            vec![Frame::CancelPush { push_id: 0 }],
        ),
        (
            "CANCEL_PUSH of a push that was not promised",
            "RFC 9114, Section 7.2.3",
            vec![max(5), Frame::CancelPush { push_id: 3 }],
        ),
    ] {
        let actions = frames.into_iter().map(|frame| send(CONTROL, frame)).collect();
        cases.push(case(name, section, Outcome::Closed(ID_ERROR), actions));
    }
    for (name, bytes) in [
        ("GOAWAY without an identifier", &b"\x07\0"[..]),
        ("GOAWAY with more than an identifier", b"\x07\x02\0\0"),
        ("GOAWAY with an identifier that is cut off", b"\x07\x01\x40"),
        ("MAX_PUSH_ID without an identifier", b"\x0d\0"),
        ("CANCEL_PUSH with more than an identifier", b"\x03\x02\0\0"),
    ] {
        let actions = vec![raw(CONTROL, bytes)];
        cases.push(case(name, "RFC 9114, Section 7.1", Outcome::Closed(FRAME_ERROR), actions));
    }
    cases
}

fn of_settings() -> Vec<Case> {
    let begun = |name: String, section, code, action| {
        bare(name, section, Outcome::Closed(code), vec![open(CONTROL, CONTROL_TYPE), action])
    };
    let mut cases = Vec::new();
    for (name, section, pairs) in [
        ("ENABLE_PUSH of HTTP/2", "RFC 9114, Section 7.2.4.1", &[(2, 1)][..]),
        ("MAX_CONCURRENT_STREAMS of HTTP/2", "RFC 9114, Section 7.2.4.1", &[(3, 1)]),
        ("INITIAL_WINDOW_SIZE of HTTP/2", "RFC 9114, Section 7.2.4.1", &[(4, 1)]),
        ("MAX_FRAME_SIZE of HTTP/2", "RFC 9114, Section 7.2.4.1", &[(5, 1)]),
        ("a setting twice", "RFC 9114, Section 7.2.4", &[(6, 65536), (6, 65536)]),
        ("ENABLE_CONNECT_PROTOCOL of 2", "RFC 9220, Section 3", &[(8, 2)]),
    ] {
        let action = send(CONTROL, settings(pairs));
        cases.push(begun(name.to_owned(), section, SETTINGS_ERROR, action));
    }
    for (name, bytes) in [
        ("a setting without a value", &b"\x04\x01\x06"[..]),
        ("a setting whose value is cut off", b"\x04\x02\x06\x40"),
    ] {
        let action = raw(CONTROL, bytes);
        cases.push(begun(name.to_owned(), "RFC 9114, Section 7.1", FRAME_ERROR, action));
    }
    cases
}
