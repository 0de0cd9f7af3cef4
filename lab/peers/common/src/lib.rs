//! What peers in Rust share, whatever they are over.
#![forbid(unsafe_code)]

pub mod files;
pub mod streams;

use std::process::ExitCode;

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
