//! Accepting requests.

use std::task::{Context, Poll, ready};

use bytes::Buf;
use h3::error::ConnectionError;
use h3::frame::FrameStream;
use h3::server::{self, RequestResolver};
use h3::stream::BufRecvStream;

use crate::Connection;

/// The next request of a connection, which is to be [read](crate::resolve). `None` once its client has sent GOAWAY and all is
/// answered: then [`shutdown`](server::Connection::shutdown) with 0 is all that is left to do.
///
/// It is h3's `accept` without that end, for which the future of each `accept` has 900 bytes, as long as a connection is idle.
///
/// # Errors
///
/// When the connection has ended.
pub fn poll_accept<B: Buf>(
    server: &mut server::Connection<Connection, B>,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<RequestResolver<Connection, B>>, ConnectionError>> {
    let Some(stream) = ready!(server.poll_accept_request_stream(cx))? else {
        return Poll::Ready(Ok(None));
    };
    let resolver = server.create_resolver(FrameStream::new(BufRecvStream::new(stream)));
    // One answer at most brings a frame of a reserved type (RFC 9114, Section 7.2.8).
    server.inner.send_grease_frame = false;
    Poll::Ready(Ok(Some(resolver)))
}
