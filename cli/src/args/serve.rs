//! Flags of `quicket serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use quicket::{MAX_WORKERS, Workers};

use super::Transport;

/// How long a connection may stay on which nothing is asked, in seconds, unless it is told otherwise.
const UNASKED: u32 = 180;

/// When clients must prove their address before anything is spent on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Retry {
    /// Never
    Never,
    /// While more than a thousand handshakes are under way
    Busy,
    /// Always, at the price of one round trip
    Always,
}

/// Serve the files of a directory over HTTP/3
///
/// The protocols are HTTP/3 (ALPN h3), HTTP/2, HTTP/1.1 and HTTP/0.9 (ALPN hq-interop).
///
/// HTTP/2 and HTTP/1.1 are served over TLS and TCP at the same port number as HTTP/3 over UDP, with the same
/// certificates, and tell clients of HTTP/3 (Alt-Svc). Where the TCP port cannot be had, the server says so and goes
/// on without; --tcp insists, --no-tcp leaves TCP out.
///
/// Without --cert a self-signed certificate is made and kept for the next time, and the command
/// with which a client trusts exactly that one is printed. A key is kept with it, by which clients of
/// a server that was killed hear from the next one that their connections are lost.
///
/// With several --cert and --key, clients get the certificate with the name that they ask for, and the
/// first if there is none. A name may have one with a key of each type: the first of those whose signatures
/// the client verifies counts. The signal SIGHUP has certificates, keys and the ticket key read again: new
/// connections get the new ones, the others go on. If anything is wrong with a file, all stays as it
/// is and the log says why. So it is with the file of --connection-ids.
///
/// As a service of systemd (Type=notify) it says when it is ready, reads files again, starts its next
/// generation, and stops; units are in docs/systemd.
#[derive(Args, Debug)]
#[command(
    args_override_self = true,
    after_help = "\
Examples:
  quicket serve .
  quicket serve /srv/files --listen '[::]:443' --cert chain.pem --key key.pem
  quicket serve . -l 192.0.2.1:443 -l '[2001:db8::1]:443'
  quicket serve /srv/files -l '[::]:443' --redirect '[::]:80'
  quicket serve /srv/files -l '[::]:443' --workers auto
  quicket serve . --cert a.pem --key a.key --cert b.pem --key b.key
  quicket serve . --qlog /tmp/qlog --keylog /tmp/keys
Sharing the address with other programs, and an upgrade:
  quicket serve /srv/a -l '[::]:443' --switch --server-name a.example
  quicket serve /srv/new -l '[::]:443' --switch --server-name a.example --replace
By a port of the switch for packets (docs/packets.md):
  quicket serve . -l 192.0.2.1:443 --port-of packets
Behind a balancer (quicket balance --help):
  quicket serve . -l 192.0.2.1:443 --connection-ids /etc/quicket/site --server-id 00000001 \\
      --max-udp-payload 1440 --report-to 10.0.0.9:6081"
)]
pub(crate) struct Serve {
    /// The directory; nothing outside of it is served, symbolic links included
    pub(crate) dir: PathBuf,

    /// The address to listen on, over UDP and TCP; may be given up to 16 times. [::]:443 stands for all addresses,
    /// those of IPv4 too unless one of IPv4 is given as well; port 0 stands for any free port
    /// [default: the sockets that a service manager hands over, else 127.0.0.1:4433]
    #[arg(long, short, value_name = "ADDR", value_parser = address)]
    pub(crate) listen: Vec<SocketAddr>,

    /// Insist on TCP: end if its port cannot be had. Without --tcp and --no-tcp, TCP is left out where that is so, with
    /// --server-name (the switch shares a UDP address, and no TCP port), with --port-of, and where a service manager
    /// hands over a UDP socket alone. With --replace, the port is awaited until the program before gives it up
    #[arg(long, overrides_with = "no_tcp")]
    pub(crate) tcp: bool,

    /// Serve over UDP only
    #[arg(long, overrides_with = "tcp")]
    pub(crate) no_tcp: bool,

    /// Redirect clients of plain HTTP at this TCP address to HTTPS at the port of the first --listen; may be given up
    /// to 16 times. Implies --tcp
    #[arg(long, value_name = "ADDR", value_parser = address, conflicts_with = "no_tcp")]
    pub(crate) redirect: Vec<SocketAddr>,

    /// How many workers serve the addresses, from 1 to 256; auto stands for as many as the server may
    /// use cores. Each has sockets of its own and a part of the connections, so that all cores receive
    #[arg(long, default_value = "1", value_name = "N", value_parser = workers)]
    pub(crate) workers: Workers,

    /// The certificate chain in PEM, the server's own certificate first; may be given several times,
    /// for different names
    #[arg(long, requires = "key", value_name = "FILE")]
    pub(crate) cert: Vec<PathBuf>,

