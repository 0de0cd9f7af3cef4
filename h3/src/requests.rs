//! What the transport knows of a peer's requests, which h3 does not pass on.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use h3::quic::StreamId;

/// The peer's requests, each as long as its stream is neither dropped nor split. Clones share what they know.
#[derive(Clone, Debug, Default)]
pub struct Requests(Arc<Mutex<HashMap<u64, Arc<Transfer>>>>);

impl Requests {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Transfer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a request; keep it beyond its stream.
    pub fn transfer(&self, id: StreamId) -> Option<Arc<Transfer>> {
        self.lock().get(&id.into_inner()).map(Arc::clone)
    }

    /// True if the request came as 0-RTT data, which an attacker can repeat (RFC 8470).
    pub fn is_early(&self, id: StreamId) -> bool {
        self.lock().get(&id.into_inner()).is_some_and(|transfer| transfer.is_early)
    }

    pub(crate) fn insert(&self, id: u64, transfer: Arc<Transfer>) {
        self.lock().insert(id, transfer);
    }

    pub(crate) fn remove(&self, id: u64) {
        self.lock().remove(&id);
    }
}

/// No more than this is copied when it is sent, in bytes.
const COPIED: usize = 8 << 10;

/// A request and its response on their way.
#[derive(Debug, Default)]
pub struct Transfer {
    is_early: bool,
    taken: AtomicU64,
    offered: Mutex<Option<Bytes>>,
}

impl Transfer {
    pub(crate) fn new(is_early: bool) -> Arc<Self> {
        Arc::new(Self { is_early, ..Self::default() })
    }

    /// True if the request came as 0-RTT data.
    pub const fn is_early(&self) -> bool {
        self.is_early
    }

    /// How much of the response the stream has taken, in bytes. It takes more only as the peer does, once its
    /// buffer is full.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Says what the next DATA frame has in it: these bytes, and no copy of them. Large ones are then sent from where they are. h3
    /// shows what it sends, but not whose it is.
    pub fn offer(&self, content: &Bytes) {
        let offer = (content.len() > COPIED).then(|| content.clone());
        let former = std::mem::replace(&mut *self.lock(), offer);
        // To drop it may run another's code: not under the lock.
        drop(former);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Bytes>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take_offer(&self) -> Option<Bytes> {
        self.lock().take()
    }

    pub(crate) fn count(&self, bytes: usize) {
        self.taken.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
