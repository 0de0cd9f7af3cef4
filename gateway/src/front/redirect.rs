//! Plain HTTP, which leads to HTTPS and nowhere else.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::Shared;
use super::accept::accept_all;
use crate::acme::Challenges;
use crate::{BodyError, request, route};

/// Takes connections until the gateway stops.
pub(crate) async fn listen(listener: TcpListener, port: u16, shared: Arc<Shared>) {
    let all = Arc::clone(&shared);
    let hold = move |stream, _| hold(stream, port, Arc::clone(&all));
    accept_all(listener, shared, hold).await;
}

async fn hold(stream: TcpStream, port: u16, shared: Arc<Shared>) -> Result<(), BodyError> {
    let snapshot = shared.current().0;
    let limit = snapshot.limits.header_timeout;
    let leads_to = snapshot.has_sites().then_some(port);
    let answer = move |request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(&request.into_parts().0, leads_to, &shared.challenges)) }
    };
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limit).keep_alive(false);
    let serving = builder.serve_connection(TokioIo::new(stream), service_fn(answer));
    // One short request and its answer.
    timeout(limit * 2, serving).await??;
    Ok(())
}

/// The answer to a challenge, if one is awaited; or the way to HTTPS at this port, if there is HTTPS.
fn answer(
    request: &http::request::Parts,
    port: Option<u16>,
    challenges: &Challenges,
) -> Response<Full<Bytes>> {
    if let Some(authorization) = challenges.find(request.uri.path()) {
        // RFC 8555, Section 8.3.
        let mut response = Response::new(Full::from(authorization));
        let kind = HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        return response;
    }
    let Some(port) = port else {
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    };
    redirect(request, port)
}

/// 308 keeps the method (RFC 9110, Section 15.4.9).
fn redirect(request: &http::request::Parts, port: u16) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
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
        let response = answer(&request.into_parts().0, Some(port), &Challenges::default());
        let location = response.headers().get(header::LOCATION);
        let location = location.map(|value| value.to_str().unwrap().to_owned());
        (response.status().as_u16(), location.unwrap_or_default())
    }

    #[test]
    fn challenges_are_answered_as_long_as_they_are_awaited() {
        let challenges = Arc::new(Challenges::default());
        let status = |token: &str, port| {
            let uri = format!("/.well-known/acme-challenge/{token}");
            let request = Request::builder().uri(uri).header("host", "a.example").body(()).unwrap();
            answer(&request.into_parts().0, port, &challenges).status().as_u16()
        };
        let given = challenges.over_http("token", "token.thumb");
        assert_eq!((status("token", Some(443)), status("token", None)), (200, 200));
        // One may be an origin's, which gets certificates of its own.
        assert_eq!((status("other", Some(443)), status("other", None)), (308, 404));
        drop(given);
        assert_eq!(status("token", Some(443)), 308);
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
