//! Fetches over HTTP/1.1, a connection for each: the same server and the same generator of load over TCP of the system and
//! over that in user space (`quicket-tcp`), and nginx.
//!
//! Processes are on all cores: in user space there are three of them, and elsewhere the kernel does a part of the work on
//! the other core, too.

mod ends;
mod figures;
mod nginx;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use quicket_workload::bench::{Failure, FetchWay, Fetched, Link, Measurement, Outcome};
use serde::{Deserialize, Serialize};

use super::contender::Contenders;
use super::driver::{Driver, START, Said};
use crate::hidden::HIDDEN_BENCH;
use crate::netns::{DEVICE, End, VethPair};
use crate::process::Process;

pub(super) use ends::process;
pub(super) use figures::{CHARTS, FIGURES};

/// What the processes are called among the hidden ones.
pub(super) const END: &str = "fetch-end";

const MTU: u16 = 1500;
/// The port of servers in a namespace.
const PORT: u16 = 8000;
/// What a device does for TCP.
const OFFLOADS: [&str; 3] = ["tso", "gso", "gro"];
/// How long the figures may take beside the time that is measured.
const AROUND: Duration = Duration::from_secs(20);

/// Whose TCP.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Transport {
    System,
    /// A stack at the switch there.
    Stack(PathBuf),
}

/// What a process does.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Assignment {
    Switch {
        path: PathBuf,
        device: Option<String>,
    },
    Server {
        transport: Transport,
        address: SocketAddr,
        threads: usize,
    },
    Load {
        transport: Transport,
        address: SocketAddr,
        bytes: usize,
        milliseconds: u64,
        threads: usize,
    },
}

/// What the processes say.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
enum Word {
    /// A switch, or a server, which is at this address.
    Ready { address: Option<SocketAddr> },
    /// What was fetched.
    Fetched { fetches: u64, octets: u64, nanoseconds: u64, cpu_ns: u64 },
    /// Why nothing was.
    Failed { reason: String },
}

/// Makes one measurement: all ways, one after the other.
pub(super) fn measure(
    driver: &Driver<'_>,
    bytes: u64,
    threads: usize,
    milliseconds: u64,
) -> Result<Said, Failure> {
    let folder = tempfile::tempdir()?;
    let bytes = usize::try_from(bytes)?;
    let run =
        Run { contenders: driver.contenders, folder: folder.path(), bytes, threads, milliseconds };
    let ways = FetchWay::ALL.into_iter().map(|way| run.measure(way)).collect::<Result<_, _>>()?;
    Ok(Said::Measured(Measurement {
        result: Outcome::Fetched { ways },
        client_cpu_ns: 0,
        server_cpu_ns: 0,
        link: Link::default(),
    }))
}

/// A measurement under way.
struct Run<'a> {
    contenders: &'a Contenders,
    folder: &'a Path,
    bytes: usize,
    /// Fetches at once: threads of the server, and of the generator of load.
    threads: usize,
    milliseconds: u64,
}

