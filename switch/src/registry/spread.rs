//! Which listener of a group, and which of its workers, gets a connection.

use std::cmp::Reverse;

use quicket_steering::{HashKey, Owner};

use super::ListenerId;
use super::listener::Listener;

/// A worker of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The listener.
    pub listener: ListenerId,
    /// Its worker.
    pub worker: u16,
}

impl Place {
    /// As connection IDs name it.
    #[must_use]
    pub const fn owner(&self) -> Owner {
        Owner { generation: self.listener.generation(), worker: self.worker }
    }
}

/// Spreads connections over listeners and workers by a keyed hash of a client's first connection ID:
/// all packets to it come to one place, without memory, as long as the listeners stay the same. A
/// client that does not know the key cannot choose its worker.
#[derive(Clone, Copy, Debug)]
pub struct Spread<'a> {
    /// The key.
    pub key: &'a HashKey,
    /// The connection ID.
    pub of: &'a [u8],
}

impl Spread<'_> {
    /// The listener with the greatest hash (rendezvous hashing): when one comes or goes, the others
    /// keep what they had. Those come first that wait for clients.
    pub(super) fn pick<'l>(&self, group: impl Iterator<Item = &'l Listener>) -> Option<Place> {
        let rank = |listener: &&Listener| {
            (Reverse(listener.attention), self.hash(listener.id.serial), listener.id)
        };
        let chosen = group.max_by_key(rank)?;
        // As the kernel chooses, where it does (`quicket_bpf::Door`).
        let hash = match self.of.first_chunk::<8>() {
            Some(octets) => self.key.hash(octets),
            None => self.hash(u64::MAX),
        };
        let worker = hash % u32::from(chosen.workers.max(1));
        Some(Place { listener: chosen.id, worker: worker as u16 })
    }

    fn hash(&self, salt: u64) -> u32 {
        // Connection IDs of versions that are not known have up to 255 octets.
        let mut octets = [0; 255 + 8];
        let len = self.of.len().min(255);
        let (id, rest) = octets.split_at_mut(len);
        id.copy_from_slice(self.of.get(..len).unwrap_or_default());
        if let Some(end) = rest.first_chunk_mut() {
            *end = salt.to_be_bytes();
        }
        self.key.hash(octets.get(..len + 8).unwrap_or_default())
    }
}
