//! `--verbose`: heads of requests and answers, as curl shows them.

use std::fmt::Write;

use http::header::HeaderMap;
use http::{Request, Response, Version};

/// `HTTP/3 200 OK`.
pub(crate) fn status_line<T>(response: &Response<T>) -> String {
    format!("{} {}", version(response.version()), response.status())
}

const fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_11 => "HTTP/1.1",
        Version::HTTP_2 => "HTTP/2",
        _ => "HTTP/3",
    }
}

/// The lines of a request.
pub(crate) fn request<T>(request: &Request<T>, over: Version) -> String {
    let uri = request.uri();
    let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let host = uri.authority().map_or("", http::uri::Authority::as_str);
    let mut text = format!("> {} {path} {}\n> host: {host}", request.method(), version(over));
    fields(&mut text, '>', request.headers());
    text
}

/// The lines of an answer.
pub(crate) fn response<T>(response: &Response<T>) -> String {
    let mut text = format!("< {}", status_line(response));
    fields(&mut text, '<', response.headers());
    text
}

fn fields(text: &mut String, mark: char, headers: &HeaderMap) {
    for (name, value) in headers {
        // Terminals do as they are told: no control characters of others get there.
        let shown = value.as_bytes().escape_ascii();
        let _ = match value.is_sensitive() {
            true => write!(text, "\n{mark} {name}: (not shown)"),
            false => write!(text, "\n{mark} {name}: {shown}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn secrets_and_control_characters_are_not_shown() {
        let mut secret = HeaderValue::from_static("Basic abc");
        secret.set_sensitive(true);
        let asked = Request::get("https://a.test/b?c")
            .header("authorization", secret)
            .header("x", HeaderValue::from_bytes(b"\xff").unwrap())
            .body(())
            .unwrap();
        let text = request(&asked, Version::HTTP_3);
        assert!(text.starts_with("> GET /b?c HTTP/3\n> host: a.test\n"), "{text}");
        assert!(!text.contains("abc") && text.contains("x: \\xff"), "{text}");
    }
}
