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

    /// What the counter of this name counts; `None` if there is none.
    #[must_use]
    pub fn help(name: &str) -> Option<&'static str> {
        Some(match name {
            "connections" => "Connections that were taken",
            "connections_not_allowed" => {
                "Connections of users, or with certificates, that may not ask"
            }
            "signatures" => "Signatures that were made",
            "signature_microseconds" => "Time that signatures took, in microseconds",
            "keys_found" => "Questions for a key that is here",
            "malformed" => "Connections that were ended as they said what makes no sense",
            "unknown_key" => "Questions for a key that is not here",
            "other_scheme" => "Signatures that were refused: the key makes none of that kind",
            "too_many" => "Signatures that were refused: more in a second than one may have",
            "busy" => "Signatures that were refused: it took too long until it was their turn",
            "failed" => "Signatures that could not be made",
            _ => return None,
        })
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
