//! Figures of a row that share a panel: a curve of each, or a bar.

use super::bars::{Bar, Bars};
use super::curves::{Axes, Curve, SERIES, Stroke, draw, position};
use super::{LIMIT, PANEL};
use crate::bench::{Contender, Figure, Line, NetworkKind, Report, Row, fetches, switch};

/// The width of a letter of a name, and what a name has beside it at least.
const LETTER: usize = 6;
const BESIDE: usize = 14;

/// Panels of a row, in each of which figures are side by side.
pub(in crate::bench) struct Chart {
    /// What curves go over; bars without it.
    pub(in crate::bench) axis: Option<Axis>,
    pub(in crate::bench) groups: &'static [Group],
}

/// What curves go over. The names of points have parts, with a comma between them, and each part begins with a number.
pub(in crate::bench) struct Axis {
    pub(in crate::bench) title: &'static str,
    /// Which part has the number on the axis.
    pub(in crate::bench) part: usize,
    /// What the other parts of points that are in one panel are.
    pub(in crate::bench) held: Held,
}

/// Which points are in a panel: those whose other parts are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::bench) enum Held {
    /// Panels for each of them.
    Each,
    /// For the first of them alone.
    First,
    /// For the last of them alone.
    Last,
}

/// The figures of a panel. They have the same unit.
pub(in crate::bench) struct Group {
    pub(in crate::bench) title: &'static str,
    /// What each is called there, and its name among the figures of the row.
    pub(in crate::bench) members: &'static [(&'static str, &'static str)],
    pub(in crate::bench) limit: Option<Limit>,
}

/// What is not measured, and what figures cannot exceed, or are to reach.
pub(in crate::bench) struct Limit {
    pub(in crate::bench) name: &'static str,
    /// Its value at a point, by its name.
    pub(in crate::bench) at: fn(&str) -> Option<f64>,
}

impl Row {
    /// Its plots in which figures share panels. A row that has none has a panel for each figure.
    pub(super) const fn charts(self) -> &'static [Chart] {
        match self {
            Self::SwitchFrames => switch::CHARTS,
            Self::SwitchDevices => switch::devices::CHARTS,
            Self::SwitchHttp => fetches::CHARTS,
            _ => &[],
        }
    }
}

/// Draws them; returns where the next band begins.
pub(super) fn bands(
    body: &mut String,
    mut y: usize,
    report: &Report,
    (network, row): (NetworkKind, Row),
) -> usize {
    let measured = Measured { report, network, row };
    let points = report.points(network, row);
    // Of one point there are bars, which are the same over any axis.
    let count = if points.len() > 1 { usize::MAX } else { 1 };
    for chart in row.charts().iter().take(count) {
        let Some(axis) = chart.axis.as_ref().filter(|_| points.len() > 1) else {
            for point in &points {
                let panels = chart.groups.iter().filter_map(|group| measured.bars(group, point));
                let panels: Vec<Bars<'_>> = panels.collect();
                y = super::bands(body, y, &title(row, point), &panels, |body, at, bars| {
                    bars.draw(body, at)
                });
            }
            continue;
        };
        for (held, names) in axis.split(&points) {
            let panels = chart.groups.iter().filter_map(|group| {
                let curves = measured.curves(group, axis, &names);
                Some((group, measured.figure(group)?, curves)).filter(|(.., all)| !all.is_empty())
            });
            let panels: Vec<_> = panels.collect();
            let names: Vec<&str> = names.iter().map(|name| axis.number(name)).collect();
            y = super::bands(body, y, &title(row, &held), &panels, |body, at, panel| {
                let (group, figure, curves) = panel;
                super::caption(body, at, group.title, figure);
                draw(body, at, &Axes::new(&names, axis.title, figure.digits), curves)
            });
        }
    }
    y
}

fn title(row: Row, of: &str) -> String {
    match of {
        "" => row.title().to_owned(),
        of => format!("{}: {of}", row.title()),
    }
}

