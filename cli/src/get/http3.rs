//! Fetches over HTTP/3 (RFC 9114).

use std::time::{Duration, Instant};

use bytes::Bytes;
use h3::client::{RequestStream, SendRequest};
use h3::error::{Code, StreamError};
use h3::quic;
use http::{Response, Version};

use super::download::{Answered, Download, Job};
use super::progress::Progress;
use super::reply::{self, Next};
use super::{complete, trace};
use crate::exit::{Failure, Kind};

/// Fetches one file.
pub(crate) async fn fetch<O>(
    requests: &mut SendRequest<O, Bytes>,
    job: &Job,
    progress: &Progress,
) -> Result<Answered, Failure>
where
    O: quic::OpenStreams<Bytes>,
{
    let begun = Instant::now();
    let failed = |error: StreamError| failure(&error, job);
    let kept = complete::kept(job);
    let request = job.order.request(&job.target, kept.as_ref())?;
    progress.trace(|| trace::request(&request, Version::HTTP_3));
    let mut stream = requests.send_request(request).await.map_err(failed)?;
    let wanted = match job.order.body() {
        Some(body) => is_wanted(stream.send_data(body).await).map_err(failed)?,
        None => true,
    };
    // What was stopped cannot be finished.
    if wanted {
        is_wanted(stream.finish().await).map_err(failed)?;
    }
    let mut response = final_response(&mut stream).await.map_err(failed)?;
    *response.version_mut() = Version::HTTP_3;
    progress.trace(|| trace::response(&response));
    let head = match reply::next(&response, job, kept.as_ref(), begun).await {
        Ok(Next::Take(head)) => head,
        Ok(Next::Done(answered)) => {
            stream.stop_sending(Code::H3_REQUEST_CANCELLED);
            return Ok(answered);
        }
        Err(failure) => {
            stream.stop_sending(Code::H3_REQUEST_CANCELLED);
            return Err(failure);
        }
    };
    let mut download = Download::begin(job, head, progress, begun);
    let outcome = receive(&mut stream, &mut download).await.map_err(failed);
    download.end(outcome).await.map(Answered::Fetched)
}

/// Whether the server reads on. It may know enough to answer before it has read all: that is no
/// reason to discard what it answers (RFC 9114, Section 4.1).
fn is_wanted(sent: Result<(), StreamError>) -> Result<bool, StreamError> {
    match sent {
        Err(StreamError::RemoteTerminate { code, .. }) if code == Code::H3_NO_ERROR => Ok(false),
        sent => sent.map(|()| true),
    }
}

/// The response itself: there can be informational ones before it (RFC 9110, Section 15.2).
async fn final_response<S>(
    stream: &mut RequestStream<S, Bytes>,
) -> Result<Response<()>, StreamError>
where
    S: quic::RecvStream,
{
    loop {
        let response = stream.recv_response().await?;
        if !response.status().is_informational() {
            return Ok(response);
        }
    }
}

async fn receive<S>(
    stream: &mut RequestStream<S, Bytes>,
    download: &mut Download,
) -> Result<(), StreamError>
where
    S: quic::RecvStream,
{
    if download.is_complete() {
        stream.stop_sending(Code::H3_REQUEST_CANCELLED);
        return Ok(());
    }
    while let Some(piece) = download.upcoming(stream.recv_data()).await? {
        if download.take(piece).await.is_err() {
            // The disk takes no more; the download's end says why.
            stream.stop_sending(Code::H3_REQUEST_CANCELLED);
            return Ok(());
        }
    }
    Ok(())
}

/// A stream's or connection's error as one of this program.
fn failure(error: &StreamError, job: &Job) -> Failure {
    let url = &job.target.url;
    match error {
        StreamError::RemoteTerminate { code, .. } => {
            let message = format!("{url}: the server gave the answer up ({code}); try again");
            Failure::new(Kind::Refused, message).passing(Duration::ZERO)
        }
        StreamError::RemoteClosing => {
            let message = format!("{url}: the server is shutting down; try again");
            Failure::new(Kind::Refused, message).passing(Duration::ZERO)
        }
        other => {
            Failure::new(Kind::Connection, format!("{url}: {other}; try again with --continue"))
        }
    }
}
