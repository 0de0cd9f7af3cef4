//! quiche as an interoperability peer and as a row of the benchmark. It does no I/O of its own: a
//! loop over one socket does.

mod bench;
mod client;
mod config;
mod over;
mod server;
mod stateless;

use std::process::ExitCode;

use quicket_workload::peer::Role;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("bench") {
        let assignment = arguments.next().unwrap_or_default();
        return quicket_workload::bench::run(&assignment, bench::serve, bench::client);
    }
    quicket_peer_common::main(|role| match role {
        Role::Server(arguments) => server::run(&arguments),
        Role::Client(arguments) => client::run(&arguments),
    })
}
