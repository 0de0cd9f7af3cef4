//! The report as a page that needs nothing but itself.

use std::fmt::Write;

use super::report::{Outcome, Report, Run, folder};
use crate::peers::Implementation;

const STYLE: &str = include_str!("page.css");

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    let [passed, failed, faulty, unsupported] = report.counts();
    let verdict = if report.passed() { "all green" } else { "not all green" };
    let mut page = String::new();
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Quicket: interoperability, {verdict}</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<main>\n<h1>Interoperability</h1>\n<p class=\"lead\">Quicket and other QUIC \
         implementations over an impaired link, judged by the files that arrived and the decrypted \
         packets. {}.</p>\n<ul class=\"counts\"><li class=\"ok\"><b>{passed}</b> passed</li>\
         <li class=\"bad\"><b>{failed}</b> failed</li><li class=\"peer\"><b>{faulty}</b> failed by \
         a known fault of the peer</li><li class=\"no\"><b>{unsupported}</b> not supported</li>\
         </ul>\n",
        escape(&report.date)
    );
    matrix(&mut page, report);
    failures(&mut page, report);
    cases(&mut page, report);
    evidence(&mut page, report);
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn matrix(page: &mut String, report: &Report) {
    let cases = report.cases();
    page.push_str("<div class=\"scroll\"><table>\n<thead><tr><th>client</th><th>server</th>");
    for case in &cases {
        let _ = write!(
            page,
            "<th class=\"case\"><a href=\"#case-{0}\" title=\"{1}\"><span>{0}</span></a></th>",
            case.name,
            escape(case.description)
        );
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for pair in report.pairs() {
        let _ = write!(page, "<tr>{}{}", name(report, pair.0), name(report, pair.1));
        for case in &cases {
            cell(page, report.run_of(pair, case));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table></div>\n");
}

fn name(report: &Report, implementation: Implementation) -> String {
    let version = report.versions.get(&implementation).map_or("", String::as_str);
    format!("<th scope=\"row\">{implementation} <small>{}</small></th>", escape(version))
}

fn cell(page: &mut String, run: Option<&Run>) {
    let Some(run) = run else {
        page.push_str("<td></td>");
        return;
    };
    let Run { case, client, server, outcome, seconds } = run;
    let what = format!("{client} to {server}, {case}");
    let _ = match outcome {
        Outcome::Passed => {
            write!(page, "<td class=\"ok\" title=\"{what}: passed in {seconds:.1} s\">✓</td>")
        }
        Outcome::Failed { reason } => {
            let is_known = matches!(run.failure(), Some((_, Some(_))));
            write!(
                page,
                "<td class=\"{}\" title=\"{what}: {}\"><a href=\"#{}\">✗</a></td>",
                if is_known { "peer" } else { "bad" },
                escape(reason),
                folder(*client, *server, case)
            )
        }
        Outcome::Unsupported { reason } => {
            write!(page, "<td class=\"no\" title=\"{what}: {}\">–</td>", escape(reason))
        }
    };
}

/// What failed, with all that was recorded of it.
fn failures(page: &mut String, report: &Report) {
    if !report.runs.iter().any(|run| run.failure().is_some()) {
        return;
    }
    page.push_str("<h2>What failed</h2>\n");
    for run in &report.runs {
        let Run { case, client, server, seconds, .. } = run;
        let Some((reason, fault)) = run.failure() else { continue };
        let fault = fault.map(|fault| format!("<p>{}</p>\n", escape(&fault))).unwrap_or_default();
        let folder = folder(*client, *server, case);
        let _ = write!(
            page,
            "<section class=\"failure\" id=\"{folder}\"><h3>{client} to {server}, {case}</h3>\n\
             <p>{} <small>after {seconds:.1} s</small></p>\n{fault}<p class=\"links\">",
            escape(reason)
        );
        for file in [
            "client.pcap",
            "server.pcap",
            "client.keys",
            "server.keys",
            "client.qlog/",
            "server.qlog/",
        ] {
            let _ = write!(page, "<a href=\"{folder}/{file}\">{file}</a> ");
        }
        page.push_str("</p></section>\n");
    }
}

fn cases(page: &mut String, report: &Report) {
    page.push_str("<h2>Cases</h2>\n<dl>\n");
    for case in report.cases() {
        let _ = writeln!(
            page,
            "<dt id=\"case-{0}\">{0}</dt><dd>{1}<br><code>{2}</code></dd>",
            case.name,
            escape(case.description),
            escape(case.scenario)
        );
    }
    page.push_str("</dl>\n");
}

fn evidence(page: &mut String, report: &Report) {
    let reasons = report.unsupported();
    if reasons.is_empty() {
        return;
    }
    page.push_str("<h2>Not supported</h2>\n<ul>\n");
    for (reason, cases) in reasons {
        let _ = writeln!(page, "<li>{}: {}</li>", cases.join(", "), escape(reason));
    }
    page.push_str("</ul>\n");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
