//! The whole report as one page.

use std::fmt::Write;

use super::svg;
use crate::bench::markdown::{compared, number, payloads, ratio, title};
use crate::bench::report::Ratio;
use crate::bench::{Contender, NetworkKind, Report};

const PAGE_STYLE: &str = "\
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1060px; margin: 2rem auto; padding: 0 1rem; }\
h1 { margin-bottom: .2rem; } h2 { margin-top: 2.5rem; }\
.machine { color: #6e7781; }\
svg { width: 100%; height: auto; }\
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }\
td, th { padding: .25rem .8rem .25rem 0; text-align: right; border-bottom: 1px solid #8884; }\
td:nth-child(-n+2), th:nth-child(-n+2) { text-align: left; }\
.range { opacity: .65; font-size: 12px; }\
.good { color: #1a7f37; } .bad { color: #cf222e; }\
@media (prefers-color-scheme: dark) { .good { color: #3fb950; } .bad { color: #ff7b72; } }\
.wide { overflow-x: auto; }\
li { margin: .3rem 0; }";

/// The whole report as one page.
pub(in crate::bench) fn page(report: &Report) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>Quicket benchmark</title><style>{PAGE_STYLE}</style></head><body>\n\
         <h1>Quicket benchmark</h1>\n<p class=\"machine\">{}</p>\n<ul>",
        escape(&report.machine.sentence())
    );
    for (contender, description) in &report.contenders {
        let _ = write!(page, "<li><b>{contender}</b>: {}</li>", escape(description));
    }
    page.push_str("</ul>\n");
    for network in report.networks() {
        let _ = writeln!(page, "<h2>Over {}</h2>", network.description());
        page.push_str(&svg(report, network));
        table(&mut page, report, network);
        ratios(&mut page, report, network);
    }
    page.push_str("<h2>How to read this</h2>\n<ul>");
    for sentence in report.notes().iter().chain(&report.skipped).chain(&report.failures) {
        let _ = write!(page, "<li>{}</li>", escape(sentence));
    }
    page.push_str("</ul>\n</body></html>\n");
    page
}

fn table(page: &mut String, report: &Report, network: NetworkKind) {
    let contenders: Vec<Contender> = report.contenders.keys().copied().collect();
    page.push_str("<div class=\"wide\"><table><tr><th>row</th><th>figure</th>");
    for contender in &contenders {
        let _ = write!(page, "<th>{contender}</th>");
    }
    page.push_str("</tr>\n");
    let mut last = None;
    for line in report.lines(network) {
        let figure = line.figure;
        let title = title(&line, &mut last);
        let _ = write!(page, "<tr><td>{title}</td><td>{}, {}</td>", figure.name, figure.unit);
        for &contender in &contenders {
            match report.spread(&line, contender) {
                Some(spread) => {
                    let number = |value| number(value, figure.digits);
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
        if let Some(payloads) = payloads(report, &line, &contenders) {
            page.push_str("<tr><td></td><td>mean UDP payload, bytes</td>");
            for payload in payloads {
                let cell = payload.map_or("-".into(), |mean| number(mean, 0));
                let _ = write!(page, "<td>{cell}</td>");
            }
            page.push_str("</tr>\n");
        }
    }
    page.push_str("</table></div>\n");
}

fn ratios(page: &mut String, report: &Report, network: NetworkKind) {
    let pairs = compared(report, network);
    if pairs.is_empty() {
        return;
    }
    page.push_str("<h3>Ratios of the medians</h3>\n<p>Above 1 Quicket is better.</p>\n");
    page.push_str("<div class=\"wide\"><table><tr><th>row</th><th>figure</th>");
    for (own, other) in &pairs {
        let _ = write!(page, "<th>{own} : {other}</th>");
    }
    page.push_str("</tr>\n");
    let mut last = None;
    for line in report.lines(network) {
        let cells: Vec<_> =
            pairs.iter().map(|&(own, other)| report.ratio(&line, own, other)).collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        let title = title(&line, &mut last);
        let _ = write!(page, "<tr><td>{title}</td><td>{}</td>", line.figure.name);
        for cell in cells {
            let class = match cell {
                Some(Ratio::Times(times)) if times >= 1.0 => "good",
                Some(Ratio::Times(_)) => "bad",
                Some(Ratio::Unlike) | None => "",
            };
            let _ = write!(page, "<td class=\"{class}\">{}</td>", ratio(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
