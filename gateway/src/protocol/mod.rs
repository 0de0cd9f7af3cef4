//! Private protocols: connections with another ALPN than HTTP's, carried to an origin.
//!
//! `serve` has one client's connection. Its streams become sockets (`sockets`) and its datagrams those of UDP
//! (`datagrams`); or all of it becomes another connection of QUIC (`quic`). `carry` moves the bytes.

mod datagrams;
mod origin;
mod proxy_header;
mod quic;
mod serve;
mod sockets;
mod tally;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

pub(crate) use self::origin::{Authority, Origin, Place};
pub(crate) use self::quic::QuicOrigin;
pub(crate) use self::serve::serve;
pub(crate) use crate::carry::code::TOO_MANY;
use crate::names::Names;

/// What becomes of connections by a protocol.
#[derive(Debug)]
pub(crate) struct Protocol {
    pub(crate) origin: Origin,
    /// The origin is told who the client is, at the beginning of each stream.
    pub(crate) proxy_protocol: bool,
    /// Streams that came as 0-RTT data do not wait for the handshake.
    pub(crate) early_data: bool,
    /// How long a connection to the origin may take.
    pub(crate) connect: Duration,
    /// How long a stream, or the datagrams of a client, may be silent.
    pub(crate) idle: Duration,
    /// Streams of one client at once, of each kind.
    pub(crate) max_streams: usize,
    /// How many bytes are read from a socket at once.
    pub(crate) piece: usize,
    /// One for each connection to the origin that there may be, of all clients together.
    pub(crate) room: Arc<Semaphore>,
}

/// All protocols, by ALPN and server name.
#[derive(Debug, Default)]
pub(crate) struct Protocols {
    names: HashMap<String, Names<Protocol>>,
    /// In the order of the file.
    alpn: Vec<String>,
}

impl Protocols {
    /// Adds a protocol; false if another has this ALPN and name.
    pub(crate) fn add(&mut self, alpn: &str, name: &str, protocol: &Arc<Protocol>) -> bool {
        if !self.names.contains_key(alpn) {
            self.alpn.push(alpn.to_owned());
        }
        self.names.entry(alpn.to_owned()).or_default().add(name, protocol)
    }

    /// What clients can ask for, most wanted first.
    pub(crate) fn alpn(&self) -> &[String] {
        &self.alpn
    }

    fn find(&self, alpn: &[u8], name: Option<&str>) -> Option<&Arc<Protocol>> {
        self.names.get(std::str::from_utf8(alpn).ok()?)?.find(name)
    }
}
