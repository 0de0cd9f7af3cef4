//! Who asks: one process, which does the same over each version of HTTP.

mod ask;
mod tally;
mod tcp;
mod three;

use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream;
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use quicket_workload::bench::{
    Asked, Conditions, Failure, Link, Measurement, Message, Outcome, Usage, pin, raise_open_files,
};
use serde::{Deserialize, Serialize};
use tokio::task::{LocalSet, spawn_local};

use self::ask::{Dialer, Way};
use self::tally::Tally;
use super::{DESCRIPTORS, LARGE, SMALL, Version, body};

/// How long a gateway may take until it answers.
const START: Duration = Duration::from_secs(10);
/// How long to wait before it is asked again.
const AGAIN: Duration = Duration::from_millis(20);
/// Idle connections that are made at a time.
const AT_A_TIME: usize = 16;
/// How long the last of many connections may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the process is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Assignment {
    pub(super) core: usize,
    pub(super) conditions: Conditions,
    pub(super) version: Version,
    pub(super) to: SocketAddr,
    pub(super) roots: PathBuf,
    /// The gateway's process.
    pub(super) gateway: u32,
    pub(super) asked: Asked,
    pub(super) milliseconds: u64,
    /// How long connections have done nothing when memory is looked at, in milliseconds.
    pub(super) settle: u64,
}

/// Carries out `assignment`.
pub(in crate::bench) fn process(assignment: &str) -> ExitCode {
    std::thread::spawn(|| {
        while matches!(std::io::stdin().read(&mut [0; 64]), Ok(1..)) {}
        std::process::exit(1);
    });
    match carry_out(assignment) {
        Ok(measurement) => {
            Message::Measured(measurement).emit();
            ExitCode::SUCCESS
        }
        Err(failure) => {
            Message::Failed { reason: failure.to_string() }.emit();
            ExitCode::FAILURE
        }
    }
}

fn carry_out(assignment: &str) -> Result<Measurement, Failure> {
    let assignment: Assignment = serde_json::from_str(assignment)?;
    pin(assignment.core)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let dialer = Dialer::new(&assignment).await?;
        match assignment.asked {
            Asked::Small => flow(&assignment, &dialer, SMALL).await,
            Asked::Large { .. } => flow(&assignment, &dialer, LARGE).await,
            Asked::Idle { connections } => idle(&assignment, &dialer, connections).await,
        }
    })
}

/// Connections, and requests under way on each. HTTP/1.1 has one at a time.
fn pattern(asked: Asked, version: Version) -> (usize, usize) {
    match (asked, version) {
        (Asked::Small, Version::One) => (64, 1),
        (Asked::Small, _) => (8, 8),
        (Asked::Large { .. } | Asked::Idle { .. }, _) => (4, 1),
    }
}

