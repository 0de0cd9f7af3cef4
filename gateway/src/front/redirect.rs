//! Plain HTTP, which leads to HTTPS and nowhere else.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::Full;
use quicket_front::redirect;
use tokio::net::{TcpListener, TcpStream};

use super::Shared;
use super::accept::accept_all;
use crate::acme::Challenges;
use crate::{BodyError, request};

/// Takes connections until the gateway stops.
pub(crate) async fn listen(listener: TcpListener, port: u16, shared: Arc<Shared>) {
    let all = Arc::clone(&shared);
    let hold = move |stream, _| hold(stream, port, Arc::clone(&all));
    accept_all(listener, shared, hold).await;
}

async fn hold(stream: TcpStream, port: u16, shared: Arc<Shared>) -> Result<(), BodyError> {
    let snapshot = shared.current().0;
    let leads_to = snapshot.has_sites().then_some(port);
    let answer = |request: &Parts| answer(request, leads_to, &shared.challenges);
    redirect::serve(stream, snapshot.limits.header_timeout, answer).await
}

/// The answer to a challenge, if one is awaited; or the way to HTTPS at this port, if there is HTTPS.
fn answer(request: &Parts, port: Option<u16>, challenges: &Challenges) -> Response<Full<Bytes>> {
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
    redirect::to_https(request, request::check(request).ok().as_deref(), port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

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
