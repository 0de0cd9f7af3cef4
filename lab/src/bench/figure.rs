//! The figures taken from measurements.

use quicket_workload::bench::{Flow, Measurement, Outcome, Summary};

/// Which values of a figure are the good ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// The high ones.
    Higher,
    /// The low ones.
    Lower,
    /// One in between.
    Neither,
}

/// A figure taken from the measurements of a row.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// What it is.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Which values are good.
    pub better: Better,
    /// Digits after the point.
    pub digits: usize,
    pub(super) value: fn(&Measurement) -> Option<f64>,
}

impl Figure {
    /// The figure, if the measurement is one that has it.
    #[must_use]
    pub fn of(&self, measurement: &Measurement) -> Option<f64> {
        (self.value)(measurement)
    }

    /// How much better `own` is than `other`: 2 is twice as good, whichever values are the good
    /// ones. None if one of them is zero, or neither high nor low values are good.
    #[must_use]
    pub fn ratio(&self, own: f64, other: f64) -> Option<f64> {
        let (good, bad) = match self.better {
            Better::Higher => (own, other),
            Better::Lower => (other, own),
            Better::Neither => return None,
        };
        (good > 0.0 && bad > 0.0).then(|| good / bad)
    }
}

const GIB: f64 = (1_u64 << 30) as f64;

/// Of a bulk transfer.
pub(super) const BULK: &[Figure] = &[
    Figure {
        name: "goodput",
        unit: "Gbit/s",
        better: Better::Higher,
        digits: 2,
        value: |measurement| match measurement.result {
            Outcome::Bulk { bytes, nanoseconds } => Some(bytes as f64 * 8.0 / nanoseconds as f64),
            _ => None,
        },
    },
    Figure {
        name: "client CPU",
        unit: "s/GiB",
        better: Better::Lower,
        digits: 3,
        value: |measurement| per_gib(measurement, measurement.client_cpu_ns),
    },
    Figure {
        name: "server CPU",
        unit: "s/GiB",
        better: Better::Lower,
        digits: 3,
        value: |measurement| per_gib(measurement, measurement.server_cpu_ns),
    },
];

fn per_gib(measurement: &Measurement, cpu_ns: u64) -> Option<f64> {
    match measurement.result {
        Outcome::Bulk { bytes, .. } => Some(cpu_ns as f64 / 1e9 / (bytes as f64 / GIB)),
        _ => None,
    }
}

/// Of files that programs fetch.
pub(super) const FILES: &[Figure] = &[
    Figure {
        name: "time of a large file",
        unit: "s/GiB",
        better: Better::Lower,
        digits: 2,
        value: |measurement| match measurement.result {
            Outcome::Files { bytes, nanoseconds, .. } => {
                Some(nanoseconds as f64 / 1e9 / (bytes as f64 / GIB))
            }
            _ => None,
        },
    },
    Figure {
        name: "client CPU",
        unit: "s/GiB",
        better: Better::Lower,
        digits: 3,
        value: |measurement| files_per_gib(measurement, measurement.client_cpu_ns),
    },
    Figure {
        name: "server CPU",
        unit: "s/GiB",
        better: Better::Lower,
        digits: 3,
        value: |measurement| files_per_gib(measurement, measurement.server_cpu_ns),
    },
    Figure {
        name: "time of 1 KiB, median",
        unit: "ms",
        better: Better::Lower,
        digits: 1,
        value: |measurement| match measurement.result {
            Outcome::Files { small, .. } => Some(small.p50_us / 1000.0),
            _ => None,
        },
    },
];

fn files_per_gib(measurement: &Measurement, cpu_ns: u64) -> Option<f64> {
    match measurement.result {
        Outcome::Files { bytes, .. } => Some(cpu_ns as f64 / 1e9 / (bytes as f64 / GIB)),
        _ => None,
    }
}

/// How many operations there were in a second.
pub(super) const RATE: Figure = Figure {
    name: "rate",
    unit: "/s",
    better: Better::Higher,
    digits: 0,
    value: |measurement| Some(summary(measurement)?.per_second),
};

