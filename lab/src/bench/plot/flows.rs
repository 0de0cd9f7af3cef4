//! Two downloads over one link, over time.

use std::fmt::Write;

use quicket_workload::bench::{Flow, Outcome};

use super::{BAND_GAP, PANEL, colour};
use crate::bench::markdown::number;
use crate::bench::{Contender, Line, NetworkKind, Report, Row};

const LEFT: usize = 40;
const AREA_WIDTH: usize = 280;
const AREA_HEIGHT: usize = 90;
const CAPTION: usize = 22;
const TICKS: usize = 18;
/// Intervals that make a point of a curve: half a second.
const SMOOTH: usize = 5;
const RIVAL: &str = "#bf3989";

/// Draws the first measurement of each implementation, if there are two downloads in it; returns
/// where the next band begins.
pub(super) fn band(
    body: &mut String,
    y: usize,
    report: &Report,
    network: NetworkKind,
    row: Row,
    point: &str,
) -> usize {
    let Some(figure) = row.figures().first() else { return y };
    let line = Line { network, row, point, figure };
    let mut column = 0;
    let mut top = y;
    for &contender in report.contenders.keys() {
        let first = report.series(&line, contender).and_then(|one| one.measurements.first());
        let Some(Outcome::Shared { own, rival }) = first.map(|first| &first.result) else {
            continue;
        };
        if column == super::WIDTH / PANEL {
            column = 0;
            top += HEIGHT;
        }
        panel(body, (column * PANEL, top), contender, own, rival);
        column += 1;
    }
    if column == 0 { y } else { top + HEIGHT }
}

const HEIGHT: usize = CAPTION + AREA_HEIGHT + TICKS + BAND_GAP;

/// Mbit/s over time.
fn rates(flow: &Flow) -> Vec<f64> {
    let seconds = Flow::INTERVAL.as_secs_f64() * SMOOTH as f64;
    let chunks = flow.intervals.chunks_exact(SMOOTH);
    chunks.map(|chunk| chunk.iter().sum::<u64>() as f64 * 8.0 / 1e6 / seconds).collect()
}

fn panel(body: &mut String, (x, y): super::Panel, contender: Contender, own: &Flow, rival: &Flow) {
    let curves = [(colour(contender), rates(own)), (RIVAL, rates(rival))];
    let largest = curves.iter().flat_map(|(_, rates)| rates).copied().fold(1.0, f64::max);
    let count = curves.iter().map(|(_, rates)| rates.len()).max().unwrap_or(0).max(2);
    let (left, top) = (x + LEFT, y + CAPTION);
    let bottom = top + AREA_HEIGHT;
    let seconds = own.intervals.len() as f64 * Flow::INTERVAL.as_secs_f64();
    let _ = write!(
        body,
        "<text x=\"{x}\" y=\"{}\">{contender} <tspan fill=\"{RIVAL}\">and its rival</tspan>, Mbit/s</text>\
         <path class=\"axis\" fill=\"none\" d=\"M{left} {top}V{bottom}H{}\"/>\
         <text class=\"tick\" x=\"{x}\" y=\"{}\">{}</text>\
         <text class=\"tick\" text-anchor=\"end\" x=\"{}\" y=\"{}\">{} s</text>",
        y + 12,
        left + AREA_WIDTH,
        top + 8,
        number(largest, 0),
        left + AREA_WIDTH,
        bottom + 14,
        number(seconds, 0)
    );
    for (colour, rates) in &curves {
        let points: Vec<String> = rates
            .iter()
            .enumerate()
            .map(|(index, rate)| {
                let across = left as f64 + index as f64 / (count - 1) as f64 * AREA_WIDTH as f64;
                let down = bottom as f64 - rate / largest * AREA_HEIGHT as f64;
                format!("{across:.1},{down:.1}")
            })
            .collect();
        let _ = write!(
            body,
            "<polyline class=\"curve\" stroke=\"{colour}\" points=\"{}\"/>",
            points.join(" ")
        );
    }
}
