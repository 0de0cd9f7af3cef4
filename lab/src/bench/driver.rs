//! One measurement: a server, a client, and the checks that it is what it claims to be.

use std::time::{Duration, Instant};

use quicket_workload::bench::{Assignment, Cipher, Failure, Measurement, Message, Role, Scenario};

use super::contender::Contenders;
use super::network::Network;
use super::{Contender, Direction, Settings};
use crate::Certificates;
use crate::process::Process;

/// How long a process may take to start.
const START: Duration = Duration::from_secs(10);
/// How long a measurement may take.
const WORK: Duration = Duration::from_secs(180);
/// How long a process may take until it has pinned itself.
const PIN: Duration = Duration::from_secs(2);
/// The cores of the server and of the client.
const CORES: [usize; 2] = [0, 1];

pub(super) struct Driver<'a> {
    pub(super) contenders: &'a Contenders,
    pub(super) certificates: &'a Certificates,
    pub(super) network: &'a Network,
    pub(super) settings: &'a Settings,
}

impl Driver<'_> {
    /// Checks that bytes arrive unchanged, that no other cipher suite is accepted, that processes
    /// are pinned, and that UDP payloads have the size asked for.
    pub(super) fn check(&self, contender: Contender) -> Result<(), Failure> {
        for direction in [Direction::Upload, Direction::Download] {
            let scenario = Scenario::Verify { direction, bytes: self.settings.verified_bytes };
            let measurement = self.run(contender, scenario, self.settings.cipher, true)?;
            if let (Direction::Upload, Some(mean)) = (direction, measurement.link.mean_udp_payload)
            {
                let expected = f64::from(self.settings.udp_payload);
                if mean > expected || mean < expected * 0.8 {
                    let problem = format!("{contender} sends {mean:.0} bytes in a UDP payload");
                    return Err(format!("{problem}, where {expected} were asked for").into());
                }
            }
        }
        let another = self.settings.cipher.another();
        self.run(contender, Scenario::Refusal, another, false)?;
        Ok(())
    }

    pub(super) fn measure(
        &self,
        contender: Contender,
        scenario: Scenario,
    ) -> Result<Measurement, Failure> {
        self.run(contender, scenario, self.settings.cipher, false)
    }

    fn run(
        &self,
        contender: Contender,
        scenario: Scenario,
        client_cipher: Cipher,
        check_pinned: bool,
    ) -> Result<Measurement, Failure> {
        let role = Role::Server {
            listen: (self.network.server_address(), 0).into(),
            certificate: self.certificates.certificate(),
            key: self.certificates.key(),
        };
        let assignment = self.assignment(CORES[0], self.settings.cipher, role);
        let mut server = self.start(contender, &assignment)?;
        let connect = match server.next(Instant::now() + START)? {
            Some(Message::Listening { address }) => address,
            other => return Err(server.error(format!("does not listen: {other:?}")).into()),
        };

        let role = Role::Client { connect, roots: self.certificates.authority(), scenario };
        let assignment = self.assignment(CORES[1], client_cipher, role);
        let mut client = self.start(contender, &assignment)?;
        if check_pinned {
            pinned(&server, CORES[0])?;
            pinned(&client, CORES[1])?;
        }
        let measurement = self.result(&mut client)?;
        client.wait(Instant::now() + START)?;
        server.end_input();
        server.wait(Instant::now() + START)?;
        Ok(measurement)
    }

    fn assignment(&self, core: usize, cipher: Cipher, role: Role) -> Assignment {
        Assignment { core, cipher, udp_payload: self.settings.udp_payload, role }
    }

    fn start(&self, contender: Contender, assignment: &Assignment) -> Result<Process, Failure> {
        let mut command = self.contenders.program(contender)?.command();
        command.arg(serde_json::to_string(assignment)?);
        let (end, mut command) = match assignment.role {
            Role::Server { .. } => ("server", self.network.server_side(command)),
            Role::Client { .. } => ("client", self.network.client_side(command)),
        };
        Ok(Process::start(format!("the {end} of {contender}"), &mut command)?)
    }

    fn result(&self, client: &mut Process) -> Result<Measurement, Failure> {
        let deadline = Instant::now() + WORK;
        loop {
            match client.next(deadline)? {
                Some(Message::Holding { .. }) => client.end_input(),
                Some(Message::Measured(measurement)) => return Ok(measurement),
                Some(Message::Failed { reason }) => return Err(client.error(reason).into()),
                Some(other) => return Err(client.error(format!("says {other:?}")).into()),
                None => return Err(client.error("ended without a result").into()),
            }
        }
    }
}

/// Waits until `process` may run on `core` only, as the kernel sees it.
fn pinned(process: &Process, core: usize) -> Result<(), Failure> {
    let path = format!("/proc/{}/status", process.id());
    let deadline = Instant::now() + PIN;
    loop {
        let status = std::fs::read_to_string(&path)?;
        let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        if cores.map(str::trim) == Some(&core.to_string()) {
            return Ok(());
        }
        if Instant::now() > deadline {
            let problem = format!("may run on cores {cores:?} and not on {core} only");
            return Err(process.error(problem).into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
