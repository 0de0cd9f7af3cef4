//! Counters of private protocols, by their names in ALPN.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::{Protocol, add};

/// Those of all protocols.
#[derive(Debug)]
pub(super) struct Private {
    streams: Family<Protocol, Counter>,
    failed: Family<Reason, Counter>,
    bytes: Family<Direction, Counter>,
    datagrams: Family<Direction, Counter>,
    lost: Family<Reason, Counter>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct Direction {
    pub(super) protocol: String,
    pub(super) direction: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reason {
    protocol: String,
    reason: &'static str,
}

/// Those of one protocol.
#[derive(Debug)]
pub(crate) struct ProtocolMetrics {
    /// Streams that came.
    pub(crate) streams: Counter,
    /// ... for which there was no connection to the origin.
    pub(crate) unreachable: Counter,
    /// ... of a kind that the origin does not have.
    pub(crate) refused: Counter,
    /// ... that did not come to a good end.
    pub(crate) broken: Counter,
    /// Bytes of streams that have ended, from clients and to them.
    pub(crate) received: Counter,
    pub(crate) sent: Counter,
    /// Datagrams from clients and to them that were passed on.
    pub(crate) datagrams_received: Counter,
    pub(crate) datagrams_sent: Counter,
    /// ... that are too large for the way.
    pub(crate) datagrams_too_large: Counter,
    /// ... that nobody could take.
    pub(crate) datagrams_dropped: Counter,
}

impl Private {
    pub(super) fn new(all: &mut Registry) -> Self {
        Self {
            streams: add(all, "streams", "Streams of private protocols"),
            failed: add(all, "streams_failed", "Streams that came to no good end"),
            bytes: add(all, "stream_bytes", "Bytes of streams that have ended"),
            datagrams: add(all, "datagrams", "Datagrams that were passed on"),
            lost: add(all, "datagrams_lost", "Datagrams that were not passed on"),
        }
    }

    pub(super) fn of(&self, protocol: &str) -> ProtocolMetrics {
        let in_direction = |family: &Family<Direction, Counter>, direction| {
            family.get_or_create_owned(&Direction { protocol: protocol.to_owned(), direction })
        };
        let because = |family: &Family<Reason, Counter>, reason| {
            family.get_or_create_owned(&Reason { protocol: protocol.to_owned(), reason })
        };
        let label = Protocol { protocol: protocol.to_owned().into() };
        ProtocolMetrics {
            streams: self.streams.get_or_create_owned(&label),
            unreachable: because(&self.failed, "unreachable"),
            refused: because(&self.failed, "refused"),
            broken: because(&self.failed, "broken"),
            received: in_direction(&self.bytes, "received"),
            sent: in_direction(&self.bytes, "sent"),
            datagrams_received: in_direction(&self.datagrams, "received"),
            datagrams_sent: in_direction(&self.datagrams, "sent"),
            datagrams_too_large: because(&self.lost, "too_large"),
            datagrams_dropped: because(&self.lost, "dropped"),
        }
    }
}