impl Axis {
    /// The part of a point's name that has the number.
    fn number<'a>(&self, name: &'a str) -> &'a str {
        name.split(", ").nth(self.part).unwrap_or_default()
    }

    /// The other parts.
    fn rest(&self, name: &str) -> String {
        let parts = name.split(", ").enumerate().filter(|(part, _)| *part != self.part);
        parts.map(|(_, part)| part).collect::<Vec<_>>().join(", ")
    }

    /// The points of each panel, behind what they have in common.
    fn split<'a>(&self, points: &[&'a str]) -> Vec<(String, Vec<&'a str>)> {
        let mut all: Vec<(String, Vec<&str>)> = Vec::new();
        for &name in points {
            let rest = self.rest(name);
            match all.iter_mut().find(|(held, _)| *held == rest) {
                Some((_, names)) => names.push(name),
                None => all.push((rest, vec![name])),
            }
        }
        let last = all.len().saturating_sub(1);
        match self.held {
            Held::Each => all,
            Held::First => all.into_iter().take(1).collect(),
            Held::Last => all.into_iter().skip(last).collect(),
        }
    }
}

/// A row over a network.
struct Measured<'a> {
    report: &'a Report,
    network: NetworkKind,
    row: Row,
}

impl Measured<'_> {
    /// Whose unit is that of the panel.
    fn figure(&self, group: &Group) -> Option<&'static Figure> {
        let (_, name) = group.members.first()?;
        self.figure_named(name)
    }

    fn figure_named(&self, name: &str) -> Option<&'static Figure> {
        self.row.figures().iter().find(|figure| figure.name == name)
    }

    /// Who has measurements.
    fn contenders(&self) -> Vec<Contender> {
        let has = |one: &Contender| {
            let mut series = self.report.series.iter().map(|series| &series.place);
            series.any(|place| {
                (place.network, place.row, place.contender) == (self.network, self.row, *one)
            })
        };
        self.report.contenders.keys().copied().filter(has).collect()
    }

    /// The figures of a group, with names and colours: for each implementation, if there are several.
    fn members(&self, group: &Group) -> Vec<(String, &'static str, Contender, &'static Figure)> {
        let contenders = self.contenders();
        let mut members = Vec::new();
        for &contender in &contenders {
            for &(label, name) in group.members {
                let Some(figure) = self.figure_named(name) else { continue };
                let name = match contenders.len() {
                    1 => label.to_owned(),
                    _ => format!("{contender}, {label}"),
                };
                let colour = SERIES[members.len() % SERIES.len()];
                members.push((name, colour, contender, figure));
            }
        }
        members
    }

    fn bars<'a>(&self, group: &'a Group, point: &str) -> Option<Bars<'a>> {
        let &Self { network, row, .. } = self;
        let bars = self.members(group).into_iter().filter_map(|(name, colour, of, figure)| {
            let spread = self.report.spread(&Line { network, row, point, figure }, of)?;
            Some(Bar { name, colour, spread })
        });
        let bars: Vec<Bar> = bars.collect();
        let longest = bars.iter().map(|bar| bar.name.chars().count()).max()?;
        let limit = group.limit.as_ref();
        Some(Bars {
            title: group.title,
            figure: self.figure(group)?,
            bars,
            label: (longest * LETTER + BESIDE).min(PANEL / 2),
            limit: limit.and_then(|limit| Some((limit.name, (limit.at)(point)?))),
            // They are different things.
            has_best: false,
        })
    }

    fn curves(&self, group: &Group, axis: &Axis, names: &[&str]) -> Vec<Curve> {
        let &Self { network, row, .. } = self;
        let at = |name: &str| position(axis.number(name));
        let curve = |(name, colour, of, figure)| {
            let median = |&point: &&str| {
                let spread = self.report.spread(&Line { network, row, point, figure }, of)?;
                Some((at(point), spread.median))
            };
            let points = names.iter().filter_map(median).collect();
            Curve { name, colour, stroke: Stroke::Marked, points }
        };
        let curves = self.members(group).into_iter().map(curve);
        let mut curves: Vec<Curve> = curves.filter(|curve| !curve.points.is_empty()).collect();
        if let Some(limit) = group.limit.as_ref().filter(|_| !curves.is_empty()) {
            let value = |&name: &&str| Some((at(name), (limit.at)(name)?));
            let points = names.iter().filter_map(value).collect();
            let name = limit.name.to_owned();
            curves.push(Curve { name, colour: LIMIT, stroke: Stroke::Limit, points });
        }
        curves
    }
}

#[cfg(test)]
#[path = "groups_tests.rs"]
mod tests;
