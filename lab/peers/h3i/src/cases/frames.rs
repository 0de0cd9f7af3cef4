//! Frames on a request's stream: out of place, of another protocol, or cut off.

use h3i::quiche::h3::frame::Frame;

use crate::case::{
    Case, FRAME_ERROR, FRAME_UNEXPECTED, Outcome, REQUEST, Server, case, data, headers, last,
    other, post, raw_last, send, settings, trailers,
};

pub fn cases(server: Server) -> Vec<Case> {
    let unexpected = Outcome::Closed(FRAME_UNEXPECTED);
    let mut cases = vec![case(
        "DATA before HEADERS",
        "RFC 9114, Section 4.1",
        unexpected.clone(),
        vec![last(REQUEST, data(b"abc"))],
    )];
    for (name, section, frame) in misplaced() {
        let actions = vec![send(REQUEST, frame.clone())];
        let name_here = format!("{name} in place of a request");
        cases.push(case(name_here, section, unexpected.clone(), actions));
        if server.reads_bodies() {
            let actions = vec![post(), send(REQUEST, frame)];
            cases.push(case(format!("{name} in a body"), section, unexpected.clone(), actions));
        }
    }
    if server.reads_bodies() {
        cases.extend(in_bodies());
    }
    cases
}

/// Frames that no client sends on a request's stream.
fn misplaced() -> [(&'static str, &'static str, Frame); 9] {
    let header_block = b"\0\0\xd1".to_vec();
    let promise = Frame::PushPromise { push_id: 0, header_block };
    [
        ("CANCEL_PUSH", "RFC 9114, Section 7.2.3", Frame::CancelPush { push_id: 0 }),
        ("SETTINGS", "RFC 9114, Section 7.2.4", settings(&[(6, 65536)])),
        ("PUSH_PROMISE", "RFC 9114, Section 7.2.5", promise),
        ("GOAWAY", "RFC 9114, Section 7.2.6", Frame::GoAway { id: 0 }),
        ("MAX_PUSH_ID", "RFC 9114, Section 7.2.7", Frame::MaxPushId { push_id: 0 }),
        ("PRIORITY of HTTP/2", "RFC 9114, Section 7.2.8", other(2, b"\0\0\0")),
        ("PING of HTTP/2", "RFC 9114, Section 7.2.8", other(6, b"\0\0\0")),
        ("WINDOW_UPDATE of HTTP/2", "RFC 9114, Section 7.2.8", other(8, b"\0\0\0")),
        ("CONTINUATION of HTTP/2", "RFC 9114, Section 7.2.8", other(9, b"\0\0\0")),
    ]
}

fn in_bodies() -> Vec<Case> {
    let more_trailers = || headers(&vec![("x-last", "1".to_owned())], false);
    let mut cases = Vec::new();
    for (name, end) in [
        ("DATA behind trailers", last(REQUEST, data(b"abc"))),
        ("trailers twice", trailers("x-last", "2")),
    ] {
        let actions = vec![post(), more_trailers(), end];
        let unexpected = Outcome::Closed(FRAME_UNEXPECTED);
        cases.push(case(name, "RFC 9114, Section 4.1", unexpected, actions));
    }
    for (name, bytes) in [
        ("DATA that is cut off", &b"\0\x03a"[..]),
        ("a length that is cut off", b"\0\x40"),
        ("trailers that are cut off", b"\x01\x09\0\0"),
        ("an unknown frame that is cut off", b"\x21\x09a"),
    ] {
        let actions = vec![post(), raw_last(REQUEST, bytes)];
        cases.push(case(name, "RFC 9114, Section 7.1", Outcome::Closed(FRAME_ERROR), actions));
    }
    cases
}
