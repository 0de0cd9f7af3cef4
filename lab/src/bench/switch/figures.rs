//! The figures of frames through the switch for packets.

use std::net::Ipv6Addr;

use quicket_packets::traffic::shortest;
use quicket_workload::bench::{Measurement, Outcome, Switched, Way};

use super::ends::GBIT;
use crate::bench::figure::{Better, Figure};
use crate::bench::plot::{Axis, Chart, Group, Held, Limit};

/// Rates over the length of frames, with the most ports, and over the number of ports, with the shortest frames: the plots of
/// MultiStack (2013).
pub(in crate::bench) const CHARTS: &[Chart] = &[
    Chart {
        axis: Some(Axis { title: "octets of a frame", part: 0, held: Held::Last }),
        groups: GROUPS,
    },
    Chart { axis: Some(Axis { title: "ports", part: 1, held: Held::First }), groups: GROUPS },
];

const GROUPS: &[Group] = &[
    Group {
        title: "to the card",
        members: &[("one core", "to the card"), ("two cores", "to the card, two cores")],
        limit: Some(WIRE),
    },
    Group {
        title: "from the card",
        members: &[("one core", "from the card"), ("two cores", "from the card, two cores")],
        limit: Some(WIRE),
    },
    Group {
        title: "from port to port",
        members: &[
            ("one thread", "within a process"),
            ("two processes", "between two processes"),
            ("one thread, IPv6", "within a process, IPv6"),
            ("two processes, IPv6", "between two processes, IPv6"),
        ],
        limit: None,
    },
    Group {
        title: "to the card, IPv6",
        members: &[
            ("one core", "to the card, IPv6"),
            ("two cores", "to the card, two cores, IPv6"),
        ],
        limit: Some(WIRE_V6),
    },
    Group {
        title: "from the card, IPv6",
        members: &[
            ("one core", "from the card, IPv6"),
            ("two cores", "from the card, two cores, IPv6"),
        ],
        limit: Some(WIRE_V6),
    },
    Group { title: "lost", members: &[("of all ways", "lost")], limit: None },
];

/// What the leaky bucket of the card lets through.
const WIRE: Limit = Limit { name: "wire of 10 Gbit/s", at: |point| octets(point).map(wire) };
const WIRE_V6: Limit = Limit {
    name: "wire of 10 Gbit/s, 82 octets at least",
    at: |point| Some(wire(octets(point)?.max(shortest((Ipv6Addr::LOCALHOST, 0).into())))),
};

/// The length of frames, which the name of a point begins with.
fn octets(point: &str) -> Option<usize> {
    point.split(' ').next()?.parse().ok()
}

/// Millions of frames in a second on the wire of the card, where each has a preamble and a gap, of 20 octets.
fn wire(octets: usize) -> f64 {
    GBIT * 1e3 / ((octets + 20) * 8) as f64
}

