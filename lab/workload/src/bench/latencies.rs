//! Exact percentiles of what was timed.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Failure;

/// Durations of single operations.
#[derive(Debug, Default, Clone)]
pub struct Latencies {
    nanoseconds: Vec<u64>,
}

impl Latencies {
    /// An empty collection with room for `capacity` durations.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { nanoseconds: Vec::with_capacity(capacity) }
    }

    /// Adds one operation that began at `start` and ended at `end`.
    pub fn record(&mut self, start: Instant, end: Instant) {
        let duration = end.saturating_duration_since(start);
        self.nanoseconds.push(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds everything in `other`.
    pub fn merge(&mut self, other: Self) {
        self.nanoseconds.extend(other.nanoseconds);
    }

    /// What so many threads record that all do the same.
    ///
    /// # Errors
    ///
    /// That of the first thread that has one.
    pub fn of_threads(
        threads: usize,
        lane: impl Fn() -> Result<Self, Failure> + Sync,
    ) -> Result<Self, Failure> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(&lane)).collect();
            let mut all = Self::default();
            for thread in threads {
                all.merge(thread.join().map_err(|_| "a thread panicked")??);
            }
            Ok(all)
        })
    }

    /// How many operations were recorded.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nanoseconds.len()
    }

    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nanoseconds.is_empty()
    }

    /// Sums up all operations, which together took `elapsed`.
    #[must_use]
    pub fn summary(mut self, elapsed: Duration) -> Summary {
        self.nanoseconds.sort_unstable();
        let seconds = elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        Summary {
            count: self.nanoseconds.len() as u64,
            per_second: self.nanoseconds.len() as f64 / seconds,
            p50_us: self.percentile_us(50),
            p90_us: self.percentile_us(90),
            p95_us: self.percentile_us(95),
            p99_us: self.percentile_us(99),
            max_us: self.percentile_us(100),
        }
    }

    /// The smallest duration that at least `percent` percent of all do not exceed (nearest rank).
    fn percentile_us(&self, percent: usize) -> f64 {
        let rank = (self.nanoseconds.len() * percent).div_ceil(100).max(1);
        self.nanoseconds.get(rank - 1).map_or(0.0, |&ns| ns as f64 / 1000.0)
    }
}

/// Rate and percentiles of many operations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of operations.
    pub count: u64,
    /// Operations per second.
    pub per_second: f64,
    /// Median in microseconds.
    pub p50_us: f64,
    /// 90th percentile in microseconds; reports of before do not have it, nor the next.
    #[serde(default)]
    pub p90_us: f64,
    /// 95th percentile in microseconds.
    #[serde(default)]
    pub p95_us: f64,
    /// 99th percentile in microseconds.
    pub p99_us: f64,
    /// Longest in microseconds.
    pub max_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_microseconds(values: impl IntoIterator<Item = u64>) -> Latencies {
        let start = Instant::now();
        let mut latencies = Latencies::default();
        for value in values {
            latencies.record(start, start + Duration::from_micros(value));
        }
        latencies
    }

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let summary = of_microseconds((1..=100).rev()).summary(Duration::from_secs(2));
        assert_eq!((summary.p50_us, summary.p99_us, summary.max_us), (50.0, 99.0, 100.0));
        assert_eq!((summary.p90_us, summary.p95_us), (90.0, 95.0));
        assert_eq!((summary.count, summary.per_second), (100, 50.0));
    }

    #[test]
    fn one_operation_is_every_percentile_and_none_is_zero() {
        let summary = of_microseconds([7]).summary(Duration::from_secs(1));
        assert_eq!((summary.p50_us, summary.p99_us), (7.0, 7.0));
        let summary = Latencies::default().summary(Duration::from_secs(1));
        assert_eq!((summary.p50_us, summary.count), (0.0, 0));
    }
}
