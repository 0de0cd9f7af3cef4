//! Bars: one for each implementation, or for each figure of a group, with the range of all runs.

use std::fmt::Write;

use super::{Panel, colour};
use crate::bench::markdown::number;
use crate::bench::{Better, Contender, Figure, Spread};

const LABEL: usize = 92;
const BAR_AREA: usize = 164;
const BAR: usize = 20;
const BAR_STEP: usize = 28;
const PANEL_TITLE: usize = 24;
/// For the name of a limit, below the bars.
const LIMIT: usize = 18;

/// A bar.
#[derive(Debug)]
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) colour: &'static str,
    pub(super) spread: Spread,
}

/// Bars of a panel.
#[derive(Debug)]
pub(super) struct Bars<'a> {
    pub(super) title: &'a str,
    pub(super) figure: &'a Figure,
    pub(super) bars: Vec<Bar>,
    /// The width of names; that of bars is what is left.
    pub(super) label: usize,
    /// A dashed line, with its name, at a value that is not measured.
    pub(super) limit: Option<(&'a str, f64)>,
    /// Whether the number of the best is bold.
    pub(super) has_best: bool,
}

impl<'a> Bars<'a> {
    /// Those of implementations.
    pub(super) fn of(figure: &'a Figure, spreads: Vec<(Contender, Spread)>) -> Self {
        let bar = |(contender, spread): (Contender, Spread)| Bar {
            name: contender.to_string(),
            colour: colour(contender),
            spread,
        };
        let bars = spreads.into_iter().map(bar).collect();
        Self { title: figure.name, figure, bars, label: LABEL, limit: None, has_best: true }
    }

    /// Draws the bars of a figure; returns their height.
    pub(super) fn draw(&self, body: &mut String, (x, y): Panel) -> usize {
        let Self { figure, bars, .. } = self;
        super::caption(body, (x, y), self.title, figure);
        let values = bars.iter().map(|bar| bar.spread.max);
        let values = values.chain(self.limit.map(|(_, value)| value));
        let largest = values.fold(f64::MIN_POSITIVE, f64::max);
        let best = self.best();
        let left = x + self.label;
        let area = (LABEL + BAR_AREA).saturating_sub(self.label);
        let position = |value: f64| left as f64 + value / largest * area as f64;
        let top = y + PANEL_TITLE;
        for (index, bar) in bars.iter().enumerate() {
            write_bar(body, (x, left, top + index * BAR_STEP), bar, position);
            let class = if best == Some(bar.spread.median) { "best" } else { "" };
            let _ = write!(
                body,
                "<text class=\"{class}\" x=\"{:.1}\" y=\"{}\">{}</text>",
                position(bar.spread.max) + 8.0,
                top + index * BAR_STEP + 14,
                number(bar.spread.median, figure.digits)
            );
        }
        let bottom = top + bars.len() * BAR_STEP - (BAR_STEP - BAR) / 2;
        let _ = write!(
            body,
            "<line class=\"axis\" x1=\"{left}\" x2=\"{left}\" y1=\"{}\" y2=\"{bottom}\"/>",
            top - 4
        );
        let height = PANEL_TITLE + bars.len() * BAR_STEP;
        let Some((name, value)) = self.limit else { return height };
        let _ = write!(
            body,
            "<path class=\"curve limit\" stroke=\"{}\" d=\"M{:.1} {}V{bottom}\"/>\
             <text class=\"tick\" text-anchor=\"end\" x=\"{}\" y=\"{}\">{name}: {}</text>",
            super::LIMIT,
            position(value),
            top - 4,
            left + area,
            bottom + 14,
            number(value, figure.digits)
        );
        height + LIMIT
    }

    fn best(&self) -> Option<f64> {
        let medians = self.bars.iter().map(|bar| bar.spread.median).filter(|_| self.has_best);
        match self.figure.better {
            Better::Higher => medians.max_by(f64::total_cmp),
            Better::Lower => medians.min_by(f64::total_cmp),
            Better::Neither => None,
        }
    }
}

/// The bar of the median, the range of all runs, and a dot for each of them.
fn write_bar(
    body: &mut String,
    (x, left, y): (usize, usize, usize),
    Bar { name, colour, spread }: &Bar,
    position: impl Fn(f64) -> f64,
) {
    let middle = y + BAR / 2;
    let _ = write!(
        body,
        "<text x=\"{x}\" y=\"{}\">{name}</text>\
         <rect x=\"{left}\" y=\"{y}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"2\" fill=\"{colour}\">\
         <title>{name}: {} to {}</title></rect>",
        y + 14,
        position(spread.median) - left as f64,
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
