//! A histogram without a lock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Where the buckets end, in microseconds.
const BOUNDS: [u64; 14] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000, 60_000_000,
];

/// How long things took. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// Those behind the last bound are in the last one.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    microseconds: AtomicU64,
}

impl Histogram {
    pub(crate) fn observe(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS.partition_point(|&bound| bound < took);
        self.0.buckets[at].fetch_add(1, Ordering::Relaxed);
        self.0.microseconds.fetch_add(took, Ordering::Relaxed);
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let bounds = BOUNDS.iter().map(|&bound| bound as f64 / 1e6).chain([f64::INFINITY]);
        let counts = self.0.buckets.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = self.0.microseconds.load(Ordering::Relaxed) as f64 / 1e6;
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    #[test]
    fn buckets_count_what_took_no_longer() {
        let mut registry = Registry::default();
        let histogram = Histogram::default();
        registry.register("a", "b", histogram.clone());
        for took in [500, 501, 2_000_000, 100_000_000] {
            histogram.observe(Duration::from_micros(took));
        }
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "a_bucket{le=\"0.0005\"} 1",
            "a_bucket{le=\"0.001\"} 2",
            "a_bucket{le=\"2.5\"} 3",
            "a_bucket{le=\"+Inf\"} 4",
            "a_count 4",
            "a_sum 102.001001",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
