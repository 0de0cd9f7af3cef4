//! Spans that are under way. The names are those of OpenTelemetry's semantic conventions for HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use http::request::Parts;
use http::uri::Authority;
use http::{Method, Version, header};
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceState};
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SpanData, SpanEvents, SpanLinks};

use super::sink::Sink;
use super::traceparent::{self, Parent, TRACEPARENT};

/// The longest text that a client can have a span tell, in characters.
const MAX_TEXT: usize = 1024;
/// What `error.type` is where no status says it.
const CANCELLED: &str = "cancelled";

/// What spans tell of clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Privacy {
    pub(super) addresses: bool,
    pub(super) paths: bool,
}

/// What a span begins with.
pub(super) struct Begin<'a> {
    pub(super) own: Parent,
    pub(super) parent: Option<SpanId>,
    pub(super) sink: &'a Arc<Sink>,
}

/// A span under way. It ends when it is dropped, if not before.
#[derive(Debug)]
pub(super) struct Span {
    under_way: Option<Box<(SpanData, Instant, Arc<Sink>)>>,
}

impl Span {
    fn begin(begin: &Begin<'_>, kind: SpanKind, state: TraceState, method: &Method) -> Self {
        let Begin { own, parent, sink } = begin;
        let flags = TraceFlags::new(own.flags);
        let start = SystemTime::now();
        let (known, original) = named(method);
        let mut attributes = Vec::with_capacity(16);
        attributes.push(KeyValue::new("http.request.method", known.unwrap_or("_OTHER")));
        attributes.extend(original.map(|name| text("http.request.method_original", name)));
        let data = SpanData {
            span_context: SpanContext::new(own.trace, own.span, flags, false, state),
            parent_span_id: parent.unwrap_or(SpanId::INVALID),
            parent_span_is_remote: parent.is_some() && kind == SpanKind::Server,
            span_kind: kind,
            name: known.unwrap_or("HTTP").into(),
            start_time: start,
            end_time: start,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: sink.scope.clone(),
        };
        Self { under_way: Some(Box::new((data, Instant::now(), Arc::clone(sink)))) }
    }

    fn data(&mut self) -> Option<&mut SpanData> {
        self.under_way.as_mut().map(|under_way| &mut under_way.0)
    }

