//! What a connection reports to its application.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use crate::error::ConnectionError;
use crate::streams::StreamEvent;

/// Something that the application may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Server with [`crate::ServerConfig::hold_client_hello`]: the ClientHello is here; go on
    /// with [`crate::Connection::accept_handshake`] or close.
    ClientHello {
        /// The protocols that the client offers, its favourite first.
        alpn: Vec<Vec<u8>>,
        /// The server name that it asks for.
        server_name: Option<String>,
    },
    /// Client: streams may be opened and written before the handshake is complete. What is sent
    /// so can be replayed by an attacker (RFC 9001, Section 9.2).
    EarlyDataReady,
    /// Client: the server refused 0-RTT; what was sent is sent again as 1-RTT data.
    EarlyDataRejected,
    /// The handshake is complete and the peer authenticated (RFC 9001, Section 4.1.1).
    HandshakeComplete,
    /// The peer too knows that it is (RFC 9001, Section 4.1.2): keys may be updated and the
    /// connection migrated.
    HandshakeConfirmed,
    /// Client: keep these bytes to resume the session: [`crate::ClientConfig::session`].
    SessionTicket(Vec<u8>),
    /// Client: keep these bytes for the next connection to this server:
    /// [`crate::ClientConfig::token`].
    NewToken(Vec<u8>),
    /// Something happened to a stream.
    Stream(StreamEvent),
    /// A datagram can be received (RFC 9221).
    DatagramReceived,
    /// Datagrams can be sent again after [`crate::DatagramError::Blocked`].
    DatagramsUnblocked,
    /// Packets go to another path.
    PathChanged {
        /// This side's address, if known.
        local: Option<SocketAddr>,
        /// The peer's address.
        remote: SocketAddr,
    },
    /// A path that this application asked for could not be validated; the old one stays.
    PathFailed {
        /// The peer's address on it.
        remote: SocketAddr,
    },
    /// The 1-RTT keys were updated.
    KeyUpdated {
        /// How many updates there were; the key phase bit is its lowest bit.
        updates: u64,
        /// True if the peer began it.
        by_peer: bool,
    },
    /// Connection IDs came or were retired, of either side.
    ConnectionIdsChanged,
    /// The connection ended; nothing else follows.
    Closed(ConnectionError),
}

/// Events that wait for the application. The peer drives only tickets, tokens and updates, which
/// are few; beyond the bound the oldest of them is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Events {
    queue: VecDeque<Event>,
    end: End,
}

/// [`Event::Closed`] comes after everything else, stream events too.
#[derive(Debug, Default)]
enum End {
    #[default]
    Open,
    Closed(ConnectionError),
    Told,
}

/// More events than one handshake makes.
const MAX_EVENTS: usize = 64;

impl Events {
    pub(crate) fn push(&mut self, event: Event) {
        if !matches!(self.end, End::Open) {
            return;
        }
        if self.queue.len() >= MAX_EVENTS {
            let expendable = self.queue.iter().position(|event| {
                matches!(
                    event,
                    Event::SessionTicket(_)
                        | Event::NewToken(_)
                        | Event::KeyUpdated { .. }
                        | Event::PathChanged { .. }
                        | Event::PathFailed { .. }
                        | Event::ConnectionIdsChanged
                )
            });
            if let Some(index) = expendable {
                self.queue.remove(index);
            }
        }
        let repeated = matches!(
            event,
            Event::DatagramReceived | Event::DatagramsUnblocked | Event::ConnectionIdsChanged
        );
        if repeated && self.queue.contains(&event) {
            return;
        }
        self.queue.push_back(event);
    }

    /// The connection ended; only the first reason counts.
    pub(crate) fn close(&mut self, error: ConnectionError) {
        if matches!(self.end, End::Open) {
            self.end = End::Closed(error);
        }
    }

    /// Gives back memory without events.
    pub(crate) fn trim(&mut self) {
        self.queue.shrink_to_fit();
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }

    /// True once the application was told of the end: nothing else follows.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.end, End::Told)
    }

    /// The last event, when all others were taken.
    pub(crate) fn pop_end(&mut self) -> Option<Event> {
        match core::mem::replace(&mut self.end, End::Told) {
            End::Closed(error) => Some(Event::Closed(error)),
            end => {
                self.end = end;
                None
            }
        }
    }
}
