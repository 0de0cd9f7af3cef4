//! Frames by network devices: a pair of virtual ones, by bare sockets of AF_XDP and by the switch, which checks whose each is; and what its
//! program in the kernel takes for a frame.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use quicket_packets::device::rates::{self, Course, Moved, Wire};
use quicket_workload::bench::{Failure, Link, Measurement, Outcome, Switched, Way};

use super::{Assignment, END, Role, Word, result};
use crate::bench::driver::{CORES, Said};
use crate::bench::figure::{Better, Figure};
use crate::bench::plot::{Chart, Group, Limit};
use crate::hidden::HIDDEN_BENCH;
use crate::process::Process;

/// Of frames by devices.
pub(in crate::bench) const FIGURES: &[Figure] = &[
    rate("out, bare AF_XDP", |measurement| frames(measurement, Way::OutBare)),
    rate("out, by the switch", |measurement| frames(measurement, Way::Out)),
    rate("in, bare AF_XDP", |measurement| frames(measurement, Way::InBare)),
    rate("in, by the switch", |measurement| frames(measurement, Way::In)),
    share("out, switch : bare", |measurement| of_bare(measurement, [Way::Out, Way::OutBare])),
    share("in, switch : bare", |measurement| of_bare(measurement, [Way::In, Way::InBare])),
    time("XDP program, 1 tuple", |measurement| each(measurement, Way::Program1)),
    time("XDP program, 1,000 tuples", |measurement| each(measurement, Way::Program1000)),
    time("XDP program, 100,000 tuples", |measurement| each(measurement, Way::Program100000)),
];

/// Bare sockets and the switch side by side.
pub(in crate::bench) const CHARTS: &[Chart] = &[Chart {
    axis: None,
    groups: &[
        Group {
            title: "frames by devices",
            members: &[
                ("out, bare AF_XDP", "out, bare AF_XDP"),
                ("out, by the switch", "out, by the switch"),
                ("in, bare AF_XDP", "in, bare AF_XDP"),
                ("in, by the switch", "in, by the switch"),
            ],
            limit: None,
        },
        Group {
            title: "switch : bare",
            members: &[("out", "out, switch : bare"), ("in", "in, switch : bare")],
            limit: Some(Limit { name: "the aim", at: |_| Some(0.9) }),
        },
        Group {
            title: "XDP program, a frame",
            members: &[
                ("1 tuple", "XDP program, 1 tuple"),
                ("1,000 tuples", "XDP program, 1,000 tuples"),
                ("100,000 tuples", "XDP program, 100,000 tuples"),
            ],
            limit: None,
        },
    ],
}];

type Value = fn(&Measurement) -> Option<f64>;

const fn rate(name: &'static str, value: Value) -> Figure {
    Figure { name, unit: "Mpps", better: Better::Higher, digits: 2, value }
}

const fn share(name: &'static str, value: Value) -> Figure {
    Figure { name, unit: "ratio", better: Better::Higher, digits: 2, value }
}

const fn time(name: &'static str, value: Value) -> Figure {
    Figure { name, unit: "ns", better: Better::Lower, digits: 0, value }
}

fn of(measurement: &Measurement, way: Way) -> Option<&Switched> {
    let Outcome::Switched { ways } = &measurement.result else { return None };
    ways.iter().find(|switched| switched.way == way && switched.frames > 0)
}

/// Millions of frames in a second.
fn frames(measurement: &Measurement, way: Way) -> Option<f64> {
    let switched = of(measurement, way).filter(|switched| switched.nanoseconds > 0)?;
    Some(switched.frames as f64 * 1e3 / switched.nanoseconds as f64)
}

/// The rate of the switch as a part of that of a bare socket.
fn of_bare(measurement: &Measurement, [switch, bare]: [Way; 2]) -> Option<f64> {
    Some(frames(measurement, switch)? / frames(measurement, bare)?)
}

/// Nanoseconds for a frame.
fn each(measurement: &Measurement, way: Way) -> Option<f64> {
    of(measurement, way).map(|switched| switched.nanoseconds as f64 / switched.frames as f64)
}

/// Makes one measurement: all ways, one after the other, if the system permits it.
pub(in crate::bench) fn measure(program: &Path, milliseconds: u64) -> Result<Said, Failure> {
    if !nix::unistd::geteuid().is_root() {
        let why = "LEFT OUT, as network devices and BPF take root: sudo quicket lab bench";
        return Ok(Said::Unsupported(why.to_owned()));
    }
    if let Err(error) = quicket_bpf::Tuples::new(1) {
        return Ok(Said::Unsupported(format!("LEFT OUT, as this kernel has no table: {error}")));
    }
    let measure = |way| {
        let assignment = Assignment {
            core: CORES[0],
            role: Role::Devices { way },
            path: Path::new("").to_owned(),
            ports: 1,
            len: 64,
            is_v6: false,
            is_beside: false,
            milliseconds,
        };
        let mut command = Command::new(program);
        command.args([HIDDEN_BENCH, END, &serde_json::to_string(&assignment)?]);
        let name = format!("{} of the switch for packets", assignment.role.name());
        result(way, &mut Process::start(name, &mut command)?, milliseconds)
    };
    let ways = Way::DEVICES.into_iter().map(measure).collect::<Result<_, _>>()?;
    Ok(Said::Measured(Measurement {
        result: Outcome::Switched { ways },
        client_cpu_ns: 0,
        server_cpu_ns: 0,
        link: Link::default(),
    }))
}

/// What a process does for it.
pub(super) fn move_frames(way: Way, milliseconds: u64) -> Result<Word, Failure> {
    let course = match way {
        Way::OutBare => Course::OutBare,
        Way::Out => Course::Out,
        Way::InBare => Course::InBare,
        Way::In => Course::In,
        Way::Program1 => return look(1),
        Way::Program1000 => return look(1_000),
        Way::Program100000 => return look(100_000),
        _ => return Err("no way over devices".into()),
    };
    let Moved { frames, lost, time } =
        Wire::new()?.measure(course, Duration::from_millis(milliseconds))?;
    let nanoseconds = time.as_nanos().try_into()?;
    Ok(Word::Moved { frames, lost, wrong: 0, nanoseconds })
}

fn look(tuples: u32) -> Result<Word, Failure> {
    let to = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9));
    let nanoseconds = rates::program(to, tuples)?.to_port.into();
    Ok(Word::Moved { frames: 1, lost: 0, wrong: 0, nanoseconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_told_by_frames_in_a_second_and_the_program_by_nanoseconds() {
        let way = |way, frames| Switched { way, frames, lost: 0, nanoseconds: 90 };
        let measurement = Measurement {
            result: Outcome::Switched {
                ways: vec![way(Way::Out, 9), way(Way::OutBare, 10), way(Way::Program1000, 1)],
            },
            client_cpu_ns: 0,
            server_cpu_ns: 0,
            link: Link::default(),
        };
        let told = FIGURES
            .iter()
            .filter_map(|figure| Some((figure.name, figure.of(&measurement)?.round())));
        let told: Vec<_> = told.collect();
        assert_eq!(told.len(), 4, "nothing else was measured: {told:?}");
        assert!(
            told.contains(&("out, bare AF_XDP", 111.0))
                && told.contains(&("out, by the switch", 100.0))
        );
        assert!(told.contains(&("XDP program, 1,000 tuples", 90.0)));
        assert_eq!(of_bare(&measurement, [Way::Out, Way::OutBare]), Some(0.9));
        assert_eq!(of_bare(&measurement, [Way::In, Way::InBare]), None);
    }
}
