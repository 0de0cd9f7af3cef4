//! A report as SVG and HTML.

mod bars;
mod curves;
mod flows;
mod groups;
mod page;

use std::fmt::Write;

use super::{Better, Contender, Figure, Line, NetworkKind, Report, Row, Spread};

pub(super) use groups::{Axis, Chart, Group, Held, Limit};
pub(super) use page::page;

const WIDTH: usize = 1020;
const PANEL: usize = 340;
const BAND_TITLE: usize = 34;
const BAND_GAP: usize = 18;

/// The colour of what is not measured.
const LIMIT: &str = "#bf3989";

/// Where a panel is: x and y of its upper left corner.
type Panel = (usize, usize);

const STYLE: &str = "\
:root { color-scheme: light dark; }\
text { font-family: system-ui, sans-serif; font-size: 12px; fill: #24292f; }\
.band { font-size: 15px; font-weight: 600; }\
.unit { fill: #6e7781; }\
.best { font-weight: 700; }\
.run { fill: #24292f; fill-opacity: .55; }\
.range { stroke: #24292f; stroke-opacity: .55; }\
.axis { stroke: #d0d7de; }\
.tick { fill: #6e7781; font-size: 11px; }\
.curve { fill: none; stroke-width: 2; }\
.limit { stroke-dasharray: 5 3; stroke-width: 1.5; }\
@media (prefers-color-scheme: dark) {\
 text { fill: #e6edf3; } .unit, .tick { fill: #8b949e; } .axis { stroke: #3d444d; }\
 .run { fill: #e6edf3; } .range { stroke: #e6edf3; } }";

fn colour(contender: Contender) -> &'static str {
    match contender {
        Contender::Tcp => "#57606a",
        Contender::TcpOpenssl => "#6e7781",
        Contender::TcpTls => "#a8b1bb",
        Contender::Quinn => "#e08a3c",
        Contender::S2nQuic => "#c9a227",
        Contender::Quiche => "#8f6bb3",
        Contender::QuicGo => "#4f9d69",
        Contender::Nginx => "#3d9b8f",
        Contender::Caddy => "#b5548a",
        Contender::Forwarder | Contender::Relay => "#3d9b8f",
        Contender::XdpForwarder | Contender::WireguardGo => "#b5548a",
        Contender::NoOffloads => "#e08a3c",
        Contender::WithoutUdp => "#c9a227",
        Contender::Direct => "#8f6bb3",
        Contender::TwoWorkers => "#4f9d69",
        Contender::Quicket => "#2f6fde",
        Contender::QuicketTokio | Contender::QuicketXdp => "#7aa7ef",
        Contender::QuicketWorkers => "#4f9d69",
        Contender::QuicketHandedOn => "#e08a3c",
        Contender::QuicketHandedOnPlain => "#c9a227",
        Contender::QuicketSwitch => "#8f6bb3",
        Contender::QuicketForwarded => "#b39ac9",
        Contender::QuicketPort => "#3d9b8f",
        Contender::NginxH1 => "#8cc9c1",
        Contender::NginxH2 => "#3d9b8f",
        Contender::CaddyH2 => "#d79abc",
        Contender::CaddyH3 => "#b5548a",
        Contender::GatewayH1 => "#b8cff6",
        Contender::GatewayH2 => "#7aa7ef",
        Contender::GatewayH3 => "#2f6fde",
    }
}

/// The plots of one network as a document of its own.
pub(super) fn svg(report: &Report, network: NetworkKind) -> String {
    let mut body = String::new();
    let mut y = 8;
    for row in report.rows(network) {
        if !row.charts().is_empty() {
            y = groups::bands(&mut body, y, report, (network, row));
            continue;
        }
        let points = report.points(network, row);
        if row.axis().is_some() && points.len() > 1 {
            let panels = panels_of(row, points.first().unwrap_or(&""), network);
            y = bands(&mut body, y, row.title(), &panels, |body, at, line| {
                curves::panel(body, at, report, line)
            });
            continue;
        }
        for point in points {
            let title = match point {
                "" => row.title().to_owned(),
                point => format!("{}: {point}", row.title()),
            };
            let mut panels = panels_of(row, point, network);
            panels.retain(|line| !spreads(report, line).is_empty());
            y = bands(&mut body, y, &title, &panels, |body, at, line| {
                bars::Bars::of(line.figure, spreads(report, line)).draw(body, at)
            });
            y = flows::band(&mut body, y, report, network, row, point);
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" role=\"img\" \
         aria-label=\"Benchmark over {network}\"><style>{STYLE}</style>{body}</svg>\n"
    )
}

fn panels_of<'a>(row: Row, point: &'a str, network: NetworkKind) -> Vec<Line<'a>> {
    row.figures().iter().map(|figure| Line { network, row, point, figure }).collect()
}

fn spreads(report: &Report, line: &Line<'_>) -> Vec<(Contender, Spread)> {
    let all = report.contenders.keys();
    all.filter_map(|&contender| Some((contender, report.spread(line, contender)?))).collect()
}

/// The panels of a row of the benchmark, as many side by side as there is room for; returns where the next band begins.
fn bands<T>(
    body: &mut String,
    mut y: usize,
    title: &str,
    panels: &[T],
    mut draw: impl FnMut(&mut String, Panel, &T) -> usize,
) -> usize {
    for (number, panels) in panels.chunks(WIDTH / PANEL).enumerate() {
        let title = if number == 0 { title } else { "" };
        y = band(body, y, title, panels, &mut draw);
    }
    y
}

