//! What was measured.

use std::collections::BTreeMap;

use quicket_workload::bench::{Cipher, Direction, Measurement};
use serde::{Deserialize, Serialize};

use super::{Contender, Figure, Machine, NetworkKind, Options, Row, markdown, plot};

/// The sizes of a benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Whether everything is small: it shows that all of it runs, and no more.
    pub quick: bool,
    /// Measurements of each row.
    pub runs: usize,
    /// The cipher suite.
    pub cipher: Cipher,
    /// UDP payloads of this size in bytes, where they are not discovered.
    pub udp_payload: u16,
    /// Bytes of a bulk transfer.
    pub bulk_bytes: u64,
    /// Bytes of an untimed transfer of which every byte is compared.
    pub verified_bytes: u64,
    /// Length of downloads without end in milliseconds.
    pub flow: u64,
    /// Length of downloads that share a link, which takes them time, in milliseconds.
    pub shared_flow: u64,
    /// Length of all other loads in milliseconds.
    pub milliseconds: u64,
    /// Connections of the idle row.
    pub idle_connections: usize,
    /// Idle connections of a gateway; reports of before have no such row.
    #[serde(default)]
    pub gateway_connections: usize,
    /// Whether measurements count although others had the processor.
    pub keep_disturbed: bool,
}

impl Settings {
    pub(super) fn of(options: &Options) -> Self {
        let Options { quick, runs, cipher, udp_payload, .. } = *options;
        let (bulk_bytes, verified_bytes, idle_connections) =
            if quick { (32 << 20, 4 << 20, 100) } else { (1 << 30, 32 << 20, 5000) };
        let gateway_connections = if quick { 200 } else { 10_000 };
        let (milliseconds, flow, shared_flow) =
            if quick { (100, 500, 500) } else { (1000, 10_000, 24_000) };
        Self {
            quick,
            runs,
            cipher,
            udp_payload,
            bulk_bytes,
            verified_bytes,
            flow,
            shared_flow,
            milliseconds,
            keep_disturbed: options.keep_disturbed,
            idle_connections: options.idle_connections.unwrap_or(idle_connections),
            gateway_connections: options.idle_connections.unwrap_or(gateway_connections),
        }
    }
}

/// What a measurement is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The network.
    pub network: NetworkKind,
    /// The row.
    pub row: Row,
    /// The point of the row, if it has several.
    pub point: String,
    /// The implementation.
    pub contender: Contender,
}

/// The measurements of one implementation at one point over one network.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Series {
    /// What they are of.
    pub place: Place,
    /// In the order in which they were made.
    pub measurements: Vec<Measurement>,
    /// How many were thrown away, because others had the processor.
    pub discarded: usize,
    /// How many count although others had it: it did not become quiet.
    pub disturbed: usize,
}

/// A figure of a point of a row over a network, for all implementations.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// The network.
    pub network: NetworkKind,
    /// The row.
    pub row: Row,
    /// The point of the row, if it has several.
    pub point: &'a str,
    /// The figure.
    pub figure: &'static Figure,
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
    /// Sentences on what has failed.
    pub failures: Vec<String>,
    /// The measurements.
    pub series: Vec<Series>,
}

/// The values of a figure over all measurements of a series.
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

/// How far the payloads of two implementations may be apart for their figures to be compared.
const ALIKE: f64 = 0.03;

/// What one implementation's figure is in proportion to another's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ratio {
    /// So many times as good.
    Times(f64),
    /// They sent packets of different sizes.
    Unlike,
}

impl Report {
    pub(super) fn new(settings: Settings, contenders: BTreeMap<Contender, String>) -> Self {
        let machine = Machine::describe();
        Self {
            machine,
            settings,
            contenders,
            skipped: Vec::new(),
            failures: Vec::new(),
            series: Vec::new(),
        }
    }

