//! Flags of `quicket balance`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Put an address in front of many QUIC servers: by connection ID, through GUE
///
/// A datagram goes to the server that its connection ID names (draft-ietf-quic-load-balancers); one
/// that names none, such as a client's first, to the server that its flow has, or that a consistent
/// hash gives it. It travels as a whole IP packet in GUE, with the client's address, and the server
/// answers the client directly: it has the address of the site on its loopback device, and takes
/// packets out of GUE (quicket tunnel, or a stock Linux).
///
/// The signal SIGHUP has the files read again: connections go on. If anything is wrong with a file, all
/// stays as it is, and quicket balance status says why.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true,
          after_help = EXAMPLES, after_long_help = FILES)]
pub(crate) struct Balance {
    #[command(subcommand)]
    pub(crate) command: Option<BalanceCommand>,

    /// The file that says what to balance
    #[arg(long, short, required = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Check the files and end: with exit code 2 if they are wrong
    #[arg(long)]
    pub(crate) check: bool,

    /// Print the file with all that is taken by default, without secrets, and end
    #[arg(long)]
    pub(crate) show_config: bool,

    /// Print the counters as JSON, a line each SECONDS seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) counters: Option<u32>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BalanceCommand {
    /// Show servers and counters of the balancers of this network namespace
    #[command(after_help = "\
Examples:
  quicket balance status
  quicket balance status -j | jq '.[].servers[] | select(.state != \"serving\")'
  quicket balance status --prometheus > /var/lib/node_exporter/quicket.prom")]
    Status(Status),
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// JSON
    #[arg(short, long)]
    pub(crate) json: bool,
    /// The text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    pub(crate) prometheus: bool,
}

const EXAMPLES: &str = "\
Examples:
  quicket balance --config /etc/quicket/balance
  quicket balance --config /etc/quicket/balance --check
  quicket balance status";

const FILES: &str = "\
Lines of the file; # begins a comment:
  listen ADDRESS:PORT              the address of the site; again for more, up to 16
  connection-ids FILE              how connection IDs are written: see below
  server NAME ADDRESS[:PORT]       a server, and where it takes packets out of GUE; port 6080
      [id HEX]                     what names it in connection IDs
      [weight N]                   its share of new connections, 0 to 1000; 1
      [drain|down]                 keeps what it has and takes no more; is not there
      [report]                     is down unless it reports (quicket serve --report-to)
  reports ADDRESS:PORT [timeout SECONDS]   where servers report; silent ones are down after 3 s
  hash-key HEX                     16 digits, the same on all balancers, secret
  flows N [lifetime SECONDS]       flows without routable connection IDs that are remembered,
                                   16 bytes each; 262144, 120 s
  mtu BYTES [fragment]             of the path to the servers; 1500
  workers N                        threads, each with a socket of every address; 1
  xdp DEVICE [native|generic]      the kernel forwards what names a server, as packets come by
                                   this device; generic; docs/balancer.md says what it takes
Lines of the file of connection IDs, the same on balancers and servers; it is a secret:
  config N server-id OCTETS nonce OCTETS {key HEX|plain} [length] [owner OCTETS mask HEX]
                                   16 octets of both are enciphered in one pass, others in four
  issue N                          which one servers write; the others are read only
  report-key HEX                   64 digits: authenticates reports

Examples:
  quicket balance --config /etc/quicket/balance
with /etc/quicket/balance
  listen 192.0.2.1:443
  connection-ids /etc/quicket/site
  reports 10.0.0.9:6081
  server east 10.0.0.1 id 00000001 report
  server west 10.0.0.2 id 00000002 report
and /etc/quicket/site
  config 0 server-id 4 nonce 12 key 8f95f09245765f80256934e50c66207f
  report-key 5b1c9b7e0d3f4a6182c5d7e9f00112233445566778899aabbccddeeff0123456
and on the server east:
  quicket tunnel add site type ipip remote 10.0.0.9 local 10.0.0.1 encap gue &
  ip addr add 192.0.2.1/32 dev lo; ip link set site up; sysctl net.ipv4.conf.site.rp_filter=0
  quicket serve . -l 192.0.2.1:443 --connection-ids /etc/quicket/site --server-id 00000001 \\
      --max-udp-payload 1440 --report-to 10.0.0.9:6081";
