//! One download: the same rules whatever protocol brings it.

use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use http::StatusCode;

use super::place::Place;
use super::progress::{FileProgress, Progress};
use super::sink::{self, Partial, Sink, Stuck};
use super::target::Target;
use crate::digest::Sha256;
use crate::exit::{Failure, Kind};

/// What is to be fetched, and what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) target: Target,
    pub(crate) place: Place,
    /// The hash that it must have.
    pub(crate) expected: Option<Sha256>,
    /// Goes on with what an interrupted run has left.
    pub(crate) resume: bool,
}

impl Job {
    /// What there is to go on with.
    pub(crate) fn partial(&self) -> Option<Partial> {
        match &self.place {
            Place::File(path) if self.resume => sink::partial(path),
            _ => None,
        }
    }
}

/// What was fetched.
#[derive(Clone, Debug)]
pub(crate) struct Fetched {
    /// The HTTP status, where there is one.
    pub(crate) status: Option<u16>,
    /// What came over the network, in bytes.
    pub(crate) received: u64,
    /// What an earlier run had left, in bytes.
    pub(crate) kept: u64,
    pub(crate) sha256: Sha256,
    pub(crate) took: Duration,
}

/// What a server says of a body before it comes.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: Option<u16>,
    /// The length of what follows, in bytes.
    pub(crate) len: Option<u64>,
    /// A strong validator.
    pub(crate) etag: Option<String>,
    /// How much of an earlier run the body goes on from, in bytes.
    pub(crate) kept: u64,
}

/// A body on its way to its place.
#[derive(Debug)]
pub(crate) struct Download {
    job: Job,
    head: Head,
    sink: Sink,
    progress: FileProgress,
    received: u64,
    begun: Instant,
}

impl Download {
    /// Begins.
    pub(crate) fn begin(job: &Job, head: Head, progress: &Progress, begun: Instant) -> Self {
        let sink = Sink::open(job.place.clone(), head.kept, head.etag.clone());
        let name = job.target.url.path_segments().and_then(|mut names| names.next_back());
        let progress = progress.begin(name.unwrap_or_default(), head.kept, head.len);
        Self { job: job.clone(), head, sink, progress, received: 0, begun }
    }

    /// An earlier run had fetched everything: what comes now does not belong to the file.
    pub(crate) fn is_complete(&self) -> bool {
        self.head.status == Some(StatusCode::RANGE_NOT_SATISFIABLE.as_u16())
    }

    /// Takes a piece.
    pub(crate) async fn take(&mut self, mut piece: impl Buf) -> Result<(), Stuck> {
        let piece: Bytes = piece.copy_to_bytes(piece.remaining());
        let len = piece.len() as u64;
        self.received += len;
        self.progress.advance(len);
        self.sink.write(piece).await
    }

    /// The end of the body, or of what came of it.
    pub(crate) async fn end(self, outcome: Result<(), Failure>) -> Result<Fetched, Failure> {
        let Self { job, head, sink, received, begun, .. } = self;
        let url = &job.target.url;
        // What the disk says goes before what the network says: it is the cause, if there are two.
        let written = sink.finish().await?;
        outcome?;
        if let Some(len) = head.len
            && len != received
        {
            let message = format!(
                "{url}: {received} bytes came, but the server had announced {len}; try again with \
                 --continue"
            );
            return Err(Failure::new(Kind::Content, message));
        }
        let sha256 = written.sha256;
        if let Some(expected) = job.expected
            && expected != sha256
        {
            written.discard()?;
            let message =
                format!("{url}: its SHA-256 is {sha256}, not {expected}; nothing was kept");
            return Err(Failure::new(Kind::Content, message));
        }
        written.keep()?;
        Ok(Fetched {
            status: head.status,
            received,
            kept: head.kept,
            sha256,
            took: begun.elapsed(),
        })
    }
}
