//! What was measured.

use std::collections::BTreeMap;

use quicket_workload::bench::{Cipher, Measurement};
use serde::{Deserialize, Serialize};

use super::{Contender, METRICS, Machine, Metric, NetworkKind, Options, Row, markdown, plot};

/// The sizes of a benchmark.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Settings {
    /// Whether everything is small: it shows that all of it runs, and no more.
    pub quick: bool,
    /// Measurements of each row.
    pub runs: usize,
    /// The cipher suite.
    pub cipher: Cipher,
    /// UDP payloads of this size in bytes.
    pub udp_payload: u16,
    /// Bytes of a bulk transfer.
    pub bulk_bytes: u64,
    /// Bytes of an untimed transfer of which every byte is compared.
    pub verified_bytes: u64,
    /// Length of all other loads in milliseconds.
    pub milliseconds: u64,
    /// Connections of the idle row.
    pub idle_connections: usize,
}

impl Settings {
    pub(super) fn of(options: &Options) -> Self {
        let Options { quick, runs, cipher, udp_payload, .. } = *options;
        let (bulk_bytes, milliseconds, idle_connections) =
            if quick { (256 << 20, 500, 100) } else { (4 << 30, 3000, 5000) };
        let verified_bytes = if quick { 16 << 20 } else { 64 << 20 };
        Self {
            quick,
            runs,
            cipher,
            udp_payload,
            bulk_bytes,
            verified_bytes,
            milliseconds,
            idle_connections: options.idle_connections.unwrap_or(idle_connections),
        }
    }
}

/// The measurements of one implementation in one row over one network.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Series {
    /// The network.
    pub network: NetworkKind,
    /// The row.
    pub row: Row,
    /// The implementation.
    pub contender: Contender,
    /// In the order in which they were made.
    pub measurements: Vec<Measurement>,
}

/// What was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Where and when.
    pub machine: Machine,
    /// The sizes.
    pub settings: Settings,
    /// What the implementations are.
    pub contenders: BTreeMap<Contender, String>,
    /// Sentences on what was left out, and why.
    pub skipped: Vec<String>,
    /// The measurements.
    pub series: Vec<Series>,
}

/// The values of a metric over all measurements of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// The median; of an even number of values the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// All of them, in order of time.
    pub values: Vec<f64>,
}

impl Spread {
    /// Of at least one value.
    fn of(values: Vec<f64>) -> Option<Self> {
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let upper = *sorted.get(middle)?;
        let median = match sorted.get(middle.wrapping_sub(1)) {
            Some(lower) if sorted.len().is_multiple_of(2) => (lower + upper) / 2.0,
            _ => upper,
        };
        Some(Self { median, min, max, values })
    }
}

impl Report {
    pub(super) fn new(settings: Settings, contenders: BTreeMap<Contender, String>) -> Self {
        let machine = Machine::describe();
        Self { machine, settings, contenders, skipped: Vec::new(), series: Vec::new() }
    }

    pub(super) fn add(
        &mut self,
        network: NetworkKind,
        row: Row,
        contender: Contender,
        measurement: Measurement,
    ) {
        let mut known = self.series.iter_mut();
        match known.find(|s| (s.network, s.row, s.contender) == (network, row, contender)) {
            Some(series) => series.measurements.push(measurement),
            None => {
                let measurements = vec![measurement];
                self.series.push(Series { network, row, contender, measurements });
            }
        }
    }

    /// The networks that were measured.
    #[must_use]
    pub fn networks(&self) -> Vec<NetworkKind> {
        let all = NetworkKind::ALL.into_iter();
        all.filter(|kind| self.series.iter().any(|series| series.network == *kind)).collect()
    }

    /// The metrics that were measured over `network`.
    pub fn metrics(&self, network: NetworkKind) -> impl Iterator<Item = &'static Metric> {
        METRICS.iter().filter(move |metric| {
            self.series.iter().any(|series| (series.network, series.row) == (network, metric.row))
        })
    }

    /// The values of a metric.
    #[must_use]
    pub fn spread(
        &self,
        network: NetworkKind,
        metric: &Metric,
        contender: Contender,
    ) -> Option<Spread> {
        let wanted = (network, metric.row, contender);
        let mut known = self.series.iter();
        let series = known.find(|s| (s.network, s.row, s.contender) == wanted)?;
        Spread::of(series.measurements.iter().filter_map(|one| metric.of(one)).collect())
    }

    /// The report as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// The report as Markdown.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        markdown::render(self)
    }

    /// The report as one page of HTML, plots included.
    #[must_use]
    pub fn to_html(&self) -> String {
        plot::page(self)
    }

    /// The plots of one network as SVG.
    #[must_use]
    pub fn to_svg(&self, network: NetworkKind) -> String {
        plot::svg(self, network)
    }

    /// What a reader must know to judge the figures.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let Settings { cipher, udp_payload, runs, bulk_bytes, idle_connections, .. } =
            self.settings;
        let mut notes = vec![
            format!(
                "{}, X25519, ECDSA P-256 certificate verified by the client; UDP payloads of \
                 {udp_payload} bytes without path MTU discovery. TCP chooses its segments itself: \
                 the loopback device has an MTU of 65,536 bytes.",
                cipher.name()
            ),
            format!(
                "Server on core 0, client on core 1, new processes for each measurement, \
                 implementations taking turns; median of {runs}, smallest and largest beside it."
            ),
            format!(
                "Bulk: {} MiB after {} MiB of warm-up. CPU time is that of the whole process, \
                 kernel included, as far as the kernel accounts it to the process.",
                bulk_bytes >> 20,
                bulk_bytes >> 24
            ),
            "Requests go on a new stream each; over TCP on one connection. A handshake counts \
             once the client has completed it; the connection is then closed. No session tickets."
                .to_owned(),
            format!(
                "Memory: growth of a process's resident memory over {idle_connections} \
                 connections, two seconds after the last was made; what the kernel keeps for \
                 TCP connections is not in it."
            ),
            "Checked before measuring: every byte of an untimed transfer in both directions, \
             refusal of a client with another cipher suite, affinity as the kernel tells it, mean \
             UDP payload."
                .to_owned(),
        ];
        if self.settings.quick {
            notes.insert(
                0,
                "Quick run: it shows that everything works; the figures do not count.".into(),
            );
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_both_middles() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 3.0));
        assert_eq!(spread.values, [3.0, 1.0, 2.0]);
        assert_eq!(Spread::of(vec![4.0, 1.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of(vec![7.0]).unwrap().median, 7.0);
        assert_eq!(Spread::of(Vec::new()), None);
    }
}
