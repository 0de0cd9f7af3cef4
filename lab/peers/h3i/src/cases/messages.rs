//! Malformed requests, which are errors of their stream.

use h3i::actions::h3::Action;

use crate::case::{
    Case, EXCESSIVE_LOAD, Fields, MESSAGE_ERROR, Outcome, REQUEST, REQUEST_CANCELLED, Server, case,
    data, fields, headers, last, literal, post, raw, raw_last, send, trailers,
};

pub fn cases(server: Server) -> Vec<Case> {
    let mut cases = [pseudo_headers(), of_fields(), names(), connect(), long()].concat();
    if server.reads_bodies() {
        cases.extend(refused());
        cases.extend(bodies());
    }
    cases
}

fn malformed(name: impl Into<String>, section: &'static str, actions: Vec<Action>) -> Case {
    case(name, section, Outcome::Reset(MESSAGE_ERROR), actions)
}

/// A request of these fields and no more.
fn request(name: impl Into<String>, section: &'static str, fields: &Fields) -> Case {
    malformed(name, section, vec![headers(fields, true)])
}

fn pseudo_headers() -> Vec<Case> {
    let section = "RFC 9114, Section 4.3.1";
    let whole = fields("GET", &[]);
    let mut cases = Vec::new();
    for (at, (name, value)) in whole.iter().enumerate() {
        let mut twice = whole.clone();
        twice.push((name, value.clone()));
        cases.push(request(format!("{name} twice"), section, &twice));
        let mut others = whole.clone();
        others.remove(at);
        cases.push(request(format!("no {name}"), section, &others));
        others.extend([("accept", "*/*".to_owned()), (*name, value.clone())]);
        cases.push(request(format!("{name} behind a field"), "RFC 9114, Section 4.3", &others));
    }
    for (name, value) in [(":status", "200"), (":unknown", "x")] {
        let fields = fields("GET", &[(name, value)]);
        cases.push(request(format!("{name} of a request"), "RFC 9114, Section 4.3", &fields));
    }
    for (at, value) in [(0, "G T"), (1, "ftp"), (2, ""), (3, "")] {
        let mut changed = whole.clone();
        changed[at].1 = value.to_owned();
        cases.push(request(format!("{} is {value:?}", changed[at].0), section, &changed));
    }
    cases
}

fn of_fields() -> Vec<Case> {
    let of = [
        ("connection", "close", "RFC 9114, Section 4.2"),
        ("keep-alive", "timeout=5", "RFC 9114, Section 4.2"),
        ("proxy-connection", "close", "RFC 9114, Section 4.2"),
        ("transfer-encoding", "chunked", "RFC 9114, Section 4.2"),
        ("upgrade", "h2c", "RFC 9114, Section 4.2"),
        ("te", "gzip", "RFC 9114, Section 4.2"),
        ("host", "elsewhere", "RFC 9114, Section 4.3.1"),
        ("x", "a\r\nb", "RFC 9114, Section 10.3"),
        ("x", "a\0b", "RFC 9114, Section 10.3"),
    ];
    let case = |(name, value, section)| {
        request(format!("{name}: {value:?}"), section, &fields("GET", &[(name, value)]))
    };
    of.map(case).into()
}

/// Names that quiche's encoder would make lower case.
fn names() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, section) in [
        ("X-Upper-Case", "RFC 9114, Section 4.2"),
        ("x y", "RFC 9114, Section 10.3"),
        ("", "RFC 9114, Section 10.3"),
    ] {
        let fields = fields("GET", &[(name, "1")]);
        cases.push(malformed(format!("a field called {name:?}"), section, vec![literal(&fields)]));
    }
    let mut upper = fields("GET", &[]);
    upper[0].0 = ":Method";
    cases.push(malformed(":Method", "RFC 9114, Section 4.3", vec![literal(&upper)]));
    cases
}