/// Waits for the gateway, and compares every byte of an answer.
async fn first(dialer: &Dialer, which: (&str, usize)) -> Result<Way, Failure> {
    let deadline = Instant::now() + START;
    let mut way = loop {
        match dialer.connect().await {
            Ok(way) => break way,
            Err(failure) if Instant::now() > deadline => {
                return Err(format!("the gateway does not answer: {failure}").into());
            }
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    };
    let mut came = Vec::with_capacity(which.1);
    way.get(which, &mut |bytes| came.extend_from_slice(bytes)).await?;
    if came != body(which) {
        return Err(format!("{} arrived with other bytes", which.0).into());
    }
    Ok(way)
}

/// Asks again and again, with as many requests under way at any time.
async fn flow(
    assignment: &Assignment,
    dialer: &Dialer,
    which: (&'static str, usize),
) -> Result<Measurement, Failure> {
    let (connections, at_once) = pattern(assignment.asked, assignment.version);
    let mut ways = vec![first(dialer, which).await?];
    while ways.len() < connections {
        ways.push(dialer.connect().await?);
    }
    let tally = Rc::new(Tally::default());
    for way in &mut ways {
        for _ in 0..at_once {
            let (mut way, tally) = (way.another()?, Rc::clone(&tally));
            spawn_local(async move {
                let failure = ask(&mut way, which, &tally).await;
                tally.failed(failure);
            });
        }
    }
    let time = Duration::from_millis(assignment.milliseconds);
    tokio::time::sleep(time / 4).await;
    let (before, own) = (cpu_ns(assignment.gateway)?, Usage::now()?.cpu_ns);
    let start = Instant::now();
    tally.start();
    tokio::time::sleep(time).await;
    let (elapsed, after) = (start.elapsed(), cpu_ns(assignment.gateway)?);
    let (bytes, latencies) = tally.end()?;
    let result = match assignment.asked {
        Asked::Small => Outcome::Operations(latencies.summary(elapsed)),
        _ => Outcome::Bulk { bytes, nanoseconds: elapsed.as_nanos().try_into()? },
    };
    Ok(Measurement {
        result,
        client_cpu_ns: Usage::now()?.cpu_ns.saturating_sub(own),
        server_cpu_ns: after.saturating_sub(before),
        link: ways.first().map_or_else(Link::default, Way::link),
    })
}

/// Asks until that fails; says why.
async fn ask(way: &mut Way, which: (&str, usize), tally: &Tally) -> Failure {
    loop {
        let begun = Instant::now();
        if let Err(failure) = way.get(which, &mut |bytes| tally.came(bytes.len())).await {
            return failure;
        }
        tally.ended(begun);
    }
}

/// Makes connections with one request each, and looks what they take once they do nothing.
async fn idle(
    assignment: &Assignment,
    dialer: &Dialer,
    connections: usize,
) -> Result<Measurement, Failure> {
    raise_open_files(connections as u64 + DESCRIPTORS)?;
    let settle = Duration::from_millis(assignment.settle);
    // What a first request needs once is not counted.
    let _first = first(dialer, SMALL).await?;
    tokio::time::sleep(settle).await;
    let (before, own) = (resident_bytes(assignment.gateway)?, Usage::now()?.resident_bytes);
    let making = stream::iter(0..connections).map(|_| async {
        let mut way = dialer.connect().await?;
        way.get(SMALL, &mut |_| ()).await?;
        Ok::<Way, Failure>(way)
    });
    let making = making.buffer_unordered(AT_A_TIME).collect::<Vec<_>>();
    let made = tokio::time::timeout(PATIENCE, making).await;
    let made = made.map_err(|_| format!("{connections} connections take too long"))?;
    let ways: Vec<Way> = made.into_iter().collect::<Result<_, _>>()?;
    tokio::time::sleep(settle).await;
    let after = resident_bytes(assignment.gateway)?;
    let gone = ways.iter().filter(|way| way.is_closed()).count();
    if gone > 0 {
        return Err(format!("the gateway has ended {gone} of {connections} connections").into());
    }
    Ok(Measurement {
        result: Outcome::Idle {
            connections: connections as u64,
            server_bytes: after.saturating_sub(before),
            client_bytes: Usage::now()?.resident_bytes.saturating_sub(own),
        },
        client_cpu_ns: 0,
        server_cpu_ns: 0,
        link: ways.first().map_or_else(Link::default, Way::link),
    })
}

/// The processor time of all threads that a process has and had.
fn cpu_ns(process: u32) -> Result<u64, Failure> {
    let time = clock_getcpuclockid(Pid::from_raw(process.try_into()?))?.now()?;
    Ok(Duration::from(time).as_nanos().try_into()?)
}

/// The resident memory of a process.
fn resident_bytes(process: u32) -> Result<u64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next());
    Ok(kib.ok_or("the kernel does not tell a process's memory")?.parse::<u64>()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_requests_are_under_way_over_each_version() {
        let under_way = |asked, version| {
            let (connections, at_once) = pattern(asked, version);
            connections * at_once
        };
        for asked in [Asked::Small, Asked::Large { segmentation: true }] {
            let two = under_way(asked, Version::Two);
            assert_eq!(
                [under_way(asked, Version::One), under_way(asked, Version::Three)],
                [two; 2]
            );
        }
        assert_eq!(pattern(Asked::Small, Version::Two), pattern(Asked::Small, Version::Three));
    }

    #[test]
    fn another_process_tells_its_time_and_memory() {
        let own = std::process::id();
        let mut sum = 0_u64;
        let before = cpu_ns(own).unwrap();
        for i in 0..2_000_000_u64 {
            sum = std::hint::black_box(sum ^ i);
        }
        assert!(cpu_ns(own).unwrap() > before);
        assert!(resident_bytes(own).unwrap() > 100_000);
        assert!(resident_bytes(u32::MAX).is_err());
    }
}
