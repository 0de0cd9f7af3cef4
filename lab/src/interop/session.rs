//! One client against one server, and a link between them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use quicket_workload::bench::SERVER_NAME;
use quicket_workload::peer::Event;

use super::case::Case;
use super::check::Evidence;
use super::site::{self, Site};
use crate::Certificates;
use crate::link::{self, RunningLink};
use crate::peers::Program;
use crate::process::{Process, ProcessError};
use crate::trace::{Trace, pcap};

/// How long a server may take until it listens; an interpreter may have to load a lot.
const START: Duration = Duration::from_secs(30);
/// How long a server may take to end.
const END: Duration = Duration::from_secs(10);
/// Where chance starts from: it is the same in every run.
const SEED: u64 = 1;

/// One client against one server.
pub(super) struct Session<'a> {
    pub(super) case: &'static Case,
    pub(super) client: &'a Program,
    pub(super) server: &'a Program,
    pub(super) certificates: &'a Certificates,
    pub(super) site: &'a Site,
    pub(super) server_is_ours: bool,
    /// Where captures, key logs and qlogs go.
    pub(super) folder: &'a Path,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Session<'_> {
    /// Runs both ends to their end, and says what was wrong.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let case = self.case;
        let downloads = tempfile::Builder::new().prefix("quicket-out").tempdir()?;
        let mut server = self.start_server()?;
        let server_address = listening(&mut server)?;
        let mut link = link::Options::new(server_address, case.scenario.parse()?);
        link.listen.set_ip(server_address.ip());
        link.seed = SEED;
        link.capture = Some(self.folder.to_owned());
        let link = RunningLink::start(&link)?;
        let link_address = link.address();

        let mut client = self.start_client(link_address, downloads.path())?;
        let deadline = Instant::now() + Duration::from_secs(case.patience);
        let heard = hear(&mut client, deadline);
        let status = heard.and_then(|complaints| Ok((complaints, client.wait(deadline)?)));
        server.end_input();
        let deadline = Instant::now() + END;
        let server_complaints = hear(&mut server, deadline)?;
        server.wait(deadline)?;
        link.finish()?;

        let (complaints, status) = status?;
        if !status.success() {
            let reasons = [complaints, server_complaints].concat().join("; ");
            return Err(client.error(format!("ended with {status}: {reasons}")).into());
        }
        self.site.check(case, downloads.path())?;
        let evidence = self.evidence(link_address, server_address)?;
        for check in case.checks {
            check(&evidence)?;
        }
        Ok(())
    }

    fn evidence(&self, link: SocketAddr, server: SocketAddr) -> Result<Evidence, Failure> {
        // Either end's secrets are enough; an implementation may log none.
        let mut key_log = String::new();
        for end in ["client", "server"] {
            key_log += &std::fs::read_to_string(self.key_log(end)).unwrap_or_default();
        }
        let trace = |name, server| -> Result<Trace, Failure> {
            Ok(Trace::new(&pcap::read(&self.folder.join(name))?, &[server], &key_log))
        };
        Ok(Evidence {
            client: trace("client.pcap", link)?,
            server: trace("server.pcap", server)?,
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

    fn start_server(&self) -> Result<Process, Failure> {
        let case = self.case;
        let mut command = self.server.command();
        let listen = if case.ipv6 { "[::1]:0" } else { "127.0.0.1:0" };
        command.args(["server", "--listen", listen, "--alpn", case.alpn]);
        command.arg("--cert").arg(self.certificates.certificate());
        command.arg("--key").arg(self.certificates.key());
        command.arg("--www").arg(self.site.folder());
        command.args(case.server);
        self.logs(&mut command, "server")?;
        Ok(Process::start("server", &mut command)?)
    }

    fn start_client(&self, address: SocketAddr, downloads: &Path) -> Result<Process, Failure> {
        let case = self.case;
        let mut command = self.client.command();
        command.args(["client", "--connect", &address.to_string(), "--server-name", SERVER_NAME]);
        command.arg("--ca").arg(self.certificates.authority());
        command.args(["--alpn", case.alpn]).args(case.client).arg("--out").arg(downloads);
        for (name, _) in site::names(case) {
            command.arg("--download").arg(format!("/{name}"));
        }
        self.logs(&mut command, "client")?;
        Ok(Process::start("client", &mut command)?)
    }
}

fn listening(server: &mut Process) -> Result<SocketAddr, ProcessError> {
    match server.next(Instant::now() + START)? {
        Some(Event::Listening { address }) => Ok(address),
        Some(other) => Err(server.error(format!("does not listen: {other:?}"))),
        None => Err(server.error("ended before it listened")),
    }
}

/// Waits until an end has nothing more to say, and returns what it has complained of.
fn hear(end: &mut Process, deadline: Instant) -> Result<Vec<String>, ProcessError> {
    let mut complaints = Vec::new();
    while let Some(event) = end.next(deadline)? {
        if let Event::Error { message } = event {
            complaints.push(message);
        }
    }
    Ok(complaints)
}
