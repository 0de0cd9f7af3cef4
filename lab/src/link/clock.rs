//! The link's time, and the kernel's stamps in it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use quicket_engine::time::Time;

/// The oldest that a stamp may be: the wall clock can be set, and then they mean nothing.
const MAX_AGE: Duration = Duration::from_secs(1);

/// Counts from the start, which is when it was told so; zero before.
#[derive(Debug, Default)]
pub(super) struct Clock {
    start: Option<Instant>,
}

impl Clock {
    /// Starts, `age` ago, unless that was done before.
    pub(super) fn start(&mut self, age: Duration) {
        let now = Instant::now();
        self.start.get_or_insert_with(|| now.checked_sub(age).unwrap_or(now));
    }

    pub(super) fn now(&self) -> Time {
        let elapsed = self.start.map_or(Duration::ZERO, |start| start.elapsed());
        Time::ZERO + quicket_engine::time::Duration::from(elapsed)
    }

    /// How long until `time`; zero if it is past.
    pub(super) fn until(&self, time: Time) -> Duration {
        Duration::from_nanos((time - self.now()).as_nanos())
    }
}

/// How long ago the kernel stamped, by the wall clock that it used, a datagram that is read now.
pub(super) fn age(stamp: Option<Duration>) -> Duration {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let age = stamp.map_or(Duration::ZERO, |stamp| wall.saturating_sub(stamp));
    if age > MAX_AGE { Duration::ZERO } else { age }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stands_still_before_the_start_and_never_goes_back() {
        let mut clock = Clock::default();
        assert_eq!(clock.now(), Time::ZERO);
        clock.start(Duration::from_millis(5));
        let first = clock.now();
        assert!(first.as_nanos() >= 5_000_000);
        clock.start(Duration::ZERO);
        assert!(clock.now() >= first, "the second start does nothing");
        assert_eq!(clock.until(Time::ZERO), Duration::ZERO);
    }

    #[test]
    fn stamps_that_the_clock_left_behind_count_as_now() {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert_eq!(age(None), Duration::ZERO);
        assert_eq!(age(Some(wall + Duration::from_secs(10))), Duration::ZERO, "from the future");
        assert_eq!(age(Some(wall - Duration::from_secs(3600))), Duration::ZERO, "clock was set");
        assert!(age(Some(wall - Duration::from_millis(20))) >= Duration::from_millis(20));
    }
}