/// Of frames through the switch for packets.
pub(in crate::bench) const FIGURES: &[Figure] = &[
    Figure {
        name: "within a process",
        unit: "Mpps",
        better: Better::Higher,
        digits: 2,
        value: |measurement| frames(measurement, Way::Within),
    },
    Figure {
        name: "within a process, IPv6",
        unit: "Mpps",
        better: Better::Higher,
        digits: 2,
        value: |measurement| frames(measurement, Way::WithinV6),
    },
    Figure {
        name: "between two processes",
        unit: "Mpps",
        better: Better::Higher,
        digits: 2,
        value: |measurement| frames(measurement, Way::Between),
    },
    Figure {
        name: "between two processes, IPv6",
        unit: "Mpps",
        better: Better::Higher,
        digits: 2,
        value: |measurement| frames(measurement, Way::BetweenV6),
    },
    Figure {
        name: "to the card",
        unit: "Mpps",
        better: Better::Higher,
        digits: 2,
        value: |measurement| frames(measurement, Way::ToCard),
    },
    Figure {
        name: "to the card, IPv6",
        unit: "Mpps",
        better: Better::Higher,
        digits: 2,
        value: |measurement| frames(measurement, Way::ToCardV6),
    },
    Figure {
        name: "to the card, two cores",
        unit: "Mpps",
        better: Better::Higher,
        digits: 2,
        value: |measurement| frames(measurement, Way::ToCardApart),
    },
    Figure {
        name: "to the card, two cores, IPv6",
        unit: "Mpps",
        better: Better::Higher,
        digits: 2,
        value: |measurement| frames(measurement, Way::ToCardApartV6),
    },
    Figure {
        name: "from the card",
        unit: "Mpps",
        better: Better::Higher,
        digits: 2,
        value: |measurement| frames(measurement, Way::FromCard),
    },
    Figure {
        name: "from the card, IPv6",
        unit: "Mpps",
        better: Better::Higher,
        digits: 2,
        value: |measurement| frames(measurement, Way::FromCardV6),
    },
    Figure {
        name: "from the card, two cores",
        unit: "Mpps",
        better: Better::Higher,
        digits: 2,
        value: |measurement| frames(measurement, Way::FromCardApart),
    },
    Figure {
        name: "from the card, two cores, IPv6",
        unit: "Mpps",
        better: Better::Higher,
        digits: 2,
        value: |measurement| frames(measurement, Way::FromCardApartV6),
    },
    Figure {
        name: "lost",
        unit: "%",
        better: Better::Lower,
        digits: 2,
        value: |measurement| {
            let Outcome::Switched { ways } = &measurement.result else { return None };
            let sum = |of: fn(&Switched) -> u64| ways.iter().map(of).sum::<u64>() as f64;
            let (frames, lost) = (sum(|way| way.frames), sum(|way| way.lost));
            (frames > 0.0).then(|| 100.0 * lost / (frames + lost))
        },
    },
];

/// Millions of frames in a second.
fn frames(measurement: &Measurement, way: Way) -> Option<f64> {
    let Outcome::Switched { ways } = &measurement.result else { return None };
    let switched = ways.iter().find(|switched| switched.way == way)?;
    (switched.nanoseconds > 0).then(|| switched.frames as f64 * 1e3 / switched.nanoseconds as f64)
}

#[cfg(test)]
mod tests {
    use quicket_workload::bench::Link;

    use super::*;

    #[test]
    fn the_wire_carries_fewer_frames_the_longer_they_are() {
        let at = |limit: Limit, point| (limit.at)(point).map(|rate| (rate * 100.0).round() / 100.0);
        assert_eq!(at(WIRE, "64 octets, 1 port"), Some(14.88));
        assert_eq!(at(WIRE, "1500 octets, 64 ports"), Some(0.82));
        assert_eq!(at(WIRE_V6, "64 octets, 1 port"), Some(12.25), "82 octets at least");
        assert_eq!(at(WIRE_V6, "1500 octets, 1 port"), Some(0.82));
        assert_eq!(at(WIRE, ""), None);
    }

    #[test]
    fn the_switch_is_told_by_frames_in_a_second_each_way() {
        let way = |way, lost| Switched { way, frames: 30_000, lost, nanoseconds: 1_000_000 };
        let ways = vec![way(Way::Within, 0), way(Way::ToCard, 20_000)];
        let measurement = Measurement {
            result: Outcome::Switched { ways },
            client_cpu_ns: 0,
            server_cpu_ns: 0,
            link: Link::default(),
        };
        let values: Vec<_> = FIGURES.iter().map(|figure| figure.of(&measurement)).collect();
        let told = |name| {
            FIGURES
                .iter()
                .zip(&values)
                .find(|(figure, _)| figure.name == name)
                .and_then(|(_, value)| *value)
        };
        assert_eq!(told("within a process"), Some(30.0));
        assert_eq!(told("to the card"), Some(30.0));
        assert_eq!(told("lost"), Some(25.0));
        assert_eq!(values.iter().flatten().count(), 3, "nothing else was measured");
    }
}
