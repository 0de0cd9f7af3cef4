//! Events for other programs: one JSON value per line on standard output.

use std::io::{self, Write};
use std::net::SocketAddr;

use quicket::Fingerprint;
use quicket::tokio::Connection;
use serde_json::{Value, json};

/// Where events go, if anywhere.
#[derive(Debug)]
pub(crate) struct Events {
    wanted: bool,
}

impl Events {
    pub(crate) const fn new(wanted: bool) -> Self {
        Self { wanted }
    }

    /// The server listens, over UDP and perhaps over TCP. `pin` is there where clients need it.
    pub(crate) fn listening(
        &self,
        (address, tcp): (SocketAddr, bool),
        workers: usize,
        pin: Option<Fingerprint>,
    ) {
        self.print(|| {
            let pin = pin.map(|pin| pin.to_string());
            let address = address.to_string();
            json!({
                "event": "listening",
                "address": address,
                "tcp": tcp,
                "workers": workers,
                "pin": pin,
            })
        });
    }

    /// The server leads clients of plain HTTP at this address to HTTPS.
    pub(crate) fn redirecting(&self, address: SocketAddr) {
        self.print(|| json!({ "event": "redirecting", "address": address.to_string() }));
    }

    /// Files were read again, or not: then all stays as it was.
    pub(crate) fn read_again(&self, outcome: &Result<String, String>) {
        self.print(|| match outcome {
            Ok(files) => json!({ "event": "read_again", "files": files }),
            Err(error) => json!({ "event": "not_read_again", "error": error }),
        });
    }

    /// A client has connected.
    pub(crate) fn connected(&self, connection: &Connection) {
        self.print(|| {
            json!({
                "event": "connected",
                "remote": connection.remote_addr().to_string(),
                "quic_version": connection.version().to_string(),
                "alpn": connection.alpn().map(|alpn| alpn.escape_ascii().to_string()),
            })
        });
    }

    /// A client has connected over TCP.
    pub(crate) fn connected_over_tcp(&self, remote: SocketAddr, alpn: &str) {
        self.print(|| json!({ "event": "connected", "remote": remote.to_string(), "alpn": alpn }));
    }

    /// A connection over TCP has ended: of itself, or for a reason.
    pub(crate) fn closed_over_tcp(
        &self,
        remote: SocketAddr,
        (requests, resumed): (u64, bool),
        reason: Option<String>,
    ) {
        self.print(|| {
            json!({
                "event": "closed",
                "remote": remote.to_string(),
                "reason": reason,
                "requests": requests,
                "resumed": resumed,
            })
        });
    }

    /// A connection has ended.
    pub(crate) fn closed(&self, connection: &Connection, requests: u64) {
        self.print(|| {
            let stats = connection.stats();
            let counters = &stats.counters;
            json!({
                "event": "closed",
                "remote": connection.remote_addr().to_string(),
                "reason": connection.close_reason().map(|reason| reason.to_string()),
                "requests": requests,
                "resumed": connection.handshake().is_some_and(|handshake| handshake.resumed),
                "packets_sent": counters.packets_sent,
                "packets_received": counters.packets_received,
                "packets_lost": counters.packets_lost,
                "bytes_lost": counters.bytes_lost,
                "path_changes": counters.path_changes,
                "mtu": stats.path.mtu,
                "rtt_seconds": stats.path.smoothed_rtt.as_secs_f64(),
                "congestion_controller": stats.path.congestion_controller,
            })
        });
    }

    fn print(&self, event: impl FnOnce() -> Value) {
        if self.wanted {
            // Whoever reads may have gone; serving goes on.
            let _ = writeln!(io::stdout().lock(), "{}", event());
        }
    }
}
