//! Plain HTTP, which leads to HTTPS and nowhere else.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::linger::{Lingering, Wanted};
use crate::stall::Progress;
use crate::{BodyError, authority};

/// Answers one request on a connection. Its header section may take `patience`, and all of it twice as long.
///
/// # Errors
///
/// If no request comes in that time, or none that hyper can read.
pub async fn serve(
    stream: TcpStream,
    patience: Duration,
    answer: impl Fn(&Parts) -> Response<Full<Bytes>>,
) -> Result<(), BodyError> {
    let progress = Progress::new();
    let answer = |request: Request<Incoming>| {
        let (parts, body) = request.into_parts();
        // Nobody reads it; the client may still send it.
        drop(Wanted::new(body, Arc::clone(&progress)));
        let answer = answer(&parts);
        async move { Ok::<_, Infallible>(answer) }
    };
    let stream = Lingering::new(stream, Arc::clone(&progress));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(patience).keep_alive(false);
    let serving = builder.serve_connection(TokioIo::new(stream), service_fn(answer));
    // One short request and its answer.
    timeout(patience * 2, serving).await??;
    Ok(())
}

/// The same place over TLS, at this port; 400 for a request whose authority is `None`, or whose target is no path
/// (`OPTIONS *`: RFC 9112, Section 3.2.4). 308 keeps the method (RFC 9110, Section 15.4.9).
#[must_use]
pub fn to_https(request: &Parts, authority: Option<&str>, port: u16) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    let location = authority.and_then(|authority| {
        let host = authority::host(authority);
        let port = if port == 443 { String::new() } else { format!(":{port}") };
        let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
        if !path.starts_with('/') {
            return None;
        }
        HeaderValue::from_str(&format!("https://{host}{port}{path}")).ok()
    });
    match location {
        Some(location) => {
            *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
            response.headers_mut().insert(header::LOCATION, location);
        }
        None => *response.status_mut() = StatusCode::BAD_REQUEST,
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// All that a client hears that sends all of this before it reads.
    async fn said(request: &[u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let serving = tokio::spawn(async move {
            let answer =
                |request: &Parts| to_https(request, authority::of(request).ok().as_deref(), 443);
            serve(stream, Duration::from_secs(10), answer).await
        });
        client.write_all(request).await.unwrap();
        let mut said = String::new();
        client.read_to_string(&mut said).await.unwrap();
        drop(client);
        serving.await.unwrap().unwrap();
        said
    }

    #[tokio::test]
    async fn a_client_that_sends_a_body_hears_where_to_go() {
        let mut request = b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 400000\r\n\r\n".to_vec();
        request.resize(300_000, b'x');
        let said = said(&request).await;
        assert!(said.starts_with("HTTP/1.1 308") && said.contains("https://a/a\r\n"), "{said}");
    }

    #[tokio::test]
    async fn what_has_no_place_over_tls_leads_nowhere() {
        for request in ["OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"] {
            let said = said(request.as_bytes()).await;
            assert!(said.contains(" 400 ") && !said.contains("location"), "{said}");
        }
    }
}
