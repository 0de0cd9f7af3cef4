//! Fetches over HTTP/3 (RFC 9114).

use std::time::{Duration, Instant};

use http::Version;
use quicket_client::Body;
use quicket_client::http3::{Broken, Exchange, Http3, StreamError};

use super::download::{Answered, Download, Job};
use super::progress::Progress;
use super::reply::{self, Next};
use super::{complete, trace};
use crate::exit::{Failure, Kind};

/// Fetches one file.
pub(crate) async fn fetch(
    requests: &Http3,
    job: &Job,
    progress: &Progress,
) -> Result<Answered, Failure> {
    let begun = Instant::now();
    let failed = |error: Broken| failure(&error, job);
    let kept = complete::kept(job);
    let request = job.order.request(&job.target, kept.as_ref())?;
    progress.trace(|| trace::request(&request, Version::HTTP_3));
    let body = job.order.body().map_or_else(Body::empty, Body::from);
    let mut exchange = requests.send(request, body).await.map_err(failed)?;
    let response = exchange.head();
    progress.trace(|| trace::response(response));
    // What is not taken is cancelled as the exchange ends.
    let head = match reply::next(response, job, kept.as_ref(), begun).await? {
        Next::Take(head) => head,
        Next::Done(answered) => return Ok(answered),
    };
    let mut download = Download::begin(job, head, progress, begun);
    let outcome = receive(&mut exchange, &mut download).await.map_err(failed);
    download.end(outcome).await.map(Answered::Fetched)
}

async fn receive(exchange: &mut Exchange, download: &mut Download) -> Result<(), Broken> {
    if download.is_complete() {
        exchange.cancel();
        return Ok(());
    }
    while let Some(piece) = download.upcoming(exchange.data()).await? {
        if download.take(piece).await.is_err() {
            // The disk takes no more; the download's end says why.
            exchange.cancel();
            return Ok(());
        }
    }
    Ok(())
}

/// A stream's or connection's error as one of this program.
fn failure(error: &Broken, job: &Job) -> Failure {
    let url = &job.target.url;
    match error {
        Broken::Stream(StreamError::RemoteTerminate { code, .. }) => {
            let message = format!("{url}: the server gave the answer up ({code}); try again");
            Failure::new(Kind::Refused, message).passing(Duration::ZERO)
        }
        Broken::Stream(StreamError::RemoteClosing) => {
            let message = format!("{url}: the server is shutting down; try again");
            Failure::new(Kind::Refused, message).passing(Duration::ZERO)
        }
        other => {
            Failure::new(Kind::Connection, format!("{url}: {other}; try again with --continue"))
        }
    }
}
