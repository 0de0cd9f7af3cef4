//! From a request to its answer (RFC 9110), apart from how both travel.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use cap_std::fs::Metadata;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};

use crate::coding::Coding;
use crate::descriptors::is_shortage;
use crate::range::{self, Range};
use crate::tree::{Found, Tree};

/// What is sent back.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its fields.
    pub headers: HeaderMap,
    /// What follows them.
    pub body: Body,
}

/// What follows the headers.
#[derive(Debug)]
pub enum Body {
    /// Nothing.
    Empty,
    /// These bytes.
    Bytes(Bytes),
    /// So many bytes of a file, from where it stands.
    File(File, u64),
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path of the target, percent-encoded, without the query.
    pub path: &'a str,
    /// The fields.
    pub headers: &'a HeaderMap,
    /// It came as 0-RTT data, which an attacker can repeat.
    pub early: bool,
}

/// Answers a question. Reads from the disk, so it can take its time. The error is want of
/// descriptors ([`is_shortage`]): the question can be asked again.
///
/// # Errors
///
/// Want of descriptors only; what else goes wrong is an answer.
pub fn answer(tree: &Tree, question: &Question<'_>) -> io::Result<Answer> {
    let method = question.method;
    if question.early && !method.is_safe() {
        // RFC 8470, Section 5.2.
        let text = "Send this again after the handshake.\n";
        return Ok(Answer::text(StatusCode::TOO_EARLY, text));
    }
    if method != Method::GET && method != Method::HEAD {
        let mut answer =
            Answer::text(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD are possible here.\n");
        answer.set(header::ALLOW, "GET, HEAD");
        return Ok(answer);
    }
    let mut answer = match tree.find(question.path, question.headers) {
        Ok(found) => answer_with(tree, found, question),
        Err(error) if is_shortage(&error) => return Err(error),
        Err(error) => {
            log::warn!("cannot serve {}: {error}", question.path);
            Answer::text(StatusCode::INTERNAL_SERVER_ERROR, "The file cannot be read.\n")
        }
    };
    if method == Method::HEAD {
        // The headers stay those of GET (RFC 9110, Section 9.3.2).
        answer.body = Body::Empty;
    }
    Ok(answer)
}

fn answer_with(tree: &Tree, found: Found, question: &Question<'_>) -> Answer {
    match found {
        Found::Nothing => Answer::text(StatusCode::NOT_FOUND, "There is no such file.\n"),
        Found::NeedsSlash => Answer::to_directory(question.path),
        Found::Listing(entries) => {
            let page = tree.page(question.path, &entries);
            Answer::with_bytes(StatusCode::OK, "text/html; charset=utf-8", page.into())
        }
        Found::File { file, metadata, name, coding } => {
            let state = Validators::of(&metadata, coding);
            let answer = Answer::with_file(file, metadata.len(), &state, &name, question.headers);
            let mut answer = answer.unwrap_or_else(|error| {
                log::warn!("cannot serve {}: {error}", question.path);
                Answer::text(StatusCode::INTERNAL_SERVER_ERROR, "The file cannot be read.\n")
            });
            if tree.varies() {
                answer.set(header::VARY, "Accept-Encoding");
            }
            if let Some(coding) = coding
                && answer.headers.contains_key(header::ACCEPT_RANGES)
            {
                answer.set(header::CONTENT_ENCODING, coding.name());
            }
            answer
        }
    }
}

impl Answer {
    fn new(status: StatusCode) -> Self {
        let mut answer = Self { status, headers: HeaderMap::new(), body: Body::Empty };
        // RFC 9110, Section 6.6.1.
        answer.set(header::DATE, &httpdate::fmt_http_date(SystemTime::now()));
        answer.set(header::SERVER, concat!("quicket/", env!("CARGO_PKG_VERSION")));
        answer
    }

    fn with_bytes(status: StatusCode, content_type: &str, bytes: Bytes) -> Self {
        let mut answer = Self::new(status);
        answer.set(header::CONTENT_TYPE, content_type);
        answer.set(header::CONTENT_LENGTH, &bytes.len().to_string());
        answer.set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
        answer.body = Body::Bytes(bytes);
        answer
    }

    fn text(status: StatusCode, text: &'static str) -> Self {
        let content_type = "text/plain; charset=utf-8";
        Self::with_bytes(status, content_type, Bytes::from_static(text.as_bytes()))
    }

    /// There is no descriptor for the file, and was none for long.
    pub fn busy() -> Self {
        let text = "Too many files are being sent. Try again in a moment.\n";
        let mut answer = Self::text(StatusCode::SERVICE_UNAVAILABLE, text);
        // RFC 9110, Section 10.2.3.
        answer.set(header::RETRY_AFTER, "5");
        answer
    }

    /// A path without its last slash: relative links on the page need it.
    fn to_directory(path: &str) -> Self {
        let mut answer = Self::text(StatusCode::MOVED_PERMANENTLY, "A slash is missing.\n");
        // Relative to the last segment, so that it holds whatever comes before.
        let last = path.rsplit('/').next().unwrap_or_default();
        answer.set(header::LOCATION, &format!("./{last}/"));
        answer
    }

    fn with_file(
        mut file: File,
        len: u64,
        validators: &Validators,
        name: &Path,
        asked: &HeaderMap,
    ) -> io::Result<Self> {
        if validators.is_known_to(asked) {
            let mut answer = Self::new(StatusCode::NOT_MODIFIED);
            validators.put_on(&mut answer);
            return Ok(answer);
        }
        let range = match asked.get(header::RANGE) {
            Some(range) if validators.allow_range(asked) => range::parse(range, len),
            _ => Range::Whole,
        };
        let (mut answer, start, end) = match range {
            Range::Whole => (Self::new(StatusCode::OK), 0, len),
            Range::Part { start, end } => (Self::new(StatusCode::PARTIAL_CONTENT), start, end),
            Range::Unsatisfiable => {
                let mut answer =
                    Self::text(StatusCode::RANGE_NOT_SATISFIABLE, "The file is shorter.\n");
                answer.set(header::CONTENT_RANGE, &format!("bytes */{len}"));
                return Ok(answer);
            }
        };
        if answer.status == StatusCode::PARTIAL_CONTENT {
            let last = end.saturating_sub(1);
            answer.set(header::CONTENT_RANGE, &format!("bytes {start}-{last}/{len}"));
        }
        validators.put_on(&mut answer);
        answer.set(header::CONTENT_TYPE, &content_type(name));
        answer.set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
        answer.set(header::ACCEPT_RANGES, "bytes");
        answer.set(header::CONTENT_LENGTH, &(end - start).to_string());
        if start > 0 {
            file.seek(SeekFrom::Start(start))?;
        }
        answer.body = Body::File(file, end - start);
        Ok(answer)
    }

    /// Sets a header; values that HTTP cannot carry are left out.
    fn set(&mut self, name: HeaderName, value: &str) {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
    }
}

fn content_type(name: &Path) -> String {
    let guess = mime_guess::from_path(name).first_or_octet_stream();
    match guess.type_() {
        mime_guess::mime::TEXT => format!("{guess}; charset=utf-8"),
        _ => guess.to_string(),
    }
}

/// How clients tell one state of a file from another (RFC 9110, Section 8.8).
struct Validators {
    etag: String,
    modified: Option<SystemTime>,
}

impl Validators {
    fn of(metadata: &Metadata, coding: Option<Coding>) -> Self {
        let modified = metadata.modified().ok().map(cap_std::time::SystemTime::into_std);
        let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let nanos = since.unwrap_or_default().as_nanos();
        // Each encoding is a representation of its own (RFC 9110, Section 8.8.3.3).
        let coding = coding.map_or("", Coding::suffix);
        Self { etag: format!("\"{nanos:x}-{:x}{coding}\"", metadata.len()), modified }
    }

    fn put_on(&self, answer: &mut Answer) {
        answer.set(header::ETAG, &self.etag);
        if let Some(modified) = self.modified {
            answer.set(header::LAST_MODIFIED, &httpdate::fmt_http_date(modified));
        }
    }

    /// The client has this state already (RFC 9110, Section 13.2.2: If-None-Match decides alone if
    /// it is there).
    fn is_known_to(&self, asked: &HeaderMap) -> bool {
        let mut tags = asked.get_all(header::IF_NONE_MATCH).iter().peekable();
        if tags.peek().is_some() {
            return tags
                .filter_map(|tags| tags.to_str().ok())
                .flat_map(|tags| tags.split(','))
                .any(|tag| {
                    let tag = tag.trim();
                    tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == self.etag
                });
        }
        let since = asked.get(header::IF_MODIFIED_SINCE).and_then(date);
        since.is_some_and(|since| {
            self.modified.is_some_and(|modified| seconds(modified) <= seconds(since))
        })
    }

    /// The client's part is of this state (RFC 9110, Section 13.1.5), or it does not mind. A date
    /// is no strong validator, as a file can change twice in a second.
    fn allow_range(&self, asked: &HeaderMap) -> bool {
        asked.get(header::IF_RANGE).is_none_or(|state| state.as_bytes() == self.etag.as_bytes())
    }
}

fn date(value: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}

/// HTTP dates have whole seconds only.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::Sample;

    fn ask(sample: &Sample, method: &Method, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        answer(&sample.tree(), &Question { method, path, headers: &map, early: false }).unwrap()
    }

    fn text(answer: Answer) -> String {
        match answer.body {
            Body::Empty => String::new(),
            Body::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            Body::File(file, len) => io::read_to_string(io::Read::take(file, len)).unwrap(),
        }
    }

    #[test]
    fn a_file_comes_with_type_length_and_validators() {
        let sample = Sample::new("answer-file");
        let answer = ask(&sample, &Method::GET, "/a.txt", &[]);
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.headers[header::CONTENT_TYPE], "text/plain; charset=utf-8");
        assert_eq!(answer.headers[header::CONTENT_LENGTH], "12");
        assert!(answer.headers.contains_key(header::LAST_MODIFIED));
        assert_eq!(text(answer), "hello, world");
    }

    #[test]
    fn head_has_the_headers_of_get_and_no_body() {
        let sample = Sample::new("answer-head");
        let answer = ask(&sample, &Method::HEAD, "/a.txt", &[]);
        assert_eq!(answer.headers[header::CONTENT_LENGTH], "12");
        assert!(matches!(answer.body, Body::Empty));
    }

    #[test]
    fn ranges_are_served_if_the_state_is_the_same() {
        let sample = Sample::new("answer-range");
        let etag = ask(&sample, &Method::GET, "/a.txt", &[]).headers[header::ETAG].clone();
        let part = ask(
            &sample,
            &Method::GET,
            "/a.txt",
            &[("range", "bytes=7-"), ("if-range", etag.to_str().unwrap())],
        );
        assert_eq!(part.status, StatusCode::PARTIAL_CONTENT);
        assert_eq!(part.headers[header::CONTENT_RANGE], "bytes 7-11/12");
        assert_eq!(text(part), "world");
        let other = [("range", "bytes=7-"), ("if-range", "\"other\"")];
        let whole = ask(&sample, &Method::GET, "/a.txt", &other);
        assert_eq!(whole.status, StatusCode::OK);
        assert_eq!(text(whole), "hello, world");
        let beyond = ask(&sample, &Method::GET, "/a.txt", &[("range", "bytes=12-")]);
        assert_eq!(beyond.status, StatusCode::RANGE_NOT_SATISFIABLE);
        assert_eq!(beyond.headers[header::CONTENT_RANGE], "bytes */12");
    }

    #[test]
    fn what_the_client_has_is_not_sent_again() {
        let sample = Sample::new("answer-known");
        let first = ask(&sample, &Method::GET, "/a.txt", &[]);
        let etag = first.headers[header::ETAG].to_str().unwrap();
        let modified = first.headers[header::LAST_MODIFIED].to_str().unwrap();
        for (headers, status) in [
            (vec![("if-none-match", etag)], 304),
            (vec![("if-none-match", "*")], 304),
            (vec![("if-none-match", "\"x\""), ("if-modified-since", modified)], 200),
            (vec![("if-modified-since", modified)], 304),
            (vec![("if-modified-since", "Thu, 01 Jan 1970 00:00:00 GMT")], 200),
        ] {
            assert_eq!(
                ask(&sample, &Method::GET, "/a.txt", &headers).status,
                status,
                "{headers:?}"
            );
        }
    }

    #[test]
    fn other_methods_are_refused_and_early_ones_put_off() {
        let sample = Sample::new("answer-method");
        let refused = ask(&sample, &Method::POST, "/a.txt", &[]);
        assert_eq!(refused.status, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(refused.headers[header::ALLOW], "GET, HEAD");
        let headers = HeaderMap::new();
        let early = |method| {
            let question = Question { method, path: "/a.txt", headers: &headers, early: true };
            answer(&sample.tree(), &question).unwrap().status
        };
        assert_eq!(early(&Method::POST), StatusCode::TOO_EARLY);
        assert_eq!(early(&Method::GET), StatusCode::OK);
    }

    #[test]
    fn directories_are_listed_behind_a_slash() {
        let sample = Sample::new("answer-dir");
        let moved = ask(&sample, &Method::GET, "/sub", &[]);
        assert_eq!(moved.status, StatusCode::MOVED_PERMANENTLY);
        assert_eq!(moved.headers[header::LOCATION], "./sub/");
        let listing = text(ask(&sample, &Method::GET, "/sub/", &[]));
        assert!(listing.starts_with("/sub/: ") && listing.contains("b & c.html"), "{listing}");
        assert_eq!(ask(&sample, &Method::GET, "/absent", &[]).status, StatusCode::NOT_FOUND);
    }
}
