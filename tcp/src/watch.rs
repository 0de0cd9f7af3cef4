//! One descriptor that says which of many streams and listeners may be able to do more.

use std::io;

use crate::connections::Wake;
use crate::event::Event;
use crate::sync::{Arc, AtomicBool, Mutex, MutexGuard, Ordering, PoisonError};

/// Watches streams and listeners for a thread that must not wait for one of them. Its descriptor is readable, as an eventfd is,
/// when [`Watch::take`] has something to say. Each is said once until then, however much has happened.
#[derive(Clone, Debug)]
pub struct Watch {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    ready: Mutex<Vec<Arc<Mark>>>,
    event: Event,
}

/// What one of those that are watched is called.
#[derive(Debug)]
struct Mark {
    token: u64,
    /// It waits to be taken.
    is_noted: AtomicBool,
}

impl Watch {
    /// # Errors
    ///
    /// What the system says if there is no descriptor.
    pub fn new() -> io::Result<Self> {
        let (ready, event) = (Mutex::default(), Event::new()?);
        Ok(Self { inner: Arc::new(Inner { ready, event }) })
    }

    /// Adds the tokens of those that are to be looked at. Whatever happens from now on is said anew.
    pub fn take(&self, tokens: &mut Vec<u64>) {
        self.inner.event.clear();
        let ready = std::mem::take(&mut *self.inner.ready());
        tokens.extend(ready.into_iter().map(|mark| {
            mark.is_noted.store(false, Ordering::Release);
            mark.token
        }));
    }

    pub(crate) fn event(&self) -> &Event {
        &self.inner.event
    }

    pub(crate) fn watched(&self, token: u64) -> Watched {
        let mark = Arc::new(Mark { token, is_noted: AtomicBool::new(false) });
        Watched { inner: Arc::clone(&self.inner), mark }
    }
}

impl Inner {
    fn ready(&self) -> MutexGuard<'_, Vec<Arc<Mark>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a stream or listener has that is watched.
#[derive(Debug)]
pub(crate) struct Watched {
    inner: Arc<Inner>,
    mark: Arc<Mark>,
}

impl Watched {
    /// It may be able to do more. Returns whom to wake once nothing is locked.
    pub(crate) fn note(&self) -> Option<Wake> {
        if self.mark.is_noted.swap(true, Ordering::AcqRel) {
            return None;
        }
        let mut ready = self.inner.ready();
        ready.push(Arc::clone(&self.mark));
        // Whoever came before has rung, or is going to.
        (ready.len() == 1).then(|| Wake::Watch(Ring(Arc::clone(&self.inner))))
    }
}

/// A watch that has something to say.
#[derive(Debug)]
pub(crate) struct Ring(Arc<Inner>);

impl Ring {
    pub(crate) fn ring(self) {
        self.0.event.ring();
    }
}
