//! Is this a request that may be passed on? Origins differ in what they make of requests that are not
//! quite right, and attackers live on the difference: what is in doubt is refused here, once, whatever
//! version of HTTP it came by.

use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, Uri, Version};
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::time::timeout;

use quicket_front::{Malformed, authority};

use crate::clients::Exceeded;
use crate::{Body, path, upgrade};

/// What breaks the rules of HTTP/2, as h2 has found. The connection counts it.
pub(crate) const MALFORMED_TWO: &str = "malformed HTTP/2";
/// The client has not sent all of a request.
pub(crate) const NOT_ENDED: &str = "the request did not end";

/// Why a request is not passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// For the log and for the client.
    pub(crate) reason: &'static str,
    /// The methods that would have been taken, with 405 (RFC 9110, Section 15.5.6).
    pub(crate) allowed: Vec<Method>,
    /// When to try again, in seconds (RFC 9110, Section 10.2.3).
    pub(crate) retry_after: Option<u32>,
}

/// RFC 6585, Section 4.
impl From<Exceeded> for Refusal {
    fn from(exceeded: Exceeded) -> Self {
        let refusal = Self::new(StatusCode::TOO_MANY_REQUESTS, exceeded.reason);
        Self { retry_after: Some(exceeded.retry_after), ..refusal }
    }
}

impl Refusal {
    /// A site takes no more: that is not the client's fault (RFC 9110, Section 15.6.4).
    pub(crate) fn of_site(exceeded: Exceeded) -> Self {
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, exceeded.reason);
        Self { retry_after: Some(exceeded.retry_after), ..refusal }
    }

    pub(crate) const fn new(status: StatusCode, reason: &'static str) -> Self {
        Self { status, reason, allowed: Vec::new(), retry_after: None }
    }

    pub(crate) const fn bad(reason: &'static str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, reason)
    }
}

/// Fields that belong to one connection, which HTTP/2 and HTTP/3 do not know (RFC 9113, Section 8.2.2;
/// RFC 9114, Section 4.2).
static OF_A_CONNECTION: [HeaderName; 5] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The authority that a request is for, if it is one that may be passed on.
pub(crate) fn check(request: &Parts) -> Result<String, Refusal> {
    let headers = &request.headers;
    if request.method == Method::CONNECT && !upgrade::is_extended(request) {
        return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "CONNECT is not for gateways"));
    }
    if upgrade::is_misused(request) {
        return Err(Refusal::bad("a protocol without CONNECT"));
    }
    if request.method == Method::TRACE {
        // It would show the client what the gateway adds.
        return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "TRACE is not answered"));
    }
    match request.version {
        Version::HTTP_10 | Version::HTTP_11 => check_framing(headers)?,
        _ => check_no_connection_fields(headers)?,
    }
    content_length(headers)?;
    // RFC 9113, Section 8.3.1; RFC 9112, Section 3.2.2. h2 leaves it out where Host alone says whom a request is for.
    let is_http = |scheme: &str| ["https", "http"].iter().any(|is| scheme.eq_ignore_ascii_case(is));
    if request.uri.scheme_str().is_some_and(|scheme| !is_http(scheme)) {
        return Err(Refusal::bad("a scheme that is not HTTP's"));
    }
    check_path(request)?;
    authority::of(request).map_err(Refusal::bad)
}

/// RFC 9112, Section 6.1. Beside Transfer-Encoding hyper has removed Content-Length: it never counts, and the
/// origin does not get it.
fn check_framing(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
        let is_chunked =
            codings.next().is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"chunked"));
        if !is_chunked || codings.next().is_some() {
            return Err(Refusal::new(
                StatusCode::NOT_IMPLEMENTED,
                "a transfer coding that is not chunked",
            ));
        }
    }
    Ok(())
}

