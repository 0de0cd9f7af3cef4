//! Counters of all that happens. What a request touches are atomic numbers of its route, which the route knows:
//! nothing is looked up, and no lock is taken.

mod histogram;
mod json;
mod place;
pub(crate) mod serve;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use self::histogram::Histogram;
pub(crate) use self::place::Listener;
pub use self::place::Place;

/// All counters of a gateway.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    connections: Family<Protocol, Counter>,
    open: Family<Protocol, Gauge>,
    requests: Family<Answered, Counter>,
    seconds: Family<Way, Histogram>,
    received: Family<Way, Counter>,
    sent: Family<Way, Counter>,
    refused: Family<Reason, Counter>,
    origin_failures: Family<Server, Counter>,
    retries: Counter,
    early: Family<Early, Counter>,
    reloads: Family<Outcome, Counter>,
    lines_lost: Counter,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Protocol {
    protocol: &'static str,
}

/// A site by its first name, and a route of it by its path.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Way {
    site: String,
    route: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Answered {
    site: String,
    route: String,
    status: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Server {
    origin: String,
    server: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Early {
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// The counters of a route.
#[derive(Debug)]
pub(crate) struct RouteMetrics {
    /// By the status's first digit, less one.
    requests: [Counter; CLASSES.len()],
    seconds: Histogram,
    pub(crate) received: Counter,
    sent: Counter,
}

/// Classes of status (RFC 9110, Section 15).
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

impl RouteMetrics {
    /// Counts a request that has come to its end.
    pub(crate) fn answered(&self, status: u16, took: Duration, sent: u64) {
        if let Some(requests) = self.requests.get(usize::from(status / 100).wrapping_sub(1)) {
            requests.inc();
        }
        self.seconds.observe(took);
        self.sent.inc_by(sent);
    }
}

/// A connection that is open.
#[derive(Debug)]
pub(crate) struct Open(Gauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    pub(crate) fn new() -> Arc<Self> {
        let mut registry = Registry::with_prefix("quicket_gateway");
        let all = &mut registry;
        Arc::new(Self {
            connections: add(all, "connections", "Connections that were established"),
            open: add(all, "connections_open", "Connections that are open"),
            requests: add(all, "requests", "Requests that were answered"),
            seconds: add(all, "request_seconds", "Time from a request to the end of its answer"),
            received: add(all, "request_bytes", "Bytes of requests' bodies"),
            sent: add(all, "response_bytes", "Bytes of answers' bodies"),
            refused: add(all, "refused", "Requests and connections that were refused"),
            origin_failures: add(all, "origin_failures", "Requests that a server did not answer"),
            retries: add(all, "retries", "Requests that another server was asked again"),
            early: add(all, "early_requests", "Requests that came as 0-RTT data"),
            reloads: add(all, "reloads", "Configurations that were taken, or not"),
            lines_lost: add(all, "log_lines_lost", "Lines of the access log that were lost"),
            registry,
        })
    }

    /// The counters of a route, which go on where an earlier route of this name ended.
    pub(crate) fn route(&self, site: &str, route: &str) -> RouteMetrics {
        let way = Way { site: site.to_owned(), route: route.to_owned() };
        let requests = CLASSES.map(|status| {
            let Way { site, route } = way.clone();
            self.requests.get_or_create_owned(&Answered { site, route, status })
        });
        RouteMetrics {
            requests,
            seconds: self.seconds.get_or_create_owned(&way),
            received: self.received.get_or_create_owned(&way),
            sent: self.sent.get_or_create_owned(&way),
        }
    }

    /// Forgets the counters of a route.
    pub(crate) fn forget(&self, site: &str, route: &str) {
        let way = Way { site: site.to_owned(), route: route.to_owned() };
        for status in CLASSES {
            let Way { site, route } = way.clone();
            self.requests.remove(&Answered { site, route, status });
        }
        self.seconds.remove(&way);
        self.received.remove(&way);
        self.sent.remove(&way);
    }

    /// Counts a connection, which is open until what is returned is dropped.
    pub(crate) fn connected(&self, protocol: &'static str) -> Open {
        let protocol = Protocol { protocol };
        self.connections.get_or_create(&protocol).inc();
        let open = self.open.get_or_create_owned(&protocol);
        open.inc();
        Open(open)
    }

    pub(crate) fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&Reason { reason }).inc();
    }

    pub(crate) fn origin_failed(&self, origin: &str, server: Option<&str>) {
        let server = server.unwrap_or("none").to_owned();
        self.origin_failures.get_or_create(&Server { origin: origin.to_owned(), server }).inc();
    }

    /// Counts the attempts after the first.
    pub(crate) fn retried(&self, times: usize) {
        if times > 0 {
            self.retries.inc_by(times as u64);
        }
    }

    /// Counts a request that came as 0-RTT data.
    pub(crate) fn early(&self, passed_on: bool) {
        let outcome = if passed_on { "passed_on" } else { "waited" };
        self.early.get_or_create(&Early { outcome }).inc();
    }

    pub(crate) fn reloaded(&self, taken: bool) {
        let outcome = if taken { "taken" } else { "refused" };
        self.reloads.get_or_create(&Outcome { outcome }).inc();
    }

    /// Where the log counts.
    pub(crate) fn lines_lost(&self) -> Counter {
        self.lines_lost.clone()
    }

    /// All of it as OpenMetrics text, which Prometheus reads.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// All of it as JSON.
    pub(crate) fn json(&self) -> Result<String, fmt::Error> {
        Ok(json::of(&self.text()?))
    }
}

/// Makes a metric known.
fn add<M>(registry: &mut Registry, name: &str, help: &str) -> M
where
    M: prometheus_client::registry::Metric + Clone + Default,
{
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_counted_is_told() {
        let metrics = Metrics::new();
        let route = metrics.route("a.example", "/a\"b");
        route.answered(200, Duration::from_millis(3), 10);
        route.answered(404, Duration::from_secs(100), 5);
        let open = metrics.connected("h3");
        metrics.refused("a reason");
        let text = metrics.text().unwrap();
        for line in [
            "quicket_gateway_requests_total{site=\"a.example\",route=\"/a\\\"b\",status=\"2xx\"} 1",
            "quicket_gateway_request_seconds_count{site=\"a.example\",route=\"/a\\\"b\"} 2",
            "quicket_gateway_response_bytes_total{site=\"a.example\",route=\"/a\\\"b\"} 15",
            "quicket_gateway_connections_open{protocol=\"h3\"} 1",
            "quicket_gateway_refused_total{reason=\"a reason\"} 1",
            "quicket_gateway_log_lines_lost_total 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        drop(open);
        assert!(metrics.text().unwrap().contains("connections_open{protocol=\"h3\"} 0"));
        let json: serde_json::Value = serde_json::from_str(&metrics.json().unwrap()).unwrap();
        let requests = json["quicket_gateway_requests_total"].as_array().unwrap();
        let found = requests.iter().find(|entry| entry["labels"]["status"] == "4xx").unwrap();
        assert_eq!((&found["labels"]["route"], &found["value"]), (&"/a\"b".into(), &1.into()));
        metrics.forget("a.example", "/a\"b");
        assert!(!metrics.text().unwrap().contains("a.example"));
    }
}
