//! Requests over one connection of HTTP/3 (RFC 9114), for programs that make their connections themselves.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use h3::client::RequestStream;
use h3::error::Code;
use http::{HeaderMap, Method, Request, Response, Uri, Version};
use quicket::ConnectError;
use quicket::tokio::Connection;
use quicket_h3::{Acceptance, OpenStreams};
use tokio::task::JoinHandle;

use crate::body::{Body, Piece, Source};
use crate::length::Length;

pub use h3::error::StreamError;

/// Why an exchange has failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Broken {
    /// Its stream or connection has; what h3 says.
    Stream(StreamError),
    /// The answer is malformed (RFC 9114, Section 4.1.2); the words say how.
    Malformed(&'static str),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream(error) => error.fmt(f),
            Self::Malformed(words) => write!(f, "the answer is malformed: {words}"),
        }
    }
}

impl std::error::Error for Broken {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Stream(error) => Some(error),
            Self::Malformed(_) => None,
        }
    }
}

impl From<StreamError> for Broken {
    fn from(error: StreamError) -> Self {
        Self::Stream(error)
    }
}

/// The longest header section of an answer, in bytes as they are encoded.
pub const MAX_HEADERS: usize = 64 << 10;

type Sending = RequestStream<quicket_h3::SendStream<Bytes>, Bytes>;
type Receiving = RequestStream<quicket_h3::RecvStream, Bytes>;

/// HTTP/3 on a connection. Clones share it; when the last of them and of its answers is gone, the connection is closed.
#[derive(Clone)]
pub struct Http3 {
    connection: Connection,
    acceptance: Acceptance,
    requests: h3::client::SendRequest<OpenStreams, Bytes>,
    /// The same for all clones: addresses change.
    identity: Arc<()>,
}

impl Http3 {
    /// Begins HTTP/3 on a connection whose handshake may be under way.
    ///
    /// # Errors
    ///
    /// If the connection has ended.
    pub async fn open(connection: Connection) -> Result<Self, ConnectError> {
        let transport = quicket_h3::Connection::client(connection.clone(), MAX_HEADERS);
        let acceptance = transport.acceptance();
        let mut builder = h3::client::builder();
        // Each clone of the sender would send its own.
        builder.max_field_section_size(MAX_HEADERS as u64).send_grease(false);
        let (mut driver, requests) =
            builder.build(transport).await.map_err(|_| ended(&connection))?;
        let driven = connection.clone();
        tokio::spawn(async move {
            let error = poll_fn(|context| driver.poll_close(context)).await;
            log::debug!("HTTP/3 with {} has ended: {error}", driven.remote_addr());
            driven.close(Code::H3_NO_ERROR.value(), b"");
        });
        Ok(Self { connection, acceptance, requests, identity: Arc::default() })
    }

    /// The connection below.
    #[must_use]
    pub const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// True if both are the same connection.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.identity, &other.identity)
    }

    /// False once the connection has ended, or the server takes no more requests (RFC 9114, Section 5.2).
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.connection.close_reason().is_none() && !self.acceptance.is_over()
    }

    /// Sends a request, and its body while the answer comes; waits for the answer's header fields. Where the handshake
    /// is under way, the request is sent as 0-RTT data, which **an attacker can repeat** (RFC 8470, Section 4). What the
    /// URI says of a user is left out (RFC 9114, Section 4.3.1).
    ///
    /// # Errors
    ///
    /// What h3 says, or that the answer's Content-Length is none. Where the connection has ended,
    /// [`Connection::close_reason`] knows better.
    pub async fn send(&self, mut request: Request<()>, body: Body) -> Result<Exchange, Broken> {
        without_user(request.uri_mut());
        let is_head = request.method() == Method::HEAD;
        let mut requests = self.requests.clone();
        let mut stream = requests.send_request(request).await?;
        let sending = match body.0 {
            Source::Empty => {
                is_wanted(stream.finish().await)?;
                let (_, receiving) = stream.split();
                return Exchange::begin(self.clone(), receiving, None, is_head).await;
            }
            source => {
                let (sending, receiving) = stream.split();
                (tokio::spawn(send_body(sending, source)), receiving)
            }
        };
        let (task, receiving) = sending;
        Exchange::begin(self.clone(), receiving, Some(Task(task)), is_head).await
    }
}

impl fmt::Debug for Http3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http3").field("connection", &self.connection).finish_non_exhaustive()
    }
}

