//! Flags of `quicket run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// Starts a program that speaks QUIC through the system's socket calls: its
/// `socket(AF_INET, SOCK_DGRAM, IPPROTO_QUIC)` (or AF_INET6, or SOCK_STREAM) works as with the
/// in-kernel QUIC module, on any kernel. The program must be dynamically linked; its other sockets
/// and files are not touched. Programs that it starts can do the same.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  quicket run -- ./server 127.0.0.1 4433
  quicket run -- python3 client.py")]
pub(crate) struct Run {
    /// The library to preload; by default the one within this program, or else
    /// libquicket_preload.so beside it or in ../lib
    #[arg(long, value_name = "FILE", env = "QUICKET_PRELOAD")]
    pub(crate) library: Option<PathBuf>,

    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub(crate) program: Vec<OsString>,
}
