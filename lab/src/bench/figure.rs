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

/// Of bulk data and requests, whichever it was.
pub(super) const SOCKETS: &[Figure] =
    &[BULK[0], BULK[1], BULK[2], OPERATIONS[0], OPERATIONS[1], OPERATIONS[2]];

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
#[path = "figure_tests.rs"]
mod tests;
