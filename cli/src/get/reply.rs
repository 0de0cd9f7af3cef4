//! What a server answers, and what follows from it: the same rules for all versions of HTTP.

use std::time::{Duration, Instant};

use http::header::{self, HeaderMap};
use http::{Response, StatusCode};

use super::download::{Answered, Fetched, Head, Job};
use super::order::Order;
use super::redirect;
use super::sink::Partial;
use super::{complete, trace};
use crate::exit::{Failure, Kind};

/// The longest wait that a server can ask for between two tries.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// What is here of a file already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// What an interrupted run has left.
    Part(Partial),
    /// A file under its name, so many bytes long: it may be complete.
    Whole(u64),
}

impl Kept {
    /// How many bytes.
    pub(crate) const fn len(&self) -> u64 {
        match self {
            Self::Part(part) => part.len,
            Self::Whole(len) => *len,
        }
    }
}

/// What to do after the head of an answer.
#[derive(Debug)]
pub(crate) enum Next {
    /// Take the body.
    Take(Head),
    /// Nothing: the body is of no interest.
    Done(Answered),
}

/// Decides by the head of an answer.
pub(crate) async fn next(
    response: &Response<()>,
    job: &Job,
    kept: Option<&Kept>,
    begun: Instant,
) -> Result<Next, Failure> {
    let url = &job.target.url;
    let status = response.status();
    if job.order.is_head() {
        print_head(response)?;
    }
    if status.is_redirection()
        && job.order.follows()
        && let Some(moved) = redirect::follow(status.as_u16(), response.headers(), job)?
    {
        return Ok(Next::Done(Answered::Moved(Box::new(moved))));
    }
    if job.order.is_head() && (status.is_success() || status.is_redirection()) {
        let took = begun.elapsed();
        let status = Some(status.as_u16());
        let fetched = Fetched { status, received: 0, kept: 0, sha256: None, took };
        return Ok(Next::Done(Answered::Fetched(fetched)));
    }
    if let Some(Kept::Whole(len)) = kept {
        match compared(response, *len) {
            Compared::Same => {
                return complete::settle(job, status.as_u16(), begun).await.map(Next::Done);
            }
            Compared::Longer => return Ok(Next::Done(Answered::Moved(Box::new(job.anew())))),
            Compared::Unknown => {}
        }
    }
    let part = match kept {
        Some(Kept::Part(part)) => Some(part),
        _ => None,
    };
    head(response, part, &job.order)
        .map(Next::Take)
        .map_err(|reason| refused(response, format!("{url}: {reason}")))
}

/// How the file of the server compares with that of the same name here.
enum Compared {
    /// It is as long.
    Same,
    /// It goes on where that ends: whether it begins the same way, nobody knows.
    Longer,
    /// The server sends all of it, or something else.
    Unknown,
}

fn compared(response: &Response<()>, len: u64) -> Compared {
    let headers = response.headers();
    match response.status() {
        StatusCode::RANGE_NOT_SATISFIABLE if total_length(headers) == Some(len) => Compared::Same,
        StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::PARTIAL_CONTENT => Compared::Longer,
        StatusCode::OK if content_length(headers) == Ok(Some(len)) => Compared::Same,
        _ => Compared::Unknown,
    }
}

/// An answer that is not the file. Some of them may become it (RFC 9110, Section 15.6).
fn refused(response: &Response<()>, message: String) -> Failure {
    let status = response.status();
    let failure = Failure::new(Kind::Refused, message);
    let passing = matches!(
        status,
        StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::INTERNAL_SERVER_ERROR
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    );
    if passing { failure.passing(retry_after(response.headers())) } else { failure }
}

/// How long to wait, where the server says so in seconds (RFC 9110, Section 10.2.3).
fn retry_after(headers: &HeaderMap) -> Duration {
    let value = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    let seconds = value.and_then(|value| value.trim().parse().ok()).unwrap_or(0);
    Duration::from_secs(seconds).min(MAX_RETRY_AFTER)
}

/// `--head`: what the server answers, on standard output.
fn print_head(response: &Response<()>) -> Result<(), Failure> {
    let mut text = format!("{}\n", trace::status_line(response));
    for (name, value) in response.headers() {
        text.push_str(&format!("{name}: {}\n", trace::printable(value.as_bytes())));
    }
    crate::print(&text)
}

/// Reads what the response says of its body; the error is what it says instead.
fn head(response: &Response<()>, partial: Option<&Partial>, order: &Order) -> Result<Head, String> {
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
        (status, _) if status.is_success() => (content_length(headers)?, 0),
        (status, _) if status.is_redirection() => {
            let to = headers.get(header::LOCATION).map(|to| to.as_bytes().escape_ascii());
            let to = to.map_or_else(String::new, |to| format!(" to {to}"));
            let advice = if order.follows() { "" } else { "; follow it with --location (-L)" };
            return Err(format!("the server answered {status}: it points{to}{advice}"));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::get::order::tests::order;

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

    fn head(response: &Response<()>, partial: Option<&Partial>) -> Result<Head, String> {
        super::head(response, partial, &order(&[]))
    }

    #[test]
    fn the_rest_is_taken_only_from_where_it_belongs() {
        let rest = response(206, &[("content-range", "bytes 5-9/10"), ("etag", "\"1\"")]);
        let found = head(&rest, Some(&partial())).unwrap();
        assert_eq!((found.len, found.kept, found.etag.as_deref()), (Some(5), 5, Some("\"1\"")));
        for range in ["bytes 4-9/10", "bytes 5-4/10", "bytes 5-18446744073709551615/*", "x"] {
            let odd = response(206, &[("content-range", range)]);
            assert!(head(&odd, Some(&partial())).is_err(), "{range}");
        }
        assert!(head(&response(206, &[]), Some(&partial())).is_err());
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
        for (status, words) in [(404, "404 Not Found"), (301, "-L"), (500, "500")] {
            let answer = response(status, &[("location", "/there/")]);
            assert!(head(&answer, None).unwrap_err().contains(words), "{status}");
        }
        assert!(head(&response(200, &[("content-length", "x")]), None).is_err());
    }

    #[test]
    fn answers_that_may_pass_say_when_to_ask_again() {
        let again = |status, headers: &[(&str, &str)]| {
            refused(&response(status, headers), String::new()).again
        };
        assert_eq!(again(404, &[]), None);
        assert_eq!(again(501, &[]), None);
        assert_eq!(again(503, &[]), Some(Duration::ZERO));
        assert_eq!(again(429, &[("retry-after", "7")]), Some(Duration::from_secs(7)));
        assert_eq!(
            again(503, &[("retry-after", "Fri, 31 Dec 2027 23:59:59 GMT")]),
            Some(Duration::ZERO)
        );
        assert_eq!(again(503, &[("retry-after", "99999999")]), Some(MAX_RETRY_AFTER));
    }

    #[test]
    fn a_file_that_is_here_is_complete_if_it_is_as_long() {
        let same = |status, headers: &[(&str, &str)]| {
            matches!(compared(&response(status, headers), 5), Compared::Same)
        };
        assert!(same(416, &[("content-range", "bytes */5")]));
        assert!(!same(416, &[("content-range", "bytes */4")]));
        assert!(same(200, &[("content-length", "5")]) && !same(200, &[]));
        assert!(!same(206, &[("content-range", "bytes 5-9/10")]));
    }
}
