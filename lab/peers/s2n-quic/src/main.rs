//! s2n-quic as an interoperability peer and a contender of the benchmark.

mod bench;
mod client;
mod over;
mod provider;
mod server;
mod tls;

use std::process::ExitCode;

use quicket_peer_common::tasks;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("bench") {
        let assignment = arguments.next().unwrap_or_default();
        return quicket_workload::bench::run(&assignment, bench::serve, bench::client);
    }
    quicket_peer_common::main(|role| tasks::run(role, server::run, client::run))
}
