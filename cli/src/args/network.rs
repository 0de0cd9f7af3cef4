//! The flag about this host's networks, the same for all clients.

use clap::Args;

/// What becomes of connections when this host's network changes.
#[derive(Args, Debug)]
#[command(next_help_heading = "Transport")]
pub(crate) struct Network {
    /// Stay at the address of this host from which a connection began. By default a connection moves to another when that
    /// one goes, or the way to the server leads by another network
    #[arg(long)]
    pub(crate) stay: bool,
}
