//! What is asked of a server for one file: method, header fields, body.

use std::fs;
use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request};

use super::reply::Kept;
use super::target::Target;
use crate::args::{Get, Http, Protocol, is_secret};
use crate::exit::{Failure, Kind};

/// What the command line asks for, the same for all files.
#[derive(Debug)]
struct Wanted {
    headers: HeaderMap,
    body: Bytes,
    location: bool,
    max_redirects: u16,
}

/// What is asked for one file: redirects change it.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    wanted: Arc<Wanted>,
    method: Method,
    with_body: bool,
    /// The server is the one that the command line names.
    with_secrets: bool,
    redirects: u16,
}

impl Order {
    pub(crate) fn new(args: &Get) -> Result<Self, Failure> {
        let http = &args.http;
        let body = body(&http.data)?;
        let with_body = !http.data.is_empty();
        let method = match &http.method {
            Some(method) => method.clone(),
            None if http.head => Method::HEAD,
            None if with_body => Method::POST,
            None => Method::GET,
        };
        let wanted = Wanted {
            headers: headers(http, with_body),
            body,
            location: http.location,
            max_redirects: http.max_redirects,
        };
        let wanted = Arc::new(wanted);
        Ok(Self { wanted, method, with_body, with_secrets: true, redirects: 0 })
    }

    /// There is a body in the answer only where the method has one.
    pub(crate) fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }

    /// A request that can be sent again without harm (RFC 9110, Section 9.2.2).
    pub(crate) fn is_idempotent(&self) -> bool {
        self.method.is_idempotent()
    }

    /// A request that asks for nothing but an answer (RFC 9110, Section 9.2.1).
    pub(crate) fn is_safe(&self) -> bool {
        self.method.is_safe()
    }

    /// Part of a file can be asked for.
    pub(crate) fn takes_ranges(&self) -> bool {
        self.method == Method::GET
    }

    /// Redirects are followed.
    pub(crate) fn follows(&self) -> bool {
        self.wanted.location
    }

    /// The body of the request.
    pub(crate) fn body(&self) -> Option<Bytes> {
        self.with_body.then(|| self.wanted.body.clone())
    }

    /// The head of the request for `target`, of which `kept` is here.
    pub(crate) fn request(
        &self,
        target: &Target,
        kept: Option<&Kept>,
    ) -> Result<Request<()>, Failure> {
        let url = target.url.as_str().split('#').next().unwrap_or_default();
        let unfit = |error: http::Error| Failure::new(Kind::Usage, format!("{url}: {error}"));
        let mut request =
            Request::builder().method(self.method.clone()).uri(url).body(()).map_err(unfit)?;
        let headers = request.headers_mut();
        for (name, value) in &self.wanted.headers {
            let kept = match (self.with_secrets, self.with_body) {
                (false, _) if is_secret(name) => false,
                (_, false) => *name != header::CONTENT_TYPE,
                _ => true,
            };
            if kept {
                headers.append(name, value.clone());
            }
        }
        if let Some(body) = self.body() {
            headers.insert(header::CONTENT_LENGTH, body.len().into());
        }
        if let Some(kept) = kept {
            let value =
                |text: &str| HeaderValue::try_from(text).map_err(|error| unfit(error.into()));
            headers.insert(header::RANGE, value(&format!("bytes={}-", kept.len()))?);
            if let Kept::Part(part) = kept {
                // The rest if it is still the same file, else the whole (RFC 9110, Section 13.1.5).
                headers.insert(header::IF_RANGE, value(&part.etag)?);
            }
        }
        Ok(request)
    }

    /// What is asked at the place to which an answer with `status` points, as browsers and curl do
    /// (RFC 9110, Section 15.4): 303 asks for a page with GET, and so does an answer to POST with
    /// 301 or 302.
    pub(crate) fn redirected(&self, status: u16, from: &Target, to: &Target) -> Option<Self> {
        if self.redirects >= self.wanted.max_redirects {
            return None;
        }
        let mut order = self.clone();
        order.redirects += 1;
        let becomes_get = match status {
            303 => self.method != Method::HEAD,
            301 | 302 => self.method == Method::POST,
            _ => false,
        };
        if becomes_get {
            order.method = Method::GET;
            order.with_body = false;
        }
        let same =
            (&from.authority.host, from.authority.port) == (&to.authority.host, to.authority.port);
        // Once lost, they do not come back: a third host could have sent us here.
        order.with_secrets &= same;
        Some(order)
    }

    /// How many redirects are followed at most.
    pub(crate) fn max_redirects(&self) -> u16 {
        self.wanted.max_redirects
    }
}

/// HTTP/0.9 has a path and nothing else: what cannot be asked so is not left out without a word.
pub(crate) fn check(args: &Get, targets: &[Target]) -> Result<(), Failure> {
    let http = &args.http;
    let is_get = http.method.as_ref().is_none_or(|method| *method == Method::GET);
    let (flag, why) = match () {
        () if http.head => ("--head (-I)", "has no header fields"),
        () if !is_get => ("--request (-X)", "has no method but GET"),
        () if !http.data.is_empty() => ("--data (-d)", "sends no bodies"),
        () if !http.header.is_empty() => ("--header (-H)", "has no header fields"),
        () if args.http2 => ("--http2", "is not spoken over TCP"),
        () => return Ok(()),
    };
    let by_path = |target: &&Target| target.authority.protocol == Protocol::HqInterop;
    let Some(target) = targets.iter().find(by_path) else { return Ok(()) };
    let url = target.shown();
    let message = format!("{url}: HTTP/0.9 {why}: leave out {flag}, or fetch it over HTTP/3");
    Err(Failure::new(Kind::Usage, message))
}

