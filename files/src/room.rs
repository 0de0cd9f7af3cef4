//! Room for large pieces of files, which are read before they are sent.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many large pieces the downloads of a connection hold together. Each download holds a small
/// one beside, so that none waits for another.
const LARGE_CHUNKS: usize = 8;

/// Room for large pieces, of 256 KiB each. Clones share it.
#[derive(Clone, Debug)]
pub struct Room {
    own: Arc<Semaphore>,
    /// What there is for all, if it is a part of that.
    all: Option<Arc<Semaphore>>,
}

/// A large piece's place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _own: OwnedSemaphorePermit,
    _all: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// Room for so many.
    #[must_use]
    pub fn new(pieces: usize) -> Self {
        Self { own: Arc::new(Semaphore::new(pieces)), all: None }
    }

    /// Room for a connection, of what there is here for all of them.
    #[must_use]
    pub fn of_connection(&self) -> Self {
        let all = self.all.as_ref().unwrap_or(&self.own);
        Self { own: Arc::new(Semaphore::new(LARGE_CHUNKS)), all: Some(Arc::clone(all)) }
    }

    /// How many more large pieces there may be.
    #[must_use]
    pub fn free(&self) -> usize {
        let free = |semaphore: &Arc<Semaphore>| semaphore.available_permits();
        self.all.as_ref().map_or(usize::MAX, free).min(free(&self.own))
    }

    /// A place, if there is one.
    pub(crate) fn place(&self) -> Option<Place> {
        let take = |semaphore: &Arc<Semaphore>| Arc::clone(semaphore).try_acquire_owned().ok();
        let own = take(&self.own)?;
        let all = match &self.all {
            Some(all) => Some(take(all)?),
            None => None,
        };
        Some(Place { _own: own, _all: all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_share_what_there_is_and_none_has_all_of_it() {
        let all = Room::new(12);
        let (one, other) = (all.of_connection(), all.of_connection());
        let mut held: Vec<Place> = std::iter::from_fn(|| one.place()).collect();
        assert_eq!((held.len(), one.free(), other.free()), (LARGE_CHUNKS, 0, 4));
        held.extend(std::iter::from_fn(|| other.place()));
        assert_eq!((held.len(), other.free()), (12, 0));
        // What a connection could not have it does not keep.
        assert!(all.of_connection().place().is_none() && other.place().is_none());
        drop(held);
        assert_eq!((all.free(), one.free(), other.free()), (12, LARGE_CHUNKS, LARGE_CHUNKS));
    }
}
