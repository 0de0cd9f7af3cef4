//! What tunnels keep from packet to packet, whoever carries them: counters and sequence numbers.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use crate::counters::Counters;

/// Shared by all threads; nothing in it is locked.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// In the order of the tunnels, as what follows.
    pub(crate) counters: Vec<Counters>,
    /// Of packets that were for no tunnel.
    pub(crate) strays: Counters,
    /// The next sequence number of GRE that is sent.
    pub(crate) sequence: Vec<AtomicU32>,
    /// ... and that is expected.
    pub(crate) expected: Vec<AtomicU32>,
    /// Keys the hash of flows.
    pub(crate) secret: u64,
    start: Instant,
}

impl Ledger {
    pub(crate) fn new(tunnels: usize) -> Self {
        Self {
            counters: (0..tunnels).map(|_| Counters::default()).collect(),
            strays: Counters::default(),
            sequence: (0..tunnels).map(|_| AtomicU32::new(0)).collect(),
            expected: (0..tunnels).map(|_| AtomicU32::new(0)).collect(),
            secret: RandomState::new().hash_one("flows"),
            start: Instant::now(),
        }
    }

    /// Seconds since the start.
    pub(crate) fn seconds(&self, now: Instant) -> u32 {
        now.saturating_duration_since(self.start).as_secs() as u32
    }

    /// Counters of a tunnel, or of none.
    pub(crate) fn of(&self, tunnel: Option<usize>) -> &Counters {
        tunnel.map_or(&self.strays, |tunnel| &self.counters[tunnel])
    }
}
