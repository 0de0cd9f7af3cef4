//! What happened on a client's connection.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use prometheus_client::metrics::counter::Counter;
use serde::Serialize;

use crate::carry::Meter;
use crate::metrics::ProtocolMetrics;

/// A count, which is also part of that of all connections.
#[derive(Debug)]
pub(super) struct Count {
    own: AtomicU64,
    all: Counter,
}

impl Count {
    const fn within(all: Counter) -> Self {
        Self { own: AtomicU64::new(0), all }
    }

    pub(super) fn add(&self, more: u64) {
        self.own.fetch_add(more, Ordering::Relaxed);
        self.all.inc_by(more);
    }

    fn get(&self) -> u64 {
        self.own.load(Ordering::Relaxed)
    }
}

/// Counts of one connection.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) streams: Count,
    /// ... for which there was no connection to the origin.
    pub(super) unreachable: Count,
    /// ... of a kind that the origin does not have.
    pub(super) refused: Count,
    /// ... that did not come to a good end.
    pub(super) broken: Count,
    /// Bytes of streams, from the client and to it.
    pub(super) received: Count,
    pub(super) sent: Count,
    /// Datagrams from the client and to it that were passed on.
    pub(super) datagrams_received: Count,
    pub(super) datagrams_sent: Count,
    /// ... that are larger than the way to the client or to the origin takes.
    pub(super) datagrams_too_large: Count,
    /// ... that nobody could take.
    pub(super) datagrams_dropped: Count,
}

impl Tally {
    /// Counts of a connection by a protocol that has these counters.
    pub(super) fn new(all: ProtocolMetrics) -> Self {
        Self {
            streams: Count::within(all.streams),
            unreachable: Count::within(all.unreachable),
            refused: Count::within(all.refused),
            broken: Count::within(all.broken),
            received: Count::within(all.received),
            sent: Count::within(all.sent),
            datagrams_received: Count::within(all.datagrams_received),
            datagrams_sent: Count::within(all.datagrams_sent),
            datagrams_too_large: Count::within(all.datagrams_too_large),
            datagrams_dropped: Count::within(all.datagrams_dropped),
        }
    }

    /// Counts the bytes of a stream that the client has opened, or that the origin has.
    pub(super) fn carried(&self, meter: &Meter, by_client: bool) {
        let (went, came) = meter.counts();
        let (received, sent) = if by_client { (went, came) } else { (came, went) };
        self.received.add(received);
        self.sent.add(sent);
    }

    /// A line of the access log.
    pub(super) fn record(&self, of: Ended) -> impl Serialize {
        #[derive(Serialize)]
        struct Record {
            time: String,
            client: SocketAddr,
            protocol: String,
            host: Option<String>,
            streams: u64,
            streams_unreachable: u64,
            streams_refused: u64,
            streams_broken: u64,
            received: u64,
            sent: u64,
            datagrams_received: u64,
            datagrams_sent: u64,
            datagrams_too_large: u64,
            datagrams_dropped: u64,
            took_ms: f64,
            #[serde(skip_serializing_if = "Option::is_none")]
            error: Option<String>,
        }
        Record {
            time: httpdate::fmt_http_date(SystemTime::now()),
            client: of.client,
            protocol: of.protocol,
            host: of.host,
            streams: self.streams.get(),
            streams_unreachable: self.unreachable.get(),
            streams_refused: self.refused.get(),
            streams_broken: self.broken.get(),
            received: self.received.get(),
            sent: self.sent.get(),
            datagrams_received: self.datagrams_received.get(),
            datagrams_sent: self.datagrams_sent.get(),
            datagrams_too_large: self.datagrams_too_large.get(),
            datagrams_dropped: self.datagrams_dropped.get(),
            took_ms: of.took_ms,
            error: of.error,
        }
    }
}

/// A connection that has ended.
pub(super) struct Ended {
    pub(super) client: SocketAddr,
    pub(super) protocol: String,
    pub(super) host: Option<String>,
    pub(super) took_ms: f64,
    pub(super) error: Option<String>,
}
