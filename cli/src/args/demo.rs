//! Flags of `quicket demo`.

use std::path::PathBuf;

use clap::Args;

/// Show both sides at work on this machine: files cross over HTTP/3 and are verified
///
/// It starts a server and a client as two processes on this machine. Real files cross over HTTP/3,
/// twice: on a new connection, then on a resumed one whose requests leave with the first packet
/// (0-RTT). Every file is verified by its SHA-256 hash.
#[derive(Args, Clone, Debug)]
#[command(
    args_override_self = true,
    after_help = "\
Examples:
  quicket demo
  quicket demo ~/Pictures
  quicket demo --keep /tmp/demo"
)]
pub(crate) struct Demo {
    /// The directory to send; by default files found on this machine, or made up where there are
    /// none
    pub(crate) dir: Option<PathBuf>,

    /// How much to send at most, in megabytes
    #[arg(long, default_value_t = 200, value_name = "MB",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) max_size: u64,

    /// How many files to send at most
    #[arg(long, default_value_t = 300, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) max_files: u32,

    /// Keep what was fetched, and qlog files of the connections, in this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,

    /// Print the summary as JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
}
