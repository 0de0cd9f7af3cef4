//! A report as Markdown.

use std::fmt::Write;

use super::{Contender, Metric, NetworkKind, Report, Spread};

pub(super) fn render(report: &Report) -> String {
    let mut text = String::from("# Benchmark\n\n");
    let machine = &report.machine;
    let _ = writeln!(
        text,
        "{}, {} cores, {} MiB of memory, Linux {}, net.core.rmem_max {}; {}.\n",
        machine.cpu,
        machine.cores,
        machine.memory_mib,
        machine.kernel,
        machine.rmem_max,
        machine.date
    );
    for (contender, description) in &report.contenders {
        let _ = writeln!(text, "- **{contender}**: {description}");
    }
    for network in report.networks() {
        let _ = writeln!(text, "\n## Over {}\n", network.description());
        table(&mut text, report, network);
    }
    text.push('\n');
    for sentence in report.notes().iter().chain(&report.skipped) {
        let _ = writeln!(text, "- {sentence}");
    }
    text
}

fn table(text: &mut String, report: &Report, network: NetworkKind) {
    let contenders: Vec<Contender> = report.contenders.keys().copied().collect();
    text.push_str("| row | figure |");
    for contender in &contenders {
        let _ = write!(text, " {contender} |");
    }
    text.push_str("\n|---|---|");
    text.push_str(&"---:|".repeat(contenders.len()));
    text.push('\n');
    let mut last = None;
    for metric in report.metrics(network) {
        let title = if last == Some(metric.row) { "" } else { metric.row.title() };
        last = Some(metric.row);
        let _ = write!(text, "| {title} | {}, {} |", metric.name, metric.unit);
        for &contender in &contenders {
            let cell = report.spread(network, metric, contender);
            let _ =
                write!(text, " {} |", cell.map_or("-".into(), |cell| self::cell(metric, &cell)));
        }
        text.push('\n');
    }
}

/// The median, and in brackets the smallest and the largest value if there are several.
pub(super) fn cell(metric: &Metric, spread: &Spread) -> String {
    let number = |value| number(value, metric.digits);
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
    use super::*;

    #[test]
    fn thousands_are_separated() {
        assert_eq!(number(1234567.891, 1), "1,234,567.9");
        assert_eq!(number(999.0, 0), "999");
        assert_eq!(number(-1234.0, 0), "-1,234");
        assert_eq!(number(-123.0, 0), "-123");
    }
}
