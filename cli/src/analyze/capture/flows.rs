//! Who of two ends is the server.

use std::collections::HashSet;
use std::net::SocketAddr;

use quicket_trace::{Datagram, Observer, is_first_of_client};

/// Addresses of servers that are known.
const MAX_SERVERS: usize = 4096;

/// The addresses of servers, by what clients have sent first.
#[derive(Debug, Default)]
pub(super) struct Flows(HashSet<SocketAddr>);

impl Flows {
    /// Whether a datagram is from a client; none if neither its addresses nor its connection ID are known, and it begins
    /// no connection.
    pub(super) fn is_from_client(
        &mut self,
        datagram: &Datagram,
        observer: &Observer,
    ) -> Option<bool> {
        if self.0.contains(&datagram.to) {
            return Some(true);
        }
        if self.0.contains(&datagram.from) {
            return Some(false);
        }
        if is_first_of_client(&datagram.payload) {
            if self.0.len() < MAX_SERVERS {
                self.0.insert(datagram.to);
            }
            return Some(true);
        }
        // A server's other address (RFC 9000, Section 9.6).
        [true, false].into_iter().find(|way| observer.knows(*way, &datagram.payload))
    }
}
