//! The figures of frames through the switch for packets.

use quicket_workload::bench::{Measurement, Outcome, Switched, Way};

use crate::bench::figure::{Better, Figure};

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
