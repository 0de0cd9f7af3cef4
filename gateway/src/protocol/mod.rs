//! Private protocols: connections with another ALPN than HTTP's, carried to an origin.
//!
//! `serve` has one client's connection. Its streams become sockets (`sockets`) and its datagrams those of UDP
//! (`datagrams`); or all of it becomes another connection of QUIC (`quic`). `carry` moves the bytes.

mod datagrams;
mod origin;
pub(crate) mod proxy_header;
mod quic;
mod serve;
mod sockets;
mod tally;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::origin::{Authority, Origin, Place};
pub(crate) use self::quic::QuicOrigin;
pub(crate) use self::serve::serve;
pub(crate) use crate::carry::code::TOO_MANY;
use crate::credentials::Rule;
use crate::names::Names;
use crate::pace::Rate;
use crate::quota::Quota;

/// What becomes of connections by a protocol.
#[derive(Debug)]
pub(crate) struct Protocol {
    pub(crate) origin: Origin,
    /// The origin is told who the client is, at the beginning of each stream.
    pub(crate) proxy_protocol: bool,
    /// Streams that came as 0-RTT data do not wait for the handshake.
    pub(crate) early_data: bool,
    /// What clients are asked for.
    pub(crate) rule: Option<Rule>,
    /// How long a connection to the origin may take.
    pub(crate) connect: Duration,
    /// How long a stream, or the datagrams of a client, may be silent.
    pub(crate) idle: Duration,
    /// Streams of one client at once, of each kind.
    pub(crate) max_streams: usize,
    /// How many bytes are read from a socket at once.
    pub(crate) piece: usize,
    /// For connections to the origin, of all clients together.
    pub(crate) room: Quota,
    /// For connections of clients, and their handshakes.
    pub(crate) clients: Quota,
    /// How fast streams and datagrams flow, of all clients together.
    pub(crate) rate: Option<Rate>,
}

/// All protocols, by ALPN and server name.
#[derive(Debug, Default)]
pub(crate) struct Protocols {
    names: HashMap<String, Names<Protocol>>,
    /// In the order of the file.
    alpn: Vec<String>,
    /// Each with its names: in ALPN, and of servers.
    all: Vec<(String, String, Arc<Protocol>)>,
}

impl Protocols {
    /// Adds a protocol; false if another has this ALPN and name.
    pub(crate) fn add(&mut self, alpn: &str, name: &str, protocol: &Arc<Protocol>) -> bool {
        if !self.names.contains_key(alpn) {
            self.alpn.push(alpn.to_owned());
        }
        self.all.push((alpn.to_owned(), name.to_ascii_lowercase(), Arc::clone(protocol)));
        self.names.entry(alpn.to_owned()).or_default().add(name, protocol)
    }

    /// What the protocols ask of clients.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.all.iter().filter_map(|(_, _, protocol)| protocol.rule.as_ref())
    }

    /// What clients can ask for, most wanted first.
    pub(crate) fn alpn(&self) -> &[String] {
        &self.alpn
    }

    /// Goes on with what protocols of the same names have had by the configuration before: with the connections of clients in any case, with those
    /// to the origin, and rates, where it is the same one.
    pub(crate) fn take_over(&self, before: &Self) {
        for (alpn, name, protocol) in &self.all {
            let is_same =
                |other: &&(String, String, Arc<Protocol>)| (&other.0, &other.1) == (alpn, name);
            let Some((_, _, before)) = before.all.iter().find(is_same) else { continue };
            protocol.clients.take_over(&before.clients);
            if before.origin.is_like(&protocol.origin) {
                protocol.room.take_over(&before.room);
                if let (Some(rate), Some(before)) = (&protocol.rate, &before.rate) {
                    rate.take_over(&before.account());
                }
            }
        }
    }

    pub(crate) fn find(&self, alpn: &[u8], name: Option<&str>) -> Option<&Arc<Protocol>> {
        self.names.get(std::str::from_utf8(alpn).ok()?)?.find(name)
    }
}
