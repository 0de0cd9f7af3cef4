//! quiche as an interoperability peer. It does no I/O of its own: a loop over one socket does.

mod answers;
mod client;
mod config;
mod echo;
mod exchange;
mod http3;
mod requests;
mod server;
mod stateless;

use std::process::ExitCode;

use quicket_workload::peer::Role;

/// The most that a datagram holds.
const DATAGRAM: usize = 65_535;

fn main() -> ExitCode {
    quicket_peer_common::main(|role| match role {
        Role::Server(arguments) => server::run(&arguments),
        Role::Client(arguments) => client::run(&arguments),
    })
}
