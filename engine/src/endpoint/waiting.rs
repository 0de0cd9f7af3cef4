//! Attempts that the application has not decided about yet, and what their clients have sent since: more of the first
//! flight, such as early data or the second part of a long ClientHello, comes before anybody can have decided.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddr;

use quicket_wire::{ConnectionId, EcnCodepoint};

use super::{Datagram, Incoming};

/// The most datagrams that are kept for one attempt beside its first: an initial congestion window
/// (RFC 9002, Section 7.2).
pub(crate) const MAX_HELD: usize = 10;

/// A datagram for an attempt that is not decided about.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) ecn: EcnCodepoint,
    pub(super) data: Vec<u8>,
}

/// All attempts that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    attempts: BTreeMap<(ConnectionId, SocketAddr), Vec<Held>>,
    /// What their datagrams hold, the first ones included.
    bytes: usize,
}

impl Waiting {
    /// Whether another attempt may wait that begins with so many bytes.
    pub(super) fn has_room(&self, bytes: usize, most: usize, most_bytes: usize) -> bool {
        self.attempts.len() < most && self.has_room_for(bytes, most_bytes)
    }

    fn has_room_for(&self, bytes: usize, most: usize) -> bool {
        self.bytes.checked_add(bytes).is_some_and(|bytes| bytes <= most)
    }

    /// `incoming` waits from now on.
    pub(super) fn begin(&mut self, incoming: &Incoming) {
        self.attempts.insert((incoming.dcid, incoming.remote), Vec::new());
        self.bytes = self.bytes.saturating_add(incoming.data.len());
    }

    /// Keeps a datagram if the attempt that it belongs to waits; `None` if none does. False: there is no room, and it
    /// is lost, as it may be on any way.
    pub(super) fn hold(
        &mut self,
        dcid: ConnectionId,
        datagram: &Datagram<'_>,
        most_bytes: usize,
    ) -> Option<bool> {
        // Mostly none does, as it is decided at once.
        if self.attempts.is_empty() {
            return None;
        }
        let room = self.has_room_for(datagram.data.len(), most_bytes);
        let held = self.attempts.get_mut(&(dcid, datagram.remote))?;
        if !room || held.len() >= MAX_HELD {
            return Some(false);
        }
        self.bytes = self.bytes.saturating_add(datagram.data.len());
        held.push(Held { ecn: datagram.ecn, data: datagram.data.to_vec() });
        Some(true)
    }

    /// `incoming` does not wait any more; returns what has come for it meanwhile.
    pub(super) fn end(&mut self, incoming: &Incoming) -> Vec<Held> {
        let Some(held) = self.attempts.remove(&(incoming.dcid, incoming.remote)) else {
            return Vec::new();
        };
        let bytes: usize = held.iter().map(|held| held.data.len()).sum();
        self.bytes = self.bytes.saturating_sub(bytes.saturating_add(incoming.data.len()));
        held
    }
}
