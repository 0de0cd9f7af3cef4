//! A line of the access log for a connection that was passed on.

use std::net::SocketAddr;
use std::time::{Instant, SystemTime};

use serde::Serialize;

/// What is logged when it is over.
#[derive(Serialize)]
pub(super) struct Record {
    pub(super) time: String,
    pub(super) client: SocketAddr,
    pub(super) passed_to: String,
    /// The server name in its ClientHello.
    pub(super) host: Option<String>,
    /// Bytes of the client.
    pub(super) received: u64,
    /// Bytes of the origin.
    pub(super) sent: u64,
    /// Over QUIC: datagrams that could not be passed on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) datagrams_lost: Option<u64>,
    pub(super) took_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

impl Record {
    /// Of a connection that has begun then, and ends now.
    pub(super) fn new(client: SocketAddr, passed_to: String, begun: Instant) -> Self {
        Self {
            time: httpdate::fmt_http_date(SystemTime::now()),
            client,
            passed_to,
            host: None,
            received: 0,
            sent: 0,
            datagrams_lost: None,
            took_ms: begun.elapsed().as_micros() as f64 / 1000.0,
            error: None,
        }
    }
}
