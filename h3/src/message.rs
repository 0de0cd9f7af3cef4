//! Requests as h3 reads them, and heads of answers as it writes them, where more is known than it knows.
//!
//! h3 has no way in for a request that somebody else has read, nor for fields that are encoded already. So it reads
//! the shortest request that there is, and what it makes of it is replaced; and it writes a status alone,
//! behind which the fields are put.

use std::future::poll_fn;

use bytes::{BufMut, Bytes, BytesMut};
use h3::error::StreamError;
use h3::proto::frame::Frame;
use h3::server::{RequestResolver, RequestStream};
use http::{Request, Response};

use crate::frames::{HEADERS, integer};
use crate::section::{self, Protocol};
use crate::{BidiStream, Connection, SendStream, Transfer, WebSocket};

/// The frame of a CONNECT to `a`: what h3 reads for a request that is known.
pub(crate) const STAND_IN: &[u8] = &[1, 6, 0, 0, 0xcf, 0x50, 1, b'a'];

/// A section without fields, which is no request.
const NOTHING: &[u8] = &[0, 0];

/// Room for the header of a frame, in bytes.
const HEADER: usize = 5;
/// Room for a short body behind a head, and for the header of its frame, in bytes.
const SHORT_BODY: usize = 1536;

/// Reads a request as [`RequestResolver::resolve_request`] does, and also those that ask for WebSocket. What is known of it
/// is `transfer`, which must be its own.
///
/// # Errors
///
/// Those of h3. A request that is known to another `transfer` is malformed to this one.
pub async fn resolve(
    mut resolver: RequestResolver<Connection, Bytes>,
    transfer: &Transfer,
) -> Result<(Request<()>, RequestStream<BidiStream<Bytes>, Bytes>), StreamError> {
    let frame = poll_fn(|cx| resolver.frame_stream.poll_next(cx)).await;
    if let Some(request) = transfer.take_request() {
        let (_, stream) = resolver.accept_with_frame(frame)?.resolve().await?;
        return Ok((request, stream));
    }
    let (mut whole, mut is_websocket) = (None, false);
    let frame = frame.map(|frame| match frame {
        // The request that it stands for is elsewhere, or there is none: a CONNECT has a port (RFC 9110, Section 7.1).
        Some(Frame::Headers(section)) if *section == STAND_IN[2..] => {
            Some(Frame::Headers(Bytes::from_static(NOTHING)))
        }
        Some(Frame::Headers(section)) => {
            // What is wrong with it is for h3 to find, where nobody has before.
            let protocol = section::request(&section).ok().flatten();
            is_websocket = protocol.as_ref().is_some_and(|protocol| protocol.is_websocket);
            Some(Frame::Headers(match protocol {
                Some(Protocol { place, .. }) => {
                    [&section[..place.start], &section[place.end..]].concat().into()
                }
                None => {
                    whole = Some(section.clone());
                    section
                }
            }))
        }
        other => other,
    });
    let (mut request, stream) = resolver.accept_with_frame(frame)?.resolve().await?;
    if let Some(section) = whole {
        transfer.keep(&section, &request);
    }
    if is_websocket {
        request.extensions_mut().insert(WebSocket);
    }
    Ok((request, stream))
}

/// Sends the head of an answer as [`RequestStream::send_response`] does. What is known of the request is `transfer`.
///
/// # Errors
///
/// Those of h3.
pub async fn respond(
    stream: &mut RequestStream<SendStream<Bytes>, Bytes>,
    transfer: &Transfer,
    mut head: Response<()>,
) -> Result<(), StreamError> {
    if transfer.write_lines(head.headers()) {
        head.headers_mut().clear();
    }
    stream.send_response(head).await
}

/// The frame of a section, with these lines behind those that it has; with room for more if it `is_held`.
pub(crate) fn with_lines(frame: &[u8], lines: &[u8], is_held: bool) -> Option<BytesMut> {
    let (kind, before) = integer(frame)?;
    let (_, length) = integer(frame.get(before..)?)?;
    let section = frame.get(before + length..)?;
    // Four bytes hold 30 bits (RFC 9000, Section 16).
    let length = u32::try_from(section.len() + lines.len()).ok();
    let length = length.filter(|length| kind == HEADERS && *length < 1 << 30)?;
    let room = HEADER + if is_held { SHORT_BODY } else { 0 };
    let mut written = BytesMut::with_capacity(section.len() + lines.len() + room);
    written.put_u8(HEADERS as u8);
    written.put_u32(length | 2 << 30);
    written.put(section);
    written.put(lines);
    Some(written)
}
