//! quinn and h3 as an interoperability peer and as a row of the benchmark.

mod bench;
mod client;
mod echo;
mod files;
mod http09;
mod http3;
mod key_updates;
mod server;
mod tls;

use std::process::ExitCode;

use clap::Parser;
use quicket_workload::bench::Failure;
use quicket_workload::peer::{Arguments, Event, Role, emit};

/// The version that this peer speaks, as events name it; quinn has no accessor for it.
const VERSION: u32 = 1;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("bench") {
        let assignment = arguments.next().unwrap_or_default();
        return quicket_workload::bench::run(&assignment, bench::serve, bench::QuinnClient::new);
    }
    match peer(Arguments::parse().role) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            emit(&Event::Error { message: failure.to_string() });
            ExitCode::FAILURE
        }
    }
}

fn peer(role: Role) -> Result<(), Failure> {
    key_updates::watch()?;
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
