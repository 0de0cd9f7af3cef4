//! A report as Markdown.

use std::fmt::Write;

use super::report::Ratio;
use super::{Contender, Figure, Line, NetworkKind, Report, Row, Spread};

pub(super) fn render(report: &Report) -> String {
    let mut text = String::from("# Benchmark\n\n");
    let _ = writeln!(text, "{}\n", report.machine.sentence());
    for (contender, description) in &report.contenders {
        let _ = writeln!(text, "- **{contender}**: {description}");
    }
    for network in report.networks() {
        let _ = writeln!(text, "\n## Over {}\n", network.description());
        table(&mut text, report, network);
        ratios(&mut text, report, network);
    }
    text.push('\n');
    for sentence in report.notes().iter().chain(&report.skipped).chain(&report.failures) {
        let _ = writeln!(text, "- {sentence}");
    }
    text
}

/// The row's title and the point's name, or nothing if the line above had the same.
pub(super) fn title(line: &Line<'_>, last: &mut Option<(Row, String)>) -> String {
    let this = (line.row, line.point.to_owned());
    if *last == Some(this.clone()) {
        return String::new();
    }
    *last = Some(this);
    match line.point {
        "" => line.row.title().to_owned(),
        point => format!("{}: {point}", line.row.title()),
    }
}

/// Mean UDP payloads of all that tell it, for rows that have lines of their own for it.
pub(super) fn payloads(
    report: &Report,
    line: &Line<'_>,
    contenders: &[Contender],
) -> Option<Vec<Option<f64>>> {
    let first = line.row.figures().first().is_some_and(|one| one.name == line.figure.name);
    let all: Vec<Option<f64>> =
        contenders.iter().map(|&contender| report.payload(line, contender)).collect();
    (first && all.iter().any(Option::is_some)).then_some(all)
}

fn head(text: &mut String, contenders: &[Contender]) {
    text.push_str("| row | figure |");
    for contender in contenders {
        let _ = write!(text, " {contender} |");
    }
    text.push_str("\n|---|---|");
    text.push_str(&"---:|".repeat(contenders.len()));
    text.push('\n');
}

fn table(text: &mut String, report: &Report, network: NetworkKind) {
    let contenders: Vec<Contender> = report.contenders.keys().copied().collect();
    head(text, &contenders);
    let mut last = None;
    for line in report.lines(network) {
        let figure = line.figure;
        let title = title(&line, &mut last);
        let _ = write!(text, "| {title} | {}, {} |", figure.name, figure.unit);
        for &contender in &contenders {
            let cell = report.spread(&line, contender);
            let _ =
                write!(text, " {} |", cell.map_or("-".into(), |cell| self::cell(figure, &cell)));
        }
        text.push('\n');
        if let Some(payloads) = payloads(report, &line, &contenders) {
            text.push_str("| | mean UDP payload, bytes |");
            for payload in payloads {
                let cell = payload.map_or("-".into(), |mean| number(mean, 0));
                let _ = write!(text, " {cell} |");
            }
            text.push('\n');
        }
    }
}

/// Pairs of one of ours and another that have ratios, in the order in which reports show them.
pub(super) fn compared(report: &Report, network: NetworkKind) -> Vec<(Contender, Contender)> {
    let lines = report.lines(network);
    let all: Vec<Contender> = report.contenders.keys().copied().collect();
    let ours = all.iter().copied().filter(|one| one.is_own());
    let others = |own: Contender| {
        let others = all.iter().copied().filter(move |other| own.is_compared_with(*other));
        others.map(move |other| (own, other))
    };
    let with_ratio = |pair: &(Contender, Contender)| {
        lines.iter().any(|line| report.ratio(line, pair.0, pair.1).is_some())
    };
    ours.flat_map(others).filter(with_ratio).collect()
}

/// A ratio as text.
pub(super) fn ratio(ratio: Option<Ratio>) -> String {
    match ratio {
        None => "-".to_owned(),
        Some(Ratio::Times(times)) => number(times, 2),
        Some(Ratio::Unlike) => "unlike packets".to_owned(),
    }
}

