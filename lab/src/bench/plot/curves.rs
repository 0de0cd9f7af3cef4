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
pub(super) const SERIES: [&str; 6] =
    ["#2f6fde", "#e08a3c", "#4f9d69", "#8f6bb3", "#57606a", "#b5548a"];

/// How a curve looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stroke {
    Plain,
    /// Each point is marked, so that one alone is seen, too.
    Marked,
    /// Dashed: what is not measured.
    Limit,
}

/// A curve.
#[derive(Debug)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) colour: &'static str,
    pub(super) stroke: Stroke,
    /// Where each point is across, and its value.
    pub(super) points: Vec<(f64, f64)>,
}

/// What stands at the axes.
#[derive(Debug)]
pub(super) struct Axes<'a> {
    /// Names and places of what was measured.
    pub(super) ticks: Vec<(&'a str, f64)>,
    pub(super) title: &'a str,
    /// Of values, behind the point.
    pub(super) digits: usize,
}

impl<'a> Axes<'a> {
    /// `names` begin with a number each, which may be there several times.
    pub(super) fn new(names: &[&'a str], title: &'a str, digits: usize) -> Self {
        let mut ticks: Vec<(&str, f64)> = Vec::new();
        for name in names {
            let tick = name.split(' ').next().unwrap_or_default();
            if !ticks.iter().any(|(other, _)| *other == tick) {
                ticks.push((tick, position(name)));
            }
        }
        Self { ticks, title, digits }
    }
}

/// Draws the curves of all implementations, one for each series of points; `line` is that of any point. Returns their height.
pub(super) fn panel(body: &mut String, at: Panel, report: &Report, line: &Line<'_>) -> usize {
    super::caption(body, at, line.figure.name, line.figure);
    let names = report.points(line.network, line.row);
    let mut all_series: Vec<&str> = Vec::new();
    for name in &names {
        if !all_series.contains(&series(name)) {
            all_series.push(series(name));
        }
    }
    let mut curves = Vec::new();
    for &contender in report.contenders.keys() {
        for (number, &one) in all_series.iter().enumerate() {
            let points = names.iter().filter(|name| series(name) == one);
            let points: Vec<(f64, f64)> = points
                .filter_map(|&point| {
                    let spread = report.spread(&Line { point, ..*line }, contender)?;
                    Some((position(point), spread.median))
                })
                .collect();
            if points.is_empty() {
                continue;
            }
            let (name, colour) = match one {
                "" => (contender.to_string(), colour(contender)),
                one => (one.to_owned(), SERIES[number % SERIES.len()]),
            };
            curves.push(Curve { name, colour, stroke: Stroke::Plain, points });
        }
    }
    let axes = Axes::new(&names, line.row.axis().unwrap_or_default(), line.figure.digits);
    draw(body, at, &axes, &curves)
}

/// Draws curves below their caption. Returns the height of all.
pub(super) fn draw(body: &mut String, (x, y): Panel, axes: &Axes<'_>, curves: &[Curve]) -> usize {
    let largest = curves.iter().flat_map(|curve| &curve.points).map(|(_, value)| *value);
    let largest = largest.fold(f64::MIN_POSITIVE, f64::max);
    let at = || axes.ticks.iter().map(|(_, at)| *at);
    let (from, to) = (at().fold(f64::MAX, f64::min), at().fold(0.0, f64::max));
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
        number(largest, axes.digits)
    );
    for &(tick, at) in &axes.ticks {
        let _ = write!(
            body,
            "<text class=\"tick\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{}\">{tick}</text>",
            across(at),
            bottom + 14,
        );
    }
    let _ = write!(
        body,
        "<text class=\"tick\" x=\"{left}\" y=\"{}\">{}</text>",
        bottom + 28,
        axes.title
    );
    let mut legend = bottom + TICKS;
    for curve in curves {
        legend += LEGEND_STEP;
        let points = curve.points.iter().map(|&(at, value)| (across(at), down(value)));
        write_curve(body, curve, points);
        write_legend(body, curve, (left, legend));
    }
    CAPTION + AREA_HEIGHT + TICKS + LEGEND_STEP * curves.len()
}

fn write_curve(body: &mut String, curve: &Curve, points: impl Iterator<Item = (f64, f64)> + Clone) {
    let class = match curve.stroke {
        Stroke::Limit => "curve limit",
        Stroke::Plain | Stroke::Marked => "curve",
    };
    let Curve { colour, .. } = curve;
    let all: Vec<String> = points.clone().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = write!(
        body,
        "<polyline class=\"{class}\" stroke=\"{colour}\" points=\"{}\"/>",
        all.join(" ")
    );
    if curve.stroke == Stroke::Marked {
        for (x, y) in points {
            let _ =
                write!(body, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>");
        }
    }
}

fn write_legend(body: &mut String, curve: &Curve, (x, y): Panel) {
    let Curve { name, colour, .. } = curve;
    let _ = match curve.stroke {
        Stroke::Limit => write!(
            body,
            "<path class=\"curve limit\" stroke=\"{colour}\" d=\"M{x} {}h14\"/>",
            y - 4,
        ),
        Stroke::Plain | Stroke::Marked => write!(
            body,
            "<rect x=\"{x}\" y=\"{}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>",
            y - 6,
        ),
    };
    let _ = write!(body, "<text x=\"{}\" y=\"{y}\">{name}</text>", x + 20);
}

/// Where a point is on the logarithmic axis: its name begins with the number.
pub(super) fn position(name: &str) -> f64 {
    let number = name.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    number.unwrap_or(1.0).max(1.0).ln()
}

/// Of which series a point is: its name says so behind a comma. Empty if a row has no series.
fn series(name: &str) -> &str {
    name.split_once(", ").map_or("", |(_, series)| series)
}
