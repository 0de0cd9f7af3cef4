//! The engine's time from the system's clocks.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use quicket_engine::time::{Duration, Time};

/// Counts from the moment it was made. One per endpoint.
///
/// When the time of day is set, nothing changes here. While a machine is suspended it may stand
/// still or, as in many virtual machines, go on: then all deadlines have come at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
    /// Wall-clock time at the origin, in seconds since the Unix epoch.
    unix_origin: u64,
    /// How far a test has put it forward, in nanoseconds.
    #[cfg(test)]
    ahead: &'static std::sync::atomic::AtomicU64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            origin: Instant::now(),
            unix_origin: unix.as_secs(),
            #[cfg(test)]
            ahead: Box::leak(Box::default()),
        }
    }

    /// Reads the clock.
    pub(crate) fn now(&self) -> Time {
        self.time_of(Instant::now())
    }

    /// The engine's name for a moment.
    pub(crate) fn time_of(&self, instant: Instant) -> Time {
        Time::ZERO + Duration::from(instant.saturating_duration_since(self.origin)) + self.ahead()
    }

    /// The system's name for a moment; far futures stay a far future.
    pub(crate) fn instant_of(&self, time: Time) -> Instant {
        let since = time.as_nanos().saturating_sub(self.ahead().as_nanos());
        let since = std::time::Duration::from_nanos(since);
        self.origin.checked_add(since).unwrap_or_else(Instant::now)
    }

    /// Seconds since the Unix epoch at `now`, for the life of tokens.
    pub(crate) const fn unix_secs(&self, now: Time) -> u64 {
        self.unix_origin.saturating_add(now.as_nanos() / 1_000_000_000)
    }

    #[cfg(not(test))]
    const fn ahead(&self) -> Duration {
        Duration::ZERO
    }

    #[cfg(test)]
    fn ahead(&self) -> Duration {
        Duration::from_nanos(self.ahead.load(std::sync::atomic::Ordering::SeqCst))
    }

    /// Puts the clock forward, as after a pause of the whole machine.
    #[cfg(test)]
    pub(super) fn put_forward(&self, by: Duration) {
        self.ahead.fetch_add(by.as_nanos(), std::sync::atomic::Ordering::SeqCst);
    }
}
