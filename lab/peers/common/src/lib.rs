//! What peers in Rust share, whatever they are over.
#![forbid(unsafe_code)]

pub mod files;
pub mod socket;
pub mod streams;
#[cfg(feature = "tasks")]
pub mod tasks;
pub mod tls;

use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;
use quicket_workload::bench::Failure;
use quicket_workload::peer::{Arguments, Event, Role, emit};

/// Does what the command line says, and tells what failed.
pub fn main(run: impl FnOnce(Role) -> Result<(), Failure>) -> ExitCode {
    match run(Arguments::parse().role) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            emit(&Event::Error { message: failure.to_string() });
            ExitCode::FAILURE
        }
    }
}

/// What becomes true when standard input ends, and with it a server.
pub fn input_ended() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    let end = ended.clone();
    std::thread::spawn(move || {
        // However it ends, it has.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        end.store(true, Ordering::Relaxed);
    });
    ended
}
