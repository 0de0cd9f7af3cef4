//! The rows of the benchmark: loads under conditions.

use std::fmt;
use std::str::FromStr;

use quicket_workload::bench::{
    Asked, Carried, Conditions, Congestion, Direction, Ids, Payload, Scenario, Session, Transfer,
};
use serde::{Deserialize, Serialize};

use super::figure::{self, Figure};
use super::{Contender, NetworkKind, Settings, cores, fetches, switch};

/// A kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Row {
    /// The client sends in bulk, on one stream of one connection.
    Upload,
    /// The server sends in bulk, on one stream of one connection.
    Download,
    /// As `Upload`, without encryption after the handshake.
    UploadPlain,
    /// As `Download`, without encryption after the handshake.
    DownloadPlain,
    /// Uploads written in pieces of 1, 4, 16 and 64 KiB.
    Messages,
    /// As `Messages`, without encryption after the handshake.
    MessagesPlain,
    /// Requests and answers of 1 KiB, one after the other, each on a new stream.
    Exchanges,
    /// Full handshakes, one after the other.
    Handshakes,
    /// Full handshakes, 50 at once.
    #[serde(rename = "handshakes-50")]
    Handshakes50,
    /// Connections with one request each: full, resumed and 0-RTT handshakes.
    FirstByte,
    /// Downloads of 16 KiB on up to 1,000 streams at once.
    Streams,
    /// Downloads of 64 KiB on up to 200 connections at once.
    Connections,
    /// Downloads of 64 KiB, and of 1 KiB, on 200 connections at once, while both ends have all cores.
    Workers,
    /// A download over a link of 100 Mbit/s and 50 ms that loses packets.
    Loss,
    /// Two downloads over one link of 100 Mbit/s and 50 ms.
    Fairness,
    /// Connections that do nothing.
    Idle,
    /// Files over HTTP, by the programs that users start.
    Http,
    /// TCP through a tunnel.
    Tunnel,
    /// Datagrams through a balancer.
    Balance,
    /// Requests through a gateway.
    Gateway,
    /// Frames through the switch for packets, by their length and the number of ports.
    SwitchFrames,
    /// Frames of 64 octets over a pair of virtual devices, bare and through the switch; and its program.
    SwitchDevices,
    /// Fetches over HTTP/1.1, a connection for each, over TCP of the system and in user space.
    SwitchHttp,
    /// QUIC over ports of the switch for packets, beside QUIC over sockets of the system.
    SwitchSockets,
}

/// One measurement of a row: rows that show how something changes have several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Its name within the row; empty if it is the only one.
    pub name: &'static str,
    /// Where it is on the axis of a curve; none if it is no point of one.
    pub at: Option<u32>,
    /// The load.
    pub scenario: Scenario,
    /// What both ends are configured with.
    pub conditions: Conditions,
    /// What else is on the link at the same time.
    pub rival: Option<Rival>,
    /// Packets lost on a link, in percent.
    pub loss: u8,
}

impl Point {
    /// Whether the measurement says something of a contender that takes part in the row.
    pub(super) fn suits(&self, contender: Contender) -> bool {
        use Contender::{Direct, Quicket, TwoWorkers, WithoutUdp};
        match self.scenario {
            Scenario::Tunnel { carried: Carried::Ipip, streams, .. } => {
                contender != TwoWorkers || streams.is_some()
            }
            // Whoever carries packets in one way only is measured once.
            Scenario::Tunnel { .. } => matches!(contender, Direct | Quicket | WithoutUdp),
            // Servers end connections of HTTP/1.1 that do nothing after some seconds.
            Scenario::Gateway { asked: Asked::Idle { .. }, .. } => {
                contender.is_multiplexed_gateway()
            }
            // Packets come one by one to a program in the kernel, and first packets go up to user space.
            Scenario::Forward { ids, train, .. } => {
                !contender.is_in_kernel() || ids != Ids::First && train == 1
            }
            _ => true,
        }
    }
}

/// Another download at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rival {
    /// Of the same implementation.
    Itself,
    /// TLS over TCP with CUBIC.
    TcpCubic,
}

