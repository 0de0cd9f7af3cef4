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

/// A field's value as it is, but for what terminals would obey and what is not ASCII.
pub(crate) fn printable(value: &[u8]) -> String {
    let shown = |byte: &u8| match byte {
        b' '..=b'~' | b'\t' => char::from(*byte).to_string(),
        byte => format!("\\x{byte:02x}"),
    };
    value.iter().map(shown).collect()
}

fn fields(text: &mut String, mark: char, headers: &HeaderMap) {
    for (name, value) in headers {
        let shown = printable(value.as_bytes());
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
        assert_eq!(printable(b"\"1\\2\"\t\x1b\xff"), "\"1\\2\"\t\\x1b\\xff");
        assert!(!text.contains("abc") && text.contains("x: \\xff"), "{text}");
    }
}
