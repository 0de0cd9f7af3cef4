//! Fetches over HTTP/0.9 (`hq-interop`): a request line, then the file and nothing else.

use std::io;
use std::time::Instant;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::download::{Answered, Download, Head, Job};
use super::progress::Progress;
use crate::exit::{Failure, Kind};

/// How much is read at once, in bytes.
const PIECE: usize = 64 << 10;

/// Fetches one file on a stream of its own.
pub(crate) async fn fetch<W, R>(
    send: &mut W,
    recv: &mut R,
    job: &Job,
    progress: &Progress,
) -> Result<Answered, Failure>
where
    W: AsyncWrite + Unpin,
    R: AsyncRead + Unpin,
{
    let begun = Instant::now();
    let failed = |error: io::Error| failure(&error, job);
    let line = format!("GET {}\r\n", job.target.path_and_query());
    // A server may have read enough before all of this is sent (RFC 9000, Section 3.5): whether the
    // request arrived, its answer tells.
    if send.write_all(line.as_bytes()).await.is_ok() {
        let _ = send.shutdown().await;
    }
    // Nothing is written where there is nothing to fetch: a reset comes before any data.
    let mut piece = BytesMut::with_capacity(PIECE);
    let mut read = recv.read_buf(&mut piece).await.map_err(failed)?;
    let head = Head { status: None, len: None, etag: None, kept: 0 };
    let mut download = Download::begin(job, head, progress, begun);
    let outcome = loop {
        if read == 0 || download.take(piece.split().freeze()).await.is_err() {
            break Ok(());
        }
        piece.reserve(PIECE);
        match download.upcoming(recv.read_buf(&mut piece)).await {
            Ok(more) => read = more,
            Err(error) => break Err(failed(error)),
        }
    };
    download.end(outcome).await.map(Answered::Fetched)
}

fn failure(error: &io::Error, job: &Job) -> Failure {
    let url = job.target.shown();
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Failure::new(
            Kind::Refused,
            format!(
                "{url}: the server does not send it ({error}), and HTTP/0.9 does not say why: is \
                 there such a file?"
            ),
        ),
        _ => Failure::new(Kind::Connection, format!("{url}: {error}")),
    }
}
