//! The implementations that are measured.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use quicket_workload::bench::Failure;
use serde::{Deserialize, Serialize};

use super::gateway::{Gateway, Version};
use super::{Options, Row, http};
use crate::hidden::HIDDEN_BENCH;
use crate::peers::{Implementation, Program, Workshop};

/// An implementation that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// TCP without encryption, blocking sockets: only in rows without encryption.
    Tcp,
    /// TLS 1.3 over TCP: OpenSSL, blocking sockets.
    TcpOpenssl,
    /// TLS 1.3 over TCP: rustls, blocking sockets.
    TcpTls,
    /// quinn.
    Quinn,
    /// s2n-quic.
    S2nQuic,
    /// quiche.
    Quiche,
    /// quic-go.
    QuicGo,
    /// nginx over TCP with TLS, and curl: only in the row of files.
    Nginx,
    /// Caddy over HTTP/3, with this project's client: only in the row of files.
    Caddy,
    /// nginx as a gateway, over HTTP/1.1 with TLS: only in the row of gateways, as the next three.
    NginxH1,
    /// nginx as a gateway, over HTTP/2.
    NginxH2,
    /// Caddy as a gateway, over HTTP/2.
    CaddyH2,
    /// Caddy as a gateway, over HTTP/3.
    CaddyH3,
    /// What carries UDP datagrams on without a look at them: only in the row of balancers.
    Forwarder,
    /// A program in the kernel that encapsulates and sends on without a look at anything: only in the
    /// row of balancers.
    XdpForwarder,
    /// What carries packets between a TUN device and UDP without a look at them: only in the row of
    /// tunnels, as the next five.
    Relay,
    /// wireguard-go.
    WireguardGo,
    /// Quicket's tunnel with the offloads of its device switched off.
    NoOffloads,
    /// Quicket's tunnel without UDP.
    WithoutUdp,
    /// Quicket's tunnel directly in UDP.
    Direct,
    /// Quicket's tunnel with two workers at each end.
    TwoWorkers,
    /// Quicket: its blocking sockets, and in rows of their own its tunnel, its balancer and its switch for packets.
    Quicket,
    /// Quicket, its sockets for tokio.
    QuicketTokio,
    /// The program of Quicket's balancer in the kernel: only in the row of balancers.
    QuicketXdp,
    /// Quicket's blocking sockets with two workers, among which the kernel chooses by connection ID.
    QuicketWorkers,
    /// The same where each datagram comes to another worker than its connection's, which hands it on:
    /// only in bulk transfers, of which the client moves.
    QuicketHandedOn,
    /// The same with connection IDs that are not enciphered: what the cipher costs.
    QuicketHandedOnPlain,
    /// Quicket's blocking sockets behind the switch.
    QuicketSwitch,
    /// The same without the kernel's help: every datagram goes through the switch.
    QuicketForwarded,
    /// Quicket's blocking sockets by ports of the switch for packets, at both ends: only over loopback.
    QuicketPort,
    /// Quicket's gateway over HTTP/1.1 with TLS: only in the row of gateways, as the next two.
    GatewayH1,
    /// Quicket's gateway over HTTP/2.
    GatewayH2,
    /// Quicket's gateway over HTTP/3.
    GatewayH3,
}

impl Contender {
    /// All of them.
    pub const ALL: [Self; 33] = [
        Self::Tcp,
        Self::TcpOpenssl,
        Self::TcpTls,
        Self::Quinn,
        Self::S2nQuic,
        Self::Quiche,
        Self::QuicGo,
        Self::Nginx,
        Self::Caddy,
        Self::NginxH1,
        Self::NginxH2,
        Self::CaddyH2,
        Self::CaddyH3,
        Self::Forwarder,
        Self::XdpForwarder,
        Self::Relay,
        Self::WireguardGo,
        Self::NoOffloads,
        Self::WithoutUdp,
        Self::Direct,
        Self::TwoWorkers,
        Self::Quicket,
        Self::QuicketTokio,
        Self::QuicketXdp,
        Self::QuicketWorkers,
        Self::QuicketHandedOn,
        Self::QuicketHandedOnPlain,
        Self::QuicketSwitch,
        Self::QuicketForwarded,
        Self::QuicketPort,
        Self::GatewayH1,
        Self::GatewayH2,
        Self::GatewayH3,
    ];