/// Takes a user's name and password out of a URI.
fn without_user(uri: &mut Uri) {
    let Some((_, host)) = uri.authority().and_then(|it| it.as_str().rsplit_once('@')) else {
        return;
    };
    let host = host.parse().ok();
    let mut parts = uri.clone().into_parts();
    parts.authority = host;
    if let Ok(changed) = Uri::from_parts(parts) {
        *uri = changed;
    }
}

/// The end of a connection on which nothing more can be done.
fn ended(connection: &Connection) -> ConnectError {
    connection.close_reason().map_or(ConnectError::EndpointClosed, ConnectError::Lost)
}

/// Sends a body. If it breaks off, the stream is dropped before its end, and so reset.
async fn send_body(mut stream: Sending, source: Source) {
    let sent = match source {
        Source::Empty => Ok(true),
        Source::Whole(bytes) => is_wanted(stream.send_data(bytes).await),
        Source::Pieces(mut pieces) => loop {
            match pieces.recv().await {
                None => return,
                Some(Piece::End) => break Ok(true),
                Some(Piece::Data(bytes)) => match is_wanted(stream.send_data(bytes).await) {
                    Ok(true) => {}
                    other => break other,
                },
            }
        },
    };
    let ended = match sent {
        // What was stopped cannot be finished.
        Ok(true) => is_wanted(stream.finish().await),
        sent => sent,
    };
    if let Err(error) = ended {
        log::debug!("a request's body was not sent: {error}");
    }
}

/// Whether the server reads on. It may know enough to answer before it has read all: that is no
/// reason to discard what it answers (RFC 9114, Section 4.1).
fn is_wanted(sent: Result<(), StreamError>) -> Result<bool, StreamError> {
    match sent {
        Err(StreamError::RemoteTerminate { code, .. }) if code == Code::H3_NO_ERROR => Ok(false),
        sent => sent.map(|()| true),
    }
}

/// What sends a body: it ends with the exchange.
#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A request and its answer. What is dropped before it has come to its end is cancelled.
pub struct Exchange {
    head: Response<()>,
    stream: Receiving,
    over: bool,
    /// How much is to come.
    length: Length,
    _body: Option<Task>,
    /// The connection lives as long as somebody has it.
    _http3: Http3,
}

impl Exchange {
    async fn begin(
        http3: Http3,
        mut stream: Receiving,
        body: Option<Task>,
        is_head: bool,
    ) -> Result<Self, Broken> {
        // There can be informational answers before (RFC 9110, Section 15.2).
        loop {
            let mut head = stream.recv_response().await?;
            *head.version_mut() = Version::HTTP_3;
            if !head.status().is_informational() {
                let Some(length) = Length::of(&head, is_head) else {
                    stream.stop_sending(Code::H3_MESSAGE_ERROR);
                    return Err(Broken::Malformed("its Content-Length is none"));
                };
                return Ok(Self { head, stream, over: false, length, _body: body, _http3: http3 });
            }
        }
    }

    /// Status and header fields.
    #[must_use]
    pub const fn head(&self) -> &Response<()> {
        &self.head
    }

    /// The next piece of the answer; none at its end.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    ///
    /// What h3 says, or that there is not as much content as the Content-Length says (RFC 9114, Section 4.1.2): a part
    /// is not taken for the whole.
    pub async fn data(&mut self) -> Result<Option<Bytes>, Broken> {
        let piece = self.stream.recv_data().await?;
        self.over |= piece.is_none();
        let piece = piece.map(|mut piece| piece.copy_to_bytes(piece.remaining()));
        if let Err(words) = self.length.take(piece.as_ref().map(Bytes::len)) {
            if !std::mem::replace(&mut self.over, true) {
                self.stream.stop_sending(Code::H3_MESSAGE_ERROR);
            }
            return Err(Broken::Malformed(words));
        }
        Ok(piece)
    }

    /// The fields behind the content (RFC 9114, Section 4.1), once [`Exchange::data`] has told its end; none before, and
    /// none if the server has sent none.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    ///
    /// What h3 says.
    pub async fn trailers(&mut self) -> Result<Option<HeaderMap>, Broken> {
        if self.over { Ok(self.stream.recv_trailers().await?) } else { Ok(None) }
    }

    /// Wants nothing more of the answer.
    pub fn cancel(&mut self) {
        if !std::mem::replace(&mut self.over, true) {
            self.stream.stop_sending(Code::H3_REQUEST_CANCELLED);
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("head", &self.head).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_not_told_to_servers() {
        let mut uri: Uri = "https://user:word@example.org:444/a?b@c".parse().unwrap();
        without_user(&mut uri);
        assert_eq!(uri, "https://example.org:444/a?b@c");
        without_user(&mut uri);
        assert_eq!(uri, "https://example.org:444/a?b@c");
    }
}
