//! An answer as a message of the crate `http`, with its body read as it leaves.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use http_body::{Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use tokio::task::spawn_blocking;

use crate::{Answer, Body, Chunks, Descriptors, Question, Room, Tree, answer, is_shortage};

/// Why a body did not come to its end.
type Error = Box<dyn std::error::Error + Send + Sync>;

/// A question with all that it is of.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The method.
    pub method: Method,
    /// The path of the target, percent-encoded, without the query.
    pub path: String,
    /// The fields.
    pub headers: HeaderMap,
    /// It came as 0-RTT data, which an attacker can repeat.
    pub early: bool,
}

/// Answers a question on a thread that may wait, once there is a descriptor for the file. Where there is none for long, that
/// is the answer.
///
/// # Errors
///
/// If the answering itself fails, which is our fault.
pub async fn ask(tree: &Arc<Tree>, descriptors: &Descriptors, asked: Asked) -> io::Result<Answer> {
    let asked = Arc::new(asked);
    let attempt = || {
        let (tree, asked) = (Arc::clone(tree), Arc::clone(&asked));
        let answering = spawn_blocking(move || {
            let Asked { method, path, headers, early } = &*asked;
            answer(&tree, &Question { method, path, headers, early: *early })
        });
        async move { answering.await.map_err(io::Error::other)? }
    };
    match descriptors.wait_for(attempt).await {
        Err(error) if is_shortage(&error) => Ok(Answer::busy()),
        answer => answer,
    }
}

impl Answer {
    /// As a message, whose body has room for pieces of files in `room`.
    #[must_use]
    pub fn into_response(self, room: &Room) -> Response<UnsyncBoxBody<Bytes, Error>> {
        let body = match self.body {
            Body::Empty => Empty::new().map_err(Into::into).boxed_unsync(),
            Body::Bytes(bytes) => Full::new(bytes).map_err(Into::into).boxed_unsync(),
            Body::File(file, len) => Pieces::new(Chunks::new(file, len, room), len).boxed_unsync(),
        };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

type Reading = Pin<Box<dyn Future<Output = (Chunks, io::Result<Option<Bytes>>)> + Send>>;

/// A part of a file as a body.
struct Pieces {
    /// The next piece; none after the end.
    reading: Option<Reading>,
    remaining: u64,
}

impl Pieces {
    fn new(chunks: Chunks, remaining: u64) -> Self {
        let reading = (remaining > 0).then(|| read(chunks));
        Self { reading, remaining }
    }
}

fn read(mut chunks: Chunks) -> Reading {
    Box::pin(async move {
        let piece = chunks.next().await;
        (chunks, piece)
    })
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        let (chunks, piece) = ready!(reading.as_mut().poll(cx));
        self.reading = None;
        let Some(piece) = piece? else { return Poll::Ready(None) };
        self.remaining = self.remaining.saturating_sub(piece.len() as u64);
        self.reading = (self.remaining > 0).then(|| read(chunks));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.reading.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}