    /// The name by which it is known.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::TcpOpenssl => "tcp-openssl",
            Self::TcpTls => "tcp-tls",
            Self::Quinn => "quinn",
            Self::S2nQuic => "s2n-quic",
            Self::Quiche => "quiche",
            Self::QuicGo => "quic-go",
            Self::Nginx => "nginx",
            Self::Caddy => "caddy",
            Self::NginxH1 => "nginx-h1",
            Self::NginxH2 => "nginx-h2",
            Self::CaddyH2 => "caddy-h2",
            Self::CaddyH3 => "caddy-h3",
            Self::Forwarder => "forwarder",
            Self::XdpForwarder => "xdp-forwarder",
            Self::Relay => "relay",
            Self::WireguardGo => "wireguard-go",
            Self::NoOffloads => "no-offloads",
            Self::WithoutUdp => "without-udp",
            Self::Direct => "direct",
            Self::TwoWorkers => "two-workers",
            Self::Quicket => "quicket",
            Self::QuicketTokio => "quicket-tokio",
            Self::QuicketXdp => "quicket-xdp",
            Self::QuicketWorkers => "quicket-workers",
            Self::QuicketHandedOn => "quicket-handed-on",
            Self::QuicketHandedOnPlain => "quicket-handed-on-plain",
            Self::QuicketSwitch => "quicket-switch",
            Self::QuicketForwarded => "quicket-forwarded",
            Self::QuicketPort => "quicket-port",
            Self::GatewayH1 => "gateway-h1",
            Self::GatewayH2 => "gateway-h2",
            Self::GatewayH3 => "gateway-h3",
        }
    }

    /// Whether it is this project's.
    #[must_use]
    pub fn is_own(self) -> bool {
        matches!(
            self,
            Self::Quicket
                | Self::QuicketTokio
                | Self::QuicketXdp
                | Self::GatewayH1
                | Self::GatewayH2
                | Self::GatewayH3
        ) || self.shares()
    }

    /// The gateway that it is, and the version of HTTP that clients speak to it.
    pub(super) fn gateway(self) -> Option<(Gateway, Version)> {
        Some(match self {
            Self::NginxH1 => (Gateway::Nginx, Version::One),
            Self::NginxH2 => (Gateway::Nginx, Version::Two),
            Self::CaddyH2 => (Gateway::Caddy, Version::Two),
            Self::CaddyH3 => (Gateway::Caddy, Version::Three),
            Self::GatewayH1 => (Gateway::Quicket, Version::One),
            Self::GatewayH2 => (Gateway::Quicket, Version::Two),
            Self::GatewayH3 => (Gateway::Quicket, Version::Three),
            _ => return None,
        })
    }

    /// Whether it is a gateway over HTTP/2 or HTTP/3.
    pub(super) fn is_multiplexed_gateway(self) -> bool {
        self.gateway().is_some_and(|(_, version)| version != Version::One)
    }

    /// Whether reports tell this one's figures, which is ours, in proportion to the other's. Gateways
    /// are compared by version of HTTP; HTTP/3 also with what HTTPS is elsewhere, and with our own.
    #[must_use]
    pub fn is_compared_with(self, other: Self) -> bool {
        if self.gateway().is_some() || other.gateway().is_some() {
            return matches!(
                (self, other),
                (Self::GatewayH3, Self::GatewayH2 | Self::CaddyH3 | Self::NginxH2)
                    | (Self::GatewayH2, Self::NginxH2 | Self::CaddyH2)
                    | (Self::GatewayH1, Self::NginxH1)
            );
        }
        self.is_own() && !other.is_own()
    }

    /// Whether it is Quicket with an address that several share. Those say what sharing costs beside
    /// [`Quicket`](Self::Quicket), and are measured when they are asked for by name.
    #[must_use]
    pub fn shares(self) -> bool {
        matches!(
            self,
            Self::QuicketWorkers
                | Self::QuicketHandedOn
                | Self::QuicketHandedOnPlain
                | Self::QuicketSwitch
                | Self::QuicketForwarded
        )
    }

    /// Whether it takes minutes to build, and more than Rust and a C compiler: it is measured when
    /// it is asked for, by name or with all rows.
    #[must_use]
    pub fn is_costly(self) -> bool {
        self == Self::Quiche
    }

    /// Whether it is QUIC.
    #[must_use]
    pub fn is_quic(self) -> bool {
        match self.gateway() {
            Some((_, version)) => version == Version::Three,
            None => {
                !matches!(self, Self::Tcp | Self::TcpOpenssl | Self::TcpTls | Self::Nginx)
                    && !self.is_of_packets()
            }
        }
    }

    /// Whether it carries packets of others, and is no end of a connection.
    #[must_use]
    pub fn is_of_packets(self) -> bool {
        matches!(
            self,
            Self::Forwarder
                | Self::XdpForwarder
                | Self::Relay
                | Self::WireguardGo
                | Self::NoOffloads
                | Self::WithoutUdp
                | Self::Direct
                | Self::TwoWorkers
                | Self::QuicketXdp
        )
    }

    /// Whether it is a program in the kernel, of which the time is measured alone.
    #[must_use]
    pub fn is_in_kernel(self) -> bool {
        matches!(self, Self::XdpForwarder | Self::QuicketXdp)
    }

    /// Whether it balances or forwards datagrams, and carries no packets of tunnels.
    fn forwards_datagrams(self) -> bool {
        self == Self::Forwarder || self.is_in_kernel()
    }

    /// Whether it is programs that serve and fetch files, and nothing else.
    #[must_use]
    pub fn is_of_files(self) -> bool {
        matches!(self, Self::Nginx | Self::Caddy)
    }

    /// Whether it can be asked for at all in this row; whether it can do it is for its program to
    /// say.
    #[must_use]
    pub fn takes_part(self, row: Row) -> bool {
        if row == Row::Gateway || self.gateway().is_some() {
            return row == Row::Gateway && self.gateway().is_some();
        }
        match row {
            Row::SwitchFrames | Row::SwitchDevices | Row::SwitchHttp => {
                return self == Self::Quicket;
            }
            _ if row == Row::SwitchSockets || self == Self::QuicketPort => {
                return row == Row::SwitchSockets
                    && matches!(self, Self::Quicket | Self::QuicketPort);
            }
            // One endpoint beside others; who else shares an address has more processes.
            Row::Workers => return matches!(self, Self::Quicket | Self::QuicketWorkers),
            Row::Balance => return self.forwards_datagrams() || self == Self::Quicket,
            // The bare network, for which TCP stands, is what no tunnel can be faster than.
            Row::Tunnel => {
                return self.is_of_packets() && !self.forwards_datagrams()
                    || matches!(self, Self::Tcp | Self::Quicket);
            }
            _ if self.is_of_packets() => return false,
            Row::Handshakes | Row::Handshakes50 | Row::Connections
                if matches!(self, Self::QuicketHandedOn | Self::QuicketHandedOnPlain) =>
            {
                return false;
            }
            Row::Upload
            | Row::Download
            | Row::Handshakes
            | Row::Handshakes50
            | Row::Connections => {}
            _ if self.shares() => return false,
            _ => {}
        }
        if row == Row::Http || self.is_of_files() {
            return row == Row::Http && (self.is_of_files() || self == Self::Quicket);
        }
        if self == Self::TcpOpenssl && matches!(row, Row::Loss | Row::Fairness) {
            // What fills the link is the kernel's, as that of rustls is.
            return false;
        }
        (self == Self::Tcp || self.is_own()) && !row.is_encrypted()
            || self != Self::Tcp && row.is_encrypted()
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Contender {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown implementation {name:?}: expected one of {known}")
        })
    }
}

