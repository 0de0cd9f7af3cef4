//! What the transport knows of a peer's requests, which h3 does not pass on.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use h3::quic::StreamId;
use http::{HeaderMap, Request};

use crate::sections::Sections;

/// The peer's requests, each as long as its stream is neither dropped nor split. Clones share what they know.
#[derive(Clone, Debug, Default)]
pub struct Requests(Arc<Mutex<BTreeMap<u64, Arc<Transfer>>>>);

impl Requests {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Transfer>>> {
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
        let mut requests = self.lock();
        requests.remove(&id);
        if requests.is_empty() {
            // It would keep room for some, as long as the connection is idle.
            *requests = BTreeMap::new();
        }
    }
}

/// No more than this is copied when it is sent, in bytes.
const COPIED: usize = 8 << 10;

/// A request and its response on their way.
#[derive(Debug, Default)]
pub struct Transfer {
    is_early: bool,
    taken: AtomicU64,
    given: Mutex<Given>,
    /// What is written waits for what follows.
    is_held: AtomicBool,
    was_known: AtomicBool,
    sections: Option<Arc<Sections>>,
}

/// What h3 does not pass on.
#[derive(Default)]
struct Given {
    /// What the next DATA frame has in it.
    content: Option<Bytes>,
    /// What is written behind the status.
    lines: Option<Bytes>,
    /// The request that h3 reads another one for.
    request: Option<Box<Request<()>>>,
}

impl fmt::Debug for Given {
    /// Without what there is: fields may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Given").finish_non_exhaustive()
    }
}

impl Transfer {
    pub(crate) fn new(is_early: bool, sections: Option<Arc<Sections>>) -> Arc<Self> {
        Arc::new(Self { is_early, sections, ..Self::default() })
    }

    /// True if the request came as 0-RTT data.
    pub const fn is_early(&self) -> bool {
        self.is_early
    }

    /// True if its fields were not decoded anew: those of another request of the connection were the same
    /// ([`Connection::with_kept_sections`](crate::Connection::with_kept_sections)).
    pub fn was_known(&self) -> bool {
        self.was_known.load(Ordering::Relaxed)
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
        let former = std::mem::replace(&mut self.lock().content, offer);
        // To drop it may run another's code: not under the lock.
        drop(former);
    }

    /// Says that the response is finished at once after what is sent from now on: it waits until then, and goes
    /// out together. It must be short.
    pub fn hold(&self) {
        self.is_held.store(true, Ordering::Relaxed);
    }

    /// What was held goes out.
    pub(crate) fn release(&self) {
        self.is_held.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take_offer(&self) -> Option<Bytes> {
        self.lock().content.take()
    }

    /// Looks for a request that was read before, and keeps it until [`Self::take_request`] if there is one.
    pub(crate) fn recognize(&self, section: &[u8]) -> bool {
        let found = self.sections.as_ref().and_then(|sections| sections.find(section));
        let is_known = found.is_some();
        self.was_known.store(is_known, Ordering::Relaxed);
        self.lock().request = found.map(Box::new);
        is_known
    }

    pub(crate) fn take_request(&self) -> Option<Request<()>> {
        self.lock().request.take().map(|request| *request)
    }

    /// What h3 has made of a section.
    pub(crate) fn keep(&self, section: &[u8], request: &Request<()>) {
        if let Some(sections) = &self.sections {
            sections.keep(section, request);
        }
    }

    /// Has these fields written behind the status that is sent next; false if h3 should write them.
    pub(crate) fn write_lines(&self, fields: &HeaderMap) -> bool {
        let lines = self.sections.as_ref().and_then(|sections| sections.lines(fields));
        let are_written = lines.is_some();
        self.lock().lines = lines;
        are_written
    }

    pub(crate) fn take_lines(&self) -> Option<Bytes> {
        self.lock().lines.take()
    }

    pub(crate) fn count(&self, bytes: usize) {
        self.taken.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
