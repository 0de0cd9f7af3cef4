//! One plot: SVG for what is stretched, HTML beside it for what must stay readable on any screen.

use std::fmt::Write;

use super::scale::{Quantity, Ticks};
use super::series::Point;
use crate::html::escape;

/// The size of the drawing; the page stretches it.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 250.0;
/// How tall the mark of a loss is.
const MARK: f64 = 14.0;
/// Between these an axis ends; what is counted in a file is below 2^62.
const LEAST: f64 = 1e-6;
const MOST: f64 = 1e19;
const ACROSS: usize = 10;
const UP: usize = 5;

/// How points are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Line,
    /// A value holds until the next.
    Steps,
    Dots,
    /// Strokes across the place.
    Marks,
}

/// Points of one kind, with their name in the legend.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) label: String,
    /// The colour: `a` to `e`.
    pub(super) class: char,
    pub(super) shape: Shape,
    pub(super) points: Vec<Point>,
}

/// Curves over the time of a connection.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    /// What finds it in the page.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) quantity: Quantity,
    pub(super) curves: Vec<Curve>,
    /// What stands there if there is nothing to draw.
    pub(super) nothing: &'static str,
}

/// From values to places in the drawing.
struct Frame {
    /// The end of the time, in milliseconds.
    right: f64,
    top: f64,
}

impl Frame {
    fn x(&self, at: f64) -> f64 {
        (at / self.right * WIDTH).clamp(0.0, WIDTH)
    }

    fn y(&self, value: f64) -> f64 {
        (HEIGHT - value / self.top * HEIGHT).clamp(0.0, HEIGHT)
    }
}

impl Plot {
    /// Draws it; `duration` is in milliseconds.
    pub(super) fn draw(&self, duration: f64, out: &mut String) {
        let Self { name, title, .. } = self;
        let _ = write!(out, "<figure class=\"plot\" data-plot=\"{name}\"><figcaption>{title}");
        let all = || self.curves.iter().flat_map(|curve| &curve.points);
        let greatest = all().map(|point| point.value).fold(0.0, f64::max);
        if all().next().is_none() {
            let _ =
                writeln!(out, "</figcaption><p class=\"nothing\">{}</p></figure>", self.nothing);
            return;
        }
        // Beyond that, values lie at the edges.
        let greatest = if greatest > 0.0 { greatest.clamp(LEAST, MOST) } else { 1.0 };
        let duration = if duration > 0.0 { duration } else { 1.0 };
        let unit = self.quantity.unit(greatest);
        let time = Quantity::Milliseconds.unit(duration);
        let up = Ticks::new(greatest / unit.size, UP, self.quantity == Quantity::Count);
        let across = Ticks::new(duration / time.size, ACROSS, false);
        let top = up.end(greatest / unit.size);
        let frame = Frame { right: duration, top: top * unit.size };
        if !unit.name.is_empty() {
            let _ = write!(out, " <span class=\"unit\">in {}</span>", unit.name);
        }
        out.push_str("</figcaption>");
        self.legend(out);
        out.push_str("<div class=\"area\">");
        let _ = write!(
            out,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"{title} over time\"><path class=\"grid\" d=\""
        );
        let mut labels = String::new();
        // The axis ends at a round number, which may be one above the last that is reached.
        for (value, label) in Ticks::new(top, UP, self.quantity == Quantity::Count).labels() {
            let _ = write!(out, "M0 {:.1}H{WIDTH}", frame.y(value * unit.size));
            let share = value / top * 100.0;
            let _ = write!(labels, "<span class=\"y\" style=\"bottom:{share:.2}%\">{label}</span>");
        }
        for (number, (value, label)) in across.labels().enumerate() {
            let at = value * time.size;
            let _ = write!(out, "M{:.1} 0V{HEIGHT}", frame.x(at));
            let odd = if number % 2 == 1 { " odd" } else { "" };
            let share = (at / duration * 100.0).min(100.0);
            let _ =
                write!(labels, "<span class=\"x{odd}\" style=\"left:{share:.2}%\">{label}</span>");
        }
        out.push_str("\"/>");
        for curve in &self.curves {
            curve.draw(&frame, out);
        }
        let _ = writeln!(
            out,
            "</svg>{labels}<span class=\"time\">time in {}</span></div></figure>",
            time.name
        );
    }

    fn legend(&self, out: &mut String) {
        out.push_str("<ul class=\"legend\">");
        for Curve { label, class, shape, points } in &self.curves {
            let kind = match shape {
                Shape::Line | Shape::Steps => "line",
                Shape::Dots => "dot",
                Shape::Marks => "mark",
            };
            let none = if points.is_empty() { " (none)" } else { "" };
            let label = escape(label);
            let _ = write!(out, "<li><i class=\"{kind} {class}\"></i>{label}{none}</li>");
        }
        out.push_str("</ul>");
    }
}

impl Curve {
    fn draw(&self, frame: &Frame, out: &mut String) {
        if self.points.is_empty() {
            return;
        }
        let kind = if self.shape == Shape::Dots { "dots" } else { "curve" };
        let _ = write!(out, "<path class=\"{kind} {}\" d=\"", self.class);
        let mut first = true;
        for point in &self.points {
            let (x, y) = (frame.x(point.at), frame.y(point.value));
            let _ = match self.shape {
                Shape::Dots => write!(out, "M{x:.1} {y:.1}h0"),
                Shape::Marks => {
                    let above = (y - MARK).max(0.0);
                    write!(out, "M{x:.1} {above:.1}V{:.1}", (y + MARK).min(HEIGHT))
                }
                _ if first => write!(out, "M{x:.1} {y:.1}"),
                Shape::Line => write!(out, "L{x:.1} {y:.1}"),
                Shape::Steps => write!(out, "H{x:.1}V{y:.1}"),
            };
            first = false;
        }
        if self.shape == Shape::Steps {
            let _ = write!(out, "H{WIDTH}");
        }
        out.push_str("\"/>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<Point>) -> String {
        let curve = Curve { label: "<b>".into(), class: 'a', shape: Shape::Line, points };
        let plot = Plot {
            name: "test",
            title: "Test",
            quantity: Quantity::Bytes,
            curves: vec![curve],
            nothing: "nothing there",
        };
        let mut out = String::new();
        plot.draw(2000.0, &mut out);
        out
    }

    #[test]
    fn values_lie_where_the_axes_say() {
        let drawn = plot(vec![Point { at: 0.0, value: 0.0 }, Point { at: 1000.0, value: 5e6 }]);
        assert!(drawn.contains("d=\"M0.0 250.0L500.0 0.0\""), "{drawn}");
        assert!(drawn.contains("in MB") && drawn.contains("time in s"), "{drawn}");
        assert!(drawn.contains("bottom:100.00%\">5<"), "{drawn}");
        assert!(drawn.contains("left:50.00%\">1.0<"), "{drawn}");
        assert!(drawn.contains("&lt;b&gt;") && !drawn.contains("<b>"), "{drawn}");
    }

    #[test]
    fn a_plot_of_nothing_says_so_and_odd_values_stay_inside() {
        assert!(plot(Vec::new()).contains("nothing there"));
        for value in [0.0, 1e-300, 4e18, f64::MAX] {
            let drawn = plot(vec![Point { at: 1e13, value }]);
            assert!(drawn.contains("M1000.0 "), "{drawn}");
            assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
        }
    }
}
