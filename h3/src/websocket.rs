//! Extended CONNECT for WebSocket (RFC 9220).
//!
//! h3 0.0.8 takes a request for malformed whose `:protocol` is not one of the two that it knows, and WebSocket
//! is neither. So this line is taken out of the field section before h3 reads it, and told of beside. What asks
//! for another protocol is a CONNECT without one, for which a server has an answer.
//!
//! Nor does h3 write it. A request of this side names one of the two, and the line is another when it is written.

use bytes::Bytes;
use h3::ext;
use http::{Method, Request};

use crate::frames::integer;
use crate::section;

/// What a request asks for until it is written.
const STAND_IN: ext::Protocol = ext::Protocol::WEB_TRANSPORT;
/// `:protocol: websocket`, spelled out (RFC 9204, Section 4.5.6).
const LINE: &[u8] = b"\x27\x02:protocol\x09websocket";

/// Beside a request, in its extensions: it is a CONNECT whose `:protocol` is `websocket` (RFC 8441, Section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebSocket;

/// Makes a request ask for WebSocket: it becomes an extended CONNECT (RFC 9220). Only connections of
/// [`Connection::with_websocket`](crate::Connection::with_websocket) can send it, to others it is an error; and only to servers that [take it](crate::Acceptance::takes_extended_connect).
pub fn ask_for_websocket<B>(request: &mut Request<B>) {
    *request.method_mut() = Method::CONNECT;
    request.extensions_mut().insert(STAND_IN);
}

/// The first frame of a request, as it is written instead if it asks for WebSocket.
pub(crate) fn written(frame: &[u8]) -> Option<Bytes> {
    let rest = |bytes: &[u8]| integer(bytes).map(|(_, length)| length);
    // A type and a length are in front of the section.
    let kind = rest(frame)?;
    let section = frame.get(kind + rest(frame.get(kind..)?)?..)?;
    let place = section::asks_for(section, STAND_IN.as_str().as_bytes())?;
    let section = [&section[..place.start], LINE, &section[place.end..]].concat();
    // It is shorter than h3's, whose length has 62 bits; four bytes hold 30 (RFC 9000, Section 16).
    let length = u32::try_from(section.len()).ok().filter(|length| *length < 1 << 30)?;
    Some([&[1][..], &(length | 2 << 30).to_be_bytes(), &section].concat().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CONNECT https, `:authority: a`, `/`, and `accept: */*` behind.
    const BEFORE: &[u8] = &[0, 0, 0xcf, 0xd7, 0x50, 1, b'a', 0xc1];
    const BEHIND: &[u8] = &[0xdd];

    fn frame(line: &[u8]) -> Bytes {
        let section = [BEFORE, line, BEHIND].concat();
        [&[1, section.len() as u8][..], &section].concat().into()
    }

    #[test]
    fn a_request_that_asks_for_the_stand_in_asks_for_websocket_when_it_is_written() {
        let frame = frame(b"\x27\x02:protocol\x0cwebtransport");
        let written = written(&frame).unwrap();
        let (length, rest) = (&written[1..5], &written[5..]);
        assert_eq!(length, (0x8000_0000 | rest.len() as u32).to_be_bytes());
        assert_eq!(rest, [BEFORE, LINE, BEHIND].concat());
        let protocol = section::request(rest).unwrap().unwrap();
        assert!(protocol.is_websocket);
    }

    #[test]
    fn all_else_is_written_as_it_is() {
        for other in [
            frame(b"\x27\x02:protocol\x0bconnect-udp"),
            frame(b""),
            Bytes::from_static(&[1, 5, 0, 0, 0xd1, 0xd7, 0xc1]),
            Bytes::from_static(&[0, 1, b'a']),
            Bytes::from_static(&[1]),
            Bytes::new(),
        ] {
            assert_eq!(written(&other), None);
        }
    }
}