impl Row {
    /// All of them.
    pub const ALL: [Self; 24] = [
        Self::Upload,
        Self::Download,
        Self::UploadPlain,
        Self::DownloadPlain,
        Self::Messages,
        Self::MessagesPlain,
        Self::Exchanges,
        Self::Handshakes,
        Self::Handshakes50,
        Self::FirstByte,
        Self::Streams,
        Self::Connections,
        Self::Workers,
        Self::Loss,
        Self::Fairness,
        Self::Idle,
        Self::Http,
        Self::Tunnel,
        Self::Balance,
        Self::Gateway,
        Self::SwitchFrames,
        Self::SwitchDevices,
        Self::SwitchHttp,
        Self::SwitchSockets,
    ];

    /// All that is measured of the switch for packets.
    pub const SWITCH: [Self; 4] =
        [Self::SwitchFrames, Self::SwitchDevices, Self::SwitchHttp, Self::SwitchSockets];

    /// Those that are run if none is asked for: they take less than five minutes.
    pub const DEFAULT: [Self; 5] =
        [Self::Upload, Self::Download, Self::Exchanges, Self::Handshakes, Self::Handshakes50];

    /// The name by which it is known.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Download => "download",
            Self::UploadPlain => "upload-plain",
            Self::DownloadPlain => "download-plain",
            Self::Messages => "messages",
            Self::MessagesPlain => "messages-plain",
            Self::Exchanges => "exchanges",
            Self::Handshakes => "handshakes",
            Self::Handshakes50 => "handshakes-50",
            Self::FirstByte => "first-byte",
            Self::Streams => "streams",
            Self::Connections => "connections",
            Self::Workers => "workers",
            Self::Loss => "loss",
            Self::Fairness => "fairness",
            Self::Idle => "idle",
            Self::Http => "http",
            Self::Tunnel => "tunnel",
            Self::Balance => "balance",
            Self::Gateway => "gateway",
            Self::SwitchFrames => "switch-frames",
            Self::SwitchDevices => "switch-devices",
            Self::SwitchHttp => "switch-http",
            Self::SwitchSockets => "switch-sockets",
        }
    }

    /// What it is, for readers of a report.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Upload => "Bulk upload, one stream",
            Self::Download => "Bulk download, one stream",
            Self::UploadPlain => "Bulk upload without encryption",
            Self::DownloadPlain => "Bulk download without encryption",
            Self::Messages => "Upload in messages",
            Self::MessagesPlain => "Upload in messages without encryption",
            Self::Exchanges => "Request and response, 1 KiB each, sequential",
            Self::Handshakes => "Full handshakes, sequential",
            Self::Handshakes50 => "Full handshakes, 50 at once",
            Self::FirstByte => "Connection to first byte, sequential",
            Self::Streams => "Streams of 16 KiB at once",
            Self::Connections => "Connections with 64 KiB each at once",
            Self::Workers => "200 connections at once, both ends on all cores",
            Self::Loss => "Download under random loss",
            Self::Fairness => "Two downloads at once",
            Self::Idle => "Idle connections",
            Self::Http => "Files over HTTP",
            Self::Tunnel => "TCP through a tunnel",
            Self::Balance => "Datagrams through a balancer",
            Self::Gateway => "Requests through a gateway",
            Self::SwitchFrames => "Frames through the switch for packets",
            Self::SwitchDevices => "Frames of 64 octets by devices of the switch for packets",
            Self::SwitchHttp => "Fetches over TCP of the system and in user space",
            Self::SwitchSockets => "QUIC over sockets of the system and over ports of the switch",
        }
    }

    /// The networks that it runs over.
    #[must_use]
    pub fn networks(self) -> &'static [NetworkKind] {
        use NetworkKind::{Link, Loopback, LoopbackJumbo, Veth, VethJumbo};
        match self {
            Self::Upload | Self::Download | Self::UploadPlain | Self::DownloadPlain => {
                &[Loopback, LoopbackJumbo, Veth, VethJumbo]
            }
            Self::Messages | Self::MessagesPlain => &[Veth, VethJumbo],
            Self::Tunnel | Self::Balance | Self::Gateway => &[Veth],
            Self::FirstByte => &[Loopback, Veth, Link],
            Self::Loss | Self::Fairness => &[Link],
            Self::Exchanges
            | Self::Handshakes
            | Self::Handshakes50
            | Self::Streams
            | Self::Connections => &[Loopback, Veth],
            // Memory is the same over any network; what programs add to a stream, too.
            Self::Idle
            | Self::Http
            | Self::SwitchFrames
            | Self::SwitchDevices
            | Self::SwitchHttp
            | Self::SwitchSockets => &[Loopback],
            // A network between namespaces takes the same way, and more of the same cores.
            Self::Workers => &[Loopback],
        }
    }

    /// The one of them that a quick run takes, so that each network has its turn.
    #[must_use]
    pub fn quick_network(self) -> NetworkKind {
        match self {
            Self::Upload
            | Self::Messages
            | Self::Handshakes
            | Self::Connections
            | Self::Tunnel
            | Self::Balance
            | Self::Gateway => NetworkKind::Veth,
            Self::UploadPlain | Self::MessagesPlain => NetworkKind::VethJumbo,
            Self::DownloadPlain => NetworkKind::LoopbackJumbo,
            Self::FirstByte | Self::Loss | Self::Fairness => NetworkKind::Link,
            Self::Download
            | Self::Exchanges
            | Self::Handshakes50
            | Self::Streams
            | Self::Workers
            | Self::Idle
            | Self::Http
            | Self::SwitchFrames
            | Self::SwitchDevices
            | Self::SwitchHttp
            | Self::SwitchSockets => NetworkKind::Loopback,
        }
    }

    /// What curves have on their axis, if it has any.
    #[must_use]
    pub fn axis(self) -> Option<&'static str> {
        match self {
            Self::Messages | Self::MessagesPlain => Some("KiB a message"),
            Self::Streams => Some("streams at once"),
            Self::Connections => Some("connections at once"),
            Self::SwitchFrames => Some("octets"),
            Self::SwitchHttp => Some("KiB of a body"),
            _ => None,
        }
    }

    /// Whether packets are encrypted after the handshake.
    #[must_use]
    pub fn is_encrypted(self) -> bool {
        !matches!(self, Self::UploadPlain | Self::DownloadPlain | Self::MessagesPlain)
    }

    /// Who sends the bytes, if there are many.
    pub(super) fn direction(self) -> Option<Direction> {
        match self {
            Self::Upload | Self::UploadPlain | Self::Messages | Self::MessagesPlain => {
                Some(Direction::Upload)
            }
            Self::Download | Self::DownloadPlain => Some(Direction::Download),
            _ => None,
        }
    }

    /// The figures taken from its measurements, in the order in which reports show them.
    #[must_use]
    pub fn figures(self) -> &'static [Figure] {
        match self {
            Self::Upload
            | Self::Download
            | Self::UploadPlain
            | Self::DownloadPlain
            | Self::Messages
            | Self::MessagesPlain => figure::BULK,
            Self::Exchanges | Self::Handshakes | Self::Handshakes50 => figure::OPERATIONS,
            Self::FirstByte => figure::OPERATIONS,
            Self::Streams | Self::Connections => figure::TRANSFERS,
            Self::Workers => cores::FIGURES,
            Self::Loss => figure::FLOW,
            Self::Fairness => figure::SHARED,
            Self::Idle => figure::IDLE,
            Self::Http => figure::FILES,
            Self::Tunnel => figure::TUNNEL,
            Self::Balance => figure::FORWARDING,
            Self::Gateway => figure::GATEWAY,
            Self::SwitchFrames => switch::FIGURES,
            Self::SwitchDevices => switch::devices::FIGURES,
            Self::SwitchHttp => fetches::FIGURES,
            Self::SwitchSockets => figure::SOCKETS,
        }
    }

    /// What is measured for it.
    #[must_use]
    pub fn points(self, settings: &Settings, network: NetworkKind) -> Vec<Point> {
        let mut points = self.all_points(settings, network);
        // Those of some are loads of different kinds.
        if settings.quick && !matches!(self, Self::Gateway | Self::SwitchSockets) {
            // That it runs is seen from the largest one, too.
            points.drain(..points.len() - 1);
        }
        points
    }

    fn all_points(self, settings: &Settings, network: NetworkKind) -> Vec<Point> {
        let milliseconds = settings.milliseconds;
        let one = |scenario| Point {
            name: "",
            at: None,
            scenario,
            conditions: Conditions {
                cipher: settings.cipher,
                payload: network.payload(settings.udp_payload),
                encryption: self.is_encrypted(),
                ..Conditions::default()
            },
            rival: None,
            loss: 0,
        };
        let bulk = |direction, write| Scenario::Bulk {
            direction,
            warm_up: settings.bulk_bytes / 16,
            bytes: settings.bulk_bytes,
            write,
        };
        let whole = Transfer::new(0).write;
        match self {
            Self::Upload | Self::UploadPlain => vec![one(bulk(Direction::Upload, whole))],
            Self::Download | Self::DownloadPlain => vec![one(bulk(Direction::Download, whole))],
            Self::Messages | Self::MessagesPlain => MESSAGES
                .map(|(name, kib)| Point {
                    name,
                    at: Some(kib),
                    ..one(bulk(Direction::Upload, kib * 1024))
                })
                .into(),
            Self::Exchanges => vec![one(Scenario::Exchanges { milliseconds })],
            Self::Handshakes => vec![one(Scenario::Handshakes { concurrency: 1, milliseconds })],
            Self::Handshakes50 => {
                vec![one(Scenario::Handshakes { concurrency: 50, milliseconds })]
            }
            Self::FirstByte => SESSIONS
                .map(|(name, session)| {
                    let mut point = one(Scenario::FirstBytes { session, milliseconds });
                    point.conditions.tickets = session != Session::None;
                    Point { name, ..point }
                })
                .into(),
            Self::Streams => STREAMS
                .map(|(name, count)| {
                    let (concurrency, bytes) = (count as usize, 16 << 10);
                    let scenario = Scenario::Streams { concurrency, bytes, milliseconds };
                    Point { name, at: Some(count), ..one(scenario) }
                })
                .into(),
            Self::Connections => CONNECTIONS
                .map(|(name, count)| {
                    let (connections, bytes) = (count as usize, 64 << 10);
                    let scenario = Scenario::Connections { connections, bytes, milliseconds };
                    let mut point = one(scenario);
                    point.conditions.busy = connections;
                    Point { name, at: Some(count), ..point }
                })
                .into(),
            Self::Workers => DOWNLOADS
                .map(|(name, bytes)| {
                    let scenario = Scenario::Connections { connections: MANY, bytes, milliseconds };
                    let mut point = one(scenario);
                    point.conditions.busy = MANY;
                    point.conditions.all_cores = true;
                    Point { name, ..point }
                })
                .into(),
            Self::Loss => LOSSES
                .map(|(name, loss, congestion)| {
                    let mut point = one(Scenario::Flow { milliseconds: settings.flow });
                    point.conditions.congestion = congestion;
                    Point { name, loss, ..point }
                })
                .into(),
            Self::Fairness => RIVALS
                .map(|(name, rival)| Point {
                    name,
                    rival: Some(rival),
                    ..one(Scenario::Flow { milliseconds: settings.shared_flow })
                })
                .into(),
            Self::Idle => vec![one(Scenario::Idle { connections: settings.idle_connections })],
            Self::Http => {
                vec![one(Scenario::Files { bytes: settings.bulk_bytes, milliseconds })]
            }
            Self::Tunnel => TUNNELS
                .map(|(name, streams, carried)| Point {
                    name,
                    ..one(Scenario::Tunnel { streams, carried, milliseconds: 2 * milliseconds })
                })
                .into(),
            Self::Balance => BALANCES
                .map(|(name, ids, servers, flows, train)| {
                    // That it runs is seen with few, too.
                    let flows = if settings.quick { flows.min(1000) } else { flows };
                    let servers = if settings.quick { servers.min(100) } else { servers };
                    let load = Scenario::Forward { ids, servers, flows, train, milliseconds };
                    Point { name, ..one(load) }
                })
                .into(),
            Self::SwitchFrames => FRAMES
                .map(|(name, octets, ports)| {
                    let scenario =
                        Scenario::Switch { ports, octets, milliseconds: milliseconds / 2 };
                    Point { name, at: Some(octets.into()), ..one(scenario) }
                })
                .into(),
            Self::SwitchDevices => vec![one(Scenario::SwitchDevices { milliseconds })],
            Self::SwitchHttp => BODIES
                .map(|(name, kib, concurrency)| {
                    let bytes = u64::from(kib) << 10;
                    let scenario = Scenario::Fetches { bytes, concurrency, milliseconds };
                    Point { name, at: Some(kib), ..one(scenario) }
                })
                .into(),
            Self::SwitchSockets => vec![
                Point { name: "upload", ..one(bulk(Direction::Upload, whole)) },
                Point { name: "download", ..one(bulk(Direction::Download, whole)) },
                Point { name: "requests", ..one(Scenario::Exchanges { milliseconds }) },
                Point {
                    name: "handshakes",
                    ..one(Scenario::Handshakes { concurrency: 1, milliseconds })
                },
            ],
            Self::Gateway => GATEWAYS
                .into_iter()
                .chain([("idle", Asked::Idle { connections: settings.gateway_connections })])
                .map(|(name, asked)| {
                    let scenario = Scenario::Gateway { asked, milliseconds: 2 * milliseconds };
                    Point { name, ..one(scenario) }
                })
                .collect(),
        }
    }
}

