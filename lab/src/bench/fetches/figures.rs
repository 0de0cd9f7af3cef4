//! The figures of fetches over TCP of the system and in user space.

use quicket_workload::bench::{FetchWay, Fetched, Measurement, Outcome};

use crate::bench::figure::{Better, Figure};
use crate::bench::plot::{Axis, Chart, Group, Held};

/// Fetches in a second, Gbit/s, and processor time for each fetch, of all ways.
pub(in crate::bench) const FIGURES: &[Figure] = &[
    rate("system, with offload", |measurement| fetches(measurement, FetchWay::System)),
    rate("system, without", |measurement| fetches(measurement, FetchWay::WithoutOffload)),
    rate("nginx", |measurement| fetches(measurement, FetchWay::Nginx)),
    rate("stack, AF_XDP, with offload", |measurement| fetches(measurement, FetchWay::Device)),
    rate("stack, AF_XDP, without", |measurement| {
        fetches(measurement, FetchWay::DeviceWithoutOffload)
    }),
    rate("stacks, memory", |measurement| fetches(measurement, FetchWay::Memory)),
    octets("octets: system, with offload", |measurement| gbit(measurement, FetchWay::System)),
    octets("octets: system, without", |measurement| gbit(measurement, FetchWay::WithoutOffload)),
    octets("octets: nginx", |measurement| gbit(measurement, FetchWay::Nginx)),
    octets("octets: stack, AF_XDP, with offload", |measurement| {
        gbit(measurement, FetchWay::Device)
    }),
    octets("octets: stack, AF_XDP, without", |measurement| {
        gbit(measurement, FetchWay::DeviceWithoutOffload)
    }),
    octets("octets: stacks, memory", |measurement| gbit(measurement, FetchWay::Memory)),
    time("CPU: system, with offload", |measurement| cpu(measurement, FetchWay::System)),
    time("CPU: system, without", |measurement| cpu(measurement, FetchWay::WithoutOffload)),
    time("CPU: nginx", |measurement| cpu(measurement, FetchWay::Nginx)),
    time("CPU: stack, AF_XDP, with offload", |measurement| cpu(measurement, FetchWay::Device)),
    time("CPU: stack, AF_XDP, without", |measurement| {
        cpu(measurement, FetchWay::DeviceWithoutOffload)
    }),
    time("CPU: stacks, memory", |measurement| cpu(measurement, FetchWay::Memory)),
];

/// All kinds of TCP side by side, over the length of bodies.
pub(in crate::bench) const CHARTS: &[Chart] = &[Chart {
    axis: Some(Axis { title: "KiB of a body", part: 0, held: Held::Each }),
    groups: &[
        Group {
            title: "fetches",
            members: &[
                ("system, offload", "system, with offload"),
                ("system, no offload", "system, without"),
                ("nginx, offload", "nginx"),
                ("stack, AF_XDP, offload", "stack, AF_XDP, with offload"),
                ("stack, AF_XDP, no offload", "stack, AF_XDP, without"),
                ("stacks in memory", "stacks, memory"),
            ],
            limit: None,
        },
        Group {
            title: "octets",
            members: &[
                ("system, offload", "octets: system, with offload"),
                ("system, no offload", "octets: system, without"),
                ("nginx, offload", "octets: nginx"),
                ("stack, AF_XDP, offload", "octets: stack, AF_XDP, with offload"),
                ("stack, AF_XDP, no offload", "octets: stack, AF_XDP, without"),
                ("stacks in memory", "octets: stacks, memory"),
            ],
            limit: None,
        },
        Group {
            title: "CPU of a fetch",
            members: &[
                ("system, offload", "CPU: system, with offload"),
                ("system, no offload", "CPU: system, without"),
                ("nginx, offload", "CPU: nginx"),
                ("stack, AF_XDP, offload", "CPU: stack, AF_XDP, with offload"),
                ("stack, AF_XDP, no offload", "CPU: stack, AF_XDP, without"),
                ("stacks in memory", "CPU: stacks, memory"),
            ],
            limit: None,
        },
    ],
}];

type Value = fn(&Measurement) -> Option<f64>;

const fn rate(name: &'static str, value: Value) -> Figure {
    Figure { name, unit: "/s", better: Better::Higher, digits: 0, value }
}

const fn octets(name: &'static str, value: Value) -> Figure {
    Figure { name, unit: "Gbit/s", better: Better::Higher, digits: 2, value }
}

const fn time(name: &'static str, value: Value) -> Figure {
    Figure { name, unit: "us", better: Better::Lower, digits: 1, value }
}

fn of(measurement: &Measurement, way: FetchWay) -> Option<&Fetched> {
    let Outcome::Fetched { ways } = &measurement.result else { return None };
    ways.iter().find(|fetched| fetched.way == way && fetched.nanoseconds > 0 && fetched.fetches > 0)
}

fn fetches(measurement: &Measurement, way: FetchWay) -> Option<f64> {
    of(measurement, way).map(|fetched| fetched.fetches as f64 * 1e9 / fetched.nanoseconds as f64)
}

fn gbit(measurement: &Measurement, way: FetchWay) -> Option<f64> {
    of(measurement, way).map(|fetched| fetched.octets as f64 * 8.0 / fetched.nanoseconds as f64)
}

/// Of the whole machine, for each fetch.
fn cpu(measurement: &Measurement, way: FetchWay) -> Option<f64> {
    of(measurement, way).map(|fetched| fetched.cpu_ns as f64 / 1e3 / fetched.fetches as f64)
}

#[cfg(test)]
mod tests {
    use quicket_workload::bench::Link;

    use super::*;

    #[test]
    fn fetches_are_told_by_the_second_by_octets_and_by_processor_time() {
        let way = FetchWay::Device;
        let fetched = Fetched {
            way,
            fetches: 200,
            octets: 250_000,
            nanoseconds: 10_000_000,
            cpu_ns: 2_000_000,
        };
        let measurement = Measurement {
            result: Outcome::Fetched { ways: vec![fetched] },
            client_cpu_ns: 0,
            server_cpu_ns: 0,
            link: Link::default(),
        };
        let values: Vec<_> = FIGURES.iter().filter_map(|figure| figure.of(&measurement)).collect();
        assert_eq!(values, [20_000.0, 0.2, 10.0]);
    }
}
