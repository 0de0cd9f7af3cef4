//! Spans of requests, for OpenTelemetry: one of the gateway's own work (SERVER), and one for each origin that was asked
//! (CLIENT), which the origin is told of by `traceparent`.
//!
//! `traceparent` reads and writes that field, `span` has what is under way, `body` its end, `sink` the queue of what has
//! ended, and `client` the way to the receiver. Which request has spans is decided once, at its beginning; others
//! pass with a look and a random number.

mod body;
mod client;
mod sink;
mod span;
mod traceparent;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::request::Parts;
use ipnet::IpNet;
use opentelemetry::trace::TraceId;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use prometheus_client::metrics::counter::Counter;
use tokio::runtime::Handle;

pub(crate) use self::body::answered;
use self::sink::Sink;
pub(crate) use self::span::Served;
use self::span::{Begin, Privacy};
use self::traceparent::{Parent, RANDOM, SAMPLED, TRACEPARENT, TRACESTATE};
use crate::origin::{Place, Tls};
use crate::start_error::StartError;

/// Who gets spans.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    pub(crate) url: http::Uri,
    pub(crate) place: Place,
    pub(crate) tls: Option<Arc<Tls>>,
    /// What the gateway is called there.
    pub(crate) service: String,
}

/// Which requests have spans, and what these tell.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    receiver: Receiver,
    /// Traces with a lower number are sampled.
    below: u64,
    trust: Vec<IpNet>,
    privacy: Privacy,
}

/// The numbers of traces: what their IDs end with, without the lowest of 64 bits.
const NUMBERS: f64 = (1u64 << 63) as f64;

impl Rules {
    /// `sample` is within 0 and 1.
    pub(crate) fn new(
        receiver: Receiver,
        sample: f64,
        trust: Vec<IpNet>,
        addresses: bool,
        paths: bool,
    ) -> Self {
        let below = (sample * NUMBERS) as u64;
        Self { receiver, below, trust, privacy: Privacy { addresses, paths } }
    }

    #[cfg(test)]
    pub(crate) const fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    fn trusts(&self, client: IpAddr) -> bool {
        !self.trust.is_empty() && {
            let client = client.to_canonical();
            self.trust.iter().any(|network| network.contains(&client))
        }
    }

    /// The same choice as OpenTelemetry's sampler by ratio makes, so that others who sample like that have whole traces.
    fn samples(&self, trace: TraceId) -> bool {
        let [_, _, _, _, _, _, _, _, low @ ..] = trace.to_bytes();
        u64::from_be_bytes(low) >> 1 < self.below
    }
}

/// The way out for spans, once a file has `[traces]`.
#[derive(Debug, Default)]
pub(crate) struct Spans(OnceLock<Arc<Sink>>);

/// What a file demands of it, checked.
pub(crate) enum Change {
    Begin(Arc<Sink>),
    Receiver(Receiver),
    Nothing,
}

impl Spans {
    /// Prepares what a file demands; nothing has changed yet.
    pub(crate) fn prepare(
        &self,
        rules: Option<&Rules>,
        lost: Counter,
        runtime: &Handle,
    ) -> Result<Change, StartError> {
        let Some(receiver) = rules.map(|rules| rules.receiver.clone()) else {
            return Ok(Change::Nothing);
        };
        match self.0.get() {
            Some(sink) if sink.is_called(&receiver.service) => Ok(Change::Receiver(receiver)),
            Some(_) => Err(StartError::OtherService),
            None => {
                let sink = Sink::new(receiver, lost, runtime.clone());
                Ok(Change::Begin(Arc::new(sink.map_err(StartError::Traces)?)))
            }
        }
    }

    /// From now on it counts.
    pub(crate) fn take_up(&self, change: Change) {
        match (change, self.0.get()) {
            (Change::Begin(sink), _) => drop(self.0.set(sink)),
            (Change::Receiver(receiver), Some(sink)) => sink.replace(receiver),
            _ => {}
        }
    }

    /// Begins the span of a request, if it is to have one. What strangers say of traces is removed.
    pub(crate) fn begin(
        &self,
        rules: Option<&Rules>,
        parts: &mut Parts,
        client: SocketAddr,
    ) -> Option<Served> {
        let (rules, sink) = rules.zip(self.0.get())?;
        let ids = RandomIdGenerator::default();
        let parent = rules.trusts(client.ip()).then(|| Parent::of(&parts.headers)).flatten();
        let (trace, flags) = match parent {
            Some(parent) => (parent.trace, parent.flags),
            None => {
                parts.headers.remove(TRACEPARENT);
                parts.headers.remove(TRACESTATE);
                let trace = ids.new_trace_id();
                (trace, if rules.samples(trace) { SAMPLED | RANDOM } else { 0 })
            }
        };
        if flags & SAMPLED == 0 {
            return None;
        }
        let own = Parent { trace, span: ids.new_span_id(), flags };
        let begin = Begin { own, parent: parent.map(|parent| parent.span), sink };
        Some(Served::begin(&begin, rules.privacy, parts, client))
    }