    /// The certificate's private key in PEM; given several times, in the order of the certificates
    #[arg(long, requires = "cert", value_name = "FILE")]
    pub(crate) key: Vec<PathBuf>,

    /// File with at least 32 secret bytes: with the same ones, clients resume their sessions after
    /// a restart, with 0-RTT from two minutes after it on. Made and kept by itself if not given
    #[arg(long, value_name = "FILE")]
    pub(crate) ticket_key: Option<PathBuf>,

    /// The file of secrets that servers of a site have in common (quicket switch secrets), or fd: and the number
    /// of a descriptor: stateless resets, address tokens, session tickets and connection IDs are as on all
    /// servers with the same file. It is read again with the other files. With --switch, the switch has it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ticket_key", "connection_ids", "switch"],
          value_parser = crate::secrets::Source::parse)]
    pub(crate) secrets: Option<crate::secrets::Source>,

    /// Accept 0-RTT (the default). Only requests that are safe to repeat are answered from it
    #[arg(long = "0rtt", overrides_with = "no_zero_rtt")]
    zero_rtt: bool,

    /// Do not accept 0-RTT
    #[arg(long = "no-0rtt", overrides_with = "zero_rtt")]
    no_zero_rtt: bool,

    /// When clients must prove their address first (Retry packets)
    #[arg(long, value_enum, default_value = "busy", value_name = "WHEN")]
    pub(crate) retry: Retry,

    /// Serve files whose names begin with a dot, too
    #[arg(long)]
    pub(crate) hidden: bool,

    /// Do not list directories without index.html
    #[arg(long)]
    pub(crate) no_listing: bool,

    /// How many connections to hold at once, over UDP and TCP together; more are refused. By default as many as take half of the
    /// memory of this machine at worst (4 MiB each), from 100 to 10000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: Option<u32>,

    /// How many requests a connection may have open at once
    #[arg(long, default_value_t = 100, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_requests: u32,

    /// End a connection on which nothing was asked for so many seconds, even if its client says that it is there: it is
    /// told to send no new requests (GOAWAY)
    #[arg(long, default_value_t = UNASKED, value_name = "SECONDS",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) unasked: u32,

    /// How long connections may take to end once the server is told to stop, or its next generation has
    /// taken over: clients are told to send no new requests (GOAWAY), and those under way finish
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    pub(crate) drain: u32,

    /// Print events as JSON, one per line, on standard output: listening, connected, closed
    #[arg(long)]
    pub(crate) json: bool,

    /// Print no line per request
    #[arg(long, short)]
    pub(crate) quiet: bool,

    #[cfg(target_os = "linux")]
    #[command(flatten)]
    pub(crate) sharing: super::Sharing,

    #[command(flatten)]
    pub(crate) port: super::PortOf,

    #[command(flatten)]
    pub(crate) behind: Behind,

    #[command(flatten)]
    pub(crate) transport: Transport,
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| super::ADDRESS)
}

pub(super) fn workers(text: &str) -> Result<Workers, String> {
    match text.parse() {
        _ if text == "auto" => Ok(Workers::PerCore),
        Ok(count) if (1..=MAX_WORKERS).contains(&count) => Ok(Workers::Count(count)),
        _ => Err(format!("give a number from 1 to {MAX_WORKERS}, or auto")),
    }
}

impl Serve {
    /// Whether 0-RTT is accepted.
    pub(crate) const fn early_data(&self) -> bool {
        self.zero_rtt || !self.no_zero_rtt
    }
}

/// What a server behind a balancer needs.
#[derive(Args, Debug)]
#[command(next_help_heading = "Behind a balancer")]
pub(crate) struct Behind {
    /// The file that says how connection IDs are written: the same as the balancer's
    #[arg(long, requires = "server_id", value_name = "FILE")]
    pub(crate) connection_ids: Option<PathBuf>,

    /// What names this server in connection IDs: as many hexadecimal digits as the file asks for, or two
    /// with --secrets (00 by default)
    #[arg(long, value_name = "HEX", value_parser = quicket_member::server_id)]
    pub(crate) server_id: Option<quicket::steering::ServerId>,

    /// Report to this balancer every second that the server is there, and that it takes no more
    /// connections once it is told to stop; may be given several times. Needs the report-key of the file
    #[arg(long, requires = "connection_ids", value_name = "ADDR", value_parser = address)]
    pub(crate) report_to: Vec<SocketAddr>,

    /// The largest UDP payload that clients may send, in bytes: 1200 to 65527. Behind a balancer, what
    /// encapsulation leaves of the path: 1440 of 1500 over IPv4
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(1200..=65527))]
    pub(crate) max_udp_payload: Option<u16>,
}
