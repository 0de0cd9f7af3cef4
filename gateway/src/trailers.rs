//! Trailers of messages that pass: what servers and clients would take for header fields does not come behind a body,
//! where nobody has looked at it (RFC 9110, Section 6.5.1).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;

use crate::edits::Edits;
use crate::headers::{self, is_ours, remove_look_alikes};
use crate::{Body, BodyError};

/// The most trailer fields of a message.
const MAX_FIELDS: usize = 64;
/// The most bytes of their names and values.
const MAX_BYTES: usize = 16 << 10;

/// Fields of which a recipient must know before the body, or that say who somebody is (RFC 9110, Section 6.5.1).
/// Those that only the gateway writes are known elsewhere.
const FORBIDDEN: [HeaderName; 23] = [
    header::ACCEPT,
    header::AGE,
    header::ALLOW,
    header::ALT_SVC,
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    header::DATE,
    header::EXPIRES,
    header::FROM,
    header::LOCATION,
    header::MAX_FORWARDS,
    header::ORIGIN,
    header::PRAGMA,
    header::RANGE,
    header::REFERER,
    header::RETRY_AFTER,
    header::SET_COOKIE,
    header::STRICT_TRANSPORT_SECURITY,
    header::TRAILER,
    header::USER_AGENT,
    header::VARY,
    header::WARNING,
    header::WWW_AUTHENTICATE,
];

/// ... and families of them.
const FAMILIES: [&str; 9] = [
    "access-control-",
    "accept-",
    "client-cert",
    "content-",
    "if-",
    "priority",
    "proxy-",
    "sec-",
    "x-forwarded-",
];

/// Of these families: they are made for trailers (RFC 9530, Section 2).
const ALLOWED: [&str; 1] = ["content-digest"];

/// True for a field that is none of trailers, by its name in lower case.
fn is_forbidden(name: &str) -> bool {
    is_ours(name)
        || FORBIDDEN.iter().any(|forbidden| forbidden == name)
        || (FAMILIES.iter().any(|family| name.starts_with(family)) && !ALLOWED.contains(&name))
}

/// Which trailers a message may have.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// Others that it may not.
    more: Vec<HeaderName>,
}

impl Filter {
    /// For a message with these header fields, of which a file changes some; `others` are for the gateway alone.
    pub(crate) fn new(headers: &HeaderMap, edits: &Edits, others: &[HeaderName]) -> Self {
        let set = edits.set.iter().chain(&edits.add).map(|(name, _)| name);
        let edited = edits.remove.iter().chain(set).chain(others).cloned();
        Self { more: headers::named_by_connection(headers).into_iter().chain(edited).collect() }
    }

    /// A body with such trailers only.
    pub(crate) fn clean(self, body: Body) -> Body {
        match body.is_end_stream() {
            true => body,
            false => Cleaned { body, filter: self }.boxed_unsync(),
        }
    }

    fn apply(&self, trailers: &mut HeaderMap) {
        let is_meant =
            |name: &str| is_forbidden(name) || self.more.iter().any(|other| other == name);
        let wrong: Vec<HeaderName> =
            trailers.keys().filter(|name| is_meant(name.as_str())).cloned().collect();
        for name in wrong {
            trailers.remove(name);
        }
        remove_look_alikes(trailers, is_meant);
    }
}

/// A body whose trailers are cleaned.
struct Cleaned {
    body: Body,
    filter: Filter,
}

/// A message has more trailers than anybody needs.
#[derive(Clone, Copy, Debug)]
struct TooMany;

impl std::fmt::Display for TooMany {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "trailers of more than {MAX_FIELDS} fields or {MAX_BYTES} bytes")
    }
}

impl std::error::Error for TooMany {}

fn check_size(trailers: &HeaderMap) -> Result<(), TooMany> {
    let bytes: usize = trailers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    match trailers.len() <= MAX_FIELDS && bytes <= MAX_BYTES {
        true => Ok(()),
        false => Err(TooMany),
    }
}

