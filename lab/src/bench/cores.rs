//! Figures of a load for which both ends have the same cores: what each of them takes.

use quicket_workload::bench::{Measurement, Summary};

use super::figure::{Better, Figure, RATE, summary};

/// In the order in which reports show them.
pub(super) const FIGURES: &[Figure] = &[
    RATE,
    Figure {
        name: "server",
        unit: "cores",
        better: Better::Neither,
        digits: 2,
        value: |measurement| cores(measurement, measurement.server_cpu_ns),
    },
    Figure {
        name: "client, which makes the load",
        unit: "cores",
        better: Better::Neither,
        digits: 2,
        value: |measurement| cores(measurement, measurement.client_cpu_ns),
    },
    Figure {
        name: "CPU of the server",
        unit: "µs each",
        better: Better::Lower,
        digits: 1,
        value: |measurement| {
            let count = summary(measurement)?.count.max(1);
            Some(measurement.server_cpu_ns as f64 / 1000.0 / count as f64)
        },
    },
    Figure {
        name: "99th percentile",
        unit: "ms",
        better: Better::Lower,
        digits: 2,
        value: |measurement| Some(summary(measurement)?.p99_us / 1000.0),
    },
];

/// How many cores somebody was busy on, on average.
fn cores(measurement: &Measurement, cpu_ns: u64) -> Option<f64> {
    let Summary { per_second, count, .. } = summary(measurement)?;
    (count > 0).then(|| cpu_ns as f64 / 1e9 * per_second / count as f64)
}

#[cfg(test)]
mod tests {
    use quicket_workload::bench::{Link, Outcome};

    use super::*;

    #[test]
    fn each_end_is_busy_on_so_many_cores() {
        let summary = Summary {
            count: 500,
            per_second: 1000.0,
            p50_us: 1.0,
            p90_us: 2.0,
            p95_us: 3.0,
            p99_us: 4.0,
            max_us: 5.0,
        };
        let measurement = Measurement {
            result: Outcome::Transfers { summary, bytes: 1024 },
            server_cpu_ns: 600_000_000,
            client_cpu_ns: 350_000_000,
            link: Link::default(),
        };
        let figures: Vec<_> = FIGURES.iter().map(|figure| figure.of(&measurement)).collect();
        assert_eq!(figures[..4], [1000.0, 1.2, 0.7, 1200.0].map(Some));
    }
}
