//! Quicket as the other end: as a peer with the command line and the events that all peers of the
//! lab share, and as an [`endpoint`] of the QUIC interop runner.
#![forbid(unsafe_code)]

mod client;
mod echo;
pub mod endpoint;
mod files;
mod http09;
mod http3;
mod logs;
mod server;
mod tickets;

use quicket_workload::bench::Failure;
use quicket_workload::peer::Role;

/// How long a handshake may take: where 30 % of the packets are lost, ten seconds are not enough.
const HANDSHAKE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

/// Does what a peer is told.
///
/// # Errors
///
/// When anything fails, in a sentence.
pub fn run(role: Role) -> Result<(), Failure> {
    block_on(async {
        match role {
            Role::Server(arguments) => server::run(arguments).await,
            Role::Client(arguments) => client::run(arguments).await,
        }
    })
}

fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(work);
    // A read of standard input may still be under way on a thread that nothing can interrupt.
    runtime.shutdown_background();
    result
}
