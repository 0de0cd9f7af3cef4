//! Counters of what connections and streams become by upgrades, by its name: WebSocket, and what else files allow.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::private::Direction;
use super::{Open, Protocol, add};

/// Those of all protocols.
#[derive(Debug)]
pub(super) struct Tunnels {
    total: Family<Protocol, Counter>,
    open: Family<Protocol, Gauge>,
    bytes: Family<Direction, Counter>,
}

/// Those of one protocol.
#[derive(Clone, Debug)]
pub(crate) struct TunnelMetrics {
    total: Counter,
    open: Gauge,
    /// Bytes from clients and to them.
    pub(crate) received: Counter,
    pub(crate) sent: Counter,
}

impl Tunnels {
    pub(super) fn new(all: &mut Registry) -> Self {
        Self {
            total: add(all, "tunnels", "Upgrades that came about"),
            open: add(all, "tunnels_open", "Upgraded connections and streams that are open"),
            bytes: add(all, "tunnel_bytes", "Bytes of upgraded connections and streams"),
        }
    }

    pub(super) fn of(&self, protocol: &str) -> TunnelMetrics {
        let in_direction = |direction| {
            let protocol = protocol.to_owned();
            self.bytes.get_or_create_owned(&Direction { protocol, direction })
        };
        let label = Protocol { protocol: protocol.to_owned().into() };
        TunnelMetrics {
            total: self.total.get_or_create_owned(&label),
            open: self.open.get_or_create_owned(&label),
            received: in_direction("received"),
            sent: in_direction("sent"),
        }
    }
}

impl TunnelMetrics {
    /// Counts a tunnel, which is open until what is returned is dropped.
    pub(crate) fn begin(&self) -> Open {
        self.total.inc();
        self.open.inc();
        Open(self.open.clone())
    }
}