const TCP: &str = "TCP without encryption, blocking sockets; in rows without encryption only";
const OPENSSL: &str = "built from source, TLS 1.3 over TCP, blocking sockets, reading ahead, the \
                       records of a write in one system call";
const TCP_TLS: &str = "TLS 1.3 over TCP: rustls 0.23, unbuffered, blocking sockets";
const QUINN: &str = "on a current-thread tokio runtime, windows of 16 MiB, segmentation offload \
                     on, ACK frequency extension";
const S2N_QUIC: &str = "with rustls, on a current-thread tokio runtime, windows of 16 MiB, socket \
                        buffers and queues of 4 MiB, segmentation and receive offload on";
const QUICHE: &str = "over BoringSSL, on a current-thread tokio runtime, windows of 16 MiB, socket \
                      buffers of 4 MiB, segmentation and receive offload on, paced with BBR only";
const QUIC_GO: &str = "over Go's TLS, one processor at each end, windows of 16 MiB, socket buffers of \
                       7 MiB, segmentation offload on; it has no receive offload";
const NGINX: &str = "HTTP/1.1 over TLS 1.3 with sendfile, fetched by";
const CADDY: &str = "over quic-go, HTTP/3, fetched by quicket get";
const NGINX_GATEWAY: &str = "as a gateway with one process, connections to its server kept";
const CADDY_GATEWAY: &str =
    "as a gateway over quic-go and Go's TLS on one processor, connections to its server kept";
const QUICKET_GATEWAY: &str = "quicket gateway on one processor, with its defaults";
const QUICKET: &str = "Quicket's blocking sockets, windows of 16 MiB, otherwise its defaults";
const SERVE_AND_GET: &str = "quicket serve, HTTP/3, fetched by quicket get, with their defaults";
const FORWARDER: &str = "the balancer's sockets and calls: datagrams go to its servers in turn, as \
                         they came, without a look and without encapsulation; rows of balancers only";
