//! Extended CONNECT for WebSocket (RFC 9220).
//!
//! h3 0.0.8 takes a request for malformed whose `:protocol` is not one of the two that it knows, and WebSocket
//! is neither. So this line is taken out of the field section before h3 reads it, and told of beside. What asks
//! for another protocol is a CONNECT without one, for which a server has an answer.

use std::future::poll_fn;

use bytes::Bytes;
use h3::error::StreamError;
use h3::proto::frame::Frame;
use h3::server::{RequestResolver, RequestStream};
use http::Request;

use crate::section::{self, Protocol};
use crate::{BidiStream, Connection};

/// Beside a request, in its extensions: it is a CONNECT whose `:protocol` is `websocket` (RFC 8441, Section 4).
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
            // What is wrong with it is for h3 to find, where nobody has before.
            let protocol = section::request(&section).ok().flatten();
            is_websocket = protocol.as_ref().is_some_and(|protocol| protocol.is_websocket);
            Some(Frame::Headers(match protocol {
                Some(Protocol { place, .. }) => {
                    [&section[..place.start], &section[place.end..]].concat().into()
                }
                None => section,
            }))
        }
        other => other,
    });
    let (mut request, stream) = resolver.accept_with_frame(frame)?.resolve().await?;
    if is_websocket {
        request.extensions_mut().insert(WebSocket);
    }
    Ok((request, stream))
}
