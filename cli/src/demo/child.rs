//! The two processes: this program again, as `quicket serve` and as `quicket get`.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Interrupt;
use crate::exit::{Failure, Kind};

/// How long the server may take to say something that is due.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether this program was told to end.
const LOOK: Duration = Duration::from_millis(50);

/// A server process. It ends with this value.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    /// Its events: one JSON value per line.
    events: Receiver<Value>,
    interrupt: Interrupt,
    /// Where it listens.
    pub(super) address: String,
    /// The fingerprint of its certificate.
    pub(super) pin: String,
}

impl Server {
    /// Starts it and waits until it listens.
    pub(super) fn start(
        dir: &Path,
        place: &Path,
        qlog: Option<&Path>,
        interrupt: Interrupt,
    ) -> Result<Self, Failure> {
        let mut command = this_program()?;
        command.arg("serve").arg(dir);
        command.args(["--listen", "127.0.0.1:0", "--json", "--quiet"]);
        if let Some(qlog) = qlog {
            command.arg("--qlog").arg(qlog);
        }
        // Its certificate and ticket key go with the rest.
        command.env("XDG_DATA_HOME", place.join("server"));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| Failure::environment("cannot start the server", error))?;
        let (sender, events) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if let Ok(event) = serde_json::from_str(&line)
                        && sender.send(event).is_err()
                    {
                        return;
                    }
                }
            });
        }
        let (address, pin) = (String::new(), String::new());
        let mut server = Self { child, events, interrupt, address, pin };
        let listening = server.event("listening")?;
        server.address = text(&listening, "address");
        server.pin = text(&listening, "pin");
        Ok(server)
    }

    /// The process's number.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until a connection has ended; what the server says of it.
    pub(super) fn connection_closed(&mut self) -> Result<Value, Failure> {
        self.event("closed")
    }

    fn event(&mut self, name: &str) -> Result<Value, Failure> {
        let begun = Instant::now();
        loop {
            self.interrupt.check()?;
            match self.events.recv_timeout(LOOK) {
                Ok(event) if text(&event, "event") == name => return Ok(event),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) if begun.elapsed() < PATIENCE => {}
                Err(_) => {
                    let message = format!("the server did not come to \"{name}\"; see above");
                    return Err(Failure::new(Kind::Environment, message));
                }
            }
        }
    }

    /// Ends the process, which may finish its logs.
    pub(super) fn stop(mut self) {
        #[cfg(unix)]
        {
            use rustix::process::{Pid, Signal, kill_process};
            if kill_process(Pid::from_child(&self.child), Signal::TERM).is_ok() {
                let _ = self.child.wait();
            }
        }
        self.end();
    }

    fn end(&mut self) {
        // Without effect where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// A string of an event; empty if it has none.
fn text(event: &Value, field: &str) -> String {
    event[field].as_str().unwrap_or_default().to_owned()
}

/// What a client process is to fetch, and how.
#[derive(Debug)]
pub(super) struct Errand<'a> {
    pub(super) urls: &'a Path,
    pub(super) sums: &'a Path,
    pub(super) output: &'a Path,
    pub(super) sessions: &'a Path,
    pub(super) pin: &'a str,
    pub(super) qlog: Option<&'a Path>,
}

/// Fetches everything in a client process, with progress on the terminal; its report.
pub(super) fn fetch(errand: &Errand<'_>, interrupt: &Interrupt) -> Result<Value, Failure> {
    let mut command = this_program()?;
    command.args(["get", "--json", "--progress", "--paths", "--pin", errand.pin]);
    command.arg("--input").arg(errand.urls).arg("--sha256sums").arg(errand.sums);
    command.arg("--output").arg(errand.output).arg("--sessions").arg(errand.sessions);
    if let Some(qlog) = errand.qlog {
        command.arg("--qlog").arg(qlog);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let cannot = |error| Failure::environment("cannot start the client", error);
    let mut child = command.spawn().map_err(cannot)?;
    let (sender, report) = mpsc::channel();
    if let Some(mut stdout) = child.stdout.take() {
        thread::spawn(move || {
            let mut report = Vec::new();
            let _ = sender.send(stdout.read_to_end(&mut report).map(|_| report));
        });
    }
    let report = loop {
        if let Err(interrupted) = interrupt.check() {
            let _ = child.kill();
            let _ = child.wait();
            return Err(interrupted);
        }
        match report.recv_timeout(LOOK) {
            Ok(report) => break report,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break Ok(Vec::new()),
        }
    };
    let status = child.wait().map_err(cannot)?;
    if status.code() == Some(Kind::Interrupted as i32) {
        // Ctrl-C is for all processes at the terminal.
        return Err(Failure::new(Kind::Interrupted, "interrupted"));
    }
    if !status.success() {
        let message = format!("the client ended with {status}; see above");
        return Err(Failure::new(Kind::Content, message));
    }
    let senseless = |error| Failure::environment("the client's report makes no sense", error);
    let report = report.map_err(|error| Failure::environment("no report of the client", error))?;
    serde_json::from_slice(&report).map_err(senseless)
}

fn this_program() -> Result<Command, Failure> {
    let program = env::current_exe()
        .map_err(|error| Failure::environment("this program does not find itself", error))?;
    let mut command = Command::new(program);
    // What the user set for their own connections is not meant for these.
    command.env_remove("SSLKEYLOGFILE");
    Ok(command)
}
