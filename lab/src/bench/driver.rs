//! One measurement: a server, a client, and the checks that it is what it claims to be.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use quicket_workload::bench::{
    Assignment, Cipher, Conditions, Failure, Measurement, Message, Outcome, Payload, Role, Scenario,
};

use super::contender::Contenders;
use super::http::{self, Visit};
use super::network::Network;
use super::row::{Point, Rival};
use super::{Contender, Direction, Settings, balance, fetches, gateway, switch, tunnel};
use crate::Certificates;
use crate::process::Process;
use crate::tun::TunLink;

/// Where chance starts from on a link, which is the same for every implementation.
const SEED: u64 = 1;

/// How long a process may take to start.
pub(super) const START: Duration = Duration::from_secs(10);
/// How long a measurement may take.
pub(super) const WORK: Duration = Duration::from_secs(180);
/// How long a process may take until it has pinned itself.
const PIN: Duration = Duration::from_secs(2);
/// The cores of the server and of the client.
pub(super) const CORES: [usize; 2] = [0, 1];

pub(super) struct Driver<'a> {
    pub(super) contenders: &'a Contenders,
    pub(super) certificates: &'a Certificates,
    pub(super) network: &'a Network,
    pub(super) settings: &'a Settings,
}

/// What a client says in the end.
pub(super) enum Said {
    /// What it has measured.
    Measured(Measurement),
    /// That the implementation cannot do it, and why.
    Unsupported(String),
}

/// A server and a client under way.
pub(super) struct Pair {
    server: Process,
    client: Process,
}

impl Driver<'_> {
    /// Checks that bytes arrive unchanged, that no other cipher suite is accepted, that processes
    /// are pinned, and that UDP payloads have the size asked for.
    pub(super) fn check(&self, contender: Contender, point: &Point) -> Result<(), Failure> {
        if matches!(
            point.scenario,
            Scenario::Files { .. }
                | Scenario::Forward { .. }
                | Scenario::Tunnel { .. }
                | Scenario::Gateway { .. }
                | Scenario::Switch { .. }
                | Scenario::SwitchDevices { .. }
                | Scenario::Fetches { .. }
        ) {
            // Each measurement compares what came with what was sent, or leaves that to TCP.
            return Ok(());
        }
        let _link = self.network.carry(point, SEED)?;
        for direction in [Direction::Upload, Direction::Download] {
            let scenario = Scenario::Verify { direction, bytes: self.settings.verified_bytes };
            let pair =
                self.start(contender, scenario, point.conditions, point.conditions.cipher)?;
            if point.conditions.all_cores {
                // The server pins itself before it listens, if it does.
                spread(&pair.server)?;
            } else {
                pinned(&pair.server, CORES[0])?;
                pinned(&pair.client, CORES[1])?;
            }
            let Said::Measured(measurement) = pair.finish()? else { continue };
            if let (Direction::Upload, Payload::Fixed(expected), Some(mean)) =
                (direction, point.conditions.payload, measurement.link.mean_udp_payload)
            {
                let expected = f64::from(expected);
                if mean > expected || mean < expected * 0.8 {
                    let problem = format!("{contender} sends {mean:.0} bytes in a UDP payload");
                    return Err(format!("{problem}, where {expected} were asked for").into());
                }
            }
        }
        if point.conditions.encryption {
            let another = point.conditions.cipher.another();
            self.start(contender, Scenario::Refusal, point.conditions, another)?.finish()?;
        }
        Ok(())
    }

    /// Makes one measurement. `round` is its number.
    pub(super) fn measure(
        &self,
        contender: Contender,
        point: &Point,
        round: usize,
    ) -> Result<Said, Failure> {
        if let Scenario::Files { bytes, milliseconds } = point.scenario {
            let visit =
                Visit { contender, contenders: self.contenders, certificates: self.certificates };
            return http::measure(&visit, CORES, bytes, milliseconds).map(Said::Measured);
        }
        match point.scenario {
            Scenario::Forward { .. } => return balance::measure(self, contender, point),
            Scenario::Tunnel { .. } => return tunnel::measure(self, contender, point),
            Scenario::Gateway { .. } => return gateway::measure(self, contender, point),
            Scenario::Switch { .. } => return switch::measure(self, point),
            Scenario::SwitchDevices { milliseconds } => {
                return switch::devices::measure(self.contenders.this_program(), milliseconds);
            }
            Scenario::Fetches { bytes, concurrency, milliseconds } => {
                return fetches::measure(self, bytes, concurrency, milliseconds);
            }
            _ => {}
        }
        let link = self.network.carry(point, SEED + round as u64)?;
        let start = |contender| {
            self.start(contender, point.scenario, point.conditions, point.conditions.cipher)
        };
        let rival = match point.rival {
            None => None,
            Some(Rival::Itself) => Some(start(contender)?),
            Some(Rival::TcpCubic) => Some(start(Contender::TcpTls)?),
        };
        let own = start(contender)?.finish()?;
        let said = match rival {
            None => own,
            Some(rival) => both(own, rival.finish()?)?,
        };
        link.map_or(Ok(()), TunLink::finish)?;
        Ok(said)
    }

    fn start(
        &self,
        contender: Contender,
        scenario: Scenario,
        conditions: Conditions,
        client_cipher: Cipher,
    ) -> Result<Pair, Failure> {
        let address = self.network.server_address();
        self.start_at(address, contender, scenario, conditions, client_cipher)
    }

    /// The same with a server at another of its addresses.
    pub(super) fn start_at(
        &self,
        address: IpAddr,
        contender: Contender,
        scenario: Scenario,
        conditions: Conditions,
        client_cipher: Cipher,
    ) -> Result<Pair, Failure> {
        let role = Role::Server {
            listen: (address, 0).into(),
            certificate: self.certificates.certificate(),
            key: self.certificates.key(),
        };
        let mut server = self.spawn(contender, &Assignment { core: CORES[0], conditions, role })?;
        let connect = match server.next(Instant::now() + START)? {
            Some(Message::Listening { address }) => address,
            other => return Err(server.error(format!("does not listen: {other:?}")).into()),
        };
        let role = Role::Client { connect, roots: self.certificates.authority(), scenario };
        let conditions = Conditions { cipher: client_cipher, ..conditions };
        let client = self.spawn(contender, &Assignment { core: CORES[1], conditions, role })?;
        Ok(Pair { server, client })
    }

    fn spawn(&self, contender: Contender, assignment: &Assignment) -> Result<Process, Failure> {
        let mut command = self.contenders.program(contender)?.command();
        command.arg(serde_json::to_string(assignment)?);
        let (end, mut command) = match assignment.role {
            Role::Server { .. } => ("server", self.network.server_side(command)),
            Role::Client { .. } => ("client", self.network.client_side(command)),
        };
        Ok(Process::start(format!("the {end} of {contender}"), &mut command)?)
    }
}

