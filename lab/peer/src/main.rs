//! Quicket as an interoperability peer: the same command line and the same events as the peers
//! over other implementations.
#![forbid(unsafe_code)]

mod client;
mod echo;
mod files;
mod http09;
mod http3;
mod server;

use std::process::ExitCode;

use clap::Parser;
use quicket_workload::bench::Failure;
use quicket_workload::peer::{Arguments, Event, Role, emit};

fn main() -> ExitCode {
    match peer(Arguments::parse().role) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            emit(&Event::Error { message: failure.to_string() });
            ExitCode::FAILURE
        }
    }
}

fn peer(role: Role) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        match role {
            Role::Server(arguments) => server::run(arguments).await,
            Role::Client(arguments) => client::run(arguments).await,
        }
    });
    // A read of standard input may still be under way on a thread that nothing can interrupt.
    runtime.shutdown_background();
    result
}