fn ratios(text: &mut String, report: &Report, network: NetworkKind) {
    let pairs = compared(report, network);
    if pairs.is_empty() {
        return;
    }
    text.push_str("\nRatios of the medians; above 1 Quicket is better.\n\n| row | figure |");
    for (own, other) in &pairs {
        let _ = write!(text, " {own} : {other} |");
    }
    text.push_str("\n|---|---|");
    text.push_str(&"---:|".repeat(pairs.len()));
    text.push('\n');
    let mut last = None;
    for line in report.lines(network) {
        let cells: Vec<_> =
            pairs.iter().map(|&(own, other)| report.ratio(&line, own, other)).collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        let title = title(&line, &mut last);
        let _ = write!(text, "| {title} | {} |", line.figure.name);
        for cell in cells {
            let _ = write!(text, " {} |", ratio(cell));
        }
        text.push('\n');
    }
}

/// The median, and in brackets the smallest and the largest value if there are several.
pub(super) fn cell(figure: &Figure, spread: &Spread) -> String {
    let number = |value| number(value, figure.digits);
    let median = number(spread.median);
    if spread.values.len() == 1 {
        median
    } else {
        format!("**{median}** ({}–{})", number(spread.min), number(spread.max))
    }
}

/// A number with commas between thousands.
pub(super) fn number(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.find('.').map_or((text.as_str(), ""), |at| text.split_at(at));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        let left = whole.len() - index;
        if index > 0 && left.is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{bulk, empty, place};
    use super::*;
    use quicket_workload::bench::{Link, Measurement, Outcome};

    #[test]
    fn thousands_are_separated() {
        assert_eq!(number(1234567.891, 1), "1,234,567.9");
        assert_eq!(number(999.0, 0), "999");
        assert_eq!(number(-1234.0, 0), "-1,234");
        assert_eq!(number(-123.0, 0), "-123");
    }

    #[test]
    fn a_report_has_figures_payloads_and_ratios() {
        let mut report = empty();
        let link = Link { mean_udp_payload: Some(1471.6), ..Link::default() };
        report.add(place(Row::Upload, "", Contender::TcpOpenssl), bulk(2_000_000_000));
        let own = Measurement { link, ..bulk(1_000_000_000) };
        report.add(place(Row::Upload, "", Contender::Quicket), own);
        let text = render(&report);
        let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!(lines("| Bulk upload, one stream | goodput, Gbit/s | - | 16.00 |"), 1, "{text}");
        assert_eq!(
            lines(&format!("| | mean UDP payload, bytes |{} 1,472 |", " - |".repeat(21))),
            1,
            "{text}"
        );
        assert_eq!(lines("| row | figure | quicket : tcp-openssl |"), 1, "{text}");
        assert_eq!(lines("| Bulk upload, one stream | goodput | 0.50 |"), 1, "{text}");
    }
    #[test]
    fn programs_in_the_kernel_are_compared_with_each_other_alone() {
        let mut report = empty();
        let forwarded = |cpu_ns| Measurement {
            result: Outcome::Forwarded { packets: 1, nanoseconds: 1, cpu_ns, calls: 1 },
            ..bulk(1)
        };
        for (contender, cpu_ns) in [
            (Contender::Forwarder, 4000),
            (Contender::XdpForwarder, 200),
            (Contender::Quicket, 5000),
            (Contender::QuicketXdp, 250),
        ] {
            report.add(place(Row::Balance, "", contender), forwarded(cpu_ns));
        }
        let own = [Contender::Quicket, Contender::QuicketXdp];
        let others = [Contender::Forwarder, Contender::XdpForwarder];
        let pairs: Vec<_> = own.into_iter().zip(others).collect();
        assert_eq!(compared(&report, NetworkKind::Loopback), pairs);
        let lines = report.lines(NetworkKind::Loopback);
        let cpu = lines.iter().find(|line| line.figure.name == "CPU").unwrap();
        let ratios = pairs.iter().map(|(own, other)| report.ratio(cpu, *own, *other));
        assert!(ratios.eq([Some(Ratio::Times(0.8)); 2]));
    }
}