const XDP_FORWARDER: &str = "a program in the kernel, run by BPF_PROG_RUN as quicket-xdp: packets get the \
                             same headers for one server and leave by one device, all of them \
                             constants, without a look at anything; rows of balancers only";
const RELAY: &str = "a TUN device's super-packets in UDP with segmentation and receive offload, \
                     without a look at them; rows of tunnels only";
const WIREGUARD_GO: &str = "encrypts; rows of tunnels only";
const NO_OFFLOADS: &str = "Quicket's tunnel, of which the device takes packets one by one \
                           (gso_max_segs 1); rows of tunnels only";
const QUICKET_XDP: &str = "the balancer's program in the kernel, run by BPF_PROG_RUN: what drivers take \
                           to receive and send is not in it; rows of balancers only";
const WITHOUT_UDP: &str = "Quicket's tunnel without UDP (encap none); rows of tunnels only";
const DIRECT: &str = "Quicket's tunnel directly in UDP (encap fou); rows of tunnels only";
const TWO_WORKERS: &str = "Quicket's tunnel with two workers at each end, on both cores; rows of \
                           tunnels only";
const QUICKET_TOKIO: &str = "Quicket's sockets for tokio on a current-thread runtime, configured \
                             as the blocking ones";
const QUICKET_WORKERS: &str = "as quicket, the server with two workers on its core (row of workers: on both), \
                               among which the kernel chooses by connection ID";
const QUICKET_HANDED_ON: &str = "as quicket, the server with 16 workers on its core, among which the \
                                 kernel chooses by address; the client has moved, so that datagrams \
                                 come to another worker than its own (in 15 of 16 measurements), which \
                                 hands them on; bulk transfers only";
const QUICKET_HANDED_ON_PLAIN: &str = "as quicket-handed-on, with connection IDs that are not \
                                       enciphered (their owner is masked all the same)";
const QUICKET_SWITCH: &str = "as quicket, the server behind the switch: that process is on the \
                              server's core, and its CPU time counts as the server's";

const QUICKET_FORWARDED: &str = "as quicket-switch, but every datagram goes through the switch \
                                 (UdpConfig::route_by_connection_id is off)";

const QUICKET_PORT: &str = "as quicket, but datagrams go by ports of the switch for packets, a thread of the server's \
                            process on its core";

/// The programs of all implementations that take part.
pub(super) struct Contenders {
    programs: BTreeMap<Contender, Program>,
    /// The program that serves and fetches files, or why there is none.
    pub(super) quicket: Result<PathBuf, String>,
    descriptions: BTreeMap<Contender, String>,
    this_program: PathBuf,
}

impl Contenders {
    /// Builds what must be built. Those that cannot be are left out; `skip` is told why.
    pub(super) fn prepare(
        options: &Options,
        workshop: &Workshop,
        mut skip: impl FnMut(String),
    ) -> Self {
        let quicket = match options.rows.iter().any(|row| matches!(row, Row::Http | Row::Gateway)) {
            true => workshop.prepare_program(&options.executable).map_err(|e| e.to_string()),
            false => Err("it was not asked for".to_owned()),
        };
        let (programs, descriptions) = (BTreeMap::new(), BTreeMap::new());
        let this = options.executable.clone();
        let mut made = Self { programs, quicket, descriptions, this_program: this };
        // The rival of all others, whether it is measured itself or not.
        let rival = this_program(options, Contender::TcpTls);
        made.programs.insert(Contender::TcpTls, rival);
        // What goes through tunnels.
        made.programs.insert(Contender::Tcp, this_program(options, Contender::Tcp));
        let takes_part =
            |contender: &&Contender| options.rows.iter().any(|row| contender.takes_part(*row));
        for &contender in options.contenders.iter().filter(takes_part) {
            match prepare(contender, options, workshop) {
                Ok((program, description)) => {
                    made.programs.insert(contender, program);
                    made.descriptions.insert(contender, description);
                }
                Err(failure) => skip(format!("{contender} was left out: {failure}")),
            }
        }
        made
    }

    /// Those that take part.
    pub(super) fn all(&self) -> impl Iterator<Item = Contender> {
        self.descriptions.keys().copied()
    }

    /// The program that is started again for processes of the benchmark.
    pub(super) fn this_program(&self) -> &std::path::Path {
        &self.this_program
    }

    pub(super) fn program(&self, contender: Contender) -> Result<&Program, Failure> {
        self.programs.get(&contender).ok_or_else(|| format!("{contender} is not prepared").into())
    }

