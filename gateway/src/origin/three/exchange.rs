//! A request and its answer.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use h3::client::RequestStream;
use h3::error::StreamError;
use h3::quic::StreamId;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use http_body_util::BodyExt;
use quicket_h3::{BidiStream, RecvStream};

use super::InPages;
use super::connection::{Share, Three};
use super::fault;
use super::link::Link;
use super::received::Received;
use super::upload::Upload;
use crate::origin::hints::Hints;
use crate::request::is_safe;
use crate::{Body, BodyError, upgrade};

/// Why there is no answer.
pub(super) enum NoAnswer {
    /// The server allows no more requests at the moment; nothing was sent.
    NoRoom(Request<Body>),
    /// The connection took nothing of the request.
    Unsent(Request<Body>, BodyError),
    /// The connection or the stream ended, or what came is no answer.
    Broken {
        error: BodyError,
        /// The server has said that it did nothing with the request.
        is_unprocessed: bool,
    },
}

impl NoAnswer {
    fn broken(error: StreamError) -> Self {
        let is_unprocessed = fault::is_unprocessed(&error);
        Self::Broken { error: fault::plain(error), is_unprocessed }
    }
}

/// Sends a request, and waits for its answer. `may_wait` is for one that waits until the server allows it.
pub(super) async fn exchange(
    share: Share,
    request: Request<Body>,
    may_wait: bool,
) -> Result<Response<Body>, NoAnswer> {
    let three = Arc::clone(share.connection());
    let (stream, parts, body) = begin(&three, request, may_wait).await?;
    let (id, method) = (stream.id(), parts.method);
    let can_repeat = is_safe(&method) && body.is_end_stream();
    let (sending, mut receiving) = stream.split();
    let mut upload = Upload::begin(sending, body, share.clone()).await;
    let hints = parts.extensions.get::<Hints>();
    let answer = tokio::select! {
        biased;
        error = upload.client_failed() => {
            return Err(NoAnswer::Broken { error, is_unprocessed: false });
        }
        answer = head(&mut receiving, hints) => answer.map_err(NoAnswer::broken)?,
        none = left(&three, id, can_repeat) => return Err(none),
    };
    receive(answer, receiving, &method, (upload, share)).await
}

/// Asks for WebSocket (RFC 9220). An answer that takes it up is as in HTTP/1.1, and the stream is with it.
pub(super) async fn upgrade(
    share: Share,
    request: Request<Body>,
    may_wait: bool,
) -> Result<Response<Body>, NoAnswer> {
    let three = Arc::clone(share.connection());
    let (stream, parts, body) = begin(&three, request, may_wait).await?;
    let id = stream.id();
    let (sending, mut receiving) = stream.split();
    let hints = parts.extensions.get::<Hints>();
    let mut answer = tokio::select! {
        biased;
        answer = head(&mut receiving, hints) => answer.map_err(NoAnswer::broken)?,
        none = left(&three, id, true) => return Err(none),
    };
    if !answer.status().is_success() {
        // There is no body, and the request ends here.
        let upload = Upload::begin(sending, body, share.clone()).await;
        return receive(answer, receiving, &parts.method, (upload, share)).await;
    }
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *answer.version_mut() = Version::HTTP_11;
    let link = upgrade::Stream::new(Link::new(sending, receiving, share));
    answer.extensions_mut().insert(link);
    Ok(answer.map(|()| Body::default()))
}

type Stream = RequestStream<BidiStream<Bytes>, Bytes>;

/// Opens a stream with the head of a request.
async fn begin(
    three: &Three,
    request: Request<Body>,
    may_wait: bool,
) -> Result<(Stream, Parts, Body), NoAnswer> {
    let (parts, body) = request.into_parts();
    match open(three, Request::from_parts(parts.clone(), ()), may_wait).await {
        Ok(Some(stream)) => Ok((stream, parts, body)),
        Ok(None) => Err(NoAnswer::NoRoom(Request::from_parts(parts, body))),
        Err(error) if fault::is_of_connection(&error) => {
            Err(NoAnswer::Unsent(Request::from_parts(parts, body), fault::plain(error)))
        }
        Err(error) => Err(NoAnswer::broken(error)),
    }
}

/// Opens a stream, and sends the header section; nothing if there is no stream to be had.
async fn open(
    three: &Three,
    head: Request<()>,
    may_wait: bool,
) -> Result<Option<Stream>, StreamError> {
    let mut sender = three.sender();
    let mut opening = pin!(sender.send_request(head));
    poll_fn(|cx| match opening.as_mut().poll(cx) {
        Poll::Pending if !may_wait && three.acceptance().is_full() => Poll::Ready(Ok(None)),
        polled => polled.map_ok(Some),
    })
    .await
}

/// The head of the answer, behind those that come before it (RFC 9110, Section 15.2).
async fn head(
    receiving: &mut RequestStream<RecvStream, Bytes>,
    hints: Option<&Hints>,
) -> Result<Response<()>, StreamError> {
    loop {
        let head = receiving.recv_response().await?;
        if !head.status().is_informational() {
            return Ok(head);
        }
        if let Some(hints) = hints {
            hints.told(head.status(), head.headers());
        }
    }
}

/// Waits until it is sure that there will be no answer: the server has left the request out, or seems to be gone, where
/// the request may go to another one.
async fn left(three: &Three, id: StreamId, can_repeat: bool) -> NoAnswer {
    let (error, is_unprocessed) = tokio::select! {
        biased;
        () = three.acceptance().left_out(id) => {
            ("it ends the connection, and left the request out", true)
        }
        () = gone(three, can_repeat) => ("it acknowledges nothing any more", false),
    };
    NoAnswer::Broken { error: error.into(), is_unprocessed }
}

/// Waits until the server seems to be gone, where the request may go to another one.
async fn gone(three: &Three, can_repeat: bool) {
    match can_repeat {
        true => three.is_silent().await,
        false => pending().await,
    }
}

async fn receive(
    mut answer: Response<()>,
    receiving: RequestStream<RecvStream, Bytes>,
    method: &Method,
    held: (Upload, Share),
) -> Result<Response<Body>, NoAnswer> {
    let body = Received::new(receiving, &answer, method, held);
    let mut body =
        body.map_err(|error| NoAnswer::Broken { error: error.into(), is_unprocessed: false })?;
    // Many answers have no body, which shows only at the end of the stream.
    body.look().await;
    // Whatever the client came by: hyper knows no HTTP/3, and takes it for a mistake.
    *answer.version_mut() = Version::HTTP_11;
    answer.extensions_mut().insert(InPages);
    Ok(answer.map(|()| body.boxed_unsync()))
}
