//! Fetches over HTTP/3 (RFC 9114).

use std::time::Instant;

use bytes::Bytes;
use h3::client::{RequestStream, SendRequest};
use h3::error::{Code, StreamError};
use h3::quic;
use http::header::{self, HeaderMap};
use http::{Request, Response, StatusCode};

use super::download::{Download, Fetched, Head, Job};
use super::progress::Progress;
use super::sink::Partial;
use crate::exit::{Failure, Kind};

/// Fetches one file.
pub(crate) async fn fetch<O>(
    requests: &mut SendRequest<O, Bytes>,
    job: &Job,
    progress: &Progress,
) -> Result<Fetched, Failure>
where
    O: quic::OpenStreams<Bytes>,
{
    let begun = Instant::now();
    let url = &job.target.url;
    let failed = |error: StreamError| failure(&error, job);
    let partial = job.partial();
    let mut stream =
        requests.send_request(request(job, partial.as_ref())?).await.map_err(failed)?;
    match stream.finish().await {
        // The server knows enough to answer: that is no reason to discard what it answers
        // (RFC 9114, Section 4.1).
        Err(StreamError::RemoteTerminate { code, .. }) if code == Code::H3_NO_ERROR => {}
        finished => finished.map_err(failed)?,
    }
    let response = final_response(&mut stream).await.map_err(failed)?;
    let head = match head(&response, partial.as_ref()) {
        Ok(head) => head,
        Err(reason) => {
            stream.stop_sending(Code::H3_REQUEST_CANCELLED);
            return Err(Failure::new(Kind::Refused, format!("{url}: {reason}")));
        }
    };
    let mut download = Download::begin(job, head, progress, begun);
    let outcome = receive(&mut stream, &mut download).await.map_err(failed);
    download.end(outcome).await
}

fn request(job: &Job, partial: Option<&Partial>) -> Result<Request<()>, Failure> {
    let target = &job.target;
    let mut request = Request::get(target.url.as_str().split('#').next().unwrap_or_default())
        .header(header::USER_AGENT, concat!("quicket/", env!("CARGO_PKG_VERSION")))
        .header(header::ACCEPT, "*/*");
    if let Some(Partial { len, etag }) = partial {
        // The rest if it is still the same file, else the whole (RFC 9110, Section 13.1.5).
        request = request
            .header(header::RANGE, format!("bytes={len}-"))
            .header(header::IF_RANGE, etag.as_str());
    }
    request.body(()).map_err(|error| Failure::new(Kind::Usage, format!("{}: {error}", target.url)))
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

/// Reads what the response says of its body; the error is what it says instead.
fn head(response: &Response<()>, partial: Option<&Partial>) -> Result<Head, String> {
    let (status, headers) = (response.status(), response.headers());
    let (len, kept) = match (status, partial) {
        (StatusCode::PARTIAL_CONTENT, Some(Partial { len: kept, .. })) => {
            let (start, end) = content_range(headers)
                .ok_or("the server does not say which part of the file it sends")?;
            if start != *kept {
                return Err(format!("the server sends from byte {start}, not from {kept}"));
            }
            (Some(end - start), start)
        }
        (StatusCode::RANGE_NOT_SATISFIABLE, Some(Partial { len, .. }))
            if total_length(headers) == Some(*len) =>
        {
            // There was nothing left to fetch. The page that says so is not part of the file.
            (None, *len)
        }
        (StatusCode::OK, _) => (content_length(headers)?, 0),
        (status, _) if status.is_success() => (content_length(headers)?, 0),
        (status, _) if status.is_redirection() => {
            let to = headers.get(header::LOCATION).map(|to| to.as_bytes().escape_ascii());
            let to = to.map_or_else(String::new, |to| format!(" to {to}; fetch that"));
            return Err(format!("the server answered {status}: it points{to}"));
        }
        (status, _) => return Err(format!("the server answered {status}")),
    };
    let etag = headers.get(header::ETAG).and_then(|etag| etag.to_str().ok());
    let strong = etag.filter(|etag| etag.starts_with('"')).map(str::to_owned);
    Ok(Head { status: Some(status.as_u16()), len, etag: strong, kept })
}

fn content_length(headers: &HeaderMap) -> Result<Option<u64>, String> {
    let Some(len) = headers.get(header::CONTENT_LENGTH) else { return Ok(None) };
    let len = len.to_str().ok().and_then(|len| len.parse().ok());
    len.map(Some).ok_or_else(|| "the server's Content-Length is not a number".to_owned())
}

/// `bytes START-LAST/TOTAL`, as START and the offset behind LAST.
fn content_range(headers: &HeaderMap) -> Option<(u64, u64)> {
    let range = headers.get(header::CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?;
    let (first, last) = range.split_once('/')?.0.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last.checked_add(1)?))
}

/// `bytes */TOTAL`.
fn total_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes */")?.parse().ok()
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
    while let Some(piece) = stream.recv_data().await? {
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
            Failure::new(Kind::Refused, message)
        }
        StreamError::RemoteClosing { .. } => {
            let message = format!("{url}: the server is shutting down; try again");
            Failure::new(Kind::Refused, message)
        }
        other => {
            Failure::new(Kind::Connection, format!("{url}: {other}; try again with --continue"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, headers: &[(&str, &str)]) -> Response<()> {
        let mut builder = Response::builder().status(status);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        builder.body(()).unwrap()
    }

    fn partial() -> Partial {
        Partial { len: 5, etag: "\"1\"".into() }
    }

    #[test]
    fn the_rest_is_taken_only_from_where_it_belongs() {
        let rest = response(206, &[("content-range", "bytes 5-9/10"), ("etag", "\"1\"")]);
        let head = head(&rest, Some(&partial())).unwrap();
        assert_eq!((head.len, head.kept, head.etag.as_deref()), (Some(5), 5, Some("\"1\"")));
        for range in ["bytes 4-9/10", "bytes 5-4/10", "bytes 5-18446744073709551615/*", "x"] {
            let odd = response(206, &[("content-range", range)]);
            assert!(super::head(&odd, Some(&partial())).is_err(), "{range}");
        }
        assert!(super::head(&response(206, &[]), Some(&partial())).is_err());
    }

    #[test]
    fn another_file_is_taken_from_its_start() {
        let whole = response(200, &[("content-length", "10"), ("etag", "W/\"1\"")]);
        let head = head(&whole, Some(&partial())).unwrap();
        assert_eq!((head.len, head.kept, head.etag), (Some(10), 0, None));
    }

    #[test]
    fn a_part_that_was_whole_already_is_complete() {
        let nothing_left = response(416, &[("content-range", "bytes */5")]);
        assert_eq!(head(&nothing_left, Some(&partial())).unwrap().kept, 5);
        let shorter = response(416, &[("content-range", "bytes */4")]);
        assert!(head(&shorter, Some(&partial())).is_err());
    }

    #[test]
    fn other_answers_are_said() {
        for (status, words) in [(404, "404 Not Found"), (301, "fetch that"), (500, "500")] {
            let answer = response(status, &[("location", "/there/")]);
            assert!(head(&answer, None).unwrap_err().contains(words), "{status}");
        }
        assert!(head(&response(200, &[("content-length", "x")]), None).is_err());
    }
}
