//! How many connections to an origin there may be.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Connections to an origin at once, of all clients together. They count for as long as they are there, also
/// when the file was read again meanwhile.
#[derive(Debug)]
pub(crate) struct Room {
    max: usize,
    /// Made, or taken over from the configuration before, when it is asked for first.
    taken: OnceLock<Arc<AtomicUsize>>,
}

/// Counts as one connection.
#[derive(Debug)]
pub(super) struct Taken(Arc<AtomicUsize>);

impl Room {
    pub(crate) const fn new(max: usize) -> Self {
        Self { max, taken: OnceLock::new() }
    }

    fn taken(&self) -> &Arc<AtomicUsize> {
        self.taken.get_or_init(Arc::default)
    }

    /// Room for one connection, if there is any.
    pub(super) fn take(&self) -> Option<Taken> {
        let more = |taken: usize| (taken < self.max).then_some(taken + 1);
        let taken = self.taken();
        let result = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        result.ok().map(|_| Taken(Arc::clone(taken)))
    }

    /// From now on the connections of the configuration before count here, too.
    pub(super) fn take_over(&self, before: &Self) {
        // Where connections were made already, these count.
        let _ = self.taken.set(Arc::clone(before.taken()));
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_before_counts_on() {
        let before = Room::new(2);
        let (first, second) = (before.take().unwrap(), before.take().unwrap());
        assert!(before.take().is_none());
        let next = Room::new(1);
        next.take_over(&before);
        assert!(next.take().is_none());
        drop(first);
        assert!(next.take().is_none() && before.take().is_some());
        drop(second);
        let third = next.take().unwrap();
        assert!(next.take().is_none());
        drop(third);
        assert!(next.take().is_some());
    }
}
