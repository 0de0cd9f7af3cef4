//! Words of `quicket tunnel`. What follows NAME and PORT are the words of `ip`, which the tunnel's
//! own grammar reads.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What to do with tunnels.
#[derive(Debug, Args)]
#[command(after_long_help = WORDS)]
pub(crate) struct Tunnel {
    #[command(subcommand)]
    pub(crate) command: TunnelCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TunnelCommand {
    /// Make a tunnel and carry its packets until interrupted; the device stays
    #[command(after_long_help = WORDS)]
    Add(Add),
    /// Make all tunnels and ports of a file, a line for each
    #[command(after_long_help = WORDS)]
    Run(RunFile),
    /// Change a tunnel while it is carried; what the words do not say remains
    #[command(after_long_help = WORDS)]
    Change(Words),
    /// Show tunnels that are carried, as the words that would make them
    Show(Show),
    /// Ports that encapsulated packets come to, as in ip fou
    Port {
        #[command(subcommand)]
        action: PortAction,
    },
    /// Stop a tunnel and remove its device
    #[command(after_help = "A program that carries several tunnels is not stopped.")]
    Del {
        /// The name of the device
        name: String,
    },
}

/// How tunnels are carried.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Carrying {
    /// Threads that carry packets, each with a queue of every device; 1 to 64
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) workers: u8,
    /// Print the counters as JSON, a line each SECONDS seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) counters: Option<u32>,
}

/// What the tunnel's grammar reads.
#[derive(Debug, Args)]
pub(crate) struct Words {
    /// NAME of a tunnel or PORT, and what ip link or ip fou would say of it: see --help
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORD"
    )]
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Add {
    #[command(flatten)]
    pub(crate) carrying: Carrying,
    #[command(flatten)]
    pub(crate) words: Words,
}

#[derive(Debug, Args)]
pub(crate) struct RunFile {
    #[command(flatten)]
    pub(crate) carrying: Carrying,
    /// Lines such as "add NAME type ..." and "port add PORT {ipproto N|gue}"; # begins a comment
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quicket tunnel show
  quicket tunnel show -s tun1
  quicket tunnel show -s -j | jq '.[].counters.rx_peer'
  quicket tunnel show --prometheus > /var/lib/node_exporter/quicket-tunnel.prom")]
pub(crate) struct Show {
    /// Counters, too: packets and bytes, and what was dropped for which reason
    #[arg(short, long, visible_aliases = ["stats"])]
    pub(crate) statistics: bool,
    /// JSON, with the names of ip -j
    #[arg(short, long)]
    pub(crate) json: bool,
    /// The text format of Prometheus, with all counters
    #[arg(long, conflicts_with_all = ["json", "statistics"])]
    pub(crate) prometheus: bool,
    /// The tunnel; without it, all of this network namespace
    pub(crate) name: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PortAction {
    /// Open a port
    #[command(after_help = "\
Words: PORT {ipproto N|gue} [-6] [local ADDRESS] [peer ADDRESS]

Examples:
  quicket tunnel port add 6080 gue
  quicket tunnel port add 5555 ipproto 4 peer 198.51.100.2")]
    Add {
        /// A tunnel of the program that gets the port, if there are several programs
        #[arg(long, value_name = "NAME")]
        of: Option<String>,
        #[command(flatten)]
        words: Words,
    },
    /// Close a port
    #[command(after_help = "Words: PORT [-6] [local ADDRESS] [peer ADDRESS]")]
    Del {
        /// A tunnel of the program that has the port, if there are several programs
        #[arg(long, value_name = "NAME")]
        of: Option<String>,
        #[command(flatten)]
        words: Words,
    },
    /// Show the ports of all programs
    Show {
        /// JSON
        #[arg(short, long)]
        json: bool,
    },
}

const WORDS: &str = "\
Words of a tunnel, as in ip link add NAME type TYPE ...:
  type {ipip|sit|gre|gretap|ip6tnl|ip6gre|ip6gretap}
  remote ADDRESS              the other end
  local ADDRESS               this end
  dev DEVICE                  the device that outer packets take
  ttl {N|inherit}             also hoplimit; inherit over IPv4, 64 over IPv6
  tos {HEX|inherit}           also tclass; 0
  [no]pmtudisc                whether outer packets are never fragmented; over IPv4. If not,
                              Don't Fragment is that of the packet inside
  [no]ignore-df               with nopmtudisc: outer packets may always be fragmented
  flowlabel {HEX|inherit|auto}  over IPv6; auto: by flow
  fwmark MARK                 the mark that outer packets are routed and filtered by
  encaplimit {N|none}         tunnels that may follow, over IPv6 (RFC 2473); none
  mode {any|ip4ip4|ip6ip|...} what sit and ip6tnl carry
  key K, ikey K, okey K       of GRE: a number or 1.2.3.4
  [i|o]seq, [i|o]csum         of GRE: sequence numbers, checksums
  encap {none|fou|gue}        not in UDP, directly in UDP, with the header of GUE; none
  encap-sport {PORT|auto}     auto: by flow
  encap-dport PORT            6080 for gue, 4754 for gre in fou
  [no]encap-csum              checksum of UDP over IPv4; on: bursts need it
  [no]encap-udp6-csum         checksum of UDP over IPv6; on
  [no]encap-remcsum           the other end completes checksums (gue)
  external                    many other ends instead of remote, of these:
    to PREFIX dst ADDRESS     what is behind one, as in ip route ... encap ip; again for more
    learn PREFIX              others, whose packets say what is behind them; again for more
    maxaddress N              addresses that are learned, at most; 4096
    ageing SECONDS            until one is forgotten; 300
Words of our own:
  encap-version {0|1}         version of GUE that is sent; 0
  [no]discovery               probes find the path's MTU where ICMP is lost (RFC 8899), if the
                              other end is one of ours; with encap gue
  ecn {copy|reset-ce|none}    how the outer ECN field is made; copy (RFC 6040)
  allow PREFIX                a source inside that may come in; again for more
  noallow                     forgets those before
Words of a port, as in ip fou:
  port add PORT {ipproto N|gue} [-6] [local ADDRESS] [peer ADDRESS]
  Without one a tunnel receives on the port that it sends to.
To undo in quicket tunnel change: noto, nolearn, no[i|o]key, no[i|o]seq, no[i|o]csum, local any, encap-sport auto

Examples:
  quicket tunnel add tun1 type ipip remote 198.51.100.2 local 198.51.100.1 encap gue
  ip addr add 10.9.0.1/30 dev tun1 && ip link set tun1 up
and on the other end, a stock Linux:
  ip fou add port 6080 gue
  ip link add tun1 type ipip remote 198.51.100.1 local 198.51.100.2 \\
      encap gue encap-sport auto encap-dport 6080
  ip addr add 10.9.0.2/30 dev tun1 && ip link set tun1 up
Without UDP, which takes CAP_NET_RAW:
  quicket tunnel add gre1 type gre remote 198.51.100.2 local 198.51.100.1 key 7";