/// CONNECT, and what asks for WebSocket in the wrong way.
fn connect() -> Vec<Case> {
    let websocket = fields("CONNECT", &[(":protocol", "websocket")]);
    let without =
        |name| -> Fields { websocket.iter().filter(|field| field.0 != name).cloned().collect() };
    let of = [
        ("CONNECT with a path", "RFC 9114, Section 4.4", fields("CONNECT", &[])),
        (":protocol of a GET", "RFC 8441, Section 4", fields("GET", &[(":protocol", "websocket")])),
        ("WebSocket without :path", "RFC 8441, Section 4", without(":path")),
        ("WebSocket without :scheme", "RFC 8441, Section 4", without(":scheme")),
        ("WebSocket without :authority", "RFC 8441, Section 4", without(":authority")),
    ];
    of.map(|(name, section, fields)| request(name, section, &fields)).into()
}

/// Sections above the limit that a server's SETTINGS have.
fn long() -> Vec<Case> {
    let mut many = fields("GET", &[]);
    many.extend(std::iter::repeat_n(("x-long", "ab".to_owned()), 900));
    let section = "RFC 9114, Section 4.2.2";
    let once_decoded = Outcome::Reset(REQUEST_CANCELLED);
    let as_it_comes = Outcome::Reset(EXCESSIVE_LOAD);
    let half_a_gigabyte = vec![raw(REQUEST, b"\x01\xa0\0\0\0")];
    vec![
        case(
            "a section that is long once decoded",
            section,
            once_decoded,
            vec![headers(&many, true)],
        ),
        case("a section of half a gigabyte", section, as_it_comes, half_a_gigabyte),
    ]
}

/// What is well-formed in HTTP/3, but nothing that a gateway may pass on.
fn refused() -> Vec<Case> {
    let mut user = fields("GET", &[]);
    user[2].1 = "user@localhost".to_owned();
    let plain = vec![(":method", "CONNECT".to_owned()), (":authority", "localhost:1".to_owned())];
    let protocol = fields("CONNECT", &[(":protocol", "connect-udp")]);
    let length = |value| fields("GET", &[("content-length", value)]);
    let of = [
        (":authority with a user", "RFC 9114, Section 4.3.1", 400, user),
        ("a negative content-length", "RFC 9110, Section 8.6", 400, length("-1")),
        ("a content-length of two values", "RFC 9110, Section 8.6", 400, length("1, 2")),
        ("CONNECT", "RFC 9110, Section 9.1", 501, plain),
        ("CONNECT for a protocol other than WebSocket", "RFC 9220, Section 3", 501, protocol),
    ];
    let case = |(name, section, status, fields)| {
        case(name, section, Outcome::Answered(status), vec![headers(&fields, true)])
    };
    of.map(case).into()
}

fn bodies() -> Vec<Case> {
    let mut cases = Vec::new();
    for (length, body) in [("4", "abc"), ("2", "abc"), ("0", "abc"), ("1", "")] {
        let head = headers(&fields("POST", &[("content-length", length)]), false);
        let body_sent = match body {
            "" => raw_last(REQUEST, b""),
            _ => last(REQUEST, data(body.as_bytes())),
        };
        let name = format!("{} bytes where {length} are announced", body.len());
        cases.push(malformed(name, "RFC 9114, Section 4.1.2", vec![head, body_sent]));
    }
    for (name, value, section) in
        [(":path", "/", "RFC 9114, Section 4.3"), ("connection", "close", "RFC 9114, Section 4.2")]
    {
        let actions = vec![post(), send(REQUEST, data(b"abc")), trailers(name, value)];
        cases.push(malformed(format!("{name} in trailers"), section, actions));
    }
    let half_a_gigabyte = vec![post(), raw(REQUEST, b"\x01\xa0\0\0\0")];
    let load = Outcome::Reset(EXCESSIVE_LOAD);
    let name = "trailers of half a gigabyte";
    cases.push(case(name, "RFC 9114, Section 4.2.2", load, half_a_gigabyte));
    cases
}
