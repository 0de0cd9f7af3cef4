//! One client against one server, and a link between them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use quicket_workload::bench::SERVER_NAME;
use quicket_workload::peer::Event;

use super::case::{Arrangement, Case};
use super::check::Evidence;
use super::site::{self, Site};
use crate::Certificates;
use crate::link::{self, RunningLink};
use crate::netns::{End, Namespaces};
use crate::peers::Program;
use crate::process::{Process, ProcessError};
use crate::trace::{Trace, pcap};

/// How long a server may take until it listens; an interpreter may have to load a lot.
const START: Duration = Duration::from_secs(30);
/// How long a server may take to end.
const END: Duration = Duration::from_secs(10);
/// How long a connection is under way before its server is killed.
const BEFORE_RESTART: Duration = Duration::from_millis(500);
/// Bytes that show the header of a packet, of cases that would fill the disk.
const SNAP: usize = 64;
/// Where a server is that listens at every address of the loopback, beside 127.0.0.1.
const SECOND_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// One client against one server.
pub(super) struct Session<'a> {
    pub(super) case: &'static Case,
    pub(super) client: &'a Program,
    pub(super) server: &'a Program,
    pub(super) certificates: &'a Certificates,
    pub(super) site: &'a Site,
    /// The application protocol, which may not be that of the case.
    pub(super) alpn: &'static str,
    pub(super) server_is_ours: bool,
    /// Whether the server listens at its preferred address itself, so that the link cannot.
    pub(super) server_binds_preferred: bool,
    /// Where the link's chance starts from.
    pub(super) seed: u64,
    /// Where captures, key logs and qlogs go.
    pub(super) folder: &'a Path,
}

/// Where a server listens, and where it wants to be reached after the handshake.
struct Place {
    listen: SocketAddr,
    preferred: Option<SocketAddr>,
    /// The server is in the right one: what has an address there may have it here as well.
    apart: Option<Namespaces>,
}

impl Place {
    /// Where the link is to listen for the preferred address, and what it reaches from there.
    fn second_way(&self, server: SocketAddr) -> Option<(SocketAddr, SocketAddr)> {
        let preferred = self.preferred?;
        let nearby = SocketAddr::from((SECOND_ADDRESS, server.port()));
        Some((preferred, if self.apart.is_some() { preferred } else { nearby }))
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Session<'_> {
    /// Runs both ends to their end, and says what was wrong.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let case = self.case;
        let downloads = tempfile::Builder::new().prefix("quicket-out").tempdir()?;
        let place = self.place()?;
        let mut server = self.start_server(&place)?;
        let server_address = match listening(&mut server)? {
            address if address.ip().is_unspecified() => {
                (Ipv4Addr::LOCALHOST, address.port()).into()
            }
            address => address,
        };
        let mut link = link::Options::new(server_address, case.scenario.parse()?);
        link.listen.set_ip(server_address.ip());
        link.also = place.second_way(server_address).into_iter().collect();
        link.send_in = place.apart.as_ref().map(|apart| apart.name(End::Right).to_owned());
        link.seed = self.seed;
        link.capture = Some(self.folder.to_owned());
        link.snap = case.on_request.then_some(SNAP);
        let mut servers = vec![server_address];
        servers.extend(link.also.iter().map(|gate| gate.1));
        let link = RunningLink::start(&link)?;
        let links = link.addresses().to_vec();

        let mut client = self.start_client(link.address(), downloads.path())?;
        let deadline = Instant::now() + Duration::from_secs(case.patience);
        if case.arrangement == Arrangement::Restart {
            server = self.restart(server, &mut client, server_address, deadline)?;
        }
        let restarted = case.arrangement == Arrangement::Restart;
        let outcome = outcome(&mut client, deadline, &mut server, END, restarted);
        let carried = link.finish();
        outcome?;
        carried?;
        self.site.check(case, downloads.path())?;
        let evidence = self.evidence(&links, &servers)?;
        for check in case.checks {
            check(&evidence)?;
        }
        Ok(())
    }

