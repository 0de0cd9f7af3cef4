use quicket_workload::bench::{FetchWay, Fetched, Measurement, Outcome, Switched, Way};

use super::*;
use crate::bench::plot::{WIDTH, svg};
use crate::bench::report::tests::{bulk, empty, place};

/// Frames in so many microseconds, each way.
fn switched(frames: u64) -> Measurement {
    let way = |way| Switched { way, frames, lost: 0, nanoseconds: 100_000 };
    let ways = Way::ALL.into_iter().map(way).collect();
    Measurement { result: Outcome::Switched { ways }, ..bulk(0) }
}

fn fetched(fetches: u64) -> Measurement {
    let fetched = |way| Fetched { way, fetches, octets: 1, nanoseconds: 1_000_000, cpu_ns: 1 };
    let ways = FetchWay::ALL.into_iter().map(fetched).collect();
    Measurement { result: Outcome::Fetched { ways }, ..bulk(0) }
}

/// A report with the measurements of points of a row.
fn report(row: Row, points: &[(&str, Measurement)]) -> Report {
    let mut report = empty();
    for (point, measurement) in points {
        report.add(place(row, point, Contender::Quicket), measurement.clone());
    }
    report
}

/// Panels of an SVG, from their captions on.
fn panel<'a>(svg: &'a str, caption: &str) -> &'a str {
    let from = svg.find(&format!(">{caption}, ")).unwrap_or_else(|| panic!("no {caption}: {svg}"));
    let rest = &svg[from..];
    rest.find("class=\"unit\"")
        .and_then(|unit| {
            let rest = rest.get(unit + 1..)?;
            Some(rest.split("class=\"unit\"").next().unwrap_or(rest))
        })
        .unwrap_or(rest)
}

/// How far down the points of a curve are.
fn heights(panel: &str, curve: usize) -> Vec<f64> {
    let points = panel.split(" points=\"").nth(curve + 1).unwrap().split('"').next().unwrap();
    points.split(' ').map(|point| point.split_once(',').unwrap().1.parse().unwrap()).collect()
}

#[test]
fn each_member_is_a_figure_of_the_row_and_all_of_a_panel_have_its_unit() {
    for row in Row::ALL {
        let groups = row.charts().iter().flat_map(|chart| chart.groups);
        let mut shown: Vec<&str> = Vec::new();
        for group in groups {
            let figure = |name| row.figures().iter().find(|figure| figure.name == name);
            let units: Vec<_> = group
                .members
                .iter()
                .map(|(_, name)| figure(*name).unwrap_or_else(|| panic!("{row}: {name}")))
                .map(|figure| (figure.unit, figure.better, figure.digits))
                .collect();
            assert!(units.iter().all(|unit| *unit == units[0]), "{row}, {}", group.title);
            assert!(group.members.len() <= SERIES.len(), "{row}: a colour for each");
            shown.extend(group.members.iter().map(|(_, name)| *name));
        }
        let hidden = row.figures().iter().filter(|figure| !shown.contains(&figure.name));
        assert!(row.charts().is_empty() || hidden.count() == 0, "{row}: all are in a plot");
    }
}

#[test]
fn figures_of_a_group_share_a_panel_and_its_scale_with_the_limit() {
    let points = [("64 octets, 64 ports", switched(744)), ("1500 octets, 64 ports", switched(41))];
    let svg = svg(&report(Row::SwitchFrames, &points), NetworkKind::Loopback);
    let panel = panel(&svg, "to the card");
    for text in ["one core", "two cores", "wire of 10 Gbit/s", "octets of a frame", "64", "1500"] {
        assert_eq!(panel.matches(&format!(">{text}</text>")).count(), 1, "{text}: {panel}");
    }
    assert!(panel.contains(">14.88</text>"), "the wire is the top: {panel}");
    assert_eq!(panel.matches("class=\"curve limit\"").count(), 2, "a curve and its legend");
    // 7.44 of 14.88 is half of the height, and 0.41 of 0.82, too.
    let (rates, limit) = (heights(panel, 0), heights(panel, 2));
    let bottom = 2.0 * rates[0] - limit[0];
    assert!(((bottom - rates[1]) * 2.0 - (bottom - limit[1])).abs() < 0.3, "{rates:?} {limit:?}");
}

