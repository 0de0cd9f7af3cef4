//! Extended CONNECT for WebSocket (RFC 9220).
//!
//! h3 0.0.8 takes a request for malformed whose `:protocol` is not one of the two that it knows, and WebSocket
//! is neither. So this one line is taken out of the field section before h3 reads it, and told of beside.

use std::future::poll_fn;

use bytes::Bytes;
use h3::error::StreamError;
use h3::proto::frame::Frame;
use h3::server::{RequestResolver, RequestStream};
use http::Request;

use crate::{BidiStream, Connection};

/// Beside a request, in its extensions: its `:protocol` is `websocket`. Whether its method is CONNECT is for the
/// server to check (RFC 8441, Section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebSocket;

/// Reads a request as [`RequestResolver::resolve_request`] does, and also those that ask for WebSocket.
///
/// # Errors
///
/// Those of h3.
pub async fn resolve(
    mut resolver: RequestResolver<Connection, Bytes>,
) -> Result<(Request<()>, RequestStream<BidiStream<Bytes>, Bytes>), StreamError> {
    let frame = poll_fn(|cx| resolver.frame_stream.poll_next(cx)).await;
    let mut is_websocket = false;
    let frame = frame.map(|frame| match frame {
        Some(Frame::Headers(section)) => {
            let rest = without_protocol(&section);
            is_websocket = rest.is_some();
            Some(Frame::Headers(rest.unwrap_or(section)))
        }
        other => other,
    });
    let (mut request, stream) = resolver.accept_with_frame(frame)?.resolve().await?;
    if is_websocket {
        request.extensions_mut().insert(WebSocket);
    }
    Ok((request, stream))
}

/// `:protocol` and `websocket`, each as it is and in Huffman's code (RFC 7541, Appendix B).
const NAME: [&[u8]; 2] = [b":protocol", &[0xb9, 0x5d, 0x87, 0x49, 0xc8, 0x7a, 0x3f]];
const VALUE: [&[u8]; 2] = [b"websocket", &[0xf0, 0x58, 0xd0, 0x72, 0x75, 0x2a, 0x7f]];

/// An encoded field section without its line `:protocol: websocket`; nothing if it has none, or two, or is not
/// right, which is for h3 to find.
fn without_protocol(section: &Bytes) -> Option<Bytes> {
    let mut reader = Reader(section);
    // RFC 9204, Section 4.5.1: Required Insert Count, and the sign with Delta Base.
    reader.integer(8)?;
    reader.integer(7)?;
    let mut found = None;
    while !reader.0.is_empty() {
        let begin = section.len() - reader.0.len();
        if reader.line()? {
            let end = section.len() - reader.0.len();
            if found.replace((begin, end)).is_some() {
                return None;
            }
        }
    }
    let (begin, end) = found?;
    Some([&section[..begin], &section[end..]].concat().into())
}

/// What is left of a field section.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Goes over a field line (RFC 9204, Sections 4.5.2 to 4.5.6); true if it is the one that is sought.
    /// `:protocol` is not in the static table, so that its name is always spelled out.
    fn line(&mut self) -> Option<bool> {
        let first = *self.0.first()?;
        match first {
            0x80.. => self.integer(6).map(|_| false),
            0x40..=0x7f => self.integer(4).and_then(|_| self.string(7)).map(|_| false),
            0x20..=0x3f => {
                let name = self.string(3)?;
                let value = self.string(7)?;
                Some(name.is(&NAME) && value.is(&VALUE))
            }
            0x10..=0x1f => self.integer(4).map(|_| false),
            _ => self.integer(3).and_then(|_| self.string(7)).map(|_| false),
        }
    }

    /// RFC 7541, Section 5.1, as long as it may be a length.
    fn integer(&mut self, prefix: u32) -> Option<usize> {
        let mask = 0xff_u8 >> (8 - prefix);
        let mut value = usize::from(self.byte()? & mask);
        if value < usize::from(mask) {
            return Some(value);
        }
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// The bit above the length says whether it is in Huffman's code (RFC 9204, Section 4.1.2).
    fn string(&mut self, prefix: u32) -> Option<Text<'a>> {
        let is_huffman = self.0.first()? >> prefix & 1 == 1;
        let length = self.integer(prefix)?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(Text { bytes, is_huffman })
    }
}

struct Text<'a> {
    bytes: &'a [u8],
    is_huffman: bool,
}

impl Text<'_> {
    fn is(&self, [plain, coded]: &[&[u8]; 2]) -> bool {
        self.bytes == if self.is_huffman { *coded } else { *plain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line with a name of its own.
    fn literal(name: &[u8], name_coded: bool, value: &[u8], value_coded: bool) -> Vec<u8> {
        let mut line = Vec::new();
        let first = 0x20 | u8::from(name_coded) << 3;
        match name.len() {
            length @ ..7 => line.push(first | length as u8),
            length => line.extend([first | 7, (length - 7) as u8]),
        }
        line.extend(name);
        line.push(u8::from(value_coded) << 7 | value.len() as u8);
        line.extend(value);
        line
    }

    fn section(lines: &[&[u8]]) -> Bytes {
        [&[0, 0][..], &lines.concat()].concat().into()
    }

    /// `:method: CONNECT` by index; `:path: /a` by the name's index; `x: y`.
    const BEFORE: &[u8] = &[0xcf];
    const BETWEEN: &[u8] = &[0x51, 2, b'/', b'a'];
    const AFTER: &[u8] = &[0x21, b'x', 1, b'y'];

    #[test]
    fn the_line_is_found_in_every_spelling() {
        for name_coded in [false, true] {
            for value_coded in [false, true] {
                let line = literal(
                    NAME[usize::from(name_coded)],
                    name_coded,
                    VALUE[usize::from(value_coded)],
                    value_coded,
                );
                let with = section(&[BEFORE, BETWEEN, &line, AFTER]);
                assert_eq!(without_protocol(&with), Some(section(&[BEFORE, BETWEEN, AFTER])));
            }
        }
    }

    #[test]
    fn what_only_looks_like_it_stays() {
        let line = literal(NAME[0], false, VALUE[0], false);
        let hidden = literal(b"a", false, &line, false);
        let other = literal(NAME[0], false, b"webtransport", false);
        for lines in [
            &[BEFORE, AFTER][..],
            &[BEFORE, &hidden],
            &[BEFORE, &other],
            &[&line, &line],
            &[&line[..line.len() - 1]],
            &[BEFORE, &line, &[0x27, 0xff, 0xff, 0xff, 0xff, 0xff]],
        ] {
            assert_eq!(without_protocol(&section(lines)), None);
        }
        assert_eq!(without_protocol(&Bytes::new()), None);
    }
}
