//! What connections over QUIC do, added up. Those that are open are asked when somebody reads the counters: between
//! two readings they cost nothing.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use quicket::tokio::Connection;
use quicket::{Counters, EarlyData};

use super::histogram::Histogram;
use super::{Metrics, Protocol, add};

/// How often the round-trip time of a connection that stays open counts, at most.
const RTT_INTERVAL: Duration = Duration::from_secs(10);

/// Those of all protocols.
#[derive(Debug)]
pub(super) struct Transport {
    handshakes: Family<Handshake, Counter>,
    rtt: Family<Protocol, Histogram>,
    packets: Family<Direction, Counter>,
    lost: Family<Protocol, Counter>,
    bytes: Family<Direction, Counter>,
    moves: Family<Protocol, Counter>,
    open: Mutex<Open>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Handshake {
    protocol: Cow<'static, str>,
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Direction {
    protocol: Cow<'static, str>,
    direction: &'static str,
}

/// As many as there are connections.
#[derive(Debug, Default)]
struct Open {
    connections: HashMap<u64, Account>,
    last: u64,
}

/// What of a connection is added up already.
#[derive(Debug)]
struct Account {
    protocol: Cow<'static, str>,
    connection: Connection,
    sums: Sums,
    /// Its handshake is counted.
    is_counted: bool,
    /// When its round-trip time was counted.
    measured: Option<Instant>,
}

/// What is added up.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    packets: [u64; 2],
    bytes: [u64; 2],
    lost: u64,
    moves: u64,
}

/// The directions of pairs in [`Sums`].
const DIRECTIONS: [&str; 2] = ["received", "sent"];

impl From<Counters> for Sums {
    fn from(counters: Counters) -> Self {
        Self {
            packets: [counters.packets_received, counters.packets_sent],
            bytes: [counters.bytes_received, counters.bytes_sent],
            lost: counters.packets_lost,
            moves: counters.path_changes,
        }
    }
}

/// A connection that is followed until this is dropped.
pub(crate) struct Followed {
    metrics: Arc<Metrics>,
    number: u64,
}

impl Drop for Followed {
    fn drop(&mut self) {
        let transport = &self.metrics.transport;
        let account = transport.open().connections.remove(&self.number);
        if let Some(mut account) = account {
            transport.add_up(&mut account);
            if account.measured.is_none() {
                transport.measure(&mut account);
            }
        }
    }
}

impl Transport {
    pub(super) fn new(all: &mut Registry) -> Self {
        Self {
            handshakes: add(all, "quic_handshakes", "Handshakes over QUIC that were completed"),
            rtt: add(all, "quic_rtt_seconds", "Smoothed round-trip times of connections"),
            packets: add(all, "quic_packets", "Packets of QUIC"),
            lost: add(all, "quic_packets_lost", "Packets that were sent and counted as lost"),
            bytes: add(all, "quic_bytes", "Bytes of UDP payloads"),
            moves: add(
                all,
                "quic_moves",
                "Changes of clients' addresses that connections survived",
            ),
            open: Mutex::default(),
        }
    }

    /// Held for one entry, or to hand out the list.
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, protocol: Cow<'static, str>, connection: Connection) -> u64 {
        let (sums, is_counted, measured) = (Sums::default(), false, None);
        let mut open = self.open();
        open.last += 1;
        let number = open.last;
        let account = Account { protocol, connection, sums, is_counted, measured };
        open.connections.insert(number, account);
        number
    }

    /// Adds up what open connections have done since this was called last.
    pub(super) fn read(&self) {
        let mut open = self.open();
        for account in open.connections.values_mut() {
            self.add_up(account);
            if account.measured.is_none_or(|then| then.elapsed() >= RTT_INTERVAL) {
                self.measure(account);
            }
        }
    }

    fn add_up(&self, account: &mut Account) {
        let Account { protocol, connection, sums, is_counted, .. } = account;
        let label = Protocol { protocol: protocol.clone() };
        let now = Sums::from(connection.stats().counters);
        let before = std::mem::replace(sums, now);
        for (at, direction) in DIRECTIONS.into_iter().enumerate() {
            let label = Direction { protocol: protocol.clone(), direction };
            self.packets.get_or_create(&label).inc_by(now.packets[at] - before.packets[at]);
            self.bytes.get_or_create(&label).inc_by(now.bytes[at] - before.bytes[at]);
        }
        self.lost.get_or_create(&label).inc_by(now.lost - before.lost);
        self.moves.get_or_create(&label).inc_by(now.moves - before.moves);
        if *is_counted {
            return;
        }
        if let Some(handshake) = connection.handshake() {
            let kind = match (connection.early_data(), handshake.resumed) {
                (EarlyData::Accepted, _) => "0-rtt",
                (EarlyData::Rejected, _) => "0-rtt-rejected",
                (_, true) => "resumed",
                (_, false) => "full",
            };
            let handshake = Handshake { protocol: protocol.clone(), kind };
            self.handshakes.get_or_create(&handshake).inc();
            *is_counted = true;
        }
    }

    fn measure(&self, account: &mut Account) {
        if account.connection.handshake().is_none() {
            return;
        }
        let label = Protocol { protocol: account.protocol.clone() };
        let rtt = account.connection.stats().path.smoothed_rtt;
        self.rtt.get_or_create(&label).observe(rtt);
        account.measured = Some(Instant::now());
    }
}

impl Metrics {
    /// Adds up what a connection does, until what is returned is dropped.
    pub(crate) fn follow(
        self: &Arc<Self>,
        protocol: impl Into<Cow<'static, str>>,
        connection: &Connection,
    ) -> Followed {
        let number = self.transport.enter(protocol.into(), connection.clone());
        Followed { metrics: Arc::clone(self), number }
    }
}
