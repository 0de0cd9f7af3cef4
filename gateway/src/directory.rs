//! Files as answers.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Response};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Empty, Full};
use quicket_files::{
    Answer, Body as Content, Chunks, Descriptors, Options, Question, Room, Tree, is_shortage,
};
use tokio::task::spawn_blocking;

use crate::{Body, BodyError};

/// Large pieces, of 256 KiB each, that are read before they are sent, of all clients of a directory together.
/// Each download holds a small one beside, of 16 KiB.
const MAX_PIECES: usize = 128;

/// A directory whose files can be had.
#[derive(Debug)]
pub(crate) struct Directory {
    tree: Arc<Tree>,
    descriptors: Descriptors,
    room: Room,
}

impl Directory {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let options = Options { precompressed: true, ..Options::default() };
        let tree = Arc::new(Tree::open(path, options)?);
        let room = Room::new(MAX_PIECES);
        Ok(Self { tree, descriptors: Descriptors::default(), room })
    }

    /// Answers with the file at `path`.
    pub(crate) async fn answer(&self, request: &Parts, path: &str) -> io::Result<Response<Body>> {
        let attempt = || {
            let tree = Arc::clone(&self.tree);
            let asked: (Method, String, HeaderMap) =
                (request.method.clone(), path.to_owned(), request.headers.clone());
            let answering = spawn_blocking(move || {
                let (method, path, headers) = (&asked.0, asked.1.as_str(), &asked.2);
                quicket_files::answer(&tree, &Question { method, path, headers, early: false })
            });
            async move { answering.await.map_err(io::Error::other)? }
        };
        let answer = match self.descriptors.wait_for(attempt).await {
            Err(error) if is_shortage(&error) => Answer::busy(),
            answer => answer?,
        };
        let body = match answer.body {
            Content::Empty => Empty::new().map_err(Into::into).boxed_unsync(),
            Content::Bytes(bytes) => Full::new(bytes).map_err(Into::into).boxed_unsync(),
            Content::File(file, len) => {
                Pieces::new(Chunks::new(file, len, &self.room), len).boxed_unsync()
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        Ok(response)
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
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
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
