//! TQUIC as an interoperability peer. It does no I/O of its own: a loop over one socket does.

mod client;
mod config;
mod drive;
mod over;
mod server;

use std::process::ExitCode;

use quicket_workload::peer::Role;

fn main() -> ExitCode {
    quicket_peer_common::main(|role| match role {
        Role::Server(arguments) => server::run(&arguments),
        Role::Client(arguments) => client::run(&arguments),
    })
}
