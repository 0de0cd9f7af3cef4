//! Which request streams came as 0-RTT data.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use h3::quic::StreamId;

/// Says which requests came as 0-RTT data, which an attacker can repeat (RFC 8470). Clones share
/// what they know.
#[derive(Clone, Debug, Default)]
pub struct EarlyStreams(Arc<Mutex<HashSet<u64>>>);

impl EarlyStreams {
    fn lock(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the peer opened this stream before the handshake was complete. Known as long as
    /// the stream is not dropped.
    pub fn contains(&self, id: StreamId) -> bool {
        self.lock().contains(&id.into_inner())
    }

    pub(crate) fn insert(&self, id: u64) {
        self.lock().insert(id);
    }

    pub(crate) fn remove(&self, id: u64) {
        self.lock().remove(&id);
    }
}