/// Of operations one after the other, or few at once.
pub(super) const OPERATIONS: &[Figure] = &[
    RATE,
    Figure {
        name: "median time",
        unit: "µs",
        better: Better::Lower,
        digits: 1,
        value: |measurement| Some(summary(measurement)?.p50_us),
    },
    Figure {
        name: "99th percentile",
        unit: "µs",
        better: Better::Lower,
        digits: 1,
        value: |measurement| Some(summary(measurement)?.p99_us),
    },
];

pub(super) fn summary(measurement: &Measurement) -> Option<Summary> {
    match measurement.result {
        Outcome::Operations(summary) | Outcome::Transfers { summary, .. } => Some(summary),
        _ => None,
    }
}

/// Of many transfers at once.
pub(super) const TRANSFERS: &[Figure] = &[
    Figure {
        name: "goodput",
        unit: "Gbit/s",
        better: Better::Higher,
        digits: 2,
        value: |measurement| match measurement.result {
            Outcome::Transfers { summary, bytes } => {
                Some(summary.per_second * bytes as f64 * 8.0 / 1e9)
            }
            _ => None,
        },
    },
    Figure {
        name: "CPU of both ends",
        unit: "µs each",
        better: Better::Lower,
        digits: 1,
        value: |measurement| {
            let count = summary(measurement)?.count.max(1);
            let cpu = measurement.client_cpu_ns + measurement.server_cpu_ns;
            Some(cpu as f64 / 1000.0 / count as f64)
        },
    },
    Figure {
        name: "99th percentile",
        unit: "ms",
        better: Better::Lower,
        digits: 2,
        value: |measurement| Some(summary(measurement)?.p99_us / 1000.0),
    },
];

/// Of a download without end.
pub(super) const FLOW: &[Figure] = &[Figure {
    name: "goodput",
    unit: "Mbit/s",
    better: Better::Higher,
    digits: 2,
    value: |measurement| match &measurement.result {
        Outcome::Flow(flow) => Some(flow.bits_per_second(0) / 1e6),
        _ => None,
    },
}];

/// Of two downloads at once, from the time on when both have been under way for a while.
pub(super) const SHARED: &[Figure] = &[
    Figure {
        name: "share of the link's goodput (half is fair)",
        unit: "%",
        better: Better::Neither,
        digits: 1,
        value: |measurement| {
            let (own, rival) = shared(measurement)?;
            (own + rival > 0.0).then(|| own / (own + rival) * 100.0)
        },
    },
    Figure {
        name: "fairness by Jain's index",
        unit: "of 1",
        better: Better::Higher,
        digits: 3,
        value: |measurement| {
            let (own, rival) = shared(measurement)?;
            let squares = own * own + rival * rival;
            (squares > 0.0).then(|| (own + rival).powi(2) / (2.0 * squares))
        },
    },
    Figure {
        name: "goodput of both",
        unit: "Mbit/s",
        better: Better::Higher,
        digits: 1,
        value: |measurement| {
            let (own, rival) = shared(measurement)?;
            Some((own + rival) / 1e6)
        },
    },
];

/// Bits per second of both downloads, without their first third, in which they find their rate.
fn shared(measurement: &Measurement) -> Option<(f64, f64)> {
    let Outcome::Shared { own, rival } = &measurement.result else { return None };
    let rate = |flow: &Flow| flow.bits_per_second(flow.intervals.len() / 3);
    Some((rate(own), rate(rival)))
}