    /// Where the server is to be.
    fn place(&self) -> Result<Place, Failure> {
        let localhost = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let nearby = Place { listen: localhost, preferred: None, apart: None };
        if self.case.arrangement != Arrangement::PreferredAddress {
            let listen = if self.case.ipv6 { (Ipv6Addr::LOCALHOST, 0).into() } else { localhost };
            return Ok(Place { listen, ..nearby });
        }
        let preferred = Some(free_address()?);
        if self.server_binds_preferred {
            let apart = Namespaces::new()?;
            apart.use_loopback(End::Right)?;
            return Ok(Place { preferred, apart: Some(apart), ..nearby });
        }
        // Both addresses lead to one socket.
        Ok(Place { listen: (Ipv4Addr::UNSPECIFIED, 0).into(), preferred, ..nearby })
    }

    /// Kills the server while the client has much to say, and starts another at the same address.
    fn restart(
        &self,
        mut server: Process,
        client: &mut Process,
        address: SocketAddr,
        deadline: Instant,
    ) -> Result<Process, Failure> {
        match client.next(deadline)? {
            Some(Event::Connection { .. }) => {}
            other => return Err(client.error(format!("does not connect: {other:?}")).into()),
        }
        std::thread::sleep(BEFORE_RESTART);
        server.kill();
        let place = Place { listen: address, preferred: None, apart: None };
        let mut server = self.start_server(&place)?;
        listening(&mut server)?;
        Ok(server)
    }

    fn evidence(&self, links: &[SocketAddr], servers: &[SocketAddr]) -> Result<Evidence, Failure> {
        // Either end's secrets are enough; an implementation may log none.
        let mut key_log = String::new();
        for end in ["client", "server"] {
            key_log += &std::fs::read_to_string(self.key_log(end)).unwrap_or_default();
        }
        let trace = |name, servers| -> Result<Trace, Failure> {
            Ok(Trace::new(&pcap::read(&self.folder.join(name))?, servers, &key_log))
        };
        Ok(Evidence {
            client: trace("client.pcap", links)?,
            server: trace("server.pcap", servers)?,
            server_is_ours: self.server_is_ours,
        })
    }

    fn key_log(&self, end: &str) -> PathBuf {
        self.folder.join(format!("{end}.keys"))
    }

    /// Tells an end where to write its logs, by the variables that implementations have agreed on.
    fn logs(&self, command: &mut Command, end: &str) -> Result<(), Failure> {
        let qlog = self.folder.join(format!("{end}.qlog"));
        std::fs::create_dir_all(&qlog)?;
        command.env("SSLKEYLOGFILE", self.key_log(end)).env("QLOGDIR", qlog);
        Ok(())
    }

    fn start_server(&self, place: &Place) -> Result<Process, Failure> {
        let case = self.case;
        let mut command = self.server.command();
        if let Some(apart) = &place.apart {
            command = apart.inside(End::Right, &command);
        }
        command.args(["server", "--listen", &place.listen.to_string(), "--alpn", self.alpn]);
        command.arg("--cert").arg(self.certificates.certificate());
        command.arg("--key").arg(self.certificates.key());
        command.arg("--www").arg(self.site.folder());
        command.args(case.server);
        if let Some(address) = place.preferred {
            command.args(["--preferred", &address.to_string()]);
        }
        if case.arrangement == Arrangement::ClientCertificate {
            command.arg("--client-ca").arg(self.certificates.authority());
        }
        self.logs(&mut command, "server")?;
        Ok(Process::start("server", &mut command)?)
    }