fn check_no_connection_fields(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.keys().any(|name| OF_A_CONNECTION.contains(name)) {
        return Err(Refusal::bad("a field that belongs to a connection of HTTP/1.1"));
    }
    match headers.get_all(header::TE).iter().all(|te| te.as_bytes() == b"trailers") {
        true => Ok(()),
        false => Err(Refusal::bad("TE that is not trailers")),
    }
}

/// The length that the client has announced; several are refused, equal ones too, for origins may join
/// them (RFC 9110, Section 8.6).
pub(crate) fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Refusal> {
    let wrong = || Refusal::bad("Content-Length that is no number, or several");
    let mut values = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let digits = value.as_bytes();
    if values.next().is_some() || digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(wrong());
    }
    let text = std::str::from_utf8(digits).map_err(|_| wrong())?;
    text.parse().map(Some).map_err(|_| wrong())
}

/// Whether a body may come over HTTP/2 that was announced as empty: hyper would leave it unread, and whoever is asked have
/// answered by the time that h2 finds out (RFC 9113, Section 8.1.1).
pub(crate) fn is_in_doubt(parts: &Parts, body: &Body) -> bool {
    parts.version == Version::HTTP_2
        && !body.is_end_stream()
        && content_length(&parts.headers) == Ok(Some(0))
}

/// Makes sure that such a body is empty.
pub(crate) async fn settle_empty(body: &mut Body, limit: Duration) -> Result<(), Refusal> {
    let reading = async {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| of_body(&*error))?;
            if frame.data_ref().is_some_and(|data: &Bytes| !data.is_empty()) {
                return Err(Refusal::bad("a body that was announced as empty"));
            }
        }
        Ok(())
    };
    let late = |_| Refusal::new(StatusCode::REQUEST_TIMEOUT, NOT_ENDED);
    timeout(limit, reading).await.map_err(late)??;
    *body = Body::default();
    Ok(())
}

