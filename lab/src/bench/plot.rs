//! A report as SVG and HTML.

use std::fmt::Write;

use super::markdown::number;
use super::{Better, Contender, Metric, NetworkKind, Report, Row, Spread};

const WIDTH: usize = 1020;
const PANEL: usize = 340;
const LABEL: usize = 86;
const BAR_AREA: usize = 170;
const BAR: usize = 20;
const BAR_STEP: usize = 28;
const BAND_TITLE: usize = 34;
const PANEL_TITLE: usize = 24;
const BAND_GAP: usize = 18;

const STYLE: &str = "\
:root { color-scheme: light dark; }\
text { font-family: system-ui, sans-serif; font-size: 12px; fill: #24292f; }\
.band { font-size: 15px; font-weight: 600; }\
.unit { fill: #6e7781; }\
.best { font-weight: 700; }\
.run { fill: #24292f; fill-opacity: .55; }\
.range { stroke: #24292f; stroke-opacity: .55; }\
.axis { stroke: #d0d7de; }\
@media (prefers-color-scheme: dark) {\
 text { fill: #e6edf3; } .unit { fill: #8b949e; } .axis { stroke: #3d444d; }\
 .run { fill: #e6edf3; } .range { stroke: #e6edf3; } }";

const PAGE_STYLE: &str = "\
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1060px; margin: 2rem auto; padding: 0 1rem; }\
h1 { margin-bottom: .2rem; } h2 { margin-top: 2.5rem; }\
.machine { color: #6e7781; }\
svg { width: 100%; height: auto; }\
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }\
td, th { padding: .25rem .8rem .25rem 0; text-align: right; border-bottom: 1px solid #8884; }\
td:nth-child(-n+2), th:nth-child(-n+2) { text-align: left; }\
.range { opacity: .65; font-size: 12px; }\
li { margin: .3rem 0; }";

fn colour(contender: Contender) -> &'static str {
    match contender {
        Contender::TcpTls => "#8c959f",
        Contender::Quinn => "#e08a3c",
        Contender::Quicket => "#2f6fde",
        Contender::QuicketTokio => "#7aa7ef",
    }
}

/// The plots of one network as a document of its own.
pub(super) fn svg(report: &Report, network: NetworkKind) -> String {
    let mut body = String::new();
    let mut y = 8;
    for row in Row::ALL {
        let metrics: Vec<&Metric> =
            report.metrics(network).filter(|metric| metric.row == row).collect();
        if !metrics.is_empty() {
            y = band(&mut body, y, report, network, row, &metrics);
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" role=\"img\" \
         aria-label=\"Benchmark over {network}\"><style>{STYLE}</style>{body}</svg>\n"
    )
}

/// The panels of one row of the benchmark, side by side; returns where the next band begins.
fn band(
    body: &mut String,
    y: usize,
    report: &Report,
    network: NetworkKind,
    row: Row,
    metrics: &[&Metric],
) -> usize {
    let _ = write!(body, "<text class=\"band\" x=\"0\" y=\"{}\">{}</text>", y + 18, row.title());
    let top = y + BAND_TITLE;
    let mut height = 0;
    for (column, metric) in metrics.iter().enumerate() {
        let bars: Vec<(Contender, Spread)> = report
            .contenders
            .keys()
            .filter_map(|&contender| Some((contender, report.spread(network, metric, contender)?)))
            .collect();
        panel(body, column * PANEL, top, metric, &bars);
        height = height.max(PANEL_TITLE + bars.len() * BAR_STEP);
    }
    top + height + BAND_GAP
}

fn panel(body: &mut String, x: usize, y: usize, metric: &Metric, bars: &[(Contender, Spread)]) {
    let direction = match metric.better {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
    };
    let _ = write!(
        body,
        "<text x=\"{x}\" y=\"{}\">{}, {} <tspan class=\"unit\">({direction})</tspan></text>",
        y + 12,
        metric.name,
        metric.unit
    );
    let largest = bars.iter().map(|(_, spread)| spread.max).fold(f64::MIN_POSITIVE, f64::max);
    let best = best(metric, bars);
    let left = x + LABEL;
    let top = y + PANEL_TITLE;
    for (index, (contender, spread)) in bars.iter().enumerate() {
        let position = |value: f64| left as f64 + value / largest * BAR_AREA as f64;
        bar(body, (x, left, top + index * BAR_STEP), *contender, spread, position);
        let class = if best == Some(spread.median) { "best" } else { "" };
        let _ = write!(
            body,
            "<text class=\"{class}\" x=\"{:.1}\" y=\"{}\">{}</text>",
            position(spread.max) + 8.0,
            top + index * BAR_STEP + 14,
            number(spread.median, metric.digits)
        );
    }
    let bottom = top + bars.len() * BAR_STEP - (BAR_STEP - BAR) / 2;
    let _ = write!(
        body,
        "<line class=\"axis\" x1=\"{left}\" x2=\"{left}\" y1=\"{}\" y2=\"{bottom}\"/>",
        top - 4
    );
}

/// The bar of the median, the range of all runs, and a dot for each of them.
fn bar(
    body: &mut String,
    (x, left, y): (usize, usize, usize),
    contender: Contender,
    spread: &Spread,
    position: impl Fn(f64) -> f64,
) {
    let middle = y + BAR / 2;
    let _ = write!(
        body,
        "<text x=\"{x}\" y=\"{}\">{contender}</text>\
         <rect x=\"{left}\" y=\"{y}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"2\" fill=\"{}\">\
         <title>{contender}: {} to {}</title></rect>",
        y + 14,
        position(spread.median) - left as f64,
        colour(contender),
        spread.min,
        spread.max
    );
    if spread.values.len() > 1 {
        let (from, to) = (position(spread.min), position(spread.max));
        let _ = write!(
            body,
            "<line class=\"range\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>"
        );
        for &value in &spread.values {
            let at = position(value);
            let _ =
                write!(body, "<circle class=\"run\" cx=\"{at:.1}\" cy=\"{middle}\" r=\"2.5\"/>");
        }
    }
}

fn best(metric: &Metric, bars: &[(Contender, Spread)]) -> Option<f64> {
    let medians = bars.iter().map(|(_, spread)| spread.median);
    match metric.better {
        Better::Higher => medians.max_by(f64::total_cmp),
        Better::Lower => medians.min_by(f64::total_cmp),
    }
}

/// The whole report as one page.
pub(super) fn page(report: &Report) -> String {
    let machine = &report.machine;
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>Quicket benchmark</title><style>{PAGE_STYLE}</style></head><body>\n\
         <h1>Quicket benchmark</h1>\n<p class=\"machine\">{}, {} cores, {} MiB of memory, \
         Linux {}, {}</p>\n<ul>",
        escape(&machine.cpu),
        machine.cores,
        machine.memory_mib,
        escape(&machine.kernel),
        escape(&machine.date)
    );
    for (contender, description) in &report.contenders {
        let _ = write!(page, "<li><b>{contender}</b>: {}</li>", escape(description));
    }
    page.push_str("</ul>\n");
    for network in report.networks() {
        let _ = writeln!(page, "<h2>Over {}</h2>", network.description());
        page.push_str(&svg(report, network));
        table(&mut page, report, network);
    }
    page.push_str("<h2>How to read this</h2>\n<ul>");
    for sentence in report.notes().iter().chain(&report.skipped) {
        let _ = write!(page, "<li>{}</li>", escape(sentence));
    }
    page.push_str("</ul>\n</body></html>\n");
    page
}

