//! Which plots there are, and what is drawn in them.

use super::connection::{Connection, Half};
use super::plot::{Curve, Plot, Shape};
use super::scale::Quantity;
use super::series::{Point, Series};

/// The pacing rate is drawn up to so many times the greatest rate of packets.
const MAX_PACING: f64 = 1.5;

/// All plots of a connection, in the order of the page.
pub(super) fn plots(connection: &Connection) -> [Plot; 5] {
    [
        sequence(connection),
        window(connection),
        rtt(connection),
        losses(connection),
        rates(connection),
    ]
}

fn curve(label: impl Into<String>, class: char, shape: Shape, points: Vec<Point>) -> Curve {
    Curve { label: label.into(), class, shape, points }
}

fn sequence(connection: &Connection) -> Plot {
    let Connection { sent, received, recovery, .. } = connection;
    Plot {
        name: "sequence",
        title: "Stream bytes sent and received",
        quantity: Quantity::Bytes,
        curves: vec![
            curve("sent", 'a', Shape::Steps, sent.sequence.points()),
            curve("received", 'b', Shape::Steps, received.sequence.points()),
            curve("packet declared lost", 'c', Shape::Marks, recovery.lost_at.points()),
            curve("sent again", 'd', Shape::Dots, sent.again.points()),
            curve("received late or again", 'e', Shape::Dots, received.again.points()),
        ],
        nothing: "The file has no STREAM frames.",
    }
}

fn window(connection: &Connection) -> Plot {
    let recovery = &connection.recovery;
    Plot {
        name: "window",
        title: "Congestion window and bytes in flight",
        quantity: Quantity::Bytes,
        curves: vec![
            curve("bytes in flight", 'b', Shape::Steps, recovery.bytes_in_flight.points()),
            curve("congestion window", 'a', Shape::Steps, recovery.congestion_window.points()),
        ],
        nothing: "The file has no congestion window (metrics_updated).",
    }
}

fn rtt(connection: &Connection) -> Plot {
    let recovery = &connection.recovery;
    Plot {
        name: "rtt",
        title: "Round-trip time",
        quantity: Quantity::Milliseconds,
        curves: vec![
            curve("latest", 'b', Shape::Dots, recovery.latest_rtt.points()),
            curve("smoothed", 'a', Shape::Steps, recovery.smoothed_rtt.points()),
            curve("min", 'e', Shape::Steps, recovery.min_rtt.points()),
        ],
        nothing: "The file has no round-trip times (metrics_updated).",
    }
}

/// Counts begin at 0.
fn counted(series: &Series) -> Vec<Point> {
    let points = series.points();
    let zero = points.first().map(|_| Point { at: 0.0, value: 0.0 });
    zero.into_iter().chain(points).collect()
}

fn losses(connection: &Connection) -> Plot {
    let Connection { sent, received, recovery, .. } = connection;
    Plot {
        name: "losses",
        title: "Losses and retransmissions so far",
        quantity: Quantity::Count,
        curves: vec![
            curve("packets declared lost", 'c', Shape::Steps, counted(&recovery.lost_count)),
            curve("STREAM frames sent again", 'd', Shape::Steps, counted(&sent.again_count)),
            curve(
                "STREAM frames received late or again",
                'e',
                Shape::Steps,
                counted(&received.again_count),
            ),
        ],
        nothing: "No packet was declared lost, and no STREAM frame came twice or out of order.",
    }
}

fn rates(connection: &Connection) -> Plot {
    let Connection { sent, received, recovery, duration, .. } = connection;
    let rate = |half: &Half| half.rate.rates(*duration);
    let (sent, received) = (rate(sent), rate(received));
    let greatest = sent.iter().chain(&received).map(|point| point.value).fold(0.0, f64::max);
    let pacing = pacing(&recovery.pacing_rate, greatest * MAX_PACING);
    Plot {
        name: "rates",
        title: "Packets sent and received, and pacing",
        quantity: Quantity::BitsPerSecond,
        curves: vec![
            pacing,
            curve("received", 'b', Shape::Line, received),
            curve("sent", 'a', Shape::Line, sent),
        ],
        nothing: "The file has no packets.",
    }
}

/// The pacing rate, cut off far above what was sent: before a connection knows the path, and where little is to be
/// sent, it may be so high that nothing else could be seen.
fn pacing(series: &Series, most: f64) -> Curve {
    let mut points = series.points();
    let greatest = series.greatest();
    let mut label = "pacing rate".to_owned();
    if most > 0.0 && greatest > most {
        let unit = Quantity::BitsPerSecond.unit(greatest);
        let size = greatest / unit.size;
        label = format!("pacing rate (cut off above: up to {size:.0} {})", unit.name);
        points.iter_mut().for_each(|point| point.value = point.value.min(most));
    }
    curve(label, 'e', Shape::Steps, points)
}
