//! Field lines of answers, as h3 encodes them.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use h3::connection::RequestStream;
use h3::frame::FrameStream;
use h3::quic::{SendStream, StreamErrorIncoming, StreamId, WriteBuf};
use h3::stream::BufRecvStream;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::frames::integer;
use crate::kept::{Kept, hash};

/// What is kept of answers, in bytes.
const MAX_LINES: usize = 4 << 10;

/// The prefix of a section without a dynamic table, in bytes (RFC 9204, Section 4.5.1).
const PREFIX: usize = 2;

/// Lines that came again.
#[derive(Debug)]
pub(crate) struct Lines(Kept<Line>);

/// A field, and how it is encoded.
#[derive(Debug)]
struct Line {
    /// Name, value and code, one behind the other.
    bytes: Box<[u8]>,
    name: usize,
    value: usize,
}

impl Line {
    fn new(name: &[u8], value: &[u8], code: &[u8]) -> Self {
        Self { bytes: [name, value, code].concat().into(), name: name.len(), value: value.len() }
    }

    fn is(&self, name: &[u8], value: &[u8]) -> bool {
        let (own, rest) = self.bytes.split_at(self.name);
        own == name && rest.split_at(self.value).0 == value
    }

    fn code(&self) -> &[u8] {
        self.bytes.split_at(self.name + self.value).1
    }
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self(Kept::new(MAX_LINES))
    }

    /// The lines of all fields, in their order.
    pub(crate) fn write(&mut self, fields: &HeaderMap) -> Option<Bytes> {
        let mut written = BytesMut::with_capacity(256);
        // What is not known is encoded together, up to the next that is.
        let mut unknown = HeaderMap::new();
        for (name, value) in fields {
            let bytes = [name.as_str().as_bytes(), value.as_bytes()];
            let hash = hash(bytes);
            if let Some(line) = self.0.find(hash, |line| line.is(bytes[0], bytes[1])) {
                flush(&mut unknown, &mut written)?;
                written.extend_from_slice(line.code());
            } else if !value.is_sensitive() && self.0.is_wanted_again(hash) {
                flush(&mut unknown, &mut written)?;
                let code = encode(one(name, value))?;
                written.extend_from_slice(&code);
                let line = Line::new(bytes[0], bytes[1], &code);
                self.0.insert(hash, line.bytes.len(), line);
            } else {
                unknown.append(name.clone(), value.clone());
            }
        }
        flush(&mut unknown, &mut written)?;
        Some(written.freeze())
    }
}

fn one(name: &HeaderName, value: &HeaderValue) -> HeaderMap {
    std::iter::once((name.clone(), value.clone())).collect()
}

fn flush(unknown: &mut HeaderMap, written: &mut BytesMut) -> Option<()> {
    if !unknown.is_empty() {
        written.extend_from_slice(&encode(std::mem::take(unknown))?);
    }
    Some(())
}

/// The lines of fields, as h3 writes them: its encoder is reached by sending trailers alone, which have no pseudo-headers
/// (RFC 9114, Section 4.3).
fn encode(fields: HeaderMap) -> Option<Bytes> {
    let page = RefCell::new(Bytes::new());
    let stream = FrameStream::new(BufRecvStream::<_, Bytes>::new(Page(&page)));
    let mut stream = RequestStream::new(stream, 0, Arc::default(), false);
    let sending = pin!(stream.send_trailers(fields));
    let sent = sending.poll(&mut Context::from_waker(Waker::noop()));
    let mut frame = match sent {
        Poll::Ready(Ok(())) => page.take(),
        _ => return None,
    };
    for _type_and_length in 0..2 {
        let (_, length) = integer(&frame)?;
        frame.advance(length);
    }
    (frame.len() >= PREFIX).then(|| frame.slice(PREFIX..))
}

/// A stream that keeps the one frame that is written to it.
struct Page<'a>(&'a RefCell<Bytes>);

impl SendStream<Bytes> for Page<'_> {
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        let mut frame = data.into();
        self.0.replace(frame.copy_to_bytes(frame.remaining()));
        Ok(())
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        Poll::Ready(Ok(()))
    }

    fn reset(&mut self, _: u64) {}

    fn send_id(&self) -> StreamId {
        // 0 is the first request's: below 2^62 all are right.
        StreamId::try_from(0).expect("a stream's number")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qpack::section;

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let fields = fields
            .iter()
            .map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut all = HeaderMap::new();
        for (name, value) in fields {
            all.append(name, value);
        }
        all
    }

    /// Whatever is known of them, lines are those that h3 writes for the whole.
    #[test]
    fn lines_are_those_of_h3_in_their_order_known_or_not() {
        let fields = [
            ("content-type", "application/octet-stream"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
            ("set-cookie", "a=1"),
            ("x-own", "Huffman?"),
            ("cache-control", "max-age=60"),
        ];
        let mut lines = Lines::new();
        for round in 0..4 {
            for left_out in 0..=fields.len() {
                let mut some = fields.to_vec();
                some.truncate(left_out);
                some.push(("etag", ["\"0\"", "\"1\"", "\"2\"", "\"3\""][round]));
                some.rotate_right(left_out.min(1));
                let some = map(&some);
                assert_eq!(lines.write(&some), encode(some.clone()), "{some:?}");
            }
        }
        let known = map(&fields[4..]);
        let [own, cached] = [0, 1].map(|at| {
            let (name, value) = known.iter().nth(at).unwrap();
            let bytes = [name.as_str().as_bytes(), value.as_bytes()];
            lines.0.find(hash(bytes), |line| line.is(bytes[0], bytes[1])).is_some()
        });
        assert!(own && cached, "they are kept");
    }

    fn is_kept(lines: &Lines, name: &str, value: &str) -> bool {
        let bytes = [name.as_bytes(), value.as_bytes()];
        lines.0.has(hash(bytes), |line| line.is(bytes[0], bytes[1]))
    }

    /// A line takes its name and value twice, and what the list of lines adds.
    #[test]
    fn long_values_are_kept_and_secret_ones_are_not() {
        let long = "a long value ".repeat(150);
        let mut lines = Lines::new();
        for _ in 0..3 {
            let mut fields = map(&[("x-short", "b")]);
            fields.insert("x-long", long.parse().unwrap());
            let mut secret = HeaderValue::from_static("secret");
            secret.set_sensitive(true);
            fields.insert("x-secret", secret);
            assert_eq!(lines.write(&fields), encode(fields.clone()));
        }
        assert!(is_kept(&lines, "x-long", &long) && is_kept(&lines, "x-short", "b"));
        assert!(!is_kept(&lines, "x-secret", "secret"));
    }

    #[test]
    fn what_is_written_is_well_formed() {
        let lines = Lines::new().write(&map(&[("server", "a"), ("x-y", "b")])).unwrap();
        let section = [&[0, 0, 0xd9][..], &lines].concat();
        assert_eq!(section::response(&section), Ok(200));
        assert_eq!(Lines::new().write(&HeaderMap::new()), Some(Bytes::new()));
    }
}
