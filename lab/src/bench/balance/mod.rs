//! Datagrams through a balancer, or through what forwards them without a look; and through the
//! programs that do so in the kernel.
//!
//! The balancer runs in one namespace; what sends to it, in the other, where its servers would be
//! too: what arrives there is dropped by the system, at the same cost for all. The balancer's own
//! process counts and times.

pub(super) mod generator;
pub(super) mod middle;
mod site;
mod yardstick;

use std::process::Command;
use std::time::{Duration, Instant};

use quicket_workload::bench::{Failure, Ids, Link, Measurement, Outcome, Scenario};
use serde::{Deserialize, Serialize};

use super::Contender;
use super::driver::{CORES, Driver, START, Said};
use super::row::Point;
use crate::hidden::HIDDEN_BENCH;
use crate::netns::End;
use crate::process::Process;

/// What the processes are called among the hidden ones.
pub(super) const MIDDLE: &str = "balance-middle";
pub(super) const GENERATOR: &str = "balance-generator";

/// How long the figures may take beside the time that is measured.
const AROUND: Duration = Duration::from_secs(30);

/// What is in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Middle {
    /// A balancer.
    Balancer,
    /// What forwards without a look.
    Forwarder,
    /// The balancer's program in the kernel, alone.
    Program,
    /// A program that forwards without a look, alone.
    Yardstick,
}

/// What both processes are told.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Assignment {
    core: usize,
    middle: Middle,
    ids: Ids,
    servers: u32,
    flows: u32,
    train: u16,
    milliseconds: u64,
}

/// What the processes say.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
enum Word {
    /// Datagrams may come.
    Ready,
    /// The figures.
    Counted { packets: u64, nanoseconds: u64, cpu_ns: u64, calls: u64 },
    /// Why there are none.
    Failed { reason: String },
}

impl Word {
    fn emit(&self) {
        if let Ok(line) = serde_json::to_string(self) {
            let _ = crate::command::print(&(line + "\n"));
        }
    }
}

/// Makes one measurement.
pub(super) fn measure(
    driver: &Driver<'_>,
    contender: Contender,
    point: &Point,
) -> Result<Said, Failure> {
    let Scenario::Forward { ids, servers, flows, train, milliseconds } = point.scenario else {
        return Err("no load of balancers".into());
    };
    let namespaces = driver.network.namespaces().ok_or("a balancer needs namespaces")?;
    // The way to the servers: the other namespace, which takes nothing in.
    let via = crate::netns::Namespaces::address(End::Right).to_string();
    namespaces.ip(End::Left, &["route", "replace", "10.0.0.0/8", "via", &via])?;
    if contender.is_in_kernel() {
        // The program asks the kernel for the way as a router would.
        namespaces.set_sysctl(End::Left, "net/ipv4/conf/all/forwarding", "1")?;
    }
    let assignment = |core| Assignment {
        core,
        middle: match contender {
            Contender::Forwarder => Middle::Forwarder,
            Contender::QuicketXdp => Middle::Program,
            Contender::XdpForwarder => Middle::Yardstick,
            _ => Middle::Balancer,
        },
        ids,
        servers,
        flows,
        train,
        milliseconds,
    };
    let start = |end, what: &str, core: usize| -> Result<Process, Failure> {
        let mut command = Command::new(driver.contenders.this_program());
        command.args([HIDDEN_BENCH, what, &serde_json::to_string(&assignment(core))?]);
        Ok(Process::start(format!("{what} of {contender}"), &mut namespaces.inside(end, &command))?)
    };
    let mut middle = start(End::Left, MIDDLE, CORES[0])?;
    match middle.next(Instant::now() + START)? {
        Some(Word::Ready) => {}
        other => return Err(middle.error(format!("is not ready: {other:?}")).into()),
    }
    // A program has its packets from the process itself.
    let generator = match contender.is_in_kernel() {
        true => None,
        false => Some(start(End::Right, GENERATOR, CORES[1])?),
    };
    let deadline = Instant::now() + Duration::from_millis(milliseconds) + AROUND;
    let result = match middle.next(deadline)? {
        Some(Word::Counted { packets, nanoseconds, cpu_ns, calls }) => {
            Outcome::Forwarded { packets, nanoseconds, cpu_ns, calls }
        }
        Some(Word::Failed { reason }) => {
            let whose = generator.as_ref().unwrap_or(&middle);
            return Err(whose.error(reason).into());
        }
        other => return Err(middle.error(format!("has no figures: {other:?}")).into()),
    };
    drop(generator);
    Ok(Said::Measured(Measurement {
        result,
        client_cpu_ns: 0,
        server_cpu_ns: 0,
        link: Link::default(),
    }))
}
