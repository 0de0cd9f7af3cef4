//! A request and its answer.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::task::Poll;

use bytes::Bytes;
use h3::client::RequestStream;
use h3::error::StreamError;
use h3::quic::StreamId;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use http_body_util::BodyExt;
use quicket_h3::{BidiStream, RecvStream, SendStream};

use super::InPages;
use super::connection::{Share, Three};
use super::fault;
use super::line::{Left, Line, Place};
use super::link::Link;
use super::received::Received;
use super::upload::Upload;
use crate::origin::hints::Hints;
use crate::request::is_safe;
use crate::{Body, BodyError, upgrade};

/// What is said of a server that seems to be gone.
const SILENT: &str = "it acknowledges nothing any more";
/// What is said of one that allows nothing, though no request is with it.
const STUCK: &str = "it does nothing and allows no more requests";

/// Why there is no answer.
pub(super) enum NoAnswer {
    /// The server allows no more requests on this connection; nothing was sent.
    NoRoom(Request<Body>),
    /// It has waited for its turn for as long as it may, or too many do.
    Busy,
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

/// Sends a request, and waits for its answer. `line` is for one that waits until the server allows it, which gives its `place` back
/// once it does.
pub(super) async fn exchange(
    share: Share,
    request: Request<Body>,
    line: Option<Line<'_>>,
    place: &mut Place,
) -> Result<Response<Body>, NoAnswer> {
    let (begun, body) = Begun::new(share, request, line, place).await?;
    let Begun { share, parts, sending, mut receiving } = begun;
    let can_repeat = is_safe(&parts.method) && body.is_end_stream();
    let mut upload = Upload::begin(sending, body, share.clone()).await;
    let answer = tokio::select! {
        biased;
        error = upload.client_failed() => {
            return Err(NoAnswer::Broken { error, is_unprocessed: false });
        }
        answer = head(share.connection(), &mut receiving, &parts, can_repeat) => answer?,
    };
    receive(answer, receiving, &parts.method, (upload, share)).await
}

/// Asks for WebSocket (RFC 9220). An answer that takes it up is as in HTTP/1.1, and the stream is with it.
pub(super) async fn upgrade(
    share: Share,
    request: Request<Body>,
) -> Result<Response<Body>, NoAnswer> {
    let (begun, body) = Begun::new(share, request, None, &mut None).await?;
    let Begun { share, parts, sending, mut receiving } = begun;
    let mut answer = head(share.connection(), &mut receiving, &parts, true).await?;
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

/// A request whose head was sent.
struct Begun {
    share: Share,
    parts: Parts,
    sending: RequestStream<SendStream<Bytes>, Bytes>,
    receiving: RequestStream<RecvStream, Bytes>,
}

impl Begun {
    /// Opens a stream with the head of a request, whose body is left.
    async fn new(
        share: Share,
        request: Request<Body>,
        line: Option<Line<'_>>,
        place: &mut Place,
    ) -> Result<(Self, Body), NoAnswer> {
        let (parts, body) = request.into_parts();
        let head = Request::from_parts(parts.clone(), ());
        let unsent = |parts, body| Request::from_parts(parts, body);
        match open(share.connection(), head, line, place).await {
            Ok(Ok(stream)) => {
                share.grant();
                // It waits no longer, on whichever connection that was.
                *place = None;
                let (sending, receiving) = stream.split();
                Ok((Self { share, parts, sending, receiving }, body))
            }
            Err(Left::Elsewhere) => {
                share.connection().fill();
                Err(NoAnswer::NoRoom(unsent(parts, body)))
            }
            Err(Left::Late | Left::Crowded) => Err(NoAnswer::Busy),
            Err(left @ (Left::Gone | Left::Stuck)) => {
                share.connection().spend();
                let error = if left == Left::Gone { SILENT } else { STUCK };
                Err(NoAnswer::Broken { error: error.into(), is_unprocessed: true })
            }
            Ok(Err(error)) if fault::is_of_connection(&error) => {
                Err(NoAnswer::Unsent(unsent(parts, body), fault::plain(error)))
            }
            Ok(Err(error)) => {
                share.grant();
                Err(NoAnswer::broken(error))
            }
        }
    }
}

/// Opens a stream, and sends the header section.
async fn open(
    three: &Three,
    head: Request<()>,
    line: Option<Line<'_>>,
    place: &mut Place,
) -> Result<Result<Stream, StreamError>, Left> {
    let mut sender = three.sender();
    let mut opening = pin!(sender.send_request(head));
    let opened = poll_fn(|cx| match opening.as_mut().poll(cx) {
        Poll::Pending if three.acceptance().is_full() => Poll::Ready(None),
        polled => polled.map(Some),
    });
    match (opened.await, line) {
        (Some(opened), _) => Ok(opened),
        (None, None) => Err(Left::Elsewhere),
        // In a box is what few requests need.
        (None, Some(line)) => Box::pin(line.wait(three, opening, place)).await,
    }
}

/// The head of the answer. Where it is sure that there will be none, it is not waited for: the server has left the request
/// out, or seems to be gone, where the request may go to another one.
async fn head(
    three: &Three,
    receiving: &mut RequestStream<RecvStream, Bytes>,
    parts: &Parts,
    can_repeat: bool,
) -> Result<Response<()>, NoAnswer> {
    let id = receiving.id();
    tokio::select! {
        biased;
        head = last_head(receiving, parts.extensions.get::<Hints>()) => head.map_err(NoAnswer::broken),
        none = left(three, id, can_repeat) => Err(none),
    }
}

/// The head of the answer, behind those that come before it (RFC 9110, Section 15.2).
async fn last_head(
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
        () = gone(three, can_repeat) => (SILENT, false),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    use quicket::tokio::Endpoint;
    use quicket::{ClientConfig, ClientTls, Identity, ServerConfig, ServerTls};
    use tokio::sync::Semaphore;

    /// It may have waited on another connection, and have its stream on this one at once.
    #[tokio::test]
    async fn a_request_that_has_a_stream_waits_no_longer_for_one() {
        let identity = Identity::self_signed(["localhost"]).unwrap();
        let client = ClientTls::builder().pinned([identity.fingerprint()]).alpn(["h3"]);
        let client = ClientConfig::new(client.build().unwrap());
        let server = ServerTls::builder(identity).alpn(["h3"]).build().unwrap();
        let listening = Endpoint::bind("127.0.0.1:0").await.unwrap();
        let listener = listening.listen(ServerConfig::new(server)).unwrap();
        let endpoint = Endpoint::bind("127.0.0.1:0").await.unwrap();
        let connecting = endpoint.connect(listener.local_addr(), "localhost", &client);
        // It never answers.
        let (client, _server) = tokio::join!(connecting, listener.accept());
        let three = Arc::new(
            Three::new(client.unwrap(), listener.local_addr(), Arc::default()).await.unwrap(),
        );
        let waiting = Arc::new(Semaphore::new(1));
        let mut place = Some(Arc::clone(&waiting).try_acquire_owned().unwrap());
        let request = Request::get("https://localhost/").body(Body::default()).unwrap();
        let mut asking = pin!(exchange(Share::new(&three), request, None, &mut place));
        let freed = tokio::time::timeout(Duration::from_secs(20), waiting.acquire());
        tokio::select! {
            _ = &mut asking => panic!("an answer that nobody gave"),
            freed = freed => assert!(freed.is_ok(), "it has its place still"),
        }
        assert_eq!(three.streams(), 1);
    }
}
