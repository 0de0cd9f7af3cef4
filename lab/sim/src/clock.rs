//! The virtual time of a simulation, shared with those who must ask for it.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use quicket_engine::time::Time;

/// A clock that the simulation sets, and a list of moments at which someone wants to be asked
/// again.
#[derive(Debug, Default)]
pub struct SimClock {
    now: AtomicU64,
    wakes: Mutex<BTreeSet<Time>>,
}

impl SimClock {
    /// The present.
    pub fn now(&self) -> Time {
        Time::from_nanos(self.now.load(Ordering::Relaxed))
    }

    /// Sets the present; it never goes back.
    pub fn advance_to(&self, now: Time) {
        self.now.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    /// Asks that everything waiting be polled again at `at`.
    pub fn wake_at(&self, at: Time) {
        self.lock().insert(at);
    }

    /// The next moment asked for.
    pub fn next_wake(&self) -> Option<Time> {
        self.lock().first().copied()
    }

    /// Forgets the moments up to now; true if there were any.
    pub fn take_wakes(&self) -> bool {
        let now = self.now();
        let mut wakes = self.lock();
        let before = wakes.len();
        wakes.retain(|at| *at > now);
        wakes.len() != before
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<Time>> {
        self.wakes.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakes_are_taken_when_their_time_has_come() {
        let clock = SimClock::default();
        for nanos in [30, 10, 20] {
            clock.wake_at(Time::from_nanos(nanos));
        }
        assert_eq!(clock.next_wake(), Some(Time::from_nanos(10)));
        assert!(!clock.take_wakes());
        clock.advance_to(Time::from_nanos(20));
        clock.advance_to(Time::from_nanos(5));
        assert_eq!(clock.now(), Time::from_nanos(20));
        assert!(clock.take_wakes());
        assert_eq!(clock.next_wake(), Some(Time::from_nanos(30)));
    }
}