    /// Several runs as one, each with as many measurements as all of them have.
    ///
    /// # Errors
    ///
    /// When there is none, or they are of different machines or sizes.
    pub fn of_runs(runs: Vec<Self>) -> Result<Self, String> {
        let mut runs = runs.into_iter();
        let mut all = runs.next().ok_or("there is no run")?;
        for run in runs {
            let machine = Machine { date: all.machine.date.clone(), ..run.machine.clone() };
            if machine != all.machine {
                return Err(format!(
                    "one run was made on another machine: {} and {}",
                    all.machine.sentence(),
                    run.machine.sentence()
                ));
            }
            if (Settings { runs: all.settings.runs, ..run.settings }) != all.settings {
                return Err("the runs have different sizes: measure them with the same \
                            options by the same version"
                    .to_owned());
            }
            all.settings.runs += run.settings.runs;
            all.machine.date = all.machine.date.max(run.machine.date);
            all.contenders.extend(run.contenders);
            let known = std::mem::take(&mut all.skipped);
            let new = run.skipped.into_iter().filter(|sentence| !known.contains(sentence));
            all.skipped = known.iter().cloned().chain(new).collect();
            all.failures.extend(run.failures);
            for series in run.series {
                let whole = all.series_of(series.place);
                whole.measurements.extend(series.measurements);
                whole.discarded += series.discarded;
                whole.disturbed += series.disturbed;
            }
        }
        Ok(all)
    }

    fn series_of(&mut self, place: Place) -> &mut Series {
        let index = match self.series.iter().position(|series| series.place == place) {
            Some(index) => index,
            None => {
                let measurements = Vec::new();
                self.series.push(Series { place, measurements, discarded: 0, disturbed: 0 });
                self.series.len() - 1
            }
        };
        &mut self.series[index]
    }

    pub(super) fn add(&mut self, place: Place, measurement: Measurement) {
        self.series_of(place).measurements.push(measurement);
    }

    pub(super) fn add_disturbed(&mut self, place: Place, measurement: Measurement) {
        let series = self.series_of(place);
        series.measurements.push(measurement);
        series.disturbed += 1;
    }

    pub(super) fn discard(&mut self, place: Place) {
        self.series_of(place).discarded += 1;
    }

    pub(super) fn failed(&mut self, place: &Place, failure: &str) {
        let Place { network, row, point, contender } = place;
        let what = format!("{row} {point}");
        self.failures
            .push(format!("{contender} failed in {} over {network}: {failure}", what.trim_end()));
    }

    pub(super) fn unsupported(&mut self, place: &Place, reason: &str) {
        let Place { row, point, contender, .. } = place;
        let what = format!("{row} {point}");
        let sentence = format!("{contender} has no figures for {}: {reason}.", what.trim_end());
        if !self.skipped.contains(&sentence) {
            self.skipped.push(sentence);
        }
    }

    /// The networks that were measured.
    #[must_use]
    pub fn networks(&self) -> Vec<NetworkKind> {
        let all = NetworkKind::ALL.into_iter();
        all.filter(|kind| self.series.iter().any(|series| series.place.network == *kind)).collect()
    }

    /// The rows that were measured over `network`.
    #[must_use]
    pub fn rows(&self, network: NetworkKind) -> Vec<Row> {
        let measured = |row: &Row| !self.points(network, *row).is_empty();
        Row::ALL.into_iter().filter(measured).collect()
    }

    /// The points of a row that were measured over `network`.
    #[must_use]
    pub fn points(&self, network: NetworkKind, row: Row) -> Vec<&str> {
        let mut points: Vec<&str> = Vec::new();
        for Series { place, .. } in &self.series {
            if (place.network, place.row) == (network, row) && !points.contains(&&*place.point) {
                points.push(&place.point);
            }
        }
        points
    }

