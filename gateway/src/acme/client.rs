//! HTTP to the authority: one request on each connection, always over TLS that is verified, with a bound for time and
//! size.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use tokio::time::timeout;

use crate::BodyError;
use crate::origin::{Place, Tls, dial};

/// How long a request and its answer may take, with the connection.
const LIMIT: Duration = Duration::from_secs(30);
/// How long the connection may take of that.
const CONNECT: Duration = Duration::from_secs(10);
/// The largest answer, in bytes.
const MAX_ANSWER: usize = 1 << 20;
/// The longest wait that an authority may ask for, in seconds: a day. It is less than what clocks can add.
const MAX_WAIT: u64 = 24 * 60 * 60;

/// The way to the authority. Clones are the same.
#[derive(Clone)]
pub(crate) struct Client {
    tls: Arc<Tls>,
    /// How many seconds the authority last asked to wait when it did not do what it was asked for.
    asked: Arc<AtomicU64>,
}

impl Client {
    pub(crate) fn new(tls: &Arc<Tls>) -> Self {
        Self { tls: Arc::clone(tls), asked: Arc::default() }
    }

    /// How long the authority wants to be left alone after a failure, if it said so.
    pub(crate) fn asked(&self) -> Option<Duration> {
        Some(self.asked.load(Ordering::Relaxed)).filter(|&asked| asked > 0).map(Duration::from_secs)
    }

    async fn exchange(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Result<Response<Full<Bytes>>, BodyError> {
        let (mut parts, body) = request.into_parts();
        let is_tls = parts.uri.scheme_str() == Some("https");
        let authority = parts.uri.authority().filter(|_| is_tls).cloned();
        let authority = authority.ok_or_else(|| format!("{} is no URL of https", parts.uri))?;
        let place = Place::parse(&format!("https://{authority}"))?;
        let failed = |error: std::io::Error| format!("{authority}: {error}");
        let stream = dial(&place, Some(&self.tls), CONNECT).await.map_err(failed)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // It ends with the sender, and the answer.
        tokio::spawn(connection);
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        parts.headers.insert(HOST, HeaderValue::from_str(authority.as_str())?);
        parts.uri = path.parse::<Uri>()?;
        let answer = sender.send_request(Request::from_parts(parts, body)).await?;
        let (mut head, body) = answer.into_parts();
        let wait = retry_after(&head.headers);
        head.headers.remove(RETRY_AFTER);
        if let Some(wait) = wait {
            head.headers.insert(RETRY_AFTER, HeaderValue::from(wait));
        }
        let body = Limited::new(body, MAX_ANSWER).collect().await?.to_bytes();
        self.judge(&head)?;
        Ok(Response::from_parts(head, Full::new(body)))
    }

    /// What is no answer of ACME, such as a page of a server in front of it, is told by its status.
    fn judge(&self, head: &http::response::Parts) -> Result<(), BodyError> {
        let status = head.status;
        if !status.is_client_error() && !status.is_server_error() {
            return Ok(());
        }
        self.asked.store(retry_after(&head.headers).unwrap_or_default(), Ordering::Relaxed);
        // RFC 8555, Section 6.7.
        let kind = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        match kind.is_some_and(|kind| kind.starts_with("application/problem+json")) {
            true => Ok(()),
            false => Err(format!("the answer is {status}, and no problem document").into()),
        }
    }
}

/// RFC 9110, Section 10.2.3, in seconds.
fn retry_after(headers: &http::HeaderMap) -> Option<u64> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds: Option<u64> = value.parse().ok().or_else(|| {
        let date = httpdate::parse_http_date(value).ok()?;
        Some(date.duration_since(SystemTime::now()).ok()?.as_secs())
    });
    seconds.map(|seconds| seconds.min(MAX_WAIT))
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let this = self.clone();
        Box::pin(async move {
            let late = |_| BodyError::from(format!("no answer within {} s", LIMIT.as_secs()));
            let answer = timeout(LIMIT, this.exchange(request)).await.map_err(late);
            answer.and_then(|answer| answer).map(BytesResponse::from).map_err(Error::Other)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_to_wait_is_seconds_or_a_date() {
        let read = |value: &str| {
            let headers = [(RETRY_AFTER, HeaderValue::from_str(value).unwrap())];
            retry_after(&headers.into_iter().collect())
        };
        assert_eq!(read("120"), Some(120));
        assert_eq!(read(" 7 "), Some(7));
        assert_eq!(read("18446744073709551615"), Some(MAX_WAIT));
        let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(1000));
        assert!(read(&date).is_some_and(|seconds| (990..=1000).contains(&seconds)));
        for wrong in ["", "-1", "soon", "Thu, 01 Jan 1970 00:00:00 GMT"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
