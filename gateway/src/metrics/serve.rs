//! Tells the counters to who may know them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use quicket::tokio::Endpoint;
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::page;
use super::place::{Listener, Stream};
use crate::front::Shared;

/// Connections at once.
const MAX_CONNECTIONS: usize = 16;
/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers until the gateway stops.
pub(crate) async fn serve(listener: Listener, shared: Arc<Shared>, endpoints: Vec<Endpoint>) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(error) => {
                log::warn!("counters: cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Here: who reads slowly must not keep the endpoints.
        let retries = |endpoint: &Endpoint| -> u64 {
            endpoint.worker_stats().iter().map(|worker| worker.retries).sum()
        };
        let retries = endpoints.iter().map(retries).sum();
        shared.metrics.retries_are(retries);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let _ = timeout(PATIENCE, hold(stream, &shared)).await;
            drop(permit);
        });
    }
}

async fn hold(stream: Box<dyn Stream>, shared: &Shared) {
    let answer = |request| async move { Ok::<_, Infallible>(answer(&request, shared)) };
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE).keep_alive(false);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service_fn(answer)).await {
        log::debug!("counters: {error}");
    }
}

fn answer<B>(request: &Request<B>, shared: &Shared) -> Response<Full<Bytes>> {
    let snapshot = shared.current().0;
    let token = snapshot.metrics.as_ref().and_then(|metrics| metrics.token.as_ref());
    if token.is_some_and(|token| !is_known(request, token)) {
        let mut response =
            said(StatusCode::UNAUTHORIZED, "text/plain", "a token is missing\n".into());
        // Browsers ask for a password then (RFC 7617).
        let challenge = HeaderValue::from_static("Basic realm=\"quicket\", charset=\"UTF-8\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        let challenge = HeaderValue::from_static("Bearer");
        response.headers_mut().append(header::WWW_AUTHENTICATE, challenge);
        return response;
    }
    if request.method() != Method::GET {
        return said(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET\n".into());
    }
    if matches!(request.uri().path(), "/metrics" | "/metrics.json") {
        shared.metrics.servers_are(snapshot.standing());
    }
    let (content_type, told) = match request.uri().path() {
        "/metrics" => {
            ("application/openmetrics-text; version=1.0.0; charset=utf-8", shared.metrics.text())
        }
        "/metrics.json" => ("application/json", shared.metrics.json()),
        path => {
            if let Some(part) = page::part(path) {
                return part;
            }
            let hint = "there are / for people, /metrics and /metrics.json\n".into();
            return said(StatusCode::NOT_FOUND, "text/plain", hint);
        }
    };
    match told {
        Ok(text) => said(StatusCode::OK, content_type, text),
        Err(error) => said(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", error.to_string()),
    }
}

/// The token of a program (RFC 6750, Section 2.1), or the password of a browser's user, whatever he calls himself
/// (RFC 7617). The time that the comparison takes says nothing of the token.
fn is_known<B>(request: &Request<B>, token: &str) -> bool {
    let given = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    let Some((scheme, given)) = given.and_then(|given| given.split_at_checked(6)) else {
        return false;
    };
    if scheme.eq_ignore_ascii_case(b"Basic ") {
        let given = BASE64_STANDARD.decode(given).unwrap_or_default();
        let colon = given.iter().position(|&byte| byte == b':');
        let password = colon.and_then(|colon| given.get(colon + 1..));
        return password.is_some_and(|password| bool::from(password.ct_eq(token.as_bytes())));
    }
    let given = given.strip_prefix(b" ").filter(|_| scheme.eq_ignore_ascii_case(b"Bearer"));
    given.is_some_and(|given| bool::from(given.ct_eq(token.as_bytes())))
}

pub(super) fn said(
    status: StatusCode,
    content_type: &'static str,
    text: String,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