const MESSAGES: [(&str, u32); 4] = [("1 KiB", 1), ("4 KiB", 4), ("16 KiB", 16), ("64 KiB", 64)];
const SESSIONS: [(&str, Session); 3] =
    [("full", Session::None), ("resumed", Session::Resumed), ("0-RTT", Session::Early)];
const STREAMS: [(&str, u32); 4] = [("1", 1), ("10", 10), ("100", 100), ("1000", 1000)];
const CONNECTIONS: [(&str, u32); 4] = [("1", 1), ("10", 10), ("50", 50), ("200", 200)];
/// Connections of the row of workers, and what is loaded on each.
const MANY: usize = 200;
const DOWNLOADS: [(&str, u64); 2] = [("1 KiB", 1 << 10), ("64 KiB", 64 << 10)];
/// Octets of a frame, and ports.
const FRAMES: [(&str, u16, u32); 20] = [
    ("64 octets, 1 port", 64, 1),
    ("128 octets, 1 port", 128, 1),
    ("256 octets, 1 port", 256, 1),
    ("512 octets, 1 port", 512, 1),
    ("1500 octets, 1 port", 1500, 1),
    ("64 octets, 8 ports", 64, 8),
    ("128 octets, 8 ports", 128, 8),
    ("256 octets, 8 ports", 256, 8),
    ("512 octets, 8 ports", 512, 8),
    ("1500 octets, 8 ports", 1500, 8),
    ("64 octets, 16 ports", 64, 16),
    ("128 octets, 16 ports", 128, 16),
    ("256 octets, 16 ports", 256, 16),
    ("512 octets, 16 ports", 512, 16),
    ("1500 octets, 16 ports", 1500, 16),
    ("64 octets, 64 ports", 64, 64),
    ("128 octets, 64 ports", 128, 64),
    ("256 octets, 64 ports", 256, 64),
    ("512 octets, 64 ports", 512, 64),
    ("1500 octets, 64 ports", 1500, 64),
];
/// Of a body, and fetches at once.
const BODIES: [(&str, u32, usize); 8] = [
    ("1 KiB, 64 at once", 1, 64),
    ("8 KiB, 64 at once", 8, 64),
    ("16 KiB, 64 at once", 16, 64),
    ("32 KiB, 64 at once", 32, 64),
    ("1 KiB, 8 at once", 1, 8),
    ("8 KiB, 8 at once", 8, 8),
    ("16 KiB, 8 at once", 16, 8),
    ("32 KiB, 8 at once", 32, 8),
];
const LOSSES: [(&str, u8, Congestion); 4] = [
    ("1 %, CUBIC", 1, Congestion::Cubic),
    ("5 %, CUBIC", 5, Congestion::Cubic),
    ("1 %, BBR", 1, Congestion::Bbr),
    ("5 %, BBR", 5, Congestion::Bbr),
];
const RIVALS: [(&str, Rival); 2] =
    [("with itself", Rival::Itself), ("with TCP CUBIC", Rival::TcpCubic)];

