//! Curves: how a figure changes along the axis of a row.

use std::fmt::Write;

use super::{Panel, colour};
use crate::bench::markdown::number;
use crate::bench::{Line, Report};

const LEFT: usize = 52;
const AREA_WIDTH: usize = 250;
const AREA_HEIGHT: usize = 130;
const CAPTION: usize = 24;
const TICKS: usize = 34;
const LEGEND_STEP: usize = 16;

/// The curves of one implementation, where a row has several series.
const SERIES: [&str; 5] = ["#2f6fde", "#e08a3c", "#4f9d69", "#8f6bb3", "#57606a"];

/// Draws the curves of all implementations, one for each series of points; `line` is that of any point. Returns their height.
pub(super) fn panel(body: &mut String, (x, y): Panel, report: &Report, line: &Line<'_>) -> usize {
    super::caption(body, (x, y), line.figure);
    let names = report.points(line.network, line.row);
    let at: Vec<f64> = names.iter().map(|name| position(name)).collect();
    let mut all_series: Vec<&str> = Vec::new();
    for name in &names {
        if !all_series.contains(&series(name)) {
            all_series.push(series(name));
        }
    }
    let mut curves = Vec::new();
    for &contender in report.contenders.keys() {
        for (number, &one) in all_series.iter().enumerate() {
            let points = names.iter().zip(&at).filter(|(name, _)| series(name) == one);
            let points: Vec<(f64, f64)> = points
                .filter_map(|(&point, &at)| {
                    Some((at, report.spread(&Line { point, ..*line }, contender)?.median))
                })
                .collect();
            if points.is_empty() {
                continue;
            }
            let (name, colour) = match one {
                "" => (contender.to_string(), colour(contender)),
                one => (one.to_owned(), SERIES[number % SERIES.len()]),
            };
            curves.push((name, colour, points));
        }
    }
    let largest = curves.iter().flat_map(|(.., points)| points).map(|(_, value)| *value);
    let largest = largest.fold(f64::MIN_POSITIVE, f64::max);
    let (from, to) =
        (at.iter().copied().fold(f64::MAX, f64::min), at.iter().copied().fold(0.0, f64::max));
    let (left, top) = (x + LEFT, y + CAPTION);
    let bottom = top + AREA_HEIGHT;
    let across = |at: f64| left as f64 + (at - from) / (to - from).max(0.001) * AREA_WIDTH as f64;
    let down = |value: f64| bottom as f64 - value / largest * AREA_HEIGHT as f64;
    let _ = write!(
        body,
        "<path class=\"axis\" fill=\"none\" d=\"M{left} {top}V{bottom}H{}\"/>\
         <text class=\"tick\" x=\"{x}\" y=\"{}\">{}</text><text class=\"tick\" x=\"{x}\" y=\"{bottom}\">0</text>",
        left + AREA_WIDTH,
        top + 8,
        number(largest, line.figure.digits)
    );
    let mut ticks: Vec<(&str, f64)> = Vec::new();
    for (name, &at) in names.iter().zip(&at) {
        let tick = name.split(' ').next().unwrap_or_default();
        if !ticks.iter().any(|(other, _)| *other == tick) {
            ticks.push((tick, at));
        }
    }
    for (tick, at) in ticks {
        let _ = write!(
            body,
            "<text class=\"tick\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{}\">{}</text>",
            across(at),
            bottom + 14,
            tick
        );
    }
    let _ = write!(
        body,
        "<text class=\"tick\" x=\"{left}\" y=\"{}\">{}</text>",
        bottom + 28,
        line.row.axis().unwrap_or_default()
    );
    let mut legend = bottom + TICKS;
    for (name, colour, points) in &curves {
        let all: Vec<String> = points
            .iter()
            .map(|&(at, value)| format!("{:.1},{:.1}", across(at), down(value)))
            .collect();
        legend += LEGEND_STEP;
        let _ = write!(
            body,
            "<polyline class=\"curve\" stroke=\"{colour}\" points=\"{}\"/>\
             <rect x=\"{left}\" y=\"{}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"{legend}\">{name}</text>",
            all.join(" "),
            legend - 6,
            left + 20
        );
    }
    CAPTION + AREA_HEIGHT + TICKS + LEGEND_STEP * curves.len()
}

/// Where a point is on the logarithmic axis: its name begins with the number.
fn position(name: &str) -> f64 {
    let number = name.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    number.unwrap_or(1.0).max(1.0).ln()
}

/// Of which series a point is: its name says so behind a comma. Empty if a row has no series.
fn series(name: &str) -> &str {
    name.split_once(", ").map_or("", |(_, series)| series)
}
