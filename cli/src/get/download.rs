//! One download: the same rules whatever protocol brings it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use http::StatusCode;
use tokio::time::timeout_at;

use super::order::Order;
use super::place::Place;
use super::progress::{FileProgress, Progress};
use super::rate::Limit;
use super::sink::{Sink, Stuck};
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
    /// Somebody wants to know its hash, even if none is expected.
    pub(crate) hashed: bool,
    /// Goes on with what an interrupted run has left.
    pub(crate) resume: bool,
    /// How it is asked for.
    pub(crate) order: Order,
    /// How often it was tried again, and may be.
    pub(crate) tries: u16,
    pub(crate) max_tries: u16,
    /// How fast it may come.
    pub(crate) limit: Option<Arc<Limit>>,
}

impl Job {
    /// The same from the beginning: what is here is of no use.
    pub(crate) fn anew(&self) -> Self {
        Self { resume: false, ..self.clone() }
    }
}

/// What came of asking a server.
#[derive(Debug)]
pub(crate) enum Answered {
    /// The file.
    Fetched(Fetched),
    /// Something else is to be asked.
    Moved(Box<Job>),
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
    /// Its hash, if anybody wants it.
    pub(crate) sha256: Option<Sha256>,
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
        let hashed = job.hashed || job.expected.is_some();
        let sink = Sink::open(job.place.clone(), head.kept, head.etag.clone(), hashed);
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
        self.sink.write(piece).await?;
        if let Some(limit) = &self.job.limit {
            // There is time enough to write each piece by itself.
            self.sink.flush().await?;
            limit.passed(len).await;
        }
        Ok(())
    }

    /// Waits for what comes next of the body. What has come before is written when it is due.
    pub(crate) async fn upcoming<T>(&mut self, next: impl Future<Output = T>) -> T {
        let mut next = pin!(next);
        // There may be nothing at first although there is something (see `quicket_h3::RecvStream`).
        for _ in 0..2 {
            if let Poll::Ready(next) = poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await {
                return next;
            }
        }
        if let Some(due) = self.sink.due() {
            if let Ok(next) = timeout_at(due.into(), next.as_mut()).await {
                return next;
            }
            // Where it cannot be written, the next piece or the end of all says so.
            let _ = self.sink.catch_up().await;
        }
        next.await
    }

    /// The end of the body, or of what came of it.
    pub(crate) async fn end(self, outcome: Result<(), Failure>) -> Result<Fetched, Failure> {
        let Self { job, head, sink, received, begun, .. } = self;
        let url = job.target.shown();
        // What the disk says goes before what the network says: it is the cause, if there are two.
        let written = sink.finish().await?;
        let may_be_repeated = received == 0 || matches!(job.place, Place::File(_));
        // What went to a pipe cannot be taken back.
        outcome.map_err(|failure| if may_be_repeated { failure } else { failure.lasting() })?;
        if let Some(len) = head.len
            && len != received
        {
            let message = format!(
                "{url}: {received} bytes came, but the server had announced {len}; try again with \
                 --continue"
            );
            let failure = Failure::new(Kind::Content, message);
            return Err(match may_be_repeated {
                true => failure.passing(Duration::ZERO),
                false => failure,
            });
        }
        let sha256 = written.sha256;
        if let (Some(expected), Some(sha256)) = (job.expected, sha256)
            && expected != sha256
        {
            let kept = written.discard()?;
            let message = format!("{url}: its SHA-256 is {sha256}, not {expected}; {kept}");
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use crate::get::plan;
    use clap::Parser;

    /// What the command line makes of a URL and flags.
    pub(crate) fn job(url: &str, flags: &[&str]) -> Job {
        let line = [&["quicket", "get", url], flags].concat();
        let Command::Get(args) = Args::parse_from(line).command else { panic!("not get") };
        plan(&args).unwrap().remove(0)
    }

    /// Longer than a task waits for a processor that others use.
    const PATIENCE: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn what_has_come_is_written_although_nothing_follows() {
        let job = job("https://localhost/file", &["-o", "/dev/null"]);
        let head = Head { status: Some(200), len: None, etag: None, kept: 0 };
        let progress = Progress::new(1, true, false);
        let mut download = Download::begin(&job, head, &progress, Instant::now());
        download.take(&b"abc"[..]).await.unwrap();
        let due = download.sink.due().unwrap_or_else(Instant::now);
        let next = download.upcoming(std::future::pending::<()>());
        assert!(timeout_at((due + PATIENCE).into(), next).await.is_err(), "nothing comes");
        assert_eq!(download.sink.held(), 0);
        assert_eq!(download.end(Ok(())).await.unwrap().received, 3);
    }
}