/// Of datagrams that are forwarded.
pub(super) const FORWARDING: &[Figure] = &[
    Figure {
        name: "datagrams a second of a core",
        unit: "thousands",
        better: Better::Higher,
        digits: 0,
        value: |measurement| {
            let (packets, _, cpu_ns, _) = forwarded(measurement)?;
            (cpu_ns > 0).then(|| packets as f64 * 1e6 / cpu_ns as f64)
        },
    },
    Figure {
        name: "CPU",
        unit: "ns each",
        better: Better::Lower,
        digits: 0,
        value: |measurement| {
            let (packets, _, cpu_ns, _) = forwarded(measurement)?;
            (packets > 0).then(|| cpu_ns as f64 / packets as f64)
        },
    },
    Figure {
        name: "system calls",
        unit: "for 100",
        better: Better::Lower,
        digits: 1,
        value: |measurement| {
            let (packets, _, _, calls) = forwarded(measurement)?;
            (packets > 0).then(|| calls as f64 * 100.0 / packets as f64)
        },
    },
];

fn forwarded(measurement: &Measurement) -> Option<(u64, u64, u64, u64)> {
    match measurement.result {
        Outcome::Forwarded { packets, nanoseconds, cpu_ns, calls } => {
            Some((packets, nanoseconds, cpu_ns, calls))
        }
        _ => None,
    }
}

/// Of TCP through a tunnel: the first two in bulk, the others of requests and answers.
pub(super) const TUNNEL: &[Figure] = &[
    Figure {
        name: "goodput",
        unit: "Gbit/s",
        better: Better::Higher,
        digits: 2,
        value: |measurement| match tunnelled(measurement)? {
            // The first fifth is TCP's, to find its rate.
            (Outcome::Flow(flow), _) => Some(flow.bits_per_second(flow.intervals.len() / 5) / 1e9),
            _ => None,
        },
    },
    Figure {
        name: "CPU of both tunnel ends",
        unit: "s/GiB",
        better: Better::Lower,
        digits: 3,
        value: |measurement| match tunnelled(measurement)? {
            (Outcome::Flow(flow), cpu_ns) => {
                let bytes: u64 = flow.intervals.iter().sum();
                // None is used where there is no tunnel, or the kernel's.
                (bytes > 0 && cpu_ns > 0).then(|| cpu_ns as f64 / 1e9 / (bytes as f64 / GIB))
            }
            _ => None,
        },
    },
    Figure {
        name: "transactions",
        unit: "/s",
        better: Better::Higher,
        digits: 0,
        value: |measurement| Some(transactions(measurement)?.0.per_second),
    },
    Figure {
        name: "CPU of both tunnel ends",
        unit: "µs each",
        better: Better::Lower,
        digits: 1,
        value: |measurement| {
            let (summary, cpu_ns) = transactions(measurement)?;
            (cpu_ns > 0).then(|| cpu_ns as f64 / 1000.0 / summary.count.max(1) as f64)
        },
    },
    Figure {
        name: "90th percentile",
        unit: "ms",
        better: Better::Lower,
        digits: 2,
        value: |measurement| Some(transactions(measurement)?.0.p90_us / 1000.0),
    },
    Figure {
        name: "95th percentile",
        unit: "ms",
        better: Better::Lower,
        digits: 2,
        value: |measurement| Some(transactions(measurement)?.0.p95_us / 1000.0),
    },
    Figure {
        name: "99th percentile",
        unit: "ms",
        better: Better::Lower,
        digits: 2,
        value: |measurement| Some(transactions(measurement)?.0.p99_us / 1000.0),
    },
];

fn tunnelled(measurement: &Measurement) -> Option<(&Outcome, u64)> {
    match &measurement.result {
        Outcome::Tunnelled { load, tunnel_cpu_ns } => Some((load, *tunnel_cpu_ns)),
        _ => None,
    }
}

fn transactions(measurement: &Measurement) -> Option<(Summary, u64)> {
    match tunnelled(measurement)? {
        (Outcome::Transfers { summary, .. }, cpu_ns) => Some((*summary, cpu_ns)),
        _ => None,
    }
}

