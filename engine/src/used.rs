//! What may be used once: keys that were used of late, in memory that is bounded.

use alloc::collections::BTreeSet;
use core::mem;

/// Remembers uses for a window of time at least, and for two at most. What does not fit is refused: nothing is
/// forgotten before its time.
#[derive(Clone, Debug)]
pub struct UsedLately<K> {
    current: BTreeSet<K>,
    previous: BTreeSet<K>,
    /// When `current` began, in seconds. Where the clock is set back, old copies are fresh again, and what is
    /// known of them is kept for as much longer.
    since: u64,
    /// In seconds.
    window: u64,
    capacity: usize,
}

impl<K: Ord> UsedLately<K> {
    /// Nothing was used by `now`, in seconds. Of each window up to `capacity` uses are remembered.
    #[must_use]
    pub const fn new(now: u64, window: u64, capacity: usize) -> Self {
        Self { current: BTreeSet::new(), previous: BTreeSet::new(), since: now, window, capacity }
    }

    /// Forgets what is old at `now`; true if a window begins.
    pub fn turn(&mut self, now: u64) -> bool {
        let age = now.saturating_sub(self.since);
        if age < self.window {
            return false;
        }
        let ended = mem::take(&mut self.current);
        self.previous = if age < self.window.saturating_mul(2) { ended } else { BTreeSet::new() };
        self.since = now;
        true
    }

    /// Notes a use. False if there was one before, or if there are too many to tell. Of its time
    /// [`turn`](Self::turn) is told before.
    pub fn first_use(&mut self, key: K) -> bool {
        if self.previous.contains(&key) || self.current.len() >= self.capacity {
            return false;
        }
        self.current.insert(key)
    }

    /// Whether a use is remembered.
    #[must_use]
    pub fn contains(&self, key: &K) -> bool {
        self.current.contains(key) || self.previous.contains(key)
    }

    /// Uses that are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.current.len().saturating_add(self.previous.len())
    }

    /// Nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(used: &mut UsedLately<u32>, now: u64, key: u32) -> bool {
        used.turn(now);
        used.first_use(key)
    }

    #[test]
    fn a_second_use_is_noticed_for_at_least_a_window_and_forgotten_in_the_end() {
        for start in [0, 1, 119, 120, 121, 239, 500] {
            let mut used = UsedLately::new(1_000, 120, 100);
            assert!(first(&mut used, 1_001, 0));
            let start = 1_000 + start.max(1);
            assert!(first(&mut used, start, 1));
            for later in [0, 1, 60, 119] {
                assert!(!first(&mut used, start + later, 1));
            }
            assert!(first(&mut used, start + 1_000, 1));
            assert_eq!(used.len(), 1);
        }
    }

    #[test]
    fn a_flood_is_refused_rather_than_forgotten() {
        let mut used = UsedLately::new(0, 120, 1_000);
        assert!((0..1_000).all(|key| first(&mut used, 0, key)));
        assert!(!first(&mut used, 0, 1_000) && !first(&mut used, 0, 0));
        assert!(first(&mut used, 120, 1_000));
        assert!(!first(&mut used, 120, 7));
    }

    /// A copy that was too old is fresh again when the clock is set back.
    #[test]
    fn what_is_known_is_kept_while_the_clock_stands_behind() {
        let mut used = UsedLately::new(1_000, 120, 100);
        assert!(first(&mut used, 1_000, 1));
        for back in [600, 300, 10, 0] {
            assert!(!first(&mut used, 1_000 - back, 1), "{back}");
            assert!(first(&mut used, 1_000 - back, 1_000 + back as u32));
        }
        assert!(!first(&mut used, 1_119, 1));
    }
}