    fn start_client(&self, address: SocketAddr, downloads: &Path) -> Result<Process, Failure> {
        let case = self.case;
        let mut command = self.client.command();
        command.args(["client", "--connect", &address.to_string(), "--server-name", SERVER_NAME]);
        command.arg("--ca").arg(self.certificates.authority());
        command.args(["--alpn", self.alpn]).args(case.client).arg("--out").arg(downloads);
        for (name, _) in site::names(case) {
            command.arg("--download").arg(format!("/{name}"));
        }
        if case.arrangement == Arrangement::ClientCertificate {
            command.arg("--cert").arg(self.certificates.client_certificate());
            command.arg("--key").arg(self.certificates.client_key());
        }
        self.logs(&mut command, "client")?;
        Ok(Process::start("client", &mut command)?)
    }
}

/// An address that nobody has, for a link to listen at and for a server to name before that.
fn free_address() -> std::io::Result<SocketAddr> {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

fn listening(server: &mut Process) -> Result<SocketAddr, ProcessError> {
    match server.next(Instant::now() + START)? {
        Some(Event::Listening { address }) => Ok(address),
        Some(other) => Err(server.error(format!("does not listen: {other:?}"))),
        None => Err(server.error("ended before it listened")),
    }
}

/// Waits for both ends, and says what was wrong: with the client first, because a server that hangs
/// is more often what comes of it than why. `patience` is what the server has after the client.
fn outcome(
    client: &mut Process,
    deadline: Instant,
    server: &mut Process,
    patience: Duration,
    restarted: bool,
) -> Result<(), ProcessError> {
    let mut complaints = Vec::new();
    let client_ended = finish(client, deadline, &mut complaints);
    server.end_input();
    let server_ended = finish(server, Instant::now() + patience, &mut complaints);

    let status = client_ended?;
    if restarted && status.success() {
        return Err(client.error("did not notice that the server was another one"));
    }
    if !restarted && !status.success() {
        complaints.extend(server_ended.err().map(|error| error.to_string()));
        return Err(client.error(format!("ended with {status}: {}", complaints.join("; "))));
    }
    server_ended.map(drop)
}

/// Waits until an end has nothing more to say and is gone; keeps what it complains of.
fn finish(
    end: &mut Process,
    deadline: Instant,
    complaints: &mut Vec<String>,
) -> Result<ExitStatus, ProcessError> {
    while let Some(event) = end.next(deadline)? {
        if let Event::Error { message } = event {
            complaints.push(message);
        }
    }
    end.wait(deadline)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const HANGS: &str = r#"echo '{"event":"error","message":"lost it"}'; exec sleep 600"#;

    fn verdict(client: &str, server: &str, patience: Duration, restarted: bool) -> String {
        let shell =
            |name, script| Process::start(name, Command::new("sh").args(["-c", script])).unwrap();
        let (mut client, mut server) = (shell("client", client), shell("server", server));
        let deadline = Instant::now() + LONG;
        let outcome = outcome(&mut client, deadline, &mut server, patience, restarted);
        server.kill();
        outcome.map_or_else(|error| error.to_string(), |()| "passed".into())
    }

    #[test]
    fn a_server_that_hangs_does_not_hide_what_was_wrong_with_the_client() {
        let fails = r#"echo '{"event":"error","message":"a file differs"}'; exit 3"#;
        let said = verdict(fails, HANGS, Duration::from_secs(1), false);
        let expected = "client ended with exit status: 3: a file differs; ";
        assert!(said.starts_with(expected), "{said}");
        assert!(said.contains("server said nothing in time"), "{said}");
        let said = verdict("exit 0", HANGS, Duration::ZERO, true);
        assert_eq!(said, "client did not notice that the server was another one");
    }

    #[test]
    fn a_server_that_hangs_after_its_client_was_content_is_at_fault() {
        let said = verdict("exit 0", HANGS, Duration::ZERO, false);
        assert!(said.starts_with("server said nothing in time"), "{said}");
    }

    #[test]
    fn clients_that_succeed_pass_and_so_do_those_that_notice_a_restart() {
        assert_eq!(verdict("exit 0", "read line", LONG, false), "passed");
        assert_eq!(verdict("exit 1", "read line", LONG, true), "passed");
    }
}
