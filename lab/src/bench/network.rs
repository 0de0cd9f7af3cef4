//! The networks between server and client.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use quicket_workload::bench::Failure;

use super::row::Point;
use crate::netns::{End, Namespaces, NetnsError, VethPair};
use crate::tun::{TunLink, TunPair};

/// MTUs of the virtual Ethernet devices in bytes.
const MTU: u16 = 1500;
const JUMBO_MTU: u16 = 9000;
/// The link, without loss: its queue has room for 50 ms, as much as it holds itself.
const LINK: &str = "delay=25ms rate=100mbit queue=417";

/// A network between server and client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkKind {
    /// The loopback device.
    Loopback,
    /// The loopback device with UDP payloads of up to 8,972 bytes, found by path MTU discovery.
    #[serde(rename = "loopback-9000")]
    LoopbackJumbo,
    /// Two network namespaces joined by virtual Ethernet devices with an MTU of 1,500 bytes.
    Veth,
    /// The same with an MTU of 9,000 bytes, and payloads found by path MTU discovery.
    #[serde(rename = "veth-9000")]
    VethJumbo,
    /// Two network namespaces joined by a link in user space.
    Link,
}

impl NetworkKind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Loopback, Self::LoopbackJumbo, Self::Veth, Self::VethJumbo, Self::Link];

    /// The name by which it is known.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::LoopbackJumbo => "loopback-9000",
            Self::Veth => "veth",
            Self::VethJumbo => "veth-9000",
            Self::Link => "link",
        }
    }

    /// Whether larger payloads are found than Ethernet usually carries.
    #[must_use]
    pub fn is_jumbo(self) -> bool {
        matches!(self, Self::LoopbackJumbo | Self::VethJumbo)
    }

    /// How many measurements are made at once: over a link they wait most of the time, and
    /// each has a link of its own.
    #[must_use]
    pub fn lanes(self) -> usize {
        if self == Self::Link { 3 } else { 1 }
    }

    /// Share of a core that other programs may have meanwhile, in percent.
    pub(super) fn tolerated(self) -> f64 {
        if self == Self::Link { 30.0 } else { 5.0 }
    }

    /// What it is, for readers of a report.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::Loopback => "the loopback device",
            Self::LoopbackJumbo => {
                "the loopback device, UDP payloads up to 8,972 bytes by path MTU discovery"
            }
            Self::Veth => "two network namespaces joined by a veth pair, MTU 1,500",
            Self::VethJumbo => {
                "two network namespaces joined by a veth pair, MTU 9,000, path MTU discovery"
            }
            Self::Link => {
                "a link in user space, 100 Mbit/s, 50 ms there and back, queue of 50 ms, MTU 1,500"
            }
        }
    }
}

impl fmt::Display for NetworkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for NetworkKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown network {name:?}: expected one of {known}")
        })
    }
}

/// Where a client's socket is bound: to any port, on all addresses of the server's kind.
pub(super) fn unspecified_for(server: SocketAddr) -> SocketAddr {
    match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// A network that is there.
pub(super) enum Network {
    Loopback,
    Veth(VethPair),
    Link(TunPair),
}

impl Network {
    pub(super) fn new(kind: NetworkKind) -> Result<Self, NetnsError> {
        let network = match kind {
            NetworkKind::Loopback | NetworkKind::LoopbackJumbo => Self::Loopback,
            NetworkKind::Veth => Self::Veth(VethPair::new(MTU)?),
            NetworkKind::VethJumbo => Self::Veth(VethPair::new(JUMBO_MTU)?),
            NetworkKind::Link => Self::Link(TunPair::new()?),
        };
        if let Some(namespaces) = network.namespaces() {
            // A load of many handshakes would otherwise run out of ports, each of which TCP
            // keeps for a minute; on the loopback device that is the kernel's default.
            for end in [End::Left, End::Right] {
                namespaces.set_sysctl(end, "net/ipv4/tcp_tw_reuse", "1")?;
            }
        }
        Ok(network)
    }

    pub(super) fn namespaces(&self) -> Option<&Namespaces> {
        match self {
            Self::Loopback => None,
            Self::Veth(pair) => Some(pair),
            Self::Link(pair) => Some(pair),
        }
    }

    /// Has packets carried for one measurement, if that is not the kernel's business.
    pub(super) fn carry(&self, point: &Point, seed: u64) -> Result<Option<TunLink>, Failure> {
        let Self::Link(pair) = self else { return Ok(None) };
        let scenario = format!("{LINK}; down loss={}%", point.loss).parse()?;
        Ok(Some(pair.link(&scenario, seed)?))
    }

    pub(super) fn server_address(&self) -> IpAddr {
        match self {
            Self::Loopback => Ipv4Addr::LOCALHOST.into(),
            Self::Veth(_) | Self::Link(_) => Namespaces::address(End::Left),
        }
    }

    /// Moves the command of a server to where servers run.
    pub(super) fn server_side(&self, command: Command) -> Command {
        self.side(End::Left, command)
    }

    /// Moves the command of a client to where clients run.
    pub(super) fn client_side(&self, command: Command) -> Command {
        self.side(End::Right, command)
    }

    fn side(&self, end: End, command: Command) -> Command {
        match self.namespaces() {
            None => command,
            Some(namespaces) => namespaces.inside(end, &command),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_one_name_everywhere() {
        for kind in NetworkKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("{:?}", kind.name()));
        }
        assert!("wifi".parse::<NetworkKind>().unwrap_err().contains("veth-9000"));
    }
}