const TUNNELS: [(&str, Option<u32>, Carried); 4] = [
    ("bulk", None, Carried::Ipip),
    ("200 streams, GRE", Some(200), Carried::Gre),
    ("200 streams, SIT", Some(200), Carried::Sit),
    ("200 streams", Some(200), Carried::Ipip),
];
const GATEWAYS: [(&str, Asked); 3] = [
    ("1 KiB", Asked::Small),
    ("10 MB", Asked::Large { segmentation: true }),
    ("10 MB, TSO off", Asked::Large { segmentation: false }),
];
/// What connection IDs say, servers, client addresses, datagrams of each that come together.
const BALANCES: [(&str, Ids, u32, u32, u16); 10] = [
    ("plain", Ids::Plain, 10, 1000, 1),
    ("one pass", Ids::OnePass, 10, 1000, 1),
    ("four passes", Ids::FourPasses, 10, 1000, 1),
    ("first packets", Ids::First, 10, 1000, 1),
    ("plain, trains of 16", Ids::Plain, 10, 1000, 16),
    ("first packets, a million flows", Ids::First, 10, 1_000_000, 1),
    ("first packets, a million flows, 10,000 servers", Ids::First, 10_000, 1_000_000, 1),
    ("plain, a million flows, 10,000 servers", Ids::Plain, 10_000, 1_000_000, 1),
    ("one pass, 10,000 servers", Ids::OnePass, 10_000, 10_000, 1),
    ("plain, 10,000 servers", Ids::Plain, 10_000, 1000, 1),
];

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Row {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown row {name:?}: expected one of {known}")
        })
    }
}

