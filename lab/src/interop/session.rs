//! One client against one server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quicket_workload::bench::SERVER_NAME;
use quicket_workload::peer::{Event, Facts};
use serde::{Deserialize, Serialize};

use super::Case;
use super::site::{self, Site};
use crate::Certificates;
use crate::peers::Program;
use crate::process::{Process, ProcessError};

/// How long a server may take until it listens; an interpreter may have to load a lot.
const START: Duration = Duration::from_secs(15);
/// How long a client may take.
const WORK: Duration = Duration::from_secs(40);
/// How long a server may take to notice that a connection is closed.
const CLOSE: Duration = Duration::from_secs(10);

/// One client against one server.
pub(super) struct Session<'a> {
    pub(super) case: Case,
    pub(super) client: &'a Program,
    pub(super) server: &'a Program,
    pub(super) certificates: &'a Certificates,
    pub(super) site: &'a Site,
}

/// What both ends have told.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The client's side.
    pub client: Told,
    /// The server's side.
    pub server: Told,
    /// The digests of what the client has stored, by the name of the file.
    pub stored: BTreeMap<String, String>,
}

/// What one end has told.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// What it knows of each connection, by its number.
    pub connections: BTreeMap<u64, Facts>,
    /// How many of its connections have ended.
    pub closed: usize,
    /// The digests that it has computed, by path.
    pub files: BTreeMap<String, String>,
    /// Streams that were echoed.
    pub streams: u32,
    /// Datagrams that were echoed.
    pub datagrams: u32,
    /// What it has complained of.
    pub errors: Vec<String>,
    /// Whether it has done all that it was told.
    pub done: bool,
}

impl Told {
    fn hear(&mut self, event: Event) {
        match event {
            Event::Listening { .. } => {}
            Event::Connection { connection, facts } => {
                self.connections.entry(connection).or_default().update(&facts);
            }
            Event::Closed { connection, facts, .. } => {
                self.connections.entry(connection).or_default().update(&facts);
                self.closed += 1;
            }
            Event::File { path, sha256, .. } => {
                self.files.insert(path, sha256);
            }
            Event::Echo { streams, datagrams, .. } => {
                self.streams += streams;
                self.datagrams += datagrams;
            }
            Event::Error { message } => self.errors.push(message),
            Event::Done => self.done = true,
        }
    }
}

impl Session<'_> {
    /// Runs both ends to their end.
    pub(super) fn run(&self) -> Result<Record, Box<dyn std::error::Error + Send + Sync>> {
        let out = tempfile::Builder::new().prefix("quicket-out").tempdir()?;
        let mut server = self.start_server()?;
        let address = listening(&mut server)?;

        let mut client = self.start_client(address, out.path())?;
        let mut record = Record::default();
        let deadline = Instant::now() + WORK;
        while let Some(event) = client.next(deadline)? {
            record.client.hear(event);
        }
        let status = client.wait(deadline)?;

        let deadline = Instant::now() + CLOSE;
        while record.client.done && record.server.closed < record.client.closed {
            let Some(event) = server.next(deadline)? else { break };
            record.server.hear(event);
        }
        server.end_input();
        while let Some(event) = server.next(deadline)? {
            record.server.hear(event);
        }
        server.wait(deadline)?;

        if !status.success() {
            let reasons = [record.client.errors, record.server.errors].concat().join("; ");
            return Err(client.error(format!("ended with {status}: {reasons}")).into());
        }
        for entry in std::fs::read_dir(out.path())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            record.stored.insert(name, site::sha256(&std::fs::read(entry.path())?));
        }
        Ok(record)
    }

    fn start_server(&self) -> Result<Process, ProcessError> {
        let plan = self.case.plan();
        let mut command = self.server.command();
        command.args(["server", "--listen", "127.0.0.1:0", "--alpn", plan.alpn]);
        command.arg("--cert").arg(self.certificates.certificate());
        command.arg("--key").arg(self.certificates.key());
        command.arg("--www").arg(self.site.folder());
        command.args(plan.retry.then_some("--retry"));
        Process::start("server", &mut command)
    }

    fn start_client(
        &self,
        address: SocketAddr,
        out: &std::path::Path,
    ) -> Result<Process, ProcessError> {
        let plan = self.case.plan();
        let mut command = self.client.command();
        command.args(["client", "--connect", &address.to_string(), "--server-name", SERVER_NAME]);
        command.arg("--ca").arg(self.certificates.authority());
        command.args(["--alpn", plan.alpn]).args(plan.options).arg("--out").arg(out);
        for &size in plan.files {
            command.arg("--download").arg(format!("/{}", site::name(size)));
        }
        Process::start("client", &mut command)
    }
}

fn listening(server: &mut Process) -> Result<SocketAddr, ProcessError> {
    match server.next(Instant::now() + START)? {
        Some(Event::Listening { address }) => Ok(address),
        Some(other) => Err(server.error(format!("does not listen: {other:?}"))),
        None => Err(server.error("ended before it listened")),
    }
}
