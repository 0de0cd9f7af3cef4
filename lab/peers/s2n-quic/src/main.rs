//! s2n-quic as an interoperability peer and a contender of the benchmark.

mod bench;
mod client;
mod echo;
mod http09;
mod provider;
mod server;
mod tls;

use std::process::ExitCode;

use quicket_workload::bench::Failure;
use quicket_workload::peer::Role;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("bench") {
        let assignment = arguments.next().unwrap_or_default();
        return quicket_workload::bench::run(&assignment, bench::serve, bench::client);
    }
    quicket_peer_common::main(peer)
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
