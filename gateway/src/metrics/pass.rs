//! Counters of connections that are passed on, by the first name of their table.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{Open, add};

/// Those of all tables.
#[derive(Debug)]
pub(super) struct Passes {
    connections: Family<Over, Counter>,
    open: Family<Over, Gauge>,
    bytes: Family<Direction, Counter>,
    lost: Family<Reason, Counter>,
    pub(super) first_lost: Counter,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Over {
    pass: String,
    over: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Direction {
    pass: String,
    over: &'static str,
    direction: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reason {
    pass: String,
    reason: &'static str,
}

/// Those of one table, over QUIC or TCP.
#[derive(Debug)]
pub(crate) struct PassMetrics {
    /// Bytes from clients and to them.
    pub(crate) received: Counter,
    pub(crate) sent: Counter,
    /// Datagrams that are too large for the way.
    pub(crate) too_large: Counter,
    /// ... that could not be sent at once.
    pub(crate) dropped: Counter,
    /// ... of a client that may send no more now.
    pub(crate) too_fast: Counter,
    /// ... for a client whose address may be made up.
    pub(crate) unvalidated: Counter,
}

impl Passes {
    pub(super) fn new(all: &mut Registry) -> Self {
        Self {
            connections: add(all, "passed", "Connections that were passed on"),
            open: add(all, "passed_open", "Connections that are passed on now"),
            bytes: add(all, "passed_bytes", "Bytes of connections that are passed on"),
            lost: add(all, "passed_datagrams_lost", "Datagrams that were not passed on"),
            first_lost: add(
                all,
                "first_packets_lost",
                "First packets that were held until a ClientHello was whole, and lost",
            ),
        }
    }

    pub(super) fn of(&self, pass: &str, over: &'static str) -> PassMetrics {
        let in_direction = |direction| {
            let pass = pass.to_owned();
            self.bytes.get_or_create_owned(&Direction { pass, over, direction })
        };
        let because =
            |reason| self.lost.get_or_create_owned(&Reason { pass: pass.to_owned(), reason });
        PassMetrics {
            received: in_direction("received"),
            sent: in_direction("sent"),
            too_large: because("too_large"),
            dropped: because("dropped"),
            too_fast: because("too_fast"),
            unvalidated: because("unvalidated"),
        }
    }

    pub(super) fn begin(&self, pass: &str, over: &'static str) -> Open {
        let label = Over { pass: pass.to_owned(), over };
        self.connections.get_or_create(&label).inc();
        let open = self.open.get_or_create_owned(&label);
        open.inc();
        Open(open)
    }
}
