//! Quicket as an interoperability peer: the same command line and the same events as the peers
//! over other implementations.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use quicket_workload::peer::{Arguments, Event, emit};

fn main() -> ExitCode {
    match quicket_peer::run(Arguments::parse().role) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            emit(&Event::Error { message: failure.to_string() });
            ExitCode::FAILURE
        }
    }
}
