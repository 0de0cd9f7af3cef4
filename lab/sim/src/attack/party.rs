//! An endpoint and its connections.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use quicket_engine::crypto::CryptoProvider;
use quicket_engine::time::Time;
use quicket_engine::{
    Connection, ConnectionHandle, Datagram, Endpoint, EndpointConfig, Route, ServerConfig,
    TransmitStatus,
};
use quicket_wire::EcnCodepoint;

use crate::rng::SimRng;

/// The time of day at the origin of virtual time, in seconds since 1970.
const UNIX_SECS: u64 = 1_700_000_000;
/// Room for what one call may write.
const BUFFER: usize = 65_536;

/// A datagram that a party sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// To whom.
    pub remote: SocketAddr,
    /// The mark in its IP header.
    pub ecn: EcnCodepoint,
    /// Its payload.
    pub data: Vec<u8>,
}

/// An endpoint with its connections. Nothing is read, accepted or asked for unless a test does:
/// the least helpful application.
pub struct Party {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// The connections that are not over.
    pub connections: BTreeMap<ConnectionHandle, Box<Connection>>,
    /// Its address.
    pub address: SocketAddr,
    /// Connection attempts whose first packet was not valid.
    pub invalid: usize,
    replies: Vec<Sent>,
    buffer: Vec<u8>,
}

impl Party {
    /// An endpoint without connections; a server too if `server` is given.
    pub fn new(
        address: SocketAddr,
        config: EndpointConfig,
        server: Option<ServerConfig>,
        crypto: Arc<dyn CryptoProvider>,
        seed: u64,
    ) -> Self {
        let rng = Box::new(SimRng::new(seed).stream("party"));
        Self {
            endpoint: Endpoint::new(config, server.map(Arc::new), crypto, rng),
            connections: BTreeMap::new(),
            address,
            invalid: 0,
            replies: Vec::new(),
            buffer: vec![0; BUFFER],
        }
    }

    /// The only connection.
    ///
    /// # Panics
    /// If there is none, or more than one.
    pub fn connection(&mut self) -> &mut Connection {
        assert_eq!(self.connections.len(), 1, "the party has exactly one connection");
        self.connections.values_mut().next().expect("there is one")
    }

    /// Takes in a datagram. Connection attempts are accepted at once.
    pub fn receive(&mut self, now: Time, remote: SocketAddr, ecn: EcnCodepoint, data: &mut [u8]) {
        let stride = data.len();
        self.receive_train(now, (remote, ecn), data, stride);
    }

    /// Takes in datagrams of `stride` bytes that came together; the last may be shorter.
    pub fn receive_train(
        &mut self,
        now: Time,
        (remote, ecn): (SocketAddr, EcnCodepoint),
        mut train: &mut [u8],
        stride: usize,
    ) {
        loop {
            let used = self.receive_front(now, (remote, ecn), train, stride);
            train = train.split_at_mut(used).1;
            if train.is_empty() {
                break;
            }
        }
    }

    /// Takes in the first datagram of a train, and those behind it that are the same
    /// connection's; returns how many bytes that was.
    fn receive_front(
        &mut self,
        now: Time,
        (remote, ecn): (SocketAddr, EcnCodepoint),
        train: &mut [u8],
        stride: usize,
    ) -> usize {
        let first = stride.clamp(1, train.len().max(1)).min(train.len());
        let (data, _) = train.split_at_mut(first);
        let unix_secs = UNIX_SECS + now.as_nanos() / 1_000_000_000;
        let mut datagram = Datagram { remote, local: Some(self.address), ecn, data };
        let mut reply = Vec::new();
        match self.endpoint.route(now, unix_secs, &mut datagram, &mut reply) {
            Route::Connection(handle) => {
                if let Some(connection) = self.connections.get_mut(&handle) {
                    let local = Some(self.address);
                    let mut train = Datagram { remote, local, ecn, data: train };
                    let used = connection.handle_train(now, &mut train, stride);
                    self.settle(handle);
                    return used;
                }
            }
            Route::Incoming(attempt) => match self.endpoint.accept(now, attempt, None) {
                Ok((handle, connection)) => {
                    self.connections.insert(handle, connection);
                    self.settle(handle);
                }
                Err(_) => self.invalid += 1,
            },
            Route::Reply => {
                self.replies.push(Sent { remote, ecn: EcnCodepoint::NotEct, data: reply });
            }
            Route::Waiting | Route::Elsewhere(_) | Route::Dropped(_) => {}
        }
        first
    }

    /// Passes on what a connection tells the endpoint, and forgets it when it is over.
    pub fn settle(&mut self, handle: ConnectionHandle) {
        let Some(connection) = self.connections.get_mut(&handle) else { return };
        while let Some(event) = connection.poll_endpoint_event() {
            self.endpoint.handle_event(handle, event);
        }
    }

    /// Forgets connections that are over, as an application does once it has heard why.
    pub fn bury(&mut self) {
        self.connections.retain(|_, connection| !connection.is_drained());
    }

    /// Everything that can be sent now.
    pub fn transmit(&mut self, now: Time) -> Vec<Sent> {
        let mut out = std::mem::take(&mut self.replies);
        let handles: Vec<ConnectionHandle> = self.connections.keys().copied().collect();
        for handle in handles {
            let Some(connection) = self.connections.get_mut(&handle) else { continue };
            while let TransmitStatus::Ready(transmit) =
                connection.poll_transmit(now, &mut self.buffer, 10)
            {
                let segments = self.buffer[..transmit.len].chunks(transmit.segment_size);
                let (remote, ecn) = (transmit.remote, transmit.ecn);
                out.extend(segments.map(|data| Sent { remote, ecn, data: data.to_vec() }));
            }
            self.settle(handle);
        }
        out
    }

    /// When a timer is due, if any is.
    pub fn next_timeout(&self) -> Option<Time> {
        self.connections.values().filter_map(|connection| connection.poll_timeout()).min()
    }

    /// Handles the timers that are due.
    pub fn handle_timeouts(&mut self, now: Time) {
        let due = |connection: &Connection| connection.poll_timeout().is_some_and(|at| at <= now);
        let handles: Vec<ConnectionHandle> =
            self.connections.iter().filter(|(_, c)| due(c)).map(|(handle, _)| *handle).collect();
        for handle in handles {
            if let Some(connection) = self.connections.get_mut(&handle) {
                connection.handle_timeout(now);
            }
            self.settle(handle);
        }
    }
}
