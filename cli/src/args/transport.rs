//! Flags of the transport, the same on both sides.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Which congestion controller sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Congestion {
    /// NewReno (RFC 9002, Section 7)
    Newreno,
    /// CUBIC (RFC 9438)
    Cubic,
    /// BBR version 3
    Bbr,
}

/// How connections behave and what is recorded of them.
#[derive(Args, Debug)]
#[command(next_help_heading = "Transport")]
pub(crate) struct Transport {
    /// The congestion controller of what this side sends. BBR is the default because lost packets
    /// alone do not slow it down: at 5 % loss it takes less than a tenth of CUBIC's time. Behind
    /// downloads by CUBIC that fill a deep queue it waits
    #[arg(long, value_enum, default_value = "bbr", value_name = "NAME")]
    pub(crate) congestion: Congestion,

    /// Give up a connection after so many seconds of silence; 0 waits for ever
    #[arg(long, default_value_t = 30, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub(crate) idle_timeout: u64,

    /// Write a qlog file (.sqlog, for qvis) per connection to this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,

    /// Append TLS secrets to this file, for Wireshark: whoever reads it can read the connections
    #[arg(long, env = "SSLKEYLOGFILE", value_name = "FILE")]
    pub(crate) keylog: Option<PathBuf>,

    /// DANGEROUS: ask the peer not to encrypt after the handshake. Everybody on the path can then
    /// read and change what is sent. Holds only if both sides ask
    #[arg(long)]
    pub(crate) disable_1rtt_encryption: bool,
}