/// What full packets of a network have, in bytes of UDP payload.
impl NetworkKind {
    fn payload(self, udp_payload: u16) -> Payload {
        if self.is_jumbo() { Payload::Discovered(8972) } else { Payload::Fixed(udp_payload) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Options;

    #[test]
    fn a_row_is_found_by_its_name_and_runs_somewhere() {
        for row in Row::ALL {
            assert_eq!(row.name().parse(), Ok(row));
            assert!(row.networks().contains(&row.quick_network()) && !row.figures().is_empty());
            let json = serde_json::to_string(&row).unwrap();
            assert_eq!(json, format!("{:?}", row.name()), "one name everywhere");
        }
        assert!("bulk".parse::<Row>().unwrap_err().contains("handshakes-50"));
    }

    #[test]
    fn points_have_names_of_their_own_and_curves_an_axis() {
        let settings = Settings::of(&Options::everything("lab".into()));
        for row in Row::ALL {
            let points = row.points(&settings, row.networks()[0]);
            for (index, point) in points.iter().enumerate() {
                assert_eq!(point.name.is_empty(), points.len() == 1, "{row}");
                assert!(points[..index].iter().all(|other| other.name != point.name), "{row}");
                assert_eq!(point.at.is_some(), row.axis().is_some(), "{row}");
                assert_eq!(point.conditions.encryption, row.is_encrypted());
            }
        }
    }

    #[test]
    fn a_quick_run_makes_one_measurement_of_each_row_and_of_each_kind_of_load() {
        let options = Options { quick: true, ..Options::everything("lab".into()) };
        let settings = Settings::of(&options);
        for row in Row::ALL {
            let points = match row {
                Row::Gateway => GATEWAYS.len() + 1,
                Row::SwitchSockets => 4,
                _ => 1,
            };
            assert_eq!(row.points(&settings, row.networks()[0]).len(), points, "{row}");
        }
        let points = Row::Streams.points(&settings, NetworkKind::Loopback);
        assert_eq!(points[0].at, Some(1000));
    }

    #[test]
    fn jumbo_networks_have_their_payload_discovered() {
        let settings = Settings::of(&Options::everything("lab".into()));
        let payload = |network| Row::Upload.points(&settings, network)[0].conditions.payload;
        assert_eq!(payload(NetworkKind::Veth), Payload::Fixed(1472));
        assert_eq!(payload(NetworkKind::VethJumbo), Payload::Discovered(8972));
        assert_eq!(payload(NetworkKind::LoopbackJumbo), Payload::Discovered(8972));
    }
}
