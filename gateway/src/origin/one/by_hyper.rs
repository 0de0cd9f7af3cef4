//! Connections of HTTP/1.1 that hyper has: they carry bodies of requests, too, and become other protocols'.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use tokio::runtime::Handle;

use super::super::MAX_ANSWER_HEADERS;
use super::super::connect::Link;
use crate::{Body, BodyError};

type Connection = http1::Connection<TokioIo<Link>, Body>;

/// How long a connection that nobody needs may take to tell the server of its end. One that reads nothing hears none over TLS.
const FAREWELL: Duration = Duration::from_secs(5);

/// A connection of hyper's.
pub(super) struct ByHyper {
    sender: http1::SendRequest<Body>,
    /// What reads and writes, as long as it goes on only while its request is polled: mostly all that it would wake is
    /// the request's task, and all that would wake it is that task. None once it has a task of its own, or has ended.
    connection: Option<Box<Connection>>,
}

impl ByHyper {
    pub(super) async fn new(link: Link) -> Result<Self, hyper::Error> {
        let mut builder = http1::Builder::new();
        let handshake = builder.max_buf_size(MAX_ANSWER_HEADERS).handshake(TokioIo::new(link));
        let (sender, connection) = handshake.await?;
        Ok(Self { sender, connection: Some(Box::new(connection)) })
    }

    /// Sends a request, and gives its answer, of which [`ByHyper::poll_frame`] has the body go on.
    pub(super) async fn send(
        &mut self,
        request: Request<Body>,
        is_upgrade: bool,
    ) -> Result<Response<Incoming>, TrySendError<Request<Body>>> {
        if is_upgrade {
            // What it becomes has ends of its own.
            self.detach();
        }
        let upload = Arc::new(());
        let request = match request.body().is_end_stream() {
            true => request,
            false => {
                request.map(|body| Upload { body, _upload: Arc::clone(&upload) }.boxed_unsync())
            }
        };
        let mut sending = pin!(self.sender.try_send_request(request));
        let connection = &mut self.connection;
        let answer = poll_fn(|cx| {
            go_on(connection, cx);
            sending.as_mut().poll(cx)
        });
        let answer = answer.await?;
        if Arc::strong_count(&upload) > 1 {
            // The rest of the request must not wait for a client that takes nothing of the answer.
            self.detach();
        }
        Ok(answer)
    }

    /// The next frame of an answer's body.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Incoming,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.drive(cx);
        Pin::new(body).poll_frame(cx).map_err(BodyError::from)
    }

    /// Reads and writes what can be read and written now.
    fn drive(&mut self, cx: &mut Context<'_>) {
        go_on(&mut self.connection, cx);
    }

    /// Whether it can take a request, as far as is known.
    pub(super) fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }

    /// The same, after a look at whether the server has ended it.
    pub(super) fn is_still_ready(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.is_ready()
    }

    /// Waits until it can take a request; false if it never will.
    pub(super) async fn becomes_ready(&mut self) -> bool {
        let ready = poll_fn(|cx| {
            self.drive(cx);
            self.sender.poll_ready(cx)
        });
        ready.await.is_ok()
    }

    /// From now on it goes on by itself, until its sender and its request are gone, or the server is.
    fn detach(&mut self) {
        if let Some(connection) = self.connection.take() {
            tokio::spawn(async move {
                if let Err(error) = connection.with_upgrades().await {
                    log::debug!("a connection to an origin has ended: {error}");
                }
            });
        }
    }
}

impl Drop for ByHyper {
    /// Its end is told to the server, too (RFC 8446, Section 6.1).
    fn drop(&mut self) {
        // Without a runtime the gateway is about to end.
        if Handle::try_current().is_err() {
            return;
        }
        if let Some(connection) = self.connection.take() {
            // It keeps its seat until then.
            tokio::spawn(tokio::time::timeout(FAREWELL, connection));
        }
    }
}

fn go_on(connection: &mut Option<Box<Connection>>, cx: &mut Context<'_>) {
    let Some(going) = connection else { return };
    if let Poll::Ready(ended) = Pin::new(going).poll(cx) {
        *connection = None;
        if let Err(error) = ended {
            log::debug!("a connection to an origin has ended: {error}");
        }
    }
}

/// The body of a request. It is there until all of it is sent.
struct Upload {
    body: Body,
    _upload: Arc<()>,
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
