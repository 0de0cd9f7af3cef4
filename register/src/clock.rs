//! The clock of a store, held against one that never goes back.

use crate::Millis;

/// What a look or an answer may take, and a clock be corrected by at once, in milliseconds.
const JUMP: Millis = 2_000;
/// A clock may go wrong by one part in so many.
const DRIFT: Millis = 100;
/// After so long it is compared with a later time, in milliseconds.
const ANCHOR: Millis = 600_000;

/// How far the store's clock is ahead of this host's, which began at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    /// Where it is compared with.
    at: Millis,
    ahead: i128,
}

impl Clock {
    pub(crate) fn new(now: Millis, store: Millis) -> Self {
        Self { at: now, ahead: i128::from(store) - i128::from(now) }
    }

    /// The store's time.
    pub(crate) fn store(&self, now: Millis) -> Millis {
        u64::try_from((i128::from(now) + self.ahead).max(0)).unwrap_or(u64::MAX)
    }

    /// Whether the store's clock has gone on as it should.
    pub(crate) fn agrees(&self, now: Millis, store: Millis) -> bool {
        let allowed = JUMP.saturating_add(now.saturating_sub(self.at) / DRIFT);
        self.store(now).abs_diff(store) <= allowed
    }

    /// Compares with a later time from then on, once this one is old.
    pub(crate) fn follow(&mut self, now: Millis, store: Millis) {
        if now.saturating_sub(self.at) >= ANCHOR {
            *self = Self::new(now, store);
        }
    }
}

/// True if a time of the store is not there yet, by more than answers take.
pub(crate) const fn is_to_come(time: Millis, store: Millis) -> bool {
    time > store.saturating_add(JUMP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_may_drift_and_neither_jump_nor_run() {
        let mut clock = Clock::new(1_000, 5_000_000);
        assert!(clock.agrees(2_000, 5_001_500));
        assert!(!clock.agrees(2_000, 5_003_100) && !clock.agrees(2_000, 4_998_000));
        // It goes twice as fast: no look finds a jump, and all of them do.
        let fast = |now: u64| 5_000_000 + 2 * (now - 1_000);
        assert!(clock.agrees(2_000, fast(2_000)));
        assert!(!clock.agrees(4_000, fast(4_000)));
        // It drifts by a thousandth for a day.
        for minute in 0..1_440 {
            let now = 1_000 + minute * 60_000;
            let store = 5_000_000 + minute * 60_060;
            assert!(clock.agrees(now, store), "{minute}");
            clock.follow(now, store);
        }
    }
}
