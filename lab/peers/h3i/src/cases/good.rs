//! What breaks no rule, and must be answered.

use h3i::quiche::h3::frame::Frame;

use crate::case::{
    CONTROL, Case, DECODER_TYPE, ENCODER_TYPE, Outcome, REQUEST, SECOND, Server, THIRD, case, data,
    fields, get, headers, open, other, post, raw, raw_last, send, settings, trailers,
};

/// A type that is reserved to be ignored (RFC 9114, Section 7.2.8).
const GREASE: u64 = 0x1f * 7 + 0x21;

pub fn cases(server: Server) -> Vec<Case> {
    let (got, posted) = (Outcome::Answered(server.status()), Outcome::Answered(server.posted()));
    let unknown = || send(REQUEST, other(GREASE, b"abc"));
    let control = |frame| send(CONTROL, frame);
    let post_of_3 = headers(&fields("POST", &[("content-length", "3")]), false);
    let mut cases = Vec::new();
    for (name, section, expected, actions) in [
        ("a request", "RFC 9114, Section 4.1", &got, vec![get()]),
        (
            "a body and trailers",
            "RFC 9114, Section 4.1",
            &posted,
            vec![post(), send(REQUEST, data(b"abc")), trailers("x-last", "1")],
        ),
        (
            "unknown frames around HEADERS and DATA",
            "RFC 9114, Section 9",
            &posted,
            vec![
                unknown(),
                post_of_3,
                unknown(),
                send(REQUEST, data(b"abc")),
                unknown(),
                raw_last(REQUEST, b""),
            ],
        ),
        (
            "unknown frames and settings on the control stream",
            "RFC 9114, Section 7.2.8",
            &got,
            vec![control(other(GREASE, b"abc")), control(other(GREASE, b"")), get()],
        ),
        (
            "a stream of an unknown type",
            "RFC 9114, Section 6.2.3",
            &got,
            vec![open(SECOND, GREASE), raw_last(SECOND, b"abc"), get()],
        ),
        (
            "streams of QPACK: a capacity of 0, and a stream cancelled",
            "RFC 9204, Section 4.2",
            &got,
            vec![
                open(SECOND, ENCODER_TYPE),
                raw(SECOND, b"\x20"),
                open(THIRD, DECODER_TYPE),
                raw(THIRD, b"\x44"),
                get(),
            ],
        ),
        (
            "MAX_PUSH_ID that grows",
            "RFC 9114, Section 7.2.7",
            &got,
            vec![
                control(Frame::MaxPushId { push_id: 1 }),
                control(Frame::MaxPushId { push_id: 3 }),
                get(),
            ],
        ),
    ] {
        cases.push(case(name, section, expected.clone(), actions));
    }
    let mut empty = case("SETTINGS without settings", "RFC 9114, Section 7.2.4", got, vec![get()]);
    empty.actions[1] = control(settings(&[]));
    cases.push(empty);
    cases
}