    pub(super) fn descriptions(&self) -> BTreeMap<Contender, String> {
        self.descriptions.clone()
    }
}

fn prepare(
    contender: Contender,
    options: &Options,
    workshop: &Workshop,
) -> Result<(Program, String), Failure> {
    let interoperable = |implementation, how| -> Result<(Program, String), Failure> {
        let mut program = workshop.prepare(implementation)?;
        program.arguments.push("bench".into());
        let version = workshop.version(implementation)?;
        Ok((program, format!("{implementation} {version} {how}")))
    };
    let this_program = this_program(options, contender);
    Ok(match contender {
        Contender::Tcp => (this_program, TCP.into()),
        Contender::TcpTls => (this_program, TCP_TLS.into()),
        Contender::Quicket if options.rows == [Row::Http] => (this_program, SERVE_AND_GET.into()),
        Contender::Quicket if options.rows.contains(&Row::Http) => {
            (this_program, format!("{QUICKET}; files: {SERVE_AND_GET}"))
        }
        Contender::Quicket => (this_program, QUICKET.into()),
        Contender::QuicketTokio => (this_program, QUICKET_TOKIO.into()),
        Contender::QuicketWorkers => (this_program, QUICKET_WORKERS.into()),
        Contender::QuicketHandedOn => (this_program, QUICKET_HANDED_ON.into()),
        Contender::QuicketHandedOnPlain => (this_program, QUICKET_HANDED_ON_PLAIN.into()),
        Contender::QuicketSwitch => (this_program, QUICKET_SWITCH.into()),
        Contender::QuicketForwarded => (this_program, QUICKET_FORWARDED.into()),
        Contender::QuicketPort => (this_program, QUICKET_PORT.into()),
        Contender::TcpOpenssl => {
            let mut program = workshop.prepare_contender("openssl")?;
            program.arguments.push("bench".into());
            let version = said(program.executable.as_os_str(), "version")?;
            (program, format!("{version} {OPENSSL}"))
        }
        Contender::Quinn => interoperable(Implementation::Quinn, QUINN)?,
        Contender::S2nQuic => interoperable(Implementation::S2nQuic, S2N_QUIC)?,
        Contender::Quiche => interoperable(Implementation::Quiche, QUICHE)?,
        Contender::QuicGo => interoperable(Implementation::QuicGo, QUIC_GO)?,
        Contender::Nginx => {
            let (nginx, curl) = (http::nginx()?, http::curl_version()?);
            (nginx.0, format!("{} {NGINX} {curl}", nginx.1))
        }
        Contender::Caddy => {
            let program = workshop.prepare_caddy()?;
            (program, format!("Caddy {} {CADDY}", workshop.caddy_version()?))
        }
        Contender::NginxH1 | Contender::NginxH2 => {
            let (program, version) = http::nginx()?;
            (program, format!("{version} {NGINX_GATEWAY}"))
        }
        Contender::CaddyH2 | Contender::CaddyH3 => {
            let program = workshop.prepare_caddy()?;
            (program, format!("Caddy {} {CADDY_GATEWAY}", workshop.caddy_version()?))
        }
        Contender::GatewayH1 | Contender::GatewayH2 | Contender::GatewayH3 => {
            (this_program, QUICKET_GATEWAY.into())
        }
        Contender::Forwarder => (this_program, FORWARDER.into()),
        Contender::XdpForwarder => (this_program, XDP_FORWARDER.into()),
        Contender::QuicketXdp => (this_program, QUICKET_XDP.into()),
        Contender::Relay => (this_program, RELAY.into()),
        Contender::NoOffloads => (this_program, NO_OFFLOADS.into()),
        Contender::WithoutUdp => (this_program, WITHOUT_UDP.into()),
        Contender::Direct => (this_program, DIRECT.into()),
        Contender::TwoWorkers => (this_program, TWO_WORKERS.into()),
        Contender::WireguardGo => {
            let version = workshop.wireguard_version()?;
            (workshop.prepare_wireguard()?, format!("wireguard-go {version}, {WIREGUARD_GO}"))
        }
    })
}

fn this_program(options: &Options, contender: Contender) -> Program {
    Program {
        executable: options.executable.clone(),
        arguments: vec![HIDDEN_BENCH.into(), contender.name().into()],
    }
}

/// What a program prints when it is asked for `argument`.
fn said(program: &OsStr, argument: &str) -> Result<String, Failure> {
    let output = std::process::Command::new(program).arg(argument).output()?;
    if output.status.success() {
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    } else {
        Err(format!("{} {argument}: {}", program.display(), output.status).into())
    }
}

#[cfg(test)]
#[path = "contender_tests.rs"]
mod tests;
