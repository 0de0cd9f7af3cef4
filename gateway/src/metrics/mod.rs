//! Counters of all that happens. What a request touches are atomic numbers of its route, which the route knows:
//! nothing is looked up, and no lock is taken.

mod histogram;
mod json;
mod page;
mod pass;
mod place;
mod private;
mod quic;
mod register;
pub(crate) mod serve;
mod tunnels;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use quicket::{Identity, KeyType};

use self::histogram::Histogram;
pub(crate) use self::pass::PassMetrics;
use self::pass::Passes;
pub(crate) use self::place::Listener;
pub use self::place::Place;
use self::private::Private;
pub(crate) use self::private::ProtocolMetrics;
use self::quic::Transport;
pub(crate) use self::register::RegisterMetrics;
pub(crate) use self::tunnels::TunnelMetrics;
use self::tunnels::Tunnels;

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
    origin_busy: Family<Server, Counter>,
    origin_open: Family<Server, Gauge>,
    origin_up: Family<Server, Gauge>,
    /// The servers of the file, which alone are counted: requests under way may still ask others.
    servers: Mutex<HashSet<Server>>,
    retries: Counter,
    early: Family<Early, Counter>,
    reloads: Family<Outcome, Counter>,
    client_certificates: Family<Outcome, Counter>,
    congestion: Family<Algorithm, Counter>,
    certificates: Family<CertificateLabel, Gauge>,
    acme_orders: Family<Outcome, Counter>,
    unencrypted: Counter,
    quic_retries: Counter,
    lines_lost: Counter,
    traces_lost: Counter,
    tunnels: Tunnels,
    private: Private,
    passes: Passes,
    transport: Transport,
    register: RegisterMetrics,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Protocol {
    protocol: Cow<'static, str>,
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

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Algorithm {
    algorithm: &'static str,
}

/// A certificate that clients get, by its first name and the type of its key.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct CertificateLabel {
    certificate: String,
    key: &'static str,
}

impl CertificateLabel {
    pub(crate) fn new(certificate: String, identity: &Identity) -> Self {
        let key = match identity.key_type() {
            Ok(KeyType::Rsa) => "rsa",
            Ok(KeyType::Ecdsa) => "ecdsa",
            Ok(KeyType::Ed25519) => "ed25519",
            _ => "other",
        };
        Self { certificate, key }
    }
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
            origin_busy: add(
                all,
                "origin_busy",
                "Requests that had no room at the last server asked",
            ),
            origin_open: add(all, "origin_connections_open", "Connections to servers"),
            origin_up: add(
                all,
                "origin_up",
                "1 where a server is well, 0 where it is left out or checks say that it is not",
            ),
            servers: Mutex::default(),
            retries: add(all, "retries", "Requests that another server was asked again"),
            early: add(all, "early_requests", "Requests that came as 0-RTT data"),
            reloads: add(all, "reloads", "Configurations that were taken, or not"),
            congestion: add(all, "congestion_control", "Connections over QUIC by their controller"),
            certificates: add(
                all,
                "certificate_not_after_seconds",
                "When a certificate that clients get ends, in seconds since 1970; 0 where one is yet to come",
            ),
            acme_orders: add(all, "acme_orders", "Certificates that were ordered, or not had"),
            unencrypted: add(all, "unencrypted", "Connections over QUIC without encryption"),
            quic_retries: add(
                all,
                "quic_retries",
                "Retry packets: clients that had to prove their address first",
            ),
            client_certificates: add(
                all,
                "client_certificates",
                "Connections where a client certificate was asked for",
            ),
            lines_lost: add(all, "log_lines_lost", "Lines of the access log that were lost"),
            traces_lost: add(all, "traces_lost", "Spans for OpenTelemetry that were lost"),
            tunnels: Tunnels::new(all),
            private: Private::new(all),
            passes: Passes::new(all),
            transport: Transport::new(all),
            register: RegisterMetrics::new(all),
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
    pub(crate) fn connected(&self, protocol: impl Into<Cow<'static, str>>) -> Open {
        let protocol = Protocol { protocol: protocol.into() };
        self.connections.get_or_create(&protocol).inc();
        let open = self.open.get_or_create_owned(&protocol);
        open.inc();
        Open(open)
    }

