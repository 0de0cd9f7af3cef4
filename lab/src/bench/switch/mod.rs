//! Frames through the switch for packets.
//!
//! Within a process, between two processes with a core each, and between ports and the *card*: a port on another core
//! that moves no more than a wire of 10 Gbit/s would carry, so that its rate is a ceiling. The switch shares a core with
//! the ports, or with the card. These are rates of a switch in shared memory, and not of a network card.

pub(super) mod devices;
mod ends;
mod figures;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use quicket_packets::traffic::shortest;
use quicket_workload::bench::{Failure, Link, Measurement, Outcome, Scenario, Switched, Way};
use serde::{Deserialize, Serialize};

use super::driver::{CORES, Driver, START, Said};
use super::row::Point;
use crate::hidden::HIDDEN_BENCH;
use crate::process::Process;

pub(super) use ends::process;
pub(super) use figures::{CHARTS, FIGURES};

/// What the processes are called among the hidden ones.
pub(super) const END: &str = "switch-end";

/// The user who has nothing, and is nobody else here.
const NOBODY: u32 = 65_534;
/// How long the figures may take beside the time that is measured.
const AROUND: Duration = Duration::from_secs(10);

/// What a process is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    /// The switch, of a user of its own, if this process may become him.
    Daemon { user: Option<u32> },
    /// Ports and switch in one thread.
    Within,
    /// All ports, each of which sends to the next one.
    Ring,
    /// Counts what comes.
    Receiver { is_card: bool },
    /// Sends to these.
    Sender { is_card: bool, others: Vec<SocketAddr> },
    /// A pair of devices, and whatever is at both ends.
    Devices { way: Way },
}

impl Role {
    /// What errors call it.
    const fn name(&self) -> &'static str {
        match self {
            Self::Daemon { .. } => "the daemon",
            Self::Within => "the thread with all ports",
            Self::Ring => "the ring of ports",
            Self::Sender { .. } => "the sender",
            Self::Receiver { .. } => "the receiver",
            Self::Devices { .. } => "the pair of devices",
        }
    }
}

/// What a process is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Assignment {
    core: usize,
    role: Role,
    /// Where the switch is.
    path: PathBuf,
    ports: usize,
    /// Octets of a frame.
    len: usize,
    is_v6: bool,
    /// The switch has this core, too.
    is_beside: bool,
    milliseconds: u64,
}

impl Assignment {
    fn address(&self) -> IpAddr {
        if self.is_v6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() }
    }
}

/// What the processes say.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
enum Word {
    /// The switch listens.
    Ready,
    /// The ports of a receiver are open, with these addresses.
    Opened { addresses: Vec<SocketAddr> },
    /// What came.
    Moved { frames: u64, lost: u64, wrong: u64, nanoseconds: u64 },
    /// Why nothing did.
    Failed { reason: String },
}

impl Word {
    fn emit(&self) {
        if let Ok(line) = serde_json::to_string(self) {
            let _ = crate::command::print(&(line + "\n"));
        }
    }
}

/// Makes one measurement: all ways, one after the other.
pub(super) fn measure(driver: &Driver<'_>, point: &Point) -> Result<Said, Failure> {
    let Scenario::Switch { ports, octets, milliseconds } = point.scenario else {
        return Err("no load of the switch for packets".into());
    };
    let folder = tempfile::tempdir()?;
    let user = nix::unistd::geteuid().is_root().then_some(NOBODY);
    let run = Run {
        program: driver.contenders.this_program(),
        path: &folder.path().join("packets"),
        user,
        ports: ports as usize,
        len: usize::from(octets),
        milliseconds,
    };
    let ways = Way::ALL.into_iter().map(|way| run.measure(way)).collect::<Result<_, _>>()?;
    Ok(Said::Measured(Measurement {
        result: Outcome::Switched { ways },
        client_cpu_ns: 0,
        server_cpu_ns: 0,
        link: Link::default(),
    }))
}

/// The ports' where they share one, and else the other.
const fn core_of_the_switch(way: Way) -> usize {
    let [first, second] = CORES;
    let is_apart = matches!(
        way,
        Way::ToCardApart | Way::ToCardApartV6 | Way::FromCardApart | Way::FromCardApartV6
    );
    if is_apart { second } else { first }
}

/// A measurement under way.
struct Run<'a> {
    program: &'a Path,
    path: &'a Path,
    /// Whose process the switch is, if it is not this user's.
    user: Option<u32>,
    ports: usize,
    len: usize,
    milliseconds: u64,
}

impl Run<'_> {
    fn start(&self, way: Way, core: usize, role: Role) -> Result<Process, Failure> {
        let name = format!("{} of the switch for packets", role.name());
        let &Self { ports, len, milliseconds, .. } = self;
        let is_v6 = way.is_v6();
        // The shortest frames of IPv6 have no room for a number and its check.
        let len = if is_v6 { len.max(shortest((Ipv6Addr::LOCALHOST, 0).into())) } else { len };
        let path = self.path.to_owned();
        let is_beside = core == core_of_the_switch(way);
        let assignment =
            Assignment { core, role, path, ports, len, is_v6, is_beside, milliseconds };
        let mut command = Command::new(self.program);
        command.args([HIDDEN_BENCH, END, &serde_json::to_string(&assignment)?]);
        Ok(Process::start(name, &mut command)?)
    }

    fn measure(&self, way: Way) -> Result<Switched, Failure> {
        let [first, second] = CORES;
        if matches!(way, Way::Within | Way::WithinV6) {
            return self.result(way, &mut self.start(way, first, Role::Within)?);
        }
        let mut daemon =
            self.start(way, core_of_the_switch(way), Role::Daemon { user: self.user })?;
        match daemon.next(Instant::now() + START)? {
            Some(Word::Ready) => {}
            other => return Err(daemon.error(format!("is not ready: {other:?}")).into()),
        }
        let to_card = match way {
            Way::ToCard | Way::ToCardV6 | Way::ToCardApart | Way::ToCardApartV6 => true,
            Way::FromCard | Way::FromCardV6 | Way::FromCardApart | Way::FromCardApartV6 => false,
            _ => return self.result(way, &mut self.start(way, second, Role::Ring)?),
        };
        let core = |is_card| if is_card { second } else { first };
        let role = Role::Receiver { is_card: to_card };
        let mut receiver = self.start(way, core(to_card), role)?;
        let others = match receiver.next(Instant::now() + START)? {
            Some(Word::Opened { addresses }) => addresses,
            other => return Err(receiver.error(format!("has no ports: {other:?}")).into()),
        };
        let role = Role::Sender { is_card: !to_card, others };
        let sender = self.start(way, core(!to_card), role)?;
        let result = self.result(way, &mut receiver);
        drop(sender);
        result
    }

    fn result(&self, way: Way, process: &mut Process) -> Result<Switched, Failure> {
        result(way, process, self.milliseconds)
    }
}

/// What a process has counted. Frames that are not as they were sent are no result.
fn result(way: Way, process: &mut Process, milliseconds: u64) -> Result<Switched, Failure> {
    let deadline = Instant::now() + Duration::from_millis(milliseconds) + AROUND;
    match process.next(deadline)? {
        Some(Word::Moved { frames, lost, wrong: 0, nanoseconds }) => {
            Ok(Switched { way, frames, lost, nanoseconds })
        }
        Some(Word::Moved { wrong, .. }) => {
            let why = format!("{wrong} frames were changed, doubled or misdelivered");
            Err(process.error(why).into())
        }
        Some(Word::Failed { reason }) => Err(process.error(reason).into()),
        other => Err(process.error(format!("has no figures: {other:?}")).into()),
    }
}
