//! How many a second allows.

use std::time::{Duration, Instant};

/// What a second allows, refilled as time goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    /// Thousandths of what may be taken.
    level: u64,
    since: Instant,
}

impl Bucket {
    /// Takes one; else says after how many milliseconds there is one.
    pub(crate) fn take(&mut self, per_second: u32, now: Instant) -> Result<(), u64> {
        let full = u64::from(per_second) * 1000;
        let elapsed = now.saturating_duration_since(self.since);
        let elapsed = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        // A thousandth for each millisecond and each one that a second allows.
        let level = self.level.saturating_add(elapsed.saturating_mul(per_second.into())).min(full);
        self.since += Duration::from_millis(elapsed);
        self.level = level;
        match level.checked_sub(1000) {
            Some(rest) => {
                self.level = rest;
                Ok(())
            }
            None => Err((1000 - level).div_ceil(per_second.max(1).into())),
        }
    }

    /// One that is full, whatever is allowed.
    pub(crate) const fn full(now: Instant) -> Self {
        Self { level: u64::MAX, since: now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_allows_what_a_second_does_and_refills() {
        let begun = Instant::now();
        let mut bucket = Bucket::full(begun);
        let at = |milliseconds| begun + Duration::from_millis(milliseconds);
        for _ in 0..5 {
            assert_eq!(bucket.take(5, at(0)), Ok(()));
        }
        assert_eq!(bucket.take(5, at(0)), Err(200));
        assert_eq!(bucket.take(5, at(199)), Err(1));
        assert_eq!(bucket.take(5, at(200)), Ok(()));
        assert_eq!(bucket.take(5, at(200)), Err(200));
        for _ in 0..5 {
            assert_eq!(bucket.take(5, at(1_000_000)), Ok(()), "no more than a second's");
        }
        assert!(bucket.take(5, at(1_000_000)).is_err());
    }
}
