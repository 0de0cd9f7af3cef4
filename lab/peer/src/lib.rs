//! Quicket as the other end: as a peer with the command line and the events that all peers of the
//! lab share, and as an [`endpoint`] of the QUIC interop runner.
#![forbid(unsafe_code)]

mod client;
pub mod endpoint;
mod logs;
mod over;
mod server;
mod tickets;

use quicket_peer_common::tasks;
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
    tasks::run(role, server::run, client::run)
}
