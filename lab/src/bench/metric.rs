//! What is measured, and the figures taken from it.

use std::fmt;
use std::str::FromStr;

use quicket_workload::bench::{Measurement, Outcome, Scenario};
use serde::{Deserialize, Serialize};

use super::{Direction, Settings};

/// A kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Row {
    /// The client sends in bulk, on one stream of one connection.
    Upload,
    /// The server sends in bulk, on one stream of one connection.
    Download,
    /// Requests and answers of 1 KiB, one after the other, each on a new stream.
    Exchanges,
    /// Full handshakes, one after the other.
    Handshakes,
    /// Full handshakes, 50 at once.
    #[serde(rename = "handshakes-50")]
    Handshakes50,
    /// Connections that do nothing.
    Idle,
}

impl Row {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Upload,
        Self::Download,
        Self::Exchanges,
        Self::Handshakes,
        Self::Handshakes50,
        Self::Idle,
    ];

    /// The name by which it is known.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Download => "download",
            Self::Exchanges => "exchanges",
            Self::Handshakes => "handshakes",
            Self::Handshakes50 => "handshakes-50",
            Self::Idle => "idle",
        }
    }

    /// What it is, for readers of a report.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Upload => "Bulk upload, one stream",
            Self::Download => "Bulk download, one stream",
            Self::Exchanges => "Request and response, 1 KiB each, sequential",
            Self::Handshakes => "Full handshakes, sequential",
            Self::Handshakes50 => "Full handshakes, 50 at once",
            Self::Idle => "Idle connections",
        }
    }

    pub(super) fn scenario(self, settings: &Settings) -> Scenario {
        let bulk = |direction| Scenario::Bulk {
            direction,
            warm_up: settings.bulk_bytes / 16,
            bytes: settings.bulk_bytes,
        };
        let milliseconds = settings.milliseconds;
        match self {
            Self::Upload => bulk(Direction::Upload),
            Self::Download => bulk(Direction::Download),
            Self::Exchanges => Scenario::Exchanges { milliseconds },
            Self::Handshakes => Scenario::Handshakes { concurrency: 1, milliseconds },
            Self::Handshakes50 => Scenario::Handshakes { concurrency: 50, milliseconds },
            Self::Idle => Scenario::Idle { connections: settings.idle_connections },
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Row {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown row {name:?}: expected one of {known}")
        })
    }
}

/// Which values of a metric are the good ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// The high ones.
    Higher,
    /// The low ones.
    Lower,
}

/// A figure taken from the measurements of a row.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// The row.
    pub row: Row,
    /// What it is.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Which values are good.
    pub better: Better,
    /// Digits after the point.
    pub digits: usize,
    value: fn(&Measurement) -> Option<f64>,
}

impl Metric {
    /// The figure, if the measurement is one of its row.
    #[must_use]
    pub fn of(&self, measurement: &Measurement) -> Option<f64> {
        (self.value)(measurement)
    }
}

/// All figures, in the order in which reports show them.
pub const METRICS: &[Metric] = &[
    goodput(Row::Upload),
    client_cpu(Row::Upload),
    server_cpu(Row::Upload),
    goodput(Row::Download),
    client_cpu(Row::Download),
    server_cpu(Row::Download),
    rate(Row::Exchanges),
    p50(Row::Exchanges),
    p99(Row::Exchanges),
    rate(Row::Handshakes),
    p50(Row::Handshakes),
    p99(Row::Handshakes),
    rate(Row::Handshakes50),
    p50(Row::Handshakes50),
    p99(Row::Handshakes50),
    Metric {
        row: Row::Idle,
        name: "server memory per connection",
        unit: "bytes",
        better: Better::Lower,
        digits: 0,
        value: |measurement| match measurement.result {
            Outcome::Idle { connections, server_bytes, .. } => {
                Some(server_bytes as f64 / connections as f64)
            }
            _ => None,
        },
    },
    Metric {
        row: Row::Idle,
        name: "client memory per connection",
        unit: "bytes",
        better: Better::Lower,
        digits: 0,
        value: |measurement| match measurement.result {
            Outcome::Idle { connections, client_bytes, .. } => {
                Some(client_bytes as f64 / connections as f64)
            }
            _ => None,
        },
    },
];

const fn goodput(row: Row) -> Metric {
    Metric {
        row,
        name: "goodput",
        unit: "Gbit/s",
        better: Better::Higher,
        digits: 2,
        value: |measurement| match measurement.result {
            Outcome::Bulk { bytes, nanoseconds } => Some(bytes as f64 * 8.0 / nanoseconds as f64),
            _ => None,
        },
    }
}

const fn client_cpu(row: Row) -> Metric {
    Metric {
        row,
        name: "client CPU",
        unit: "s/GiB",
        better: Better::Lower,
        digits: 3,
        value: |measurement| per_gib(measurement, measurement.client_cpu_ns),
    }
}

const fn server_cpu(row: Row) -> Metric {
    Metric {
        row,
        name: "server CPU",
        unit: "s/GiB",
        better: Better::Lower,
        digits: 3,
        value: |measurement| per_gib(measurement, measurement.server_cpu_ns),
    }
}

fn per_gib(measurement: &Measurement, cpu_ns: u64) -> Option<f64> {
    match measurement.result {
        Outcome::Bulk { bytes, .. } => {
            Some(cpu_ns as f64 / 1e9 / (bytes as f64 / f64::from(1 << 30)))
        }
        _ => None,
    }
}

const fn rate(row: Row) -> Metric {
    Metric {
        row,
        name: "rate",
        unit: "/s",
        better: Better::Higher,
        digits: 0,
        value: |measurement| match measurement.result {
            Outcome::Operations(summary) => Some(summary.per_second),
            _ => None,
        },
    }
}

const fn p50(row: Row) -> Metric {
    Metric {
        row,
        name: "median time",
        unit: "µs",
        better: Better::Lower,
        digits: 1,
        value: |measurement| match measurement.result {
            Outcome::Operations(summary) => Some(summary.p50_us),
            _ => None,
        },
    }
}

const fn p99(row: Row) -> Metric {
    Metric {
        row,
        name: "99th percentile",
        unit: "µs",
        better: Better::Lower,
        digits: 1,
        value: |measurement| match measurement.result {
            Outcome::Operations(summary) => Some(summary.p99_us),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quicket_workload::bench::Link;

    #[test]
    fn every_row_has_figures_and_only_of_its_kind() {
        let measurement = Measurement {
            result: Outcome::Bulk { bytes: 1 << 30, nanoseconds: 1_000_000_000 },
            client_cpu_ns: 500_000_000,
            server_cpu_ns: 250_000_000,
            link: Link::default(),
        };
        let figures: Vec<_> = METRICS
            .iter()
            .filter(|metric| metric.row == Row::Upload)
            .map(|metric| metric.of(&measurement).unwrap())
            .collect();
        assert_eq!(figures, [8.589934592, 0.5, 0.25]);
        for row in Row::ALL {
            assert!(METRICS.iter().any(|metric| metric.row == row), "{row}");
        }
        let idle = METRICS.iter().find(|metric| metric.row == Row::Idle).unwrap();
        assert_eq!(idle.of(&measurement), None);
    }
}