/// Of requests through a gateway: of small answers, of large ones, and of connections that do nothing.
pub(super) const GATEWAY: &[Figure] = &[
    Figure {
        name: "requests per CPU second",
        unit: "/s",
        better: Better::Higher,
        digits: 0,
        value: |measurement| match measurement.result {
            Outcome::Operations(summary) => per_cpu_second(measurement, summary.count as f64),
            _ => None,
        },
    },
    Figure {
        name: "requests",
        unit: "/s",
        better: Better::Higher,
        digits: 0,
        value: |measurement| Some(summary(measurement)?.per_second),
    },
    Figure {
        name: "median time",
        unit: "ms",
        better: Better::Lower,
        digits: 2,
        value: |measurement| Some(summary(measurement)?.p50_us / 1000.0),
    },
    Figure {
        name: "99th percentile",
        unit: "ms",
        better: Better::Lower,
        digits: 2,
        value: |measurement| Some(summary(measurement)?.p99_us / 1000.0),
    },
    Figure {
        name: "GiB per CPU second",
        unit: "GiB/s",
        better: Better::Higher,
        digits: 3,
        value: |measurement| match measurement.result {
            Outcome::Bulk { bytes, .. } => per_cpu_second(measurement, bytes as f64 / GIB),
            _ => None,
        },
    },
    Figure {
        name: "goodput",
        unit: "Gbit/s",
        better: Better::Higher,
        digits: 2,
        value: |measurement| match measurement.result {
            Outcome::Bulk { bytes, nanoseconds } => Some(bytes as f64 * 8.0 / nanoseconds as f64),
            _ => None,
        },
    },
    Figure {
        name: "memory per connection",
        unit: "bytes",
        better: Better::Lower,
        digits: 0,
        value: |measurement| match measurement.result {
            Outcome::Idle { connections, server_bytes, .. } => {
                Some(server_bytes as f64 / connections as f64)
            }
            _ => None,
        },
    },
];

/// So much by a second of the server's processor.
fn per_cpu_second(measurement: &Measurement, amount: f64) -> Option<f64> {
    let cpu_ns = measurement.server_cpu_ns;
    (cpu_ns > 0).then(|| amount * 1e9 / cpu_ns as f64)
}

