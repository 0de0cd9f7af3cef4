//! Flags of `quicket get`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use quicket::Fingerprint;
use url::Url;

use super::{Http, Transport, http};
use crate::digest::Sha256;

/// The application protocol to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub(crate) enum Protocol {
    /// HTTP/3
    H3,
    /// HTTP/0.9 as in interoperability tests: no headers, no status
    #[value(name = "hq-interop")]
    HqInterop,
}

impl Protocol {
    /// Its name in ALPN.
    pub(crate) const fn alpn(self) -> &'static str {
        match self {
            Self::H3 => "h3",
            Self::HqInterop => "hq-interop",
        }
    }
}

/// How to know the server. By default its certificate must lead to one of the system's roots.
#[derive(Args, Debug)]
#[group(multiple = false)]
pub(crate) struct Trust {
    /// Trust servers whose certificate leads to one in this PEM file
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,

    /// Trust exactly the server with this certificate; may be given several times
    #[arg(long, value_name = "sha256:HEX", value_parser = fingerprint)]
    pub(crate) pin: Vec<Fingerprint>,

    /// DANGEROUS: trust whoever answers
    #[arg(long)]
    pub(crate) insecure_no_verify: bool,
}

/// Fetch files over HTTP/3
///
/// All of one server are fetched in parallel, on one connection. Sessions are kept, so that the next connection to the same server is resumed and its first
/// requests are sent at once (0-RTT).
#[derive(Args, Debug)]
#[command(
    args_override_self = true,
    after_help = "\
Examples:
  quicket get https://example.org/file.iso
  quicket get --pin sha256:... https://127.0.0.1:4433/file -o /tmp/file
  quicket get https://example.org/a https://example.org/b -o downloads/
  quicket get https://example.org/data.json -o - | jq .
  quicket get -L --retry 5 https://example.org/latest.iso
  quicket get -I https://example.org/
  quicket get -d name=value https://example.org/form -o -
  quicket get --limit-rate 2M --max-time 3600 https://example.org/file.iso
  quicket get --port-of packets --pin sha256:... https://127.0.0.1:4433/file
  quicket get --continue https://example.org/file.iso"
)]
pub(crate) struct Get {
    /// What to fetch: https://HOST[:PORT]/PATH, or hq://... for HTTP/0.9
    #[arg(value_name = "URL", required_unless_present = "input", value_parser = parse_url)]
    pub(crate) urls: Vec<Url>,

    /// Read further URLs from a file, one per line; - is standard input
    #[arg(long, short, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,

    /// Where to write: a file, a directory (if it exists, ends with / or there are several URLs),
    /// or - for standard output
    #[arg(long, short, value_name = "PATH", default_value = ".")]
    pub(crate) output: PathBuf,

    /// Keep the directories of the URLs' paths below the output directory
    #[arg(long)]
    pub(crate) paths: bool,

    /// Go on with what an interrupted run has left
    #[arg(long = "continue", short = 'c')]
    pub(crate) resume: bool,

    /// How many files to fetch at once
    #[arg(long, short, default_value_t = 8, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) parallel: u16,

    /// Try again so often when the connection fails or is lost, or the server answers 408, 429 or
    /// 5xx; each time after a longer wait, and from where it stopped if the server allows it
    #[arg(long, default_value_t = 0, value_name = "N",
          value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub(crate) retry: u16,

    /// Give up when this much time has passed, for everything together
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = http::seconds)]
    pub(crate) max_time: Option<Duration>,

    /// Read no faster than so many bytes per second, of all files together: the server slows down.
    /// 500k, 2.5M
    #[arg(long, value_name = "RATE", value_parser = http::rate)]
    pub(crate) limit_rate: Option<u64>,

    /// Use IPv4 only
    #[arg(long, short = '4', conflicts_with_all = ["ipv6", "connect"])]
    pub(crate) ipv4: bool,

    /// Use IPv6 only
    #[arg(long, short = '6', conflicts_with = "connect")]
    pub(crate) ipv6: bool,

    /// Use HTTP/3 only, and not HTTP/2 or 1.1 over TCP where QUIC does not get through
    #[arg(long, conflicts_with = "http2")]
    pub(crate) http3_only: bool,

    /// Use HTTP/2, or 1.1, over TCP only
    #[arg(long, conflicts_with = "port_of")]
    pub(crate) http2: bool,

    /// Try TCP as well when QUIC has not answered after so many milliseconds; at once where QUIC did
    /// not get through to this server in the last hour
    #[arg(long, default_value_t = 300, value_name = "MS",
          value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub(crate) fallback_after: u64,

    /// Say what is done: addresses, handshakes, header fields in (<) and out (>)
    #[arg(long, short)]
    pub(crate) verbose: bool,

    /// The protocol, where the URL does not say it
    #[arg(long, value_enum, default_value = "h3", value_name = "NAME")]
    pub(crate) alpn: Protocol,

    /// Connect to this address instead of looking up the URL's host
    #[arg(long, value_name = "ADDR")]
    pub(crate) connect: Option<SocketAddr>,

    /// Fail unless the file has this SHA-256 hash; for one URL
    #[arg(long, value_name = "HEX")]
    pub(crate) sha256: Option<Sha256>,

    /// Fail unless every file has the hash that this file gives for its path (made by sha256sum
    /// in the served directory)
    #[arg(long, value_name = "FILE", conflicts_with = "sha256")]
    pub(crate) sha256sums: Option<PathBuf>,

    /// Print the summary as JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,

    /// Show progress although --json is given
    #[arg(long)]
    pub(crate) progress: bool,

    /// Show no progress and no summary
    #[arg(long, short)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) http: Http,

    #[command(flatten, next_help_heading = "Trust")]
    pub(crate) trust: Trust,

    /// Keep sessions in this directory
    #[arg(long, value_name = "DIR", help_heading = "Sessions")]
    pub(crate) sessions: Option<PathBuf>,

    /// Neither use nor keep sessions
    #[arg(long, conflicts_with = "sessions", help_heading = "Sessions")]
    pub(crate) no_sessions: bool,

    /// Send nothing before the handshake is complete
    #[arg(long = "no-0rtt", help_heading = "Sessions")]
    pub(crate) no_zero_rtt: bool,

    #[command(flatten)]
    pub(crate) port: super::PortOf,

    #[command(flatten)]
    pub(crate) network: super::Network,

    #[command(flatten)]
    pub(crate) transport: Transport,
}

/// Reads a URL; says what is missing where there is none.
pub(crate) fn parse_url(text: &str) -> Result<Url, String> {
    let schemeless = || format!("a URL begins with its scheme; write https://{text}");
    match Url::parse(text) {
        Err(url::ParseError::RelativeUrlWithoutBase) => Err(schemeless()),
        // As in localhost:4433/file.
        Ok(url) if url.cannot_be_a_base() => Err(schemeless()),
        parsed => parsed.map_err(|error| error.to_string()),
    }
}

fn fingerprint(text: &str) -> Result<Fingerprint, String> {
    text.parse().map_err(|error: quicket::ConfigError| error.to_string())
}
