//! How long the switch has been there, and for how long it stays without programs.

use std::time::{Duration, Instant};

use quicket_engine::time::Time;

/// From when the switch began until nobody has been there for a while.
#[derive(Debug)]
pub(super) struct Lifetime {
    begun: Instant,
    /// How long it stays without programs; without end if there is none.
    idle: Option<Duration>,
    /// Since when nobody is at an address. Connections that only ask do not keep the switch alive.
    empty_since: Instant,
}

impl Lifetime {
    pub(super) fn new(idle: Option<Duration>) -> Self {
        let begun = Instant::now();
        Self { begun, idle, empty_since: begun }
    }

    /// The time by the switch's clock.
    pub(super) fn now(&self) -> Time {
        let nanos = self.begun.elapsed().as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// For how many whole seconds it has been there.
    pub(super) fn seconds(&self) -> u64 {
        self.begun.elapsed().as_secs()
    }

    /// Somebody has left.
    pub(super) fn note_leave(&mut self) {
        self.empty_since = Instant::now();
    }

    /// How much longer a switch stays that nobody is at; `None` for ever.
    pub(super) fn time_left(&self) -> Option<Duration> {
        self.idle.map(|idle| idle.saturating_sub(self.empty_since.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_as_long_as_it_was_told_after_somebody_has_left() {
        assert_eq!(Lifetime::new(None).time_left(), None);
        assert_eq!(Lifetime::new(Some(Duration::ZERO)).time_left(), Some(Duration::ZERO));
        let minute = Duration::from_secs(60);
        let mut lifetime = Lifetime::new(Some(minute));
        let Some(earlier) = lifetime.empty_since.checked_sub(minute) else { return };
        lifetime.empty_since = earlier;
        assert_eq!(lifetime.time_left(), Some(Duration::ZERO));
        lifetime.note_leave();
        assert!(lifetime.time_left() > Some(Duration::from_secs(30)));
    }
}