impl Run<'_> {
    fn measure(&self, way: FetchWay) -> Result<Fetched, Failure> {
        match way {
            FetchWay::Memory => self.by_memory(),
            FetchWay::Device | FetchWay::DeviceWithoutOffload => self.by_device(way),
            FetchWay::System | FetchWay::WithoutOffload | FetchWay::Nginx => self.by_system(way),
        }
    }

    fn by_memory(&self) -> Result<Fetched, Failure> {
        let path = self.folder.join("memory");
        let switch = Assignment::Switch { path: path.clone(), device: None };
        let _switch = self.ready(None, &switch)?;
        let transport = Transport::Stack(path);
        let address = ([127, 0, 0, 1], 0).into();
        let server =
            Assignment::Server { transport: transport.clone(), address, threads: self.threads };
        let (_server, address) = self.ready(None, &server)?;
        let address = address.ok_or("the server has no address")?;
        self.load(FetchWay::Memory, None, transport, address)
    }

    fn by_device(&self, way: FetchWay) -> Result<Fetched, Failure> {
        let pair = VethPair::new(MTU)?;
        if way == FetchWay::DeviceWithoutOffload {
            switch_off(&pair)?;
        }
        let path = self.folder.join("device");
        let device = Some(DEVICE.to_owned());
        let switch = Assignment::Switch { path: path.clone(), device };
        let _switch = self.ready(Some((&pair, End::Left)), &switch)?;
        let address = (VethPair::address(End::Left), PORT).into();
        let server = Assignment::Server {
            transport: Transport::Stack(path),
            address,
            threads: self.threads,
        };
        let _server = self.ready(Some((&pair, End::Left)), &server)?;
        let there = Some((&pair, End::Right));
        self.load(way, there, Transport::System, address)
    }

    fn by_system(&self, way: FetchWay) -> Result<Fetched, Failure> {
        let pair = VethPair::new(MTU)?;
        if way == FetchWay::WithoutOffload {
            switch_off(&pair)?;
        }
        let address = (VethPair::address(End::Left), PORT).into();
        let _server = if way == FetchWay::Nginx {
            nginx::start(self, &pair, address)?
        } else {
            let server =
                Assignment::Server { transport: Transport::System, address, threads: self.threads };
            self.ready(Some((&pair, End::Left)), &server)?.0
        };
        self.load(way, Some((&pair, End::Right)), Transport::System, address)
    }

    fn start(
        &self,
        place: Option<(&VethPair, End)>,
        assignment: &Assignment,
    ) -> Result<Process, Failure> {
        let mut command = Command::new(self.contenders.this_program());
        command.args([HIDDEN_BENCH, END, &serde_json::to_string(assignment)?]);
        let mut command = match place {
            Some((pair, end)) => pair.inside(end, &command),
            None => command,
        };
        Ok(Process::start("a process of the fetches", &mut command)?)
    }

    /// Starts a switch or a server, and waits until it is there.
    fn ready(
        &self,
        place: Option<(&VethPair, End)>,
        assignment: &Assignment,
    ) -> Result<(Process, Option<SocketAddr>), Failure> {
        let mut process = self.start(place, assignment)?;
        match process.next(Instant::now() + START)? {
            Some(Word::Ready { address }) => Ok((process, address)),
            Some(Word::Failed { reason }) => Err(process.error(reason).into()),
            other => Err(process.error(format!("is not ready: {other:?}")).into()),
        }
    }

    fn load(
        &self,
        way: FetchWay,
        place: Option<(&VethPair, End)>,
        transport: Transport,
        address: SocketAddr,
    ) -> Result<Fetched, Failure> {
        let &Self { bytes, milliseconds, .. } = self;
        let load =
            Assignment::Load { transport, address, bytes, milliseconds, threads: self.threads };
        let mut process = self.start(place, &load)?;
        let deadline = Instant::now() + Duration::from_millis(milliseconds) + AROUND;
        match process.next(deadline)? {
            Some(Word::Fetched { fetches, octets, nanoseconds, cpu_ns }) => {
                Ok(Fetched { way, fetches, octets, nanoseconds, cpu_ns })
            }
            Some(Word::Failed { reason }) => Err(process.error(reason).into()),
            other => Err(process.error(format!("has no figures: {other:?}")).into()),
        }
    }
}

/// Switches off what the devices of both ends do for TCP.
fn switch_off(pair: &VethPair) -> Result<(), Failure> {
    for end in [End::Left, End::Right] {
        let mut ethtool = Command::new("ethtool");
        ethtool.args(["-K", DEVICE]).args(OFFLOADS.into_iter().flat_map(|name| [name, "off"]));
        let output = pair.inside(end, &ethtool).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("ethtool: {}; install ethtool of Debian", said.trim()).into());
        }
    }
    Ok(())
}
