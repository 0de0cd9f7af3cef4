//! Time as the engine sees it: a number handed in by the caller, never read from a clock.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A moment, in nanoseconds since an origin that the caller chooses and keeps for the life of
/// an endpoint. Must not go backwards; the engine tolerates it when it does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

/// A length of time in nanoseconds. All arithmetic saturates.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

impl Time {
    /// The origin.
    pub const ZERO: Self = Self(0);

    /// A moment `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time since `earlier`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

/// The first of several moments that may come or not. Choosing takes no branch for each, as comparing options does: a
/// connection has many timers, and looks at all of them after each packet. What is due at the end of time is never due.
#[derive(Clone, Copy)]
pub(crate) struct Earliest(Time);

impl Earliest {
    /// Nothing is due.
    pub(crate) const NEVER: Self = Self(Time(u64::MAX));

    /// `at` may come first.
    #[inline]
    pub(crate) fn or(self, at: Option<Time>) -> Self {
        self.or_at(at.unwrap_or(Self::NEVER.0))
    }

    /// The same, if there is always such a moment.
    #[inline]
    pub(crate) fn or_at(self, at: Time) -> Self {
        Self(self.0.min(at))
    }

    /// When something is due; `None` if nothing is.
    #[inline]
    pub(crate) fn get(self) -> Option<Time> {
        (self.0 != Self::NEVER.0).then_some(self.0)
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest representable time, 584 years.
    pub const MAX: Self = Self(u64::MAX);

    /// From nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// From microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// From milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// From seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Whole nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Whole seconds, rounded down.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// True for no time at all.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// `self * n`, saturating.
    pub const fn times(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }

    /// `self / n`; division by zero gives [`Duration::MAX`].
    pub const fn over(self, n: u64) -> Self {
        match self.0.checked_div(n) {
            Some(d) => Self(d),
            None => Self::MAX,
        }
    }

    /// `self * num / den` in 128 bits, saturating; a zero `den` gives [`Duration::MAX`].
    pub const fn scale(self, num: u64, den: u64) -> Self {
        match (self.0 as u128).saturating_mul(num as u128).checked_div(den as u128) {
            Some(wide) if wide <= u64::MAX as u128 => Self(wide as u64),
            _ => Self::MAX,
        }
    }

    /// `self * 2^shift`, saturating.
    pub const fn backoff(self, shift: u32) -> Self {
        if shift >= 64 || self.0.leading_zeros() < shift {
            if self.0 == 0 { Self::ZERO } else { Self::MAX }
        } else {
            Self(self.0 << shift)
        }
    }
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Sub<Duration> for Time {
    type Output = Self;
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }
}

impl Sub for Time {
    type Output = Duration;
    fn sub(self, rhs: Self) -> Duration {
        self.since(rhs)
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl Sub for Duration {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }
}

impl From<core::time::Duration> for Duration {
    fn from(d: core::time::Duration) -> Self {
        Self(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Duration> for core::time::Duration {
    fn from(d: Duration) -> Self {
        Self::from_nanos(d.0)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t+{:?}", core::time::Duration::from_nanos(self.0))
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        core::time::Duration::from_nanos(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_moment_is_the_first_of_those_that_come() {
        let at = |nanos| Some(Time::from_nanos(nanos));
        assert_eq!(Earliest::NEVER.get(), None);
        assert_eq!(Earliest::NEVER.or(None).get(), None);
        assert_eq!(Earliest::NEVER.or(at(5)).or(None).or(at(3)).or(at(4)).get(), at(3));
        assert_eq!(Earliest::NEVER.or(at(0)).or_at(Time::from_nanos(1)).get(), at(0));
        assert_eq!(Earliest::NEVER.or_at(Time::ZERO + Duration::MAX).get(), None);
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Time::ZERO - Time::from_nanos(5), Duration::ZERO);
        assert_eq!(Duration::MAX + Duration::from_secs(1), Duration::MAX);
        assert_eq!(Duration::from_secs(1).backoff(64), Duration::MAX);
        assert_eq!(Duration::from_nanos(3).backoff(2), Duration::from_nanos(12));
        assert_eq!(Duration::ZERO.backoff(80), Duration::ZERO);
        assert_eq!(Duration::from_secs(8).scale(9, 8), Duration::from_secs(9));
        assert_eq!(Duration::from_secs(8).scale(9, 0), Duration::MAX);
    }
}
