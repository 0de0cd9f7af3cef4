//! A benchmarked process from its start to its end.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use super::client::{Client, Measurement, Unsupported};
use super::loads::measure;
use super::{Assignment, Failure, Role, Scenario};

/// One line of a benchmarked process's standard output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// A server takes connections at this address.
    Listening {
        /// The address with the port that was taken.
        address: SocketAddr,
    },
    /// A client holds idle connections until its standard input ends.
    Holding {
        /// How many.
        connections: usize,
    },
    /// A client has finished.
    Measured(Measurement),
    /// The implementation cannot do what the load needs.
    Unsupported {
        /// Why.
        reason: String,
    },
    /// The process gives up.
    Failed {
        /// Why.
        reason: String,
    },
}

impl Message {
    /// Prints the message as one line.
    pub fn emit(&self) {
        if let Ok(mut line) = serde_json::to_string(self) {
            line.push('\n');
            let mut out = std::io::stdout().lock();
            let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
        }
    }
}

static INPUT_ENDED: AtomicBool = AtomicBool::new(false);

/// Whether whoever started the process wants it to end.
pub(super) fn standard_input_ended() -> bool {
    INPUT_ENDED.load(Ordering::Relaxed)
}

/// Carries out the assignment in `json`.
///
/// `serve` runs a server: it calls its second argument with the address once it listens, and
/// returns only when it fails. `client` makes a client.
pub fn run<C: Client>(
    json: &str,
    serve: impl FnOnce(&Assignment, &mut dyn FnMut(SocketAddr)) -> Result<(), Failure>,
    client: impl FnOnce(&Assignment) -> Result<C, Failure>,
) -> ExitCode {
    match carry_out(json, serve, client) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is::<Unsupported>() => {
            Message::Unsupported { reason: failure.to_string() }.emit();
            ExitCode::SUCCESS
        }
        Err(failure) => {
            Message::Failed { reason: failure.to_string() }.emit();
            ExitCode::FAILURE
        }
    }
}

fn carry_out<C: Client>(
    json: &str,
    serve: impl FnOnce(&Assignment, &mut dyn FnMut(SocketAddr)) -> Result<(), Failure>,
    client: impl FnOnce(&Assignment) -> Result<C, Failure>,
) -> Result<(), Failure> {
    let assignment: Assignment = serde_json::from_str(json)?;
    if !assignment.conditions.all_cores {
        pin(assignment.core)?;
    }
    match &assignment.role {
        Role::Server { .. } => {
            watch_standard_input(|| std::process::exit(0));
            serve(&assignment, &mut |address| Message::Listening { address }.emit())
        }
        Role::Client { scenario, .. } => {
            let idle = matches!(scenario, Scenario::Idle { .. });
            watch_standard_input(move || match idle {
                true => INPUT_ENDED.store(true, Ordering::Relaxed),
                // Nobody waits for the result any more.
                false => std::process::exit(1),
            });
            let mut client = client(&assignment)?;
            let measurement = measure(&mut client, *scenario, assignment.conditions.cipher)?;
            Message::Measured(measurement).emit();
            Ok(())
        }
    }
}

/// Pins this thread, and with it all that it starts later, to `core`.
///
/// # Errors
///
/// When there is no such core, or this process may not run there.
pub fn pin(core: usize) -> Result<(), Failure> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|error| format!("cannot run on core {core}: {error}"))?;
    Ok(())
}

fn watch_standard_input(ended: impl FnOnce() + Send + 'static) {
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut discarded = [0; 64];
        while matches!(input.read(&mut discarded), Ok(1..)) {}
        ended();
    });
}
