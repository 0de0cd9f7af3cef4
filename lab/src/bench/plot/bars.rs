//! Bars: one for each implementation, with the range of all runs.

use std::fmt::Write;

use super::{Panel, colour};
use crate::bench::markdown::number;
use crate::bench::{Better, Contender, Figure, Spread};

const LABEL: usize = 92;
const BAR_AREA: usize = 164;
const BAR: usize = 20;
const BAR_STEP: usize = 28;
const PANEL_TITLE: usize = 24;

/// Draws the bars of a figure; returns their height.
pub(super) fn panel(
    body: &mut String,
    (x, y): Panel,
    figure: &Figure,
    bars: &[(Contender, Spread)],
) -> usize {
    super::caption(body, (x, y), figure);
    let largest = bars.iter().map(|(_, spread)| spread.max).fold(f64::MIN_POSITIVE, f64::max);
    let best = best(figure, bars);
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
            number(spread.median, figure.digits)
        );
    }
    let bottom = top + bars.len() * BAR_STEP - (BAR_STEP - BAR) / 2;
    let _ = write!(
        body,
        "<line class=\"axis\" x1=\"{left}\" x2=\"{left}\" y1=\"{}\" y2=\"{bottom}\"/>",
        top - 4
    );
    PANEL_TITLE + bars.len() * BAR_STEP
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

fn best(figure: &Figure, bars: &[(Contender, Spread)]) -> Option<f64> {
    let medians = bars.iter().map(|(_, spread)| spread.median);
    match figure.better {
        Better::Higher => medians.max_by(f64::total_cmp),
        Better::Lower => medians.min_by(f64::total_cmp),
        Better::Neither => None,
    }
}