/// Of idle connections.
pub(super) const IDLE: &[Figure] = &[
    Figure {
        name: "server memory per connection",
        unit: "bytes",
        better: Better::Lower,
        digits: 0,
        value: |measurement| match measurement.result {
            Outcome::Idle { connections, server_bytes, .. } => {
                Some(server_bytes as f64 / connections as f64)
            }
            _ => None,
        },
    },
    Figure {
        name: "client memory per connection",
        unit: "bytes",
        better: Better::Lower,
        digits: 0,
        value: |measurement| match measurement.result {
            Outcome::Idle { connections, client_bytes, .. } => {
                Some(client_bytes as f64 / connections as f64)
            }
            _ => None,
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use quicket_workload::bench::Link;

    fn measurement(result: Outcome) -> Measurement {
        Measurement {
            result,
            client_cpu_ns: 500_000_000,
            server_cpu_ns: 250_000_000,
            link: Link::default(),
        }
    }

    fn values(figures: &[Figure], result: Outcome) -> Vec<f64> {
        let measurement = measurement(result);
        figures.iter().map(|figure| figure.of(&measurement).unwrap()).collect()
    }

    const SUMMARY: Summary = Summary {
        count: 1000,
        per_second: 500.0,
        p50_us: 100.0,
        p90_us: 1000.0,
        p95_us: 2000.0,
        p99_us: 2500.0,
        max_us: 9000.0,
    };

    #[test]
    fn bulk_is_told_in_bits_and_processor_time_by_the_gibibyte() {
        let result = Outcome::Bulk { bytes: 1 << 30, nanoseconds: 1_000_000_000 };
        assert_eq!(values(BULK, result), [8.589934592, 0.5, 0.25]);
    }

    #[test]
    fn files_are_told_by_the_gibibyte_and_small_ones_in_milliseconds() {
        let result = Outcome::Files { bytes: 1 << 29, nanoseconds: 1_000_000_000, small: SUMMARY };
        assert_eq!(values(FILES, result), [2.0, 1.0, 0.5, 0.1]);
    }

    #[test]
    fn operations_have_a_rate_and_percentiles() {
        assert_eq!(values(OPERATIONS, Outcome::Operations(SUMMARY)), [500.0, 100.0, 2500.0]);
    }

    #[test]
    fn transfers_have_a_goodput_and_a_cost_each() {
        let result = Outcome::Transfers { summary: SUMMARY, bytes: 1_000_000 };
        assert_eq!(values(TRANSFERS, result), [4.0, 750.0, 2.5]);
    }

    #[test]
    fn shares_leave_out_the_first_third() {
        let own = Flow { intervals: vec![9_000_000, 300_000, 300_000] };
        let rival = Flow { intervals: vec![0, 100_000, 100_000] };
        let result = Outcome::Shared { own, rival };
        assert_eq!(values(SHARED, result), [75.0, 0.8, 32.0]);
        let nothing = Outcome::Shared { own: Flow::default(), rival: Flow::default() };
        assert_eq!(SHARED[0].of(&measurement(nothing)), None);
    }

    #[test]
    fn forwarding_is_told_by_the_processor_time_and_not_by_the_clock() {
        let result = Outcome::Forwarded {
            packets: 1_000_000,
            nanoseconds: 9,
            cpu_ns: 500_000_000,
            calls: 4000,
        };
        assert_eq!(values(FORWARDING, result), [2000.0, 500.0, 0.4]);
    }

    #[test]
    fn gateways_are_told_by_their_processor_time_and_each_load_has_its_figures() {
        let of = |result| {
            let measurement = measurement(result);
            GATEWAY.iter().filter_map(|figure| figure.of(&measurement)).collect::<Vec<_>>()
        };
        assert_eq!(of(Outcome::Operations(SUMMARY)), [4000.0, 500.0, 0.1, 2.5]);
        let bulk = Outcome::Bulk { bytes: 1 << 30, nanoseconds: 1_000_000_000 };
        assert_eq!(of(bulk), [4.0, 8.589934592]);
        let idle = Outcome::Idle { connections: 10, server_bytes: 70, client_bytes: 1 };
        assert_eq!(of(idle), [7.0]);
    }

    #[test]
    fn tunnels_have_figures_of_their_load_and_no_others() {
        let tunnelled = |load| {
            measurement(Outcome::Tunnelled { load: Box::new(load), tunnel_cpu_ns: 1_000_000_000 })
        };
        let of = |measurement: &Measurement| {
            TUNNEL.iter().map(|figure| figure.of(measurement)).collect::<Vec<_>>()
        };
        let intervals = [vec![0], vec![1 << 28; 4]].concat();
        let bulk = of(&tunnelled(Outcome::Flow(Flow { intervals })));
        assert_eq!(bulk[..2], [Some(21.47483648), Some(1.0)]);
        assert!(bulk[2..].iter().all(Option::is_none));
        let streams = of(&tunnelled(Outcome::Transfers { summary: SUMMARY, bytes: 1 }));
        let expected = [None, None, Some(500.0), Some(1000.0), Some(1.0), Some(2.0), Some(2.5)];
        assert_eq!(streams, expected);
    }

    #[test]
    fn a_ratio_above_one_is_good_whichever_values_are() {
        assert_eq!(BULK[0].ratio(20.0, 10.0), Some(2.0));
        assert_eq!(BULK[1].ratio(0.25, 0.5), Some(2.0));
        assert_eq!(BULK[1].ratio(0.25, 0.0), None);
        assert_eq!(SHARED[0].ratio(60.0, 50.0), None);
    }

    #[test]
    fn a_figure_of_another_kind_of_measurement_is_none() {
        let bulk = measurement(Outcome::Bulk { bytes: 1, nanoseconds: 1 });
        let others = [OPERATIONS, TRANSFERS, FLOW, SHARED, IDLE, FILES, FORWARDING, TUNNEL];
        for figure in others.into_iter().flatten() {
            assert_eq!(figure.of(&bulk), None, "{}", figure.name);
        }
    }
}