impl Pair {
    /// The client's result; both processes are still there.
    fn result(&mut self) -> Result<Said, Failure> {
        let client = &mut self.client;
        let deadline = Instant::now() + WORK;
        loop {
            match client.next(deadline)? {
                Some(Message::Holding { .. }) => client.end_input(),
                Some(Message::Measured(measurement)) => return Ok(Said::Measured(measurement)),
                Some(Message::Unsupported { reason }) => return Ok(Said::Unsupported(reason)),
                Some(Message::Failed { reason }) => return Err(client.error(reason).into()),
                Some(other) => return Err(client.error(format!("says {other:?}")).into()),
                None => return Err(client.error("ended without a result").into()),
            }
        }
    }

    fn end(mut self) -> Result<(), Failure> {
        self.client.wait(Instant::now() + START)?;
        self.server.end_input();
        self.server.wait(Instant::now() + START)?;
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Said, Failure> {
        let said = self.result()?;
        self.end()?;
        Ok(said)
    }
}

/// Two downloads that shared a link as one measurement.
fn both(own: Said, rival: Said) -> Result<Said, Failure> {
    let (own, rival) = match (own, rival) {
        (Said::Measured(own), Said::Measured(rival)) => (own, rival),
        (Said::Unsupported(reason), _) | (_, Said::Unsupported(reason)) => {
            return Ok(Said::Unsupported(reason));
        }
    };
    match (own.result, rival.result) {
        (Outcome::Flow(flow), Outcome::Flow(rival)) => {
            Ok(Said::Measured(Measurement { result: Outcome::Shared { own: flow, rival }, ..own }))
        }
        _ => Err("two loads shared a link that are no flows".into()),
    }
}

/// On which cores `process` may run, as the kernel sees it.
fn cores(process: &Process) -> Result<String, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id()))?;
    let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    Ok(cores.map(str::trim).unwrap_or_default().to_owned())
}

/// Looks whether `process` may run on more cores than one.
fn spread(process: &Process) -> Result<(), Failure> {
    let cores = cores(process)?;
    if cores.is_empty() || cores.parse::<usize>().is_ok() {
        let problem = format!("may run on core {cores:?} only, and not on all");
        return Err(process.error(problem).into());
    }
    Ok(())
}

/// Waits until `process` may run on `core` only.
fn pinned(process: &Process, core: usize) -> Result<(), Failure> {
    let deadline = Instant::now() + PIN;
    loop {
        let cores = cores(process)?;
        if cores == core.to_string() {
            return Ok(());
        }
        if Instant::now() > deadline {
            let problem = format!("may run on cores {cores:?} and not on {core} only");
            return Err(process.error(problem).into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
