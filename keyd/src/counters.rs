//! What a key process has done.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start.
#[derive(Debug, Default)]
pub struct Counters {
    pub(crate) connections: AtomicU64,
    pub(crate) open: AtomicU64,
    pub(crate) not_allowed: AtomicU64,
    pub(crate) signatures: AtomicU64,
    pub(crate) microseconds: AtomicU64,
    pub(crate) found: AtomicU64,
    pub(crate) malformed: AtomicU64,
    pub(crate) unknown_key: AtomicU64,
    pub(crate) other_scheme: AtomicU64,
    pub(crate) too_many: AtomicU64,
    pub(crate) busy: AtomicU64,
    pub(crate) failed: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Connections that are open.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// All that only grow, with their names.
    pub fn values(&self) -> [(&'static str, u64); 11] {
        [
            ("connections", &self.connections),
            ("connections_not_allowed", &self.not_allowed),
            ("signatures", &self.signatures),
            ("signature_microseconds", &self.microseconds),
            ("keys_found", &self.found),
            ("malformed", &self.malformed),
            ("unknown_key", &self.unknown_key),
            ("other_scheme", &self.other_scheme),
            ("too_many", &self.too_many),
            ("busy", &self.busy),
            ("failed", &self.failed),
        ]
        .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }
}