/// Panels side by side; returns where the next band begins.
fn band<T>(
    body: &mut String,
    y: usize,
    title: &str,
    panels: &[T],
    mut draw: impl FnMut(&mut String, Panel, &T) -> usize,
) -> usize {
    let _ = write!(body, "<text class=\"band\" x=\"0\" y=\"{}\">{title}</text>", y + 18);
    let top = y + BAND_TITLE;
    let heights =
        panels.iter().enumerate().map(|(column, panel)| draw(body, (column * PANEL, top), panel));
    top + heights.max().unwrap_or(0) + BAND_GAP
}

/// What a panel shows.
fn caption(body: &mut String, (x, y): Panel, title: &str, figure: &Figure) {
    let direction = match figure.better {
        Better::Higher => "(more is better)",
        Better::Lower => "(less is better)",
        Better::Neither => "",
    };
    let _ = write!(
        body,
        "<text x=\"{x}\" y=\"{}\">{title}, {} <tspan class=\"unit\">{direction}</tspan></text>",
        y + 12,
        figure.unit
    );
}

#[cfg(test)]
mod tests {
    use quicket_workload::bench::{Flow, Measurement, Outcome};

    use super::super::report::tests::{bulk, empty, place, transfers};
    use super::*;

    #[test]
    fn the_better_bar_is_the_longer_one_and_its_number_is_bold() {
        let mut report = empty();
        for (contender, gigabytes) in [(Contender::TcpTls, 2), (Contender::Quinn, 1)] {
            for run in 0..3 {
                let measurement = bulk(gigabytes * 1_000_000_000 + run);
                report.add(place(Row::Upload, "", contender), measurement);
            }
        }
        let svg = svg(&report, NetworkKind::Loopback);
        assert!(svg.contains("width=\"164.0\""), "{svg}");
        assert!(svg.contains("width=\"82.0\""), "{svg}");
        assert!(svg.contains("<text class=\"best\" x=\"264.0\" y=\"80\">16.00</text>"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3 * 2 * 3);
    }

    #[test]
    fn rows_with_an_axis_are_curves() {
        let mut report = empty();
        for (point, rate) in [("1", 100.0), ("10", 400.0), ("1000", 200.0)] {
            report.add(place(Row::Streams, point, Contender::Quicket), transfers(rate));
        }
        let svg = svg(&report, NetworkKind::Loopback);
        assert_eq!(svg.matches("<polyline").count(), 3, "one for each figure: {svg}");
        assert!(svg.contains("streams at once"), "{svg}");
        // Goodput: the highest value in the middle, at a third of the logarithmic axis.
        let curve = svg.split("<polyline").nth(1).unwrap();
        let points = curve.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
        let points: Vec<(f64, f64)> = points
            .split(' ')
            .map(|point| point.split_once(',').unwrap())
            .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
            .collect();
        assert!((points[1].0 - points[0].0) * 2.0 - (points[2].0 - points[1].0) < 0.2);
        assert!(points[1].1 < points[2].1 && points[2].1 < points[0].1, "{points:?}");
    }

    #[test]
    fn each_series_has_a_curve() {
        let mut report = empty();
        for (point, rate) in [("1 KiB, few", 1.0), ("4 KiB, few", 2.0), ("4 KiB, many", 3.0)] {
            report.add(place(Row::Streams, point, Contender::Quicket), transfers(rate));
        }
        let svg = svg(&report, NetworkKind::Loopback);
        let figures = Row::Streams.figures().len();
        assert_eq!(svg.matches("<polyline").count(), 2 * figures, "{svg}");
        assert_eq!(svg.matches(">many</text>").count(), figures, "{svg}");
        assert_eq!(svg.matches(">4</text>").count(), figures, "one tick for both: {svg}");
    }

    #[test]
    fn two_flows_are_drawn_over_time() {
        let mut report = empty();
        let flow = |bytes| Flow { intervals: vec![bytes; 40] };
        let result = Outcome::Shared { own: flow(900_000), rival: flow(100_000) };
        let measurement = Measurement { result, ..bulk(0) };
        report.add(place(Row::Fairness, "with TCP CUBIC", Contender::Quicket), measurement);
        let svg = svg(&report, NetworkKind::Loopback);
        assert!(svg.contains("90.0"), "share of 90 %: {svg}");
        assert_eq!(svg.matches("<polyline").count(), 2, "both flows: {svg}");
    }

    #[test]
    fn a_page_has_plots_tables_ratios_and_notes_and_escapes_what_it_quotes() {
        let mut report = empty();
        report.add(place(Row::Upload, "", Contender::TcpTls), bulk(1));
        report.add(place(Row::Upload, "", Contender::Quicket), bulk(2));
        let page = page(&report);
        assert!(page.contains("<svg") && page.matches("<table>").count() == 2, "{page}");
        assert!(page.contains("&lt;quinn&gt;") && !page.contains("<quinn>"));
        assert!(page.contains("TLS_AES_128_GCM_SHA256"));
        assert!(page.contains("<td class=\"good\">2.00</td>"), "{page}");
        assert!(!page.contains("Over two network"), "a network that was not measured");
    }
}