    pub(super) fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        if let Some(data) = self.data() {
            data.attributes.push(KeyValue::new(name, value));
        }
    }

    fn extend(&mut self, attributes: impl IntoIterator<Item = KeyValue>) {
        if let Some(data) = self.data() {
            data.attributes.extend(attributes);
        }
    }

    /// It went wrong: what kind of fault, and in words that no client can choose. The first fault counts.
    pub(super) fn fail(&mut self, kind: impl Into<Value>, what: impl Into<String>) {
        if let Some(data) = self.data().filter(|data| data.status == Status::Unset) {
            data.status = Status::error(what.into());
            data.attributes.push(KeyValue::new("error.type", kind));
        }
    }

    /// It ends now.
    pub(super) fn end(&mut self) {
        if let Some(under_way) = self.under_way.take() {
            let (mut data, begun, sink) = *under_way;
            // A clock that is set meanwhile changes no duration.
            data.end_time = data.start_time + begun.elapsed();
            sink.put(data);
        }
    }

    /// It ends now without having come to its end.
    pub(super) fn cancel(&mut self) {
        if self.under_way.is_some() {
            self.fail(CANCELLED, "");
            self.end();
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// The span of a request to the gateway.
#[derive(Debug)]
pub(crate) struct Served {
    span: Span,
    own: Parent,
    privacy: Privacy,
    sink: Arc<Sink>,
}

impl Served {
    pub(super) fn begin(
        begin: &Begin<'_>,
        privacy: Privacy,
        parts: &Parts,
        client: SocketAddr,
    ) -> Self {
        let state = match begin.parent {
            Some(_) => traceparent::state(&parts.headers),
            None => TraceState::default(),
        };
        let mut span = Span::begin(begin, SpanKind::Server, state, &parts.method);
        span.set("url.scheme", "https");
        span.set("network.protocol.name", "http");
        span.extend(version(parts.version));
        span.extend(asked_for(parts));
        if privacy.addresses {
            span.set("client.address", client.ip().to_canonical().to_string());
            span.set("client.port", i64::from(client.port()));
        }
        if privacy.paths {
            span.extend([text("url.path", parts.uri.path())]);
        }
        Self { span, own: begin.own, privacy, sink: Arc::clone(begin.sink) }
    }

    /// The path of the route that it takes.
    pub(crate) fn takes(&mut self, route: &str) {
        // The root has no segments.
        let route = if route.is_empty() { "/" } else { route };
        if let Some(data) = self.span.data() {
            data.name = format!("{} {route}", data.name).into();
            data.attributes.push(KeyValue::new("http.route", route.to_owned()));
        }
    }

    /// Begins the span of asking an origin, which is told of it.
    pub(crate) fn call(&self, origin: &str, parts: &mut Parts) -> Call {
        let ids = RandomIdGenerator::default();
        let own = Parent { span: ids.new_span_id(), ..self.own };
        let begin = Begin { own, parent: Some(self.own.span), sink: &self.sink };
        let state = self.span.under_way.as_ref().map(|it| it.0.span_context.trace_state().clone());
        let state = state.unwrap_or_default();
        let mut span = Span::begin(&begin, SpanKind::Client, state, &parts.method);
        span.set("quicket.origin", origin.to_owned());
        if let Some(value) = own.value() {
            parts.headers.insert(TRACEPARENT, value);
        }
        let path = self.privacy.paths.then(|| parts.uri.path().to_owned());
        Call { span, path }
    }

    /// It has come to its end: with this status, so many bytes of a body, why it was refused, and whether
    /// the answer is whole.
    pub(crate) fn end(mut self, status: u16, sent: u64, refusal: Option<&str>, is_whole: bool) {
        self.span.set("http.response.status_code", i64::from(status));
        self.span.set("http.response.body.size", i64::try_from(sent).unwrap_or(i64::MAX));
        if status >= 500 {
            self.span.fail(status.to_string(), refusal.unwrap_or_default());
        } else if !is_whole {
            self.span.fail(CANCELLED, "the answer was not sent as a whole");
        }
        self.span.end();
    }
}

/// The span of asking an origin.
#[derive(Debug)]
pub(crate) struct Call {
    pub(super) span: Span,
    /// The path, if it may be told.
    path: Option<String>,
}

impl Call {
    /// Which server was asked last, and how many.
    pub(super) fn asked(&mut self, server: Option<&str>, attempts: usize) {
        if let Some(again) = attempts.checked_sub(1).filter(|&again| again > 0) {
            self.span.set("http.request.resend_count", i64::try_from(again).unwrap_or(i64::MAX));
        }
        let Some(server) = server else { return };
        if let Some((_, path)) = server.split_once("unix:") {
            self.span.set("network.transport", "unix");
            self.span.set("server.address", path.to_owned());
            return;
        }
        let Some((scheme, authority)) = server.split_once("://") else { return };
        let scheme = if scheme == "http" || scheme == "h2c" { "http" } else { "https" };
        if let Some((host, port)) = authority.rsplit_once(':') {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            self.span.set("server.address", host.to_owned());
            self.span.extend(port.parse::<u16>().ok().map(|port| number("server.port", port)));
        }
        if let Some(path) = &self.path {
            let url = text("url.full", &format!("{scheme}://{authority}{path}"));
            self.span.extend([url]);
        }
    }

    /// The head of its answer.
    pub(super) fn answered(&mut self, status: u16, by: Version) {
        self.span.set("http.response.status_code", i64::from(status));
        self.span.extend(version(by));
        if status >= 400 {
            self.span.fail(status.to_string(), "");
        }
    }
}

/// The name of a method that is known, or `None` and what it is called.
fn named(method: &Method) -> (Option<&'static str>, Option<&str>) {
    const KNOWN: [&str; 9] =
        ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    let known = KNOWN.into_iter().find(|known| *known == method.as_str());
    (known, known.is_none().then(|| method.as_str()))
}

/// An attribute with what a client has said.
fn text(name: &'static str, value: &str) -> KeyValue {
    KeyValue::new(name, value.chars().take(MAX_TEXT).collect::<String>())
}

fn number(name: &'static str, value: u16) -> KeyValue {
    KeyValue::new(name, i64::from(value))
}

fn version(version: Version) -> Option<KeyValue> {
    let name = match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_11 => "1.1",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => return None,
    };
    Some(KeyValue::new("network.protocol.version", name))
}

/// Which host and port a request is for, if it says so.
fn asked_for(parts: &Parts) -> Vec<KeyValue> {
    let host = || parts.headers.get(header::HOST)?.to_str().ok()?.parse::<Authority>().ok();
    let authority = parts.uri.authority().cloned().or_else(host);
    let Some(authority) = authority else { return Vec::new() };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let port = authority.port_u16().map(|port| number("server.port", port));
    [text("server.address", host)].into_iter().chain(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    #[test]
    fn what_clients_say_is_bounded() {
        let long = "\u{20ac}".repeat(MAX_TEXT + 10);
        let told = text("url.path", &long).value.to_string();
        assert_eq!(told, "\u{20ac}".repeat(MAX_TEXT));
        let method = Method::from_bytes(&[b'M'; 3000]).unwrap();
        assert_eq!(named(&method).0, None);
        assert_eq!(named(&Method::GET), (Some("GET"), None));
        // RFC 9110, Section 9.1: methods are case-sensitive.
        let lower = Method::from_bytes(b"get").unwrap();
        assert_eq!(named(&lower), (None, Some("get")));
    }

    #[test]
    fn the_host_is_told_as_the_request_has_it() {
        let read = |uri: &str, host: &str| {
            let (parts, ()) = Request::get(uri).header("host", host).body(()).unwrap().into_parts();
            let all = asked_for(&parts);
            all.iter().map(|one| one.value.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(read("/", "a.example:8443"), "a.example 8443");
        assert_eq!(read("https://b.example/", "a.example"), "b.example");
        assert_eq!(read("/", "[::1]:443"), "::1 443");
        for wrong in ["", "a b", "a:b:c"] {
            assert_eq!(read("/", wrong), "", "{wrong:?}");
        }
    }
}
