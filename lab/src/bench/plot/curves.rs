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

/// Draws the curves of all implementations; `line` is that of any point. Returns their height.
pub(super) fn panel(body: &mut String, (x, y): Panel, report: &Report, line: &Line<'_>) -> usize {
    super::caption(body, (x, y), line.figure);
    let names = report.points(line.network, line.row);
    let at: Vec<f64> = names.iter().map(|name| position(name)).collect();
    let curves: Vec<_> = report
        .contenders
        .keys()
        .map(|&contender| {
            let points = names.iter().zip(&at).filter_map(|(&point, &at)| {
                Some((at, report.spread(&Line { point, ..*line }, contender)?.median))
            });
            (contender, points.collect::<Vec<(f64, f64)>>())
        })
        .filter(|(_, points)| !points.is_empty())
        .collect();
    let largest = curves.iter().flat_map(|(_, points)| points).map(|(_, value)| *value);
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
    for (name, &at) in names.iter().zip(&at) {
        let _ = write!(
            body,
            "<text class=\"tick\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{}\">{}</text>",
            across(at),
            bottom + 14,
            name.split(' ').next().unwrap_or_default()
        );
    }
    let _ = write!(
        body,
        "<text class=\"tick\" x=\"{left}\" y=\"{}\">{}</text>",
        bottom + 28,
        line.row.axis().unwrap_or_default()
    );
    let mut legend = bottom + TICKS;
    for (contender, points) in &curves {
        let colour = colour(*contender);
        let all: Vec<String> = points
            .iter()
            .map(|&(at, value)| format!("{:.1},{:.1}", across(at), down(value)))
            .collect();
        legend += LEGEND_STEP;
        let _ = write!(
            body,
            "<polyline class=\"curve\" stroke=\"{colour}\" points=\"{}\"/>\
             <rect x=\"{left}\" y=\"{}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"{legend}\">{contender}</text>",
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