    pub(crate) fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&Reason { reason }).inc();
    }

    /// From now on the failures of these servers count, by the name of their origin; those of others are
    /// forgotten.
    pub(crate) fn count_servers(&self, servers: impl IntoIterator<Item = (String, String)>) {
        let next: HashSet<Server> =
            servers.into_iter().map(|(origin, server)| Server { origin, server }).collect();
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        for gone in servers.difference(&next) {
            self.origin_failures.remove(gone);
            self.origin_busy.remove(gone);
            self.origin_open.remove(gone);
            self.origin_up.remove(gone);
        }
        for server in &next {
            drop(self.origin_failures.get_or_create(server));
            drop(self.origin_busy.get_or_create(server));
        }
        *servers = next;
    }

    pub(crate) fn origin_failed(&self, origin: &str, server: Option<&str>) {
        self.count_at(&self.origin_failures, origin, server);
    }

    /// A server had no room for a request, which is no failure of its.
    pub(crate) fn origin_busy(&self, origin: &str, server: Option<&str>) {
        self.count_at(&self.origin_busy, origin, server);
    }

    fn count_at(&self, family: &Family<Server, Counter>, origin: &str, server: Option<&str>) {
        let server = server.unwrap_or(NO_SERVER).to_owned();
        let server = Server { origin: origin.to_owned(), server };
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if servers.contains(&server) {
            family.get_or_create(&server).inc();
        }
    }

    /// How servers are now: the name of an origin, the server, how many connections there are, and whether it is well.
    pub(crate) fn servers_are<'a>(
        &self,
        standing: impl Iterator<Item = (&'a str, String, usize, bool)>,
    ) {
        let standing: Vec<_> = standing.collect();
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        for (origin, server, open, is_well) in standing {
            let server = Server { origin: origin.to_owned(), server };
            if servers.contains(&server) {
                let open = i64::try_from(open).unwrap_or(i64::MAX);
                self.origin_open.get_or_create(&server).set(open);
                self.origin_up.get_or_create(&server).set(is_well.into());
            }
        }
    }

    /// The counters of what connections and streams become, by its name.
    pub(crate) fn tunnel(&self, protocol: &str) -> TunnelMetrics {
        self.tunnels.of(protocol)
    }

    /// The counters of a private protocol.
    pub(crate) fn protocol(&self, alpn: &str) -> ProtocolMetrics {
        self.private.of(alpn)
    }

    /// The counters of what a table passes on, over QUIC or TCP.
    pub(crate) fn pass(&self, name: &str, over: &'static str) -> PassMetrics {
        self.passes.of(name, over)
    }

    /// Counts a connection that is passed on, which is open until what is returned is dropped.
    pub(crate) fn passed(&self, name: &str, over: &'static str) -> Open {
        self.passes.begin(name, over)
    }

    /// The counters of the register of tickets.
    pub(crate) fn register(&self) -> RegisterMetrics {
        self.register.clone()
    }

    /// Counts first packets that were held, and lost.
    pub(crate) fn first_packets_lost(&self, count: u64) {
        self.passes.first_lost.inc_by(count);
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

    /// Counts what a connection has shown where a certificate was asked for.
    pub(crate) fn client_certificate(&self, outcome: &'static str) {
        self.client_certificates.get_or_create(&Outcome { outcome }).inc();
    }

    /// From now on clients get certificates that end then, and not those of `before`.
    pub(crate) fn certificates(
        &self,
        before: &[CertificateLabel],
        next: &[(CertificateLabel, i64)],
    ) {
        for gone in before.iter().filter(|gone| !next.iter().any(|(label, _)| label == *gone)) {
            self.certificates.remove(gone);
        }
        for (label, end) in next {
            self.certificates.get_or_create(label).set(*end);
        }
    }

    /// Counts a certificate that was ordered.
    pub(crate) fn ordered(&self, succeeded: bool) {
        let outcome = if succeeded { "succeeded" } else { "failed" };
        self.acme_orders.get_or_create(&Outcome { outcome }).inc();
    }

    /// Counts a connection without encryption.
    pub(crate) fn unencrypted(&self) {
        self.unencrypted.inc();
    }

    /// So many Retry packets were sent until now.
    pub(crate) fn retries_are(&self, sent: u64) {
        self.quic_retries.inner().store(sent, std::sync::atomic::Ordering::Relaxed);
    }

    /// Counts a connection by its congestion controller.
    pub(crate) fn controlled_by(&self, algorithm: &'static str) {
        self.congestion.get_or_create(&Algorithm { algorithm }).inc();
    }

    /// Where the log counts.
    pub(crate) fn lines_lost(&self) -> Counter {
        self.lines_lost.clone()
    }

    /// Where spans count that are lost.
    pub(crate) fn traces_lost(&self) -> Counter {
        self.traces_lost.clone()
    }

    /// All of it as OpenMetrics text, which Prometheus reads.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        self.transport.read();
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// All of it as JSON.
    pub(crate) fn json(&self) -> Result<String, fmt::Error> {
        Ok(json::of(&self.text()?))
    }
}

/// Stands for the server where an origin had none to ask.
pub(crate) const NO_SERVER: &str = "none";

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

    /// Counting is never off: this says what it takes, and that it is little, on a busy machine, too.
    #[test]
    fn what_counting_a_request_takes() {
        const REQUESTS: u32 = 1_000_000;
        const MOST: Duration = Duration::from_micros(5);
        let metrics = Metrics::new();
        let route = metrics.route("example.org", "/");
        let begun = std::time::Instant::now();
        for number in 0..REQUESTS {
            route.received.inc_by(1);
            route.answered(200, std::hint::black_box(Duration::from_micros(number.into())), 1000);
        }
        let each = begun.elapsed() / REQUESTS;
        println!("counting a request takes {each:?}");
        assert!(each < MOST, "{each:?}");
    }

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
        let servers = |names: &[&str]| {
            let label = |name: &&str| ("app".to_owned(), (*name).to_owned());
            metrics.count_servers(names.iter().map(label).collect::<Vec<_>>());
        };
        servers(&["http://a", "http://b"]);
        metrics.origin_failed("app", Some("http://a"));
        servers(&["http://b", "none"]);
        // A request that began before.
        metrics.origin_failed("app", Some("http://a"));
        metrics.origin_failed("app", None);
        let text = metrics.text().unwrap();
        assert!(!text.contains("http://a"), "{text}");
        assert!(text.contains("{origin=\"app\",server=\"none\"} 1"), "{text}");
        assert!(text.contains("{origin=\"app\",server=\"http://b\"} 0"), "{text}");
        metrics.forget("a.example", "/a\"b");
        assert!(!metrics.text().unwrap().contains("a.example"));
    }
}