    /// Sends what is there, within `limit`, and takes no more.
    pub(crate) fn end(&self, limit: Duration) {
        if let Some(sink) = self.0.get() {
            sink.end(limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, Request};

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn rules(sample: f64, trust: &[&str]) -> Rules {
        let place = Place::parse("http://127.0.0.1:1").unwrap();
        let url = "http://127.0.0.1:1/v1/traces".parse().unwrap();
        let receiver = Receiver { url, place, tls: None, service: "a".to_owned() };
        let trust = trust.iter().map(|network| network.parse().unwrap()).collect();
        Rules::new(receiver, sample, trust, false, false)
    }

    /// What is left of the fields, and the span.
    fn begin(rules: &Rules, parent: &str, client: &str) -> (HeaderMap, Option<Served>) {
        let spans = Spans::default();
        let change = spans.prepare(Some(rules), Counter::default(), &Handle::current()).unwrap();
        spans.take_up(change);
        let request = Request::get("/").header("traceparent", parent).header("tracestate", "a=1");
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        let served = spans.begin(Some(rules), &mut parts, client.parse().unwrap());
        if let Some(served) = &served {
            served.call("app", &mut parts);
        }
        (parts.headers, served)
    }

    fn text(headers: &HeaderMap, name: &str) -> String {
        headers.get(name).map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn the_share_is_what_the_file_says() {
        let ids = RandomIdGenerator::default();
        for (sample, least, most) in
            [(0.0, 0, 0), (0.01, 50, 160), (0.5, 4700, 5300), (1.0, 10_000, 10_000)]
        {
            let rules = rules(sample, &[]);
            let count = (0..10_000).filter(|_| rules.samples(ids.new_trace_id())).count();
            assert!((least..=most).contains(&count), "{sample}: {count}");
        }
    }

    #[tokio::test]
    async fn what_strangers_say_begins_nothing_and_goes_no_further() {
        for (sample, is_sampled) in [(0.0, false), (1.0, true)] {
            let rules = rules(sample, &["10.0.0.0/8"]);
            let (headers, served) = begin(&rules, PARENT, "192.0.2.1:9");
            assert_eq!(served.is_some(), is_sampled);
            assert_eq!(text(&headers, "tracestate"), "");
            let told = text(&headers, "traceparent");
            assert_eq!(told.is_empty(), !is_sampled, "{told}");
            assert!(!told.contains("0af7651916cd43dd"), "{told}");
        }
    }

    #[tokio::test]
    async fn what_trusted_clients_say_counts() {
        let rules = rules(0.0, &["10.0.0.0/8"]);
        for client in ["10.1.2.3:9", "[::ffff:10.1.2.3]:9"] {
            let (headers, served) = begin(&rules, PARENT, client);
            assert!(served.is_some());
            assert_eq!(text(&headers, "tracestate"), "a=1");
            let told = text(&headers, "traceparent");
            assert!(told.starts_with(&PARENT[..36]) && told.ends_with("-01"), "{told}");
            assert_ne!(told, PARENT, "the span is the gateway's");
        }
        // Nor does the gateway sample what they do not.
        let always = Rules { below: u64::MAX, ..rules };
        let not = PARENT.replace("-01", "-00");
        let (headers, served) = begin(&always, &not, "10.1.2.3:9");
        assert!(served.is_none());
        assert_eq!(text(&headers, "traceparent"), not);
        // What makes no sense is as good as nothing.
        let (headers, served) = begin(&always, "00-1-2-3", "10.1.2.3:9");
        assert!(served.is_some());
        assert_eq!(text(&headers, "tracestate"), "");
    }

    #[tokio::test]
    async fn without_rules_fields_pass() {
        let (mut parts, ()) =
            Request::get("/").header("traceparent", PARENT).body(()).unwrap().into_parts();
        let spans = Spans::default();
        assert!(spans.begin(None, &mut parts, "192.0.2.1:9".parse().unwrap()).is_none());
        assert_eq!(text(&parts.headers, "traceparent"), PARENT);
    }

    #[tokio::test]
    async fn another_service_takes_a_restart() {
        let (spans, runtime) = (Spans::default(), Handle::current());
        let prepare = |rules: Option<&Rules>| spans.prepare(rules, Counter::default(), &runtime);
        assert!(matches!(prepare(None), Ok(Change::Nothing)));
        let mut rules = rules(1.0, &[]);
        spans.take_up(prepare(Some(&rules)).unwrap());
        rules.receiver.url = "http://127.0.0.1:2/".parse().unwrap();
        assert!(matches!(prepare(Some(&rules)), Ok(Change::Receiver(_))));
        rules.receiver.service = "b".to_owned();
        assert!(matches!(prepare(Some(&rules)), Err(StartError::OtherService)));
    }
}
