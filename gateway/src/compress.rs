//! Compression of answers on their way.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use tower_http::CompressionLevel;
use tower_http::compression::Compression;
use tower_service::Service;

use crate::Body;

/// Bodies shorter than this are not worth it, in bytes: they fit into a packet as they are.
const MIN_LENGTH: u64 = 1024;
/// Of gzip, brotli and zstd: above it the time grows faster than the size shrinks.
const LEVEL: i32 = 4;

/// Types that shrink, beside all of text.
const TYPES: [&str; 12] = [
    "application/atom+xml",
    "application/javascript",
    "application/json",
    "application/ld+json",
    "application/manifest+json",
    "application/rss+xml",
    "application/vnd.ms-fontobject",
    "application/wasm",
    "application/xhtml+xml",
    "application/xml",
    "font/ttf",
    "image/svg+xml",
];

/// Gives an answer once.
struct Given(Option<Response<Body>>);

impl Service<Request<()>> for Given {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(self.0.take().unwrap_or_default()))
    }
}

/// The fields by which a client says what it takes.
pub(crate) fn wishes(request: &HeaderMap) -> HeaderMap {
    let values = request.get_all(header::ACCEPT_ENCODING).iter();
    values.map(|value| (header::ACCEPT_ENCODING, value.clone())).collect()
}

/// Compresses an answer if the client takes it and it is worth it.
pub(crate) async fn compress(wishes: &HeaderMap, response: Response<Body>) -> Response<Body> {
    if !is_worth_it(&response) {
        return response;
    }
    let before = response.status();
    let mut asked = Request::new(());
    *asked.headers_mut() = wishes.clone();
    let service = Compression::new(Given(Some(response)))
        .quality(CompressionLevel::Precise(LEVEL))
        .compress_when(|_: StatusCode, _: http::Version, _: &HeaderMap, _: &http::Extensions| true);
    let mut service = service;
    let Ok(response) = service.call(asked).await;
    let mut response = response.map(|body| body.map_err(Into::into).boxed_unsync());
    // A client that takes no coding at all, not even none, gets the answer as it is: RFC 9110, Section
    // 12.5.3 lets a server choose so.
    *response.status_mut() = before;
    if response.headers().contains_key(header::CONTENT_ENCODING) {
        weaken(response.headers_mut());
    }
    response
}

/// A compressed answer is not the same byte by byte (RFC 9110, Section 8.8.1).
fn weaken(headers: &mut HeaderMap) {
    let strong = headers.get(header::ETAG).filter(|tag| tag.as_bytes().starts_with(b"\""));
    let weak = strong.map(|tag| HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()));
    if let Some(Ok(weak)) = weak {
        headers.insert(header::ETAG, weak);
    }
}

fn is_worth_it(response: &Response<Body>) -> bool {
    let headers = response.headers();
    let says = |name, what: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case(what))
    };
    let length =
        headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let length = length.or_else(|| response.body().size_hint().exact());
    let has_type = headers.get(header::CONTENT_TYPE).is_some_and(shrinks);
    let has_body = !matches!(
        response.status(),
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED | StatusCode::PARTIAL_CONTENT
    );
    has_body
        && has_type
        && length.is_none_or(|length| length >= MIN_LENGTH)
        && !headers.contains_key(header::CONTENT_ENCODING)
        && !headers.contains_key(header::CONTENT_RANGE)
        // RFC 9111, Section 5.2.2.6.
        && !says(header::CACHE_CONTROL, "no-transform")
}

fn shrinks(content_type: &HeaderValue) -> bool {
    let Ok(text) = content_type.to_str() else { return false };
    let kind = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    // Events must not wait in a compressor for others.
    (kind.starts_with("text/") && kind != "text/event-stream") || TYPES.contains(&kind.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::answer;
    use bytes::Bytes;

    async fn compressed(accepts: &'static str, more: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut response = answer(StatusCode::OK, Bytes::from(vec![b'a'; 5000]));
        let fields =
            [&[("content-type", "text/html; charset=utf-8"), ("etag", "\"x\"")], more].concat();
        for (name, value) in fields {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        let mut wishes = HeaderMap::new();
        wishes.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(accepts));
        let response = compress(&wishes, response).await;
        assert_eq!(response.status(), StatusCode::OK);
        let headers = response.headers().clone();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body.len() < 200, headers.contains_key("content-encoding"), "{accepts}");
        headers
    }

    #[tokio::test]
    async fn answers_shrink_as_the_client_likes() {
        for coding in ["gzip", "br", "zstd"] {
            let headers = compressed(coding, &[]).await;
            assert_eq!(headers["content-encoding"], coding);
            assert_eq!(
                (&headers["etag"], &headers["vary"]),
                (
                    &HeaderValue::from_static("W/\"x\""),
                    &HeaderValue::from_static("accept-encoding")
                )
            );
        }
        assert!(!compressed("identity;q=0", &[]).await.contains_key("content-encoding"));
        assert_eq!(compressed("identity", &[]).await["etag"], "\"x\"");
    }

    #[tokio::test]
    async fn what_must_stay_as_it_is_stays() {
        for field in [
            ("cache-control", "public, No-Transform"),
            ("content-encoding", "deflate"),
            ("content-range", "bytes 0-4999/9000"),
            ("content-type", "image/png"),
            ("content-type", "text/event-stream"),
            ("content-length", "1000"),
        ] {
            let mut response = answer(StatusCode::OK, Bytes::from(vec![b'a'; 5000]));
            response.headers_mut().insert("content-type", HeaderValue::from_static("text/html"));
            response.headers_mut().insert(field.0, HeaderValue::from_static(field.1));
            assert!(!is_worth_it(&response), "{field:?}");
        }
    }
}