/// The header fields: what this program sends, and what the command line changes in it.
fn headers(http: &Http, with_body: bool) -> HeaderMap {
    const AGENT: &str = concat!("quicket/", env!("CARGO_PKG_VERSION"));
    let mut headers = HeaderMap::new();
    headers.insert(header::USER_AGENT, HeaderValue::from_static(AGENT));
    headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
    if with_body {
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(header::CONTENT_TYPE, form);
    }
    let mut replaced: Vec<&HeaderName> = Vec::new();
    for field in &http.header {
        if !replaced.contains(&&field.name) {
            headers.remove(&field.name);
            replaced.push(&field.name);
        }
        if let Some(value) = &field.value {
            headers.append(&field.name, value.clone());
        }
    }
    headers
}

/// The body: as it is, or from files.
fn body(data: &[String]) -> Result<Bytes, Failure> {
    let mut body = Vec::new();
    for (number, text) in data.iter().enumerate() {
        if number > 0 {
            body.push(b'&');
        }
        let Some(file) = text.strip_prefix('@') else {
            body.extend_from_slice(text.as_bytes());
            continue;
        };
        let read = match file {
            "-" => io::stdin().read_to_end(&mut body).map(|_| ()),
            file => fs::read(file).map(|content| body.extend_from_slice(&content)),
        };
        read.map_err(|error| Failure::environment(format!("cannot read {file}"), error))?;
    }
    Ok(body.into())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;
    use url::Url;

    /// What the command line asks for with these flags.
    pub(crate) fn order(flags: &[&str]) -> Order {
        let line = [&["quicket", "get", "https://a.test/"], flags].concat();
        let Command::Get(args) = Args::parse_from(line).command else { panic!("not get") };
        Order::new(&args).unwrap()
    }

    fn target(url: &str) -> Target {
        Target::new(&Url::parse(url).unwrap(), Protocol::H3).unwrap()
    }

    #[test]
    fn header_fields_of_the_command_line_replace_those_of_the_program() {
        let flags = ["-H", "Accept: text/html", "-H", "accept: text/plain", "-H", "User-Agent:"];
        let request = order(&flags).request(&target("https://a.test/b?c#d"), None).unwrap();
        let accepted: Vec<_> = request.headers().get_all(header::ACCEPT).iter().collect();
        assert_eq!(accepted, ["text/html", "text/plain"]);
        assert!(!request.headers().contains_key(header::USER_AGENT));
        assert_eq!(request.uri().to_string(), "https://a.test/b?c");
    }

    #[test]
    fn data_makes_a_form_that_is_posted() {
        let order = order(&["-d", "a=1", "-d", "b=2"]);
        let request = order.request(&target("https://a.test/"), None).unwrap();
        assert_eq!(request.method(), Method::POST);
        assert_eq!(request.headers()[header::CONTENT_LENGTH], "7");
        assert_eq!(order.body().unwrap(), "a=1&b=2");
        assert!(!order.is_idempotent());
    }

    #[test]
    fn what_http_0_9_cannot_ask_is_refused() {
        let checked = |url: &str, flags: &[&str]| {
            let line = [&["quicket", "get", url], flags].concat();
            let Command::Get(args) = Args::parse_from(line).command else { panic!("not get") };
            check(&args, &[Target::new(&args.urls[0], args.alpn).unwrap()])
        };
        let refused: [(&[&str], _); 5] = [
            (&["-I"], "--head"),
            (&["-X", "PUT"], "--request"),
            (&["-d", "x"], "--data"),
            (&["-H", "a: b"], "--header"),
            (&["--http2"], "--http2"),
        ];
        for (flags, flag) in refused {
            let failure = checked("hq://a.test/b", flags).unwrap_err();
            let message = &failure.message;
            assert_eq!(failure.kind, Kind::Usage);
            assert!(message.starts_with("hq://a.test/b: ") && message.contains(flag), "{message}");
            assert_eq!(checked("https://a.test/b", flags), Ok(()));
        }
        assert_eq!(checked("hq://a.test/b", &["-X", "GET"]), Ok(()));
        let by_alpn = checked("https://a.test/b", &["--alpn", "hq-interop", "-I"]).unwrap_err();
        assert!(by_alpn.message.starts_with("https://a.test/b: "), "{by_alpn}");
    }

    #[test]
    fn what_a_redirect_asks_for() {
        let (a, b) = (target("https://a.test/"), target("https://b.test/"));
        let posted = order(&["-L", "-d", "x"]);
        for (status, method) in
            [(301, Method::GET), (303, Method::GET), (307, Method::POST), (308, Method::POST)]
        {
            let next = posted.redirected(status, &a, &a).unwrap();
            assert_eq!(
                (next.method.clone(), next.body().is_some()),
                (method.clone(), method == Method::POST)
            );
            let sent = next.request(&a, None).unwrap();
            assert_eq!(sent.headers().contains_key(header::CONTENT_TYPE), method == Method::POST);
        }
        let secret = order(&["-L", "-H", "Authorization: x", "-H", "Cookie: y", "-H", "X-Z: z"]);
        let away = secret.redirected(302, &a, &b).unwrap();
        let back = away.redirected(302, &b, &a).unwrap();
        for order in [away, back] {
            let sent = order.request(&b, None).unwrap();
            assert!(!sent.headers().contains_key(header::AUTHORIZATION));
            assert!(
                !sent.headers().contains_key(header::COOKIE) && sent.headers().contains_key("x-z")
            );
        }
        let other_port = secret.redirected(302, &a, &target("https://a.test:444/")).unwrap();
        assert!(!other_port.with_secrets && secret.redirected(302, &a, &a).unwrap().with_secrets);
        let few = order(&["-L", "--max-redirects", "1"]).redirected(302, &a, &a).unwrap();
        assert!(few.redirected(302, &a, &a).is_none());
    }
}