impl http_body::Body for Cleaned {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            let mut trailers = match frame.into_trailers() {
                Ok(trailers) => trailers,
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            };
            check_size(&trailers)?;
            self.filter.apply(&mut trailers);
            if !trailers.is_empty() {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::HeaderValue;
    use http_body_util::{Empty, Full};

    fn map(names: &[&'static str]) -> HeaderMap {
        let field = |name| (HeaderName::from_static(name), HeaderValue::from_static("1"));
        names.iter().copied().map(field).collect()
    }

    async fn cleaned(filter: Filter, trailers: HeaderMap) -> Result<Option<HeaderMap>, BodyError> {
        let body = Full::new(Bytes::from_static(b"body")).map_err(|never| match never {});
        let body = body.with_trailers(std::future::ready(Some(Ok(trailers)))).boxed_unsync();
        let collected = filter.clean(body).collect().await?;
        let trailers = collected.trailers().cloned();
        assert_eq!(collected.to_bytes(), "body");
        Ok(trailers)
    }

    #[tokio::test]
    async fn what_is_for_headers_is_no_trailer_in_any_spelling() {
        let filter = || {
            let mut headers = map(&[]);
            headers.insert(header::CONNECTION, HeaderValue::from_static("x-hop, close"));
            let set = (HeaderName::from_static("x-user"), HeaderValue::from_static("gateway"));
            let edits = Edits {
                remove: vec![HeaderName::from_static("x-removed")],
                set: vec![set],
                ..Edits::default()
            };
            Filter::new(&headers, &edits, &[HeaderName::from_static("x-cert")])
        };
        let wrong = [
            "content-length",
            "transfer-encoding",
            "host",
            "te",
            "trailer",
            "expect",
            "content-type",
            "content-encoding",
            "if-match",
            "range",
            "authorization",
            "cookie",
            "set-cookie",
            "proxy-authorization",
            "www-authenticate",
            "connection",
            "keep-alive",
            "upgrade",
            "forwarded",
            "x-forwarded-for",
            "x-real-ip",
            "early-data",
            "client-cert",
            "via",
            "x_forwarded_for",
            "content_length",
            "x-hop",
            "x-user",
            "x_user",
            "x-removed",
            "x-cert",
            "x_cert",
            "location",
            "cache-control",
        ];
        for name in wrong {
            assert_eq!(cleaned(filter(), map(&[name])).await.unwrap(), None, "{name}");
        }
        let right =
            map(&["grpc-status", "grpc-message", "server-timing", "content-digest", "etag"]);
        let mut all = right.clone();
        all.extend(map(&wrong));
        assert_eq!(cleaned(filter(), all).await.unwrap(), Some(right));
    }

    #[tokio::test]
    async fn trailers_are_bounded() {
        let filter = || Filter::new(&HeaderMap::new(), &Edits::default(), &[]);
        let mut many = HeaderMap::new();
        let name = HeaderName::from_static("x-a");
        for _ in 0..MAX_FIELDS {
            many.append(name.clone(), HeaderValue::from_static("1"));
        }
        assert!(cleaned(filter(), many.clone()).await.unwrap().is_some());
        many.append(name.clone(), HeaderValue::from_static("1"));
        assert!(cleaned(filter(), many).await.is_err());
        let mut long = HeaderMap::new();
        long.insert(name, HeaderValue::from_str(&"a".repeat(MAX_BYTES)).unwrap());
        assert!(cleaned(filter(), long).await.is_err());
    }

    #[tokio::test]
    async fn a_body_that_has_ended_is_left_alone() {
        let filter = Filter::new(&HeaderMap::new(), &Edits::default(), &[]);
        let empty = Empty::new().map_err(|never| match never {}).boxed_unsync();
        assert!(filter.clean(empty).is_end_stream());
    }
}
