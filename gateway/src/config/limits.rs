//! What clients may take.

use serde::Deserialize;

use super::check::Problems;
use crate::clients::Allowed;
use crate::snapshot;

/// More are mistakes.
const MAX_COUNT: u32 = 1_000_000;

/// The slowest and the fastest that bodies may be made to flow, in bytes in a second.
const MIN_RATE: u64 = 16 << 10;
const MAX_RATE: u64 = 1 << 40;

/// What one client or one request may take.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Connections, of all clients together.
    pub connections: usize,
    /// Requests under way on one connection, of HTTP/2 and HTTP/3.
    pub requests: u32,
    /// The header section of a request, in bytes.
    pub header_bytes: u32,
    /// How long a client may take for the header section, in milliseconds.
    pub header_timeout_ms: u64,
    /// How long a client may be silent in the middle of a body, in milliseconds.
    pub body_timeout_ms: u64,
    /// How long a connection of HTTP/2 or HTTP/3 may have no request, in milliseconds.
    pub idle_timeout_ms: u64,
    /// How long requests under way may take when the gateway stops, in milliseconds.
    pub drain_ms: u64,
    /// How long private protocols and upgraded connections may go on once the next generation has taken over, in
    /// milliseconds.
    pub handover_ms: u64,
    /// Connections of one client address; an IPv6 network of /64 is one address. No limit if not given, as with
    /// those below.
    pub client_connections: Option<u32>,
    /// Requests under way of one client address.
    pub client_requests: Option<u32>,
    /// Requests in a second of one client address.
    pub client_requests_per_s: Option<u32>,
    /// Handshakes in a second of one client address.
    pub client_handshakes_per_s: Option<u32>,
    /// Bytes of bodies, tunnels and private protocols in a second of one client address, each way.
    pub client_bytes_per_s: Option<u64>,
    /// What the data of streams takes on all connections over QUIC, in MiB; 512 if not given.
    pub memory_mib: Option<usize>,
    /// Above so many unfinished handshakes over QUIC, clients must prove their address, which takes them a
    /// round trip (Retry); with 0 always.
    pub handshakes_without_retry: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 20_000,
            requests: 100,
            header_bytes: 32 << 10,
            header_timeout_ms: 10_000,
            body_timeout_ms: 60_000,
            idle_timeout_ms: 180_000,
            drain_ms: 10_000,
            handover_ms: 3_600_000,
            client_connections: None,
            client_requests: None,
            client_requests_per_s: None,
            client_handshakes_per_s: None,
            client_bytes_per_s: None,
            memory_mib: None,
            handshakes_without_retry: 512,
        }
    }
}

/// Checks a rate: below that, clients and servers would give up on each other.
pub(super) fn rate(place: &str, per_second: Option<u64>, problems: &mut Problems) {
    if per_second.is_some_and(|rate| !(MIN_RATE..=MAX_RATE).contains(&rate)) {
        problems.add(place, format!("is not within {MIN_RATE} and {MAX_RATE} bytes in a second"));
    }
}

/// Checks how many of something there may be.
pub(super) fn count(place: &str, value: Option<u32>, problems: &mut Problems) {
    if value.is_some_and(|value| !(1..=MAX_COUNT).contains(&value)) {
        problems.add(place, format!("is not within 1 and {MAX_COUNT}"));
    }
}

/// Checks the limits.
pub(super) fn check(limits: &Limits, problems: &mut Problems) -> snapshot::Limits {
    if limits.connections == 0 {
        problems.add("limits.connections", "0 would let nobody in");
    }
    if !(1..=10_000).contains(&limits.requests) {
        problems.add("limits.requests", "is not within 1 and 10000");
    }
    if !(1024..=1 << 20).contains(&limits.header_bytes) {
        problems.add("limits.header_bytes", "is not within 1024 and 1048576");
    }
    let client = [
        ("client_connections", limits.client_connections),
        ("client_requests", limits.client_requests),
        ("client_requests_per_s", limits.client_requests_per_s),
        ("client_handshakes_per_s", limits.client_handshakes_per_s),
    ];
    for (name, value) in client {
        count(&format!("limits.{name}"), value, problems);
    }
    rate("limits.client_bytes_per_s", limits.client_bytes_per_s, problems);
    if limits.memory_mib.is_some_and(|memory| !(16..=1 << 20).contains(&memory)) {
        problems.add("limits.memory_mib", "is not within 16 and 1048576");
    }
    let client = Allowed {
        bytes_per_second: limits.client_bytes_per_s,
        connections: limits.client_connections,
        requests: limits.client_requests,
        requests_per_second: limits.client_requests_per_s,
        handshakes_per_second: limits.client_handshakes_per_s,
    };
    snapshot::Limits {
        client,
        memory: limits.memory_mib.map(|memory| memory << 20),
        handshakes_without_retry: limits.handshakes_without_retry,
        connections: limits.connections,
        requests: limits.requests,
        header_bytes: limits.header_bytes,
        header_timeout: problems.wait("limits.header_timeout_ms", limits.header_timeout_ms),
        body_timeout: problems.wait("limits.body_timeout_ms", limits.body_timeout_ms),
        idle_timeout: problems.wait("limits.idle_timeout_ms", limits.idle_timeout_ms),
        drain: problems.wait("limits.drain_ms", limits.drain_ms),
        handover: problems.wait("limits.handover_ms", limits.handover_ms),
    }
}
