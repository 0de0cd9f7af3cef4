//! Plain HTTP, which leads to HTTPS and nowhere else.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::Shared;
use super::accept::accept_all;
use crate::{BodyError, request, route};

/// Takes connections until the gateway stops.
pub(crate) async fn listen(listener: TcpListener, port: u16, shared: Arc<Shared>) {
    let limits = Arc::clone(&shared);
    let hold = move |stream, _| hold(stream, port, limits.current().0.limits.header_timeout);
    accept_all(listener, shared, hold).await;
}

async fn hold(stream: TcpStream, port: u16, limit: Duration) -> Result<(), BodyError> {
    let answer = move |request: Request<Incoming>| async move {
        Ok::<_, Infallible>(answer(&request.into_parts().0, port))
    };
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limit).keep_alive(false);
    let serving = builder.serve_connection(TokioIo::new(stream), service_fn(answer));
    // One short request and its answer.
    timeout(limit * 2, serving).await??;
    Ok(())
}

/// 308 keeps the method (RFC 9110, Section 15.4.9).
fn answer(request: &http::request::Parts, port: u16) -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    let location = request::check(request).ok().and_then(|authority| {
        let host = route::host(&authority);
        let port = if port == 443 { String::new() } else { format!(":{port}") };
        let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
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

    fn location(uri: &str, host: &str, port: u16) -> (u16, String) {
        let request = Request::builder().uri(uri).header("host", host).body(()).unwrap();
        let response = answer(&request.into_parts().0, port);
        let location = response.headers().get(header::LOCATION);
        let location = location.map(|value| value.to_str().unwrap().to_owned());
        (response.status().as_u16(), location.unwrap_or_default())
    }

    #[test]
    fn the_way_leads_to_the_same_place_over_tls() {
        let to = |host, port| location("/a?b=c", host, port);
        assert_eq!(to("a.example:80", 443), (308, "https://a.example/a?b=c".to_owned()));
        assert_eq!(to("a.example", 8443), (308, "https://a.example:8443/a?b=c".to_owned()));
        assert_eq!(to("", 443).0, 400);
        assert_eq!(to("a@b", 443).0, 400);
    }
}