#[test]
fn curves_go_over_ports_with_the_shortest_frames_and_over_lengths_with_most_ports() {
    let points = ["1 port", "64 ports"].into_iter().flat_map(|ports| {
        [64, 128].map(|octets| (format!("{octets} octets, {ports}"), switched(octets)))
    });
    let points: Vec<_> = points.collect();
    let points: Vec<_> = points.iter().map(|(name, one)| (name.as_str(), one.clone())).collect();
    let svg = svg(&report(Row::SwitchFrames, &points), NetworkKind::Loopback);
    let titles: Vec<&str> = svg.split("class=\"band\" x=\"0\" y=\"").skip(1).collect();
    let titles = titles.iter().filter_map(|rest| rest.split('>').nth(1)?.split('<').next());
    let titles: Vec<&str> = titles.filter(|title| !title.is_empty()).collect();
    let title = Row::SwitchFrames.title();
    assert_eq!(titles, [format!("{title}: 64 ports"), format!("{title}: 64 octets")]);
    assert_eq!(svg.matches(">ports</text>").count(), GROUPS, "an axis for each panel");
    assert_eq!(svg.matches(">octets of a frame</text>").count(), GROUPS);
    let lefts = svg.split(" x=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let lefts: Vec<f64> = lefts.map(|left| left.parse().unwrap()).collect();
    assert!(lefts.iter().all(|left| *left < WIDTH as f64), "{lefts:?}");
}

/// Panels of a chart of frames.
const GROUPS: usize = 6;

#[test]
fn each_number_of_fetches_at_once_has_panels_of_its_own() {
    let points = [
        ("1 KiB, 64 at once", fetched(10)),
        ("8 KiB, 64 at once", fetched(5)),
        ("1 KiB, 8 at once", fetched(20)),
    ];
    let svg = svg(&report(Row::SwitchHttp, &points), NetworkKind::Loopback);
    for (at_once, count) in [("64 at once", 1), ("8 at once", 1)] {
        let title = format!(">{}: {at_once}<", Row::SwitchHttp.title());
        assert_eq!(svg.matches(&title).count(), count, "{svg}");
    }
    assert_eq!(svg.matches("<polyline").count(), 2 * 3 * FetchWay::ALL.len());
    assert_eq!(svg.matches(">nginx, offload</text>").count(), 2 * 3, "in each legend");
    // One point alone is seen, too.
    assert_eq!(svg.matches("<circle").count(), 3 * 3 * FetchWay::ALL.len());
}

#[test]
fn one_point_has_bars_side_by_side_with_the_limit_across_them() {
    let points = [("64 octets, 64 ports", switched(744))];
    let svg = svg(&report(Row::SwitchFrames, &points), NetworkKind::Loopback);
    assert_eq!(svg.matches("<polyline").count(), 0);
    let panel = panel(&svg, "to the card");
    assert_eq!(panel.matches("<rect").count(), 2, "{panel}");
    assert!(panel.contains(">wire of 10 Gbit/s: 14.88</text>"), "{panel}");
    assert_eq!(svg.matches(">from port to port, Mpps").count(), 1, "not for each axis");
}

#[test]
fn bare_sockets_and_the_switch_are_side_by_side() {
    let mut report = empty();
    let way = |way, frames| Switched { way, frames, lost: 0, nanoseconds: 100 };
    let ways = vec![way(Way::OutBare, 10), way(Way::Out, 5), way(Way::Program1, 1)];
    let measurement = Measurement { result: Outcome::Switched { ways }, ..bulk(0) };
    report.add(place(Row::SwitchDevices, "", Contender::Quicket), measurement);
    let svg = svg(&report, NetworkKind::Loopback);
    let frames = panel(&svg, "frames by devices");
    assert!(frames.contains(">out, bare AF_XDP<") && frames.contains(">out, by the switch<"));
    let share = panel(&svg, "switch : bare");
    assert!(share.contains(">0.50<") && share.contains(">the aim: 0.90<"), "{share}");
    assert_eq!(panel(&svg, "XDP program, a frame").matches("<rect").count(), 1);
}

#[test]
fn implementations_that_share_a_panel_are_told_apart() {
    let mut report = empty();
    for contender in [Contender::Quicket, Contender::Nginx] {
        report.add(place(Row::SwitchFrames, "64 octets, 1 port", contender), switched(1));
    }
    let svg = svg(&report, NetworkKind::Loopback);
    assert!(svg.contains(">quicket, one core<") && svg.contains(">nginx, one core<"), "{svg}");
}
