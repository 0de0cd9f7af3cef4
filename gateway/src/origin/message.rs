//! A request as a version of HTTP wants it. The authority is in Host before, and after for HTTP/1.1.

use http::header::{self, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Uri, Version};
use hyper::ext::Protocol;

/// RFC 9112, Section 3.2.1: the target is the path; the authority is in Host.
pub(super) fn for_one<B: http_body::Body>(request: &mut Request<B>) {
    if !request.headers().contains_key(header::HOST)
        && let Some(authority) = request.uri().authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(header::HOST, host);
    }
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
    *request.version_mut() = Version::HTTP_11;
    // RFC 9112, Section 6.1: hyper takes GET and HEAD without a length for requests without a body.
    if !request.body().is_end_stream() && !request.headers().contains_key(header::CONTENT_LENGTH) {
        let chunked = HeaderValue::from_static("chunked");
        request.headers_mut().insert(header::TRANSFER_ENCODING, chunked);
    }
    // RFC 9110, Section 10.1.4: TE concerns the connection.
    if request.headers().contains_key(header::TE) {
        add_connection(request.headers_mut(), "te");
    }
    if request.headers().contains_key(header::UPGRADE) {
        add_connection(request.headers_mut(), "upgrade");
    }
}

fn add_connection(headers: &mut HeaderMap, option: &'static str) {
    let is_there = headers.get_all(header::CONNECTION).iter().any(|value| value == option);
    if !is_there {
        headers.append(header::CONNECTION, HeaderValue::from_static(option));
    }
}

/// RFC 9113, Section 8.3.1: the target is scheme, authority and path; fields of a connection do not exist.
pub(super) fn for_two<B>(request: &mut Request<B>, is_tls: bool) {
    let host = request.headers_mut().remove(header::HOST);
    let from_host = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    if let Some(authority) = from_host.or_else(|| request.uri().authority().cloned()) {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(if is_tls { Scheme::HTTPS } else { Scheme::HTTP });
        parts.authority = Some(authority);
        let path = request.uri().path_and_query().cloned();
        parts.path_and_query = path.or_else(|| Some(PathAndQuery::from_static("/")));
        // All three are there: that is a target.
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request.headers_mut().remove(header::CONNECTION);
    request.headers_mut().remove(header::TRANSFER_ENCODING);
    *request.version_mut() = Version::HTTP_2;
}

/// RFC 9114, Section 4.3.1, which says the same.
pub(super) fn for_three<B>(request: &mut Request<B>) {
    for_two(request, true);
    *request.version_mut() = Version::HTTP_3;
}

/// An upgrade of HTTP/1.1 as an extended CONNECT (RFC 8441, Section 5).
pub(super) fn extend<B>(request: &mut Request<B>) {
    let Some(token) = request.headers_mut().remove(header::UPGRADE) else { return };
    if let Ok(token) = token.to_str() {
        request.extensions_mut().insert(Protocol::from(token));
    }
    *request.method_mut() = Method::CONNECT;
    request.headers_mut().remove(header::SEC_WEBSOCKET_KEY);
}

/// The same over HTTP/3 (RFC 9220, Section 3), where only WebSocket is known; false for another protocol.
pub(super) fn extend_three<B>(request: &mut Request<B>) -> bool {
    extend(request);
    quicket_h3::ask_for_websocket(request);
    request.extensions().get::<Protocol>().is_some_and(|asked| asked.as_str() == "websocket")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::{Empty, Full};

    fn request() -> Request<Empty<Bytes>> {
        let request = Request::get("/a?b").header("host", "a.example:1").header("te", "trailers");
        request.body(Empty::new()).unwrap()
    }

    #[test]
    fn a_body_without_a_length_is_chunked_in_http1_only() {
        let request = Request::get("/").header("host", "a.example");
        let mut request = request.body(Full::new(Bytes::from_static(b"body"))).unwrap();
        for _ in 0..2 {
            for_one(&mut request);
            assert_eq!(request.headers()["transfer-encoding"], "chunked");
            for_two(&mut request, true);
            assert!(!request.headers().contains_key("transfer-encoding"));
        }
        request.headers_mut().insert("content-length", 4.into());
        for_one(&mut request);
        assert!(!request.headers().contains_key("transfer-encoding"));
    }

    #[test]
    fn each_version_has_the_authority_where_it_belongs() {
        let mut request = request();
        for _ in 0..2 {
            for_two(&mut request, true);
            assert_eq!(request.uri(), "https://a.example:1/a?b");
            assert!(!request.headers().contains_key("host"));
            assert!(!request.headers().contains_key("connection"));
            for_one(&mut request);
            assert_eq!(
                (request.uri(), &request.headers()["host"]),
                (&Uri::from_static("/a?b"), &HeaderValue::from_static("a.example:1"))
            );
            assert_eq!(request.headers()["connection"], "te");
        }
    }

    #[test]
    fn an_upgrade_becomes_an_extended_connect() {
        let mut request = request();
        request.headers_mut().insert("upgrade", HeaderValue::from_static("websocket"));
        request.headers_mut().insert("sec-websocket-key", HeaderValue::from_static("x"));
        for_one(&mut request);
        let options: Vec<_> = request.headers().get_all("connection").iter().collect();
        assert_eq!(options, ["te", "upgrade"]);
        extend(&mut request);
        for_two(&mut request, false);
        assert_eq!((request.method(), request.headers().len()), (&Method::CONNECT, 1));
        assert_eq!(request.extensions().get::<Protocol>().unwrap().as_str(), "websocket");
    }

    #[test]
    fn over_http3_only_websocket_is_asked_for() {
        for (token, is_known) in [("websocket", true), ("chat", false)] {
            let mut request = request();
            request.headers_mut().insert("upgrade", HeaderValue::from_static(token));
            for_three(&mut request);
            assert_eq!(extend_three(&mut request), is_known, "{token}");
            assert_eq!((request.method(), request.version()), (&Method::CONNECT, Version::HTTP_3));
            assert!(!request.headers().contains_key("upgrade"));
        }
    }
}