    /// The figures that were measured over `network`.
    #[must_use]
    pub fn lines(&self, network: NetworkKind) -> Vec<Line<'_>> {
        let mut lines = Vec::new();
        for row in self.rows(network) {
            for point in self.points(network, row) {
                // Points of a row may have figures of their own.
                let lines_here =
                    row.figures().iter().map(|figure| Line { network, row, point, figure });
                let has = |line: &Line<'_>| {
                    self.contenders.keys().any(|&one| self.spread(line, one).is_some())
                };
                lines.extend(lines_here.filter(has));
            }
        }
        lines
    }

    /// The measurements of an implementation at a point.
    #[must_use]
    pub fn series(&self, line: &Line<'_>, contender: Contender) -> Option<&Series> {
        self.series.iter().find(|Series { place, .. }| {
            (place.network, place.row, &*place.point, place.contender)
                == (line.network, line.row, line.point, contender)
        })
    }

    /// The values of a figure.
    #[must_use]
    pub fn spread(&self, line: &Line<'_>, contender: Contender) -> Option<Spread> {
        let series = self.series(line, contender)?;
        Spread::of(series.measurements.iter().filter_map(|one| line.figure.of(one)).collect())
    }

    /// Mean UDP payload in bytes of whoever sends in bulk, if that is known.
    #[must_use]
    pub fn payload(&self, line: &Line<'_>, contender: Contender) -> Option<f64> {
        let direction = line.row.direction()?;
        let payloads =
            self.series(line, contender)?.measurements.iter().filter_map(|one| match direction {
                Direction::Upload => one.link.mean_udp_payload,
                Direction::Download => one.link.mean_udp_payload_received,
            });
        Some(Spread::of(payloads.collect())?.median)
    }

    /// What `own`'s figure is in proportion to `other`'s: above one it is better.
    #[must_use]
    pub fn ratio(&self, line: &Line<'_>, own: Contender, other: Contender) -> Option<Ratio> {
        if let (Some(own), Some(other)) = (self.payload(line, own), self.payload(line, other))
            && (own / other - 1.0).abs() > ALIKE
        {
            return Some(Ratio::Unlike);
        }
        if own.is_in_kernel() != other.is_in_kernel() {
            // What the one does besides is not in the other's figures.
            return None;
        }
        let (own, other) = (self.spread(line, own)?, self.spread(line, other)?);
        line.figure.ratio(own.median, other.median).map(Ratio::Times)
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

    /// How many measurements were thrown away because others had the processor, and how many
    /// count nevertheless.
    #[must_use]
    pub fn disturbances(&self) -> (usize, usize) {
        let sum = |count: fn(&Series) -> usize| self.series.iter().map(count).sum();
        (sum(|series| series.discarded), sum(|series| series.disturbed))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use quicket_workload::bench::{Link, Outcome, Summary};

    pub(in crate::bench) fn empty() -> Report {
        let options = Options::everything("lab".into());
        let contenders = Contender::ALL.into_iter().map(|one| (one, format!("<{one}>")));
        Report::new(Settings::of(&options), contenders.collect())
    }

    pub(in crate::bench) fn place(row: Row, point: &str, contender: Contender) -> Place {
        Place { network: NetworkKind::Loopback, row, point: point.into(), contender }
    }

    /// A bulk transfer at so many bytes a second.
    pub(in crate::bench) fn bulk(bytes: u64) -> Measurement {
        Measurement {
            result: Outcome::Bulk { bytes, nanoseconds: 1_000_000_000 },
            client_cpu_ns: 1,
            server_cpu_ns: 1,
            link: Link::default(),
        }
    }

    pub(in crate::bench) fn transfers(per_second: f64) -> Measurement {
        let summary = Summary {
            count: 10,
            per_second,
            p50_us: 1000.0,
            p90_us: 1500.0,
            p95_us: 1800.0,
            p99_us: 2000.0,
            max_us: 3000.0,
        };
        Measurement { result: Outcome::Transfers { summary, bytes: 16384 }, ..bulk(0) }
    }

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_both_middles() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 3.0));
        assert_eq!(spread.values, [3.0, 1.0, 2.0]);
        assert_eq!(Spread::of(vec![4.0, 1.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of(vec![7.0]).unwrap().median, 7.0);
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn lines_are_in_the_order_of_rows_and_points_in_that_of_time() {
        let mut report = empty();
        report.add(place(Row::Streams, "1", Contender::Quinn), transfers(1.0));
        report.add(place(Row::Streams, "1000", Contender::Quinn), transfers(1.0));
        report.add(place(Row::Upload, "", Contender::Quinn), bulk(1));
        let lines: Vec<_> =
            report.lines(NetworkKind::Loopback).iter().map(|l| (l.row, l.point)).collect();
        assert_eq!(
            lines[..4],
            [(Row::Upload, ""), (Row::Upload, ""), (Row::Upload, ""), (Row::Streams, "1")]
        );
        assert_eq!(lines.last(), Some(&(Row::Streams, "1000")));
        assert!(report.lines(NetworkKind::Veth).is_empty());
    }

    #[test]
    fn unlike_packet_sizes_are_not_compared() {
        let mut report = empty();
        let with_payload = |bytes, sent| {
            let link = Link { mean_udp_payload: Some(sent), ..Link::default() };
            Measurement { link, ..bulk(bytes) }
        };
        report.add(place(Row::Upload, "", Contender::Quinn), with_payload(10, 1200.0));
        report.add(place(Row::Upload, "", Contender::Quicket), with_payload(20, 1471.0));
        report.add(place(Row::Upload, "", Contender::QuicketTokio), with_payload(80, 1468.0));
        report.add(place(Row::Upload, "", Contender::TcpTls), bulk(40));
        let line = report.lines(NetworkKind::Loopback)[0];
        let ratio = |other| report.ratio(&line, Contender::Quicket, other);
        assert_eq!(ratio(Contender::Quinn), Some(Ratio::Unlike));
        assert_eq!(ratio(Contender::QuicketTokio), Some(Ratio::Times(0.25)));
        assert_eq!(ratio(Contender::TcpTls), Some(Ratio::Times(0.5)), "TCP does not tell");
        assert_eq!(ratio(Contender::TcpOpenssl), None, "not measured");
    }

    #[test]
    fn what_was_disturbed_is_counted_and_said() {
        let mut report = empty();
        report.discard(place(Row::Upload, "", Contender::Quinn));
        report.discard(place(Row::Upload, "", Contender::Quicket));
        report.add_disturbed(place(Row::Upload, "", Contender::Quinn), bulk(1));
        assert_eq!(report.disturbances(), (2, 1));
        let notes = report.notes().concat();
        assert!(notes.contains("2 measurements were thrown away"), "{notes}");
        assert!(notes.contains("1 measurements were disturbed"), "{notes}");
    }

    #[test]
    fn runs_become_one_with_all_their_measurements() {
        let run = |bytes| {
            let mut report = empty();
            report.add(place(Row::Upload, "", Contender::Quinn), bulk(bytes));
            report.discard(place(Row::Upload, "", Contender::Quinn));
            report.skipped.push("left out".into());
            report
        };
        let mut partly = run(7_000_000_000);
        partly.series.clear();
        let all = Report::of_runs(vec![run(1_000_000_000), run(3_000_000_000), partly]).unwrap();
        let line = all.lines(NetworkKind::Loopback)[0];
        let spread = all.spread(&line, Contender::Quinn).unwrap();
        assert_eq!(spread.values, [8.0, 24.0]);
        assert_eq!((all.disturbances(), all.skipped.len()), ((2, 0), 1));
        assert_eq!(all.settings.runs, 9);
    }

    #[test]
    fn unlike_runs_do_not_become_one() {
        let mut elsewhere = empty();
        elsewhere.machine.cpu = "another".into();
        assert!(Report::of_runs(vec![empty(), elsewhere]).unwrap_err().contains("machine"));
        let mut smaller = empty();
        smaller.settings.bulk_bytes /= 2;
        assert!(Report::of_runs(vec![empty(), smaller]).unwrap_err().contains("sizes"));
        assert!(Report::of_runs(Vec::new()).is_err());
    }

    #[test]
    fn what_an_implementation_cannot_do_is_said_once() {
        let mut report = empty();
        for _ in 0..2 {
            report.unsupported(&place(Row::Streams, "10", Contender::TcpTls), "no streams");
        }
        assert_eq!(report.skipped, ["tcp-tls has no figures for streams 10: no streams."]);
    }
}
