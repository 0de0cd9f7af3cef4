//! How late datagrams leave, in a histogram of fixed size.

use serde::{Deserialize, Serialize};

/// Buckets for each doubling: values are told apart to 1/32.
const STEPS: usize = 32;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Doublings above the exact values below [`STEPS`]: up to 2^40 ns, 18 minutes.
const DOUBLINGS: usize = 35;

/// Counts of durations, told apart to 3 %.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: Vec<u64>,
    count: u64,
    total: u128,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; (DOUBLINGS + 1) * STEPS], count: 0, total: 0, max: 0 }
    }
}

impl Histogram {
    pub(super) fn record(&mut self, nanoseconds: u64) {
        self.count += 1;
        self.total += u128::from(nanoseconds);
        self.max = self.max.max(nanoseconds);
        let last = self.counts.len() - 1;
        if let Some(count) = self.counts.get_mut(bucket(nanoseconds).min(last)) {
            *count += 1;
        }
    }

    pub(super) fn summary(&self) -> DelayError {
        let mean = self.total.checked_div(u128::from(self.count)).unwrap_or(0);
        DelayError {
            count: self.count,
            mean_us: micros(mean as u64),
            p50_us: self.percentile_us(500),
            p90_us: self.percentile_us(900),
            p99_us: self.percentile_us(990),
            p999_us: self.percentile_us(999),
            max_us: micros(self.max),
        }
    }

    /// The smallest value that at least this many of a thousand do not exceed (nearest rank), not
    /// below the truth and at most 1/32 above it.
    fn percentile_us(&self, per_mille: u64) -> f64 {
        let rank = (u128::from(self.count) * u128::from(per_mille)).div_ceil(1000);
        let mut seen = 0;
        for (index, &count) in self.counts.iter().enumerate() {
            seen += u128::from(count);
            if count > 0 && seen >= rank {
                return micros(highest(index).min(self.max));
            }
        }
        0.0
    }
}

/// The bucket of a value: exact below [`STEPS`], then [`STEPS`] for each doubling.
fn bucket(value: u64) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(STEP_BITS + 1);
    shift as usize * STEPS + (value >> shift) as usize
}

/// The highest value of a bucket.
fn highest(index: usize) -> u64 {
    let shift = (index / STEPS).saturating_sub(1);
    let base = (index - shift * STEPS) as u64;
    ((base + 1) << shift) - 1
}

fn micros(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

/// How much later than the scenario says datagrams have left, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DelayError {
    /// Datagrams that have left.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Half of them were no later.
    pub p50_us: f64,
    /// 90 % were no later.
    pub p90_us: f64,
    /// 99 % were no later.
    pub p99_us: f64,
    /// 99.9 % were no later.
    pub p999_us: f64,
    /// The latest.
    pub max_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_a_bucket_that_is_at_most_three_percent_wide() {
        let mut last = 0;
        for value in (0..5_000).chain((13..40).flat_map(|bits| [(1 << bits) - 1, 1 << bits])) {
            let index = bucket(value);
            assert!(index >= last, "{value}");
            last = index;
            let top = highest(index);
            assert!(top >= value && top - value <= value / 32, "{value}: {top}");
            assert!(index < (DOUBLINGS + 1) * STEPS);
        }
    }

    #[test]
    fn percentiles_are_those_of_the_values() {
        let mut histogram = Histogram::default();
        for micros in 1..=1000 {
            histogram.record(micros * 1000);
        }
        let DelayError { count, mean_us, p50_us, p90_us, p99_us, p999_us, max_us } =
            histogram.summary();
        assert_eq!((count, mean_us, max_us), (1000, 500.5, 1000.0));
        for (told, truth) in [(p50_us, 500.0), (p90_us, 900.0), (p99_us, 990.0), (p999_us, 999.0)] {
            assert!(told >= truth && told <= truth * 1.04, "{told} for {truth}");
        }
        assert_eq!(Histogram::default().summary(), DelayError::default());
    }

    #[test]
    fn what_is_beyond_all_buckets_is_counted_in_the_last() {
        let mut histogram = Histogram::default();
        histogram.record(u64::MAX);
        assert_eq!(histogram.summary().count, 1);
        assert!(histogram.summary().p50_us > 1e9);
    }
}