fn of_body(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Refusal {
    match error.is::<Malformed>() {
        true => Refusal::bad(MALFORMED_TWO),
        false => Refusal::new(StatusCode::REQUEST_TIMEOUT, NOT_ENDED),
    }
}

fn check_path(request: &Parts) -> Result<(), Refusal> {
    let path = request.uri.path();
    if path == "*" {
        return match request.method == Method::OPTIONS {
            true => Ok(()),
            false => Err(Refusal::bad("* with another method than OPTIONS")),
        };
    }
    match path.starts_with('/') {
        true => path::check(path).map_err(Refusal::bad),
        false => Err(Refusal::bad("a path that begins with no slash")),
    }
}

/// Has the path be written in one way, whatever the client has encoded of it.
pub(crate) fn normalise(request: &mut Parts) -> Result<(), Refusal> {
    match path::normalised(request.uri.path()) {
        Some(path) => replace_path(request, path),
        None => Ok(()),
    }
}

/// Gives the request another path; the query stays.
pub(crate) fn replace_path(request: &mut Parts, mut target: String) -> Result<(), Refusal> {
    if let Some(query) = request.uri.query() {
        target.push('?');
        target.push_str(query);
    }
    let mut uri = std::mem::take(&mut request.uri).into_parts();
    uri.path_and_query = target.parse().ok();
    let built = uri.path_and_query.is_some().then(|| Uri::from_parts(uri).ok()).flatten();
    // Nothing but its length can be wrong.
    let too_long = Refusal::new(StatusCode::URI_TOO_LONG, "the path becomes too long");
    request.uri = built.ok_or(too_long)?;
    Ok(())
}

/// Methods that change nothing, so that a request may come twice (RFC 9110, Section 9.2.1).
pub(crate) fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use http_body::Frame;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    fn parts(version: Version, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().version(version).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn one(headers: &[(&str, &str)]) -> Result<String, Refusal> {
        check(&parts(Version::HTTP_11, "/", headers))
    }

    fn three(headers: &[(&str, &str)]) -> Result<String, Refusal> {
        check(&parts(Version::HTTP_3, "https://a.example/", headers))
    }

    #[test]
    fn ordinary_requests_pass() {
        assert_eq!(one(&[("host", "A.example:8443")]).unwrap(), "a.example:8443");
        assert_eq!(three(&[("te", "trailers"), ("content-length", "3")]).unwrap(), "a.example");
        assert_eq!(three(&[("host", "a.example")]).unwrap(), "a.example");
    }

    #[test]
    fn what_origins_could_read_in_two_ways_is_refused() {
        let wrong: [&[(&str, &str)]; 8] = [
            &[],
            &[("host", "a"), ("host", "a")],
            &[("host", "a@b")],
            &[("host", "")],
            &[("host", "a"), ("transfer-encoding", "chunked, chunked")],
            &[("host", "a"), ("transfer-encoding", "xchunked")],
            &[("host", "a"), ("content-length", "3"), ("content-length", "3")],
            &[("host", "a"), ("content-length", "+3")],
        ];
        for headers in wrong {
            assert!(one(headers).is_err(), "{headers:?}");
        }
        let wrong: [&[(&str, &str)]; 5] = [
            &[("host", "b.example")],
            &[("connection", "close")],
            &[("transfer-encoding", "chunked")],
            &[("te", "gzip")],
            &[("content-length", "99999999999999999999")],
        ];
        for headers in wrong {
            assert!(three(headers).is_err(), "{headers:?}");
        }
    }

    /// RFC 9113, Section 8.3.1.
    #[test]
    fn a_scheme_is_https() {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let of = |uri: &str| check(&parts(version, uri, &[("host", "a.example")]));
            assert!(of("https://a.example/").is_ok() && of("HTTP://a.example/").is_ok());
            assert!(of("ftp://a.example/").is_err() && of("wss://a.example/").is_err());
        }
    }

    /// RFC 9113, Section 8.1.1.
    #[tokio::test(start_paused = true)]
    async fn a_body_is_empty_that_was_announced_so() {
        let limit = Duration::from_secs(1);
        let of = |frames, ends| Frames(frames, ends).boxed_unsync();
        let data = |data: &'static str| Frame::data(Bytes::from(data));
        let mut body = of(vec![data("a")], true);
        let refused = settle_empty(&mut body, limit).await.unwrap_err();
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
        // The last comes first: an empty frame, and a trailer section.
        let mut body = of(vec![Frame::trailers(HeaderMap::new()), data("")], true);
        settle_empty(&mut body, limit).await.unwrap();
        assert!(body.is_end_stream());
        let refused = settle_empty(&mut of(vec![], false), limit).await.unwrap_err();
        assert_eq!(refused.status, StatusCode::REQUEST_TIMEOUT);
        for (version, length, is) in [
            (Version::HTTP_2, "0", true),
            (Version::HTTP_2, "1", false),
            (Version::HTTP_11, "0", false),
        ] {
            let parts = parts(version, "https://a/", &[("content-length", length)]);
            assert_eq!(is_in_doubt(&parts, &of(vec![data("a")], true)), is);
            assert!(!is_in_doubt(&parts, &Body::default()), "it has ended with its fields");
        }
    }

    /// A body of these frames, the last of which comes first; whether it ends behind them.
    struct Frames(Vec<Frame<Bytes>>, bool);

    impl http_body::Body for Frames {
        type Data = Bytes;
        type Error = crate::BodyError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, crate::BodyError>>> {
            match self.0.pop() {
                Some(frame) => Poll::Ready(Some(Ok(frame))),
                None if self.1 => Poll::Ready(None),
                None => Poll::Pending,
            }
        }
    }

    #[test]
    fn a_path_has_one_spelling_and_its_query_stays() {
        let mut request = parts(Version::HTTP_3, "https://a.example/%61/%2f?%61=%2f", &[]);
        normalise(&mut request).unwrap();
        assert_eq!(request.uri, "https://a.example/a/%2F?%61=%2f");
    }
}