fn table(page: &mut String, report: &Report, network: NetworkKind) {
    page.push_str("<table><tr><th>row</th><th>figure</th>");
    for contender in report.contenders.keys() {
        let _ = write!(page, "<th>{contender}</th>");
    }
    page.push_str("</tr>\n");
    for metric in report.metrics(network) {
        let title = metric.row.title();
        let _ = write!(page, "<tr><td>{title}</td><td>{}, {}</td>", metric.name, metric.unit);
        for &contender in report.contenders.keys() {
            match report.spread(network, metric, contender) {
                Some(spread) => {
                    let number = |value| number(value, metric.digits);
                    let _ = write!(
                        page,
                        "<td>{} <span class=\"range\">{}–{}</span></td>",
                        number(spread.median),
                        number(spread.min),
                        number(spread.max)
                    );
                }
                None => page.push_str("<td>-</td>"),
            }
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use quicket_workload::bench::{Link, Measurement, Outcome};

    use super::super::Options;
    use super::super::report::Settings;
    use super::*;

    fn report() -> Report {
        let options = Options::everything("lab".into());
        let contenders = Contender::ALL.into_iter().map(|one| (one, format!("<{one}>")));
        let mut report = Report::new(Settings::of(&options), contenders.collect());
        for (contender, gigabytes) in [(Contender::TcpTls, 2), (Contender::Quinn, 1)] {
            for run in 0..3 {
                let measurement = Measurement {
                    result: Outcome::Bulk {
                        bytes: gigabytes * 1_000_000_000 + run,
                        nanoseconds: 1_000_000_000,
                    },
                    client_cpu_ns: 1,
                    server_cpu_ns: 1,
                    link: Link::default(),
                };
                report.add(NetworkKind::Loopback, Row::Upload, contender, measurement);
            }
        }
        report
    }

    #[test]
    fn the_better_bar_is_the_longer_one_and_its_number_is_bold() {
        let svg = svg(&report(), NetworkKind::Loopback);
        assert!(svg.contains("width=\"170.0\""), "{svg}");
        assert!(svg.contains("width=\"85.0\""), "{svg}");
        assert!(svg.contains("<text class=\"best\" x=\"264.0\" y=\"80\">16.00</text>"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3 * 2 * 3);
    }

    #[test]
    fn a_page_has_plots_tables_and_notes_and_escapes_what_it_quotes() {
        let page = page(&report());
        assert!(page.contains("<svg") && page.contains("<table>"));
        assert!(page.contains("&lt;quinn&gt;") && !page.contains("<quinn>"));
        assert!(page.contains("TLS_AES_128_GCM_SHA256"));
        assert!(!page.contains("Over two network"), "a network that was not measured");
    }
}
