//! The networks between server and client.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::netns::{End, NetnsError, VethPair};

/// MTU of the virtual Ethernet devices in bytes.
const MTU: u16 = 1500;

/// A network between server and client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkKind {
    /// The loopback device.
    Loopback,
    /// Two network namespaces joined by virtual Ethernet devices with an MTU of 1,500 bytes.
    Veth,
}

impl NetworkKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Loopback, Self::Veth];

    /// The name by which it is known.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Veth => "veth",
        }
    }

    /// What it is, for readers of a report.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::Loopback => "the loopback device",
            Self::Veth => "two network namespaces joined by a veth pair, MTU 1,500",
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
        Self::ALL
            .into_iter()
            .find(|known| known.name() == name)
            .ok_or_else(|| format!("unknown network {name:?}: expected one of loopback, veth"))
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
}

impl Network {
    pub(super) fn new(kind: NetworkKind) -> Result<Self, NetnsError> {
        match kind {
            NetworkKind::Loopback => Ok(Self::Loopback),
            NetworkKind::Veth => {
                let pair = VethPair::new(MTU)?;
                // A load of many handshakes would otherwise run out of ports, each of which TCP
                // keeps for a minute; on the loopback device that is the kernel's default.
                for end in [End::Left, End::Right] {
                    pair.set_sysctl(end, "net/ipv4/tcp_tw_reuse", "1")?;
                }
                Ok(Self::Veth(pair))
            }
        }
    }

    pub(super) fn server_address(&self) -> IpAddr {
        match self {
            Self::Loopback => Ipv4Addr::LOCALHOST.into(),
            Self::Veth(_) => VethPair::address(End::Left),
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
        match self {
            Self::Loopback => command,
            Self::Veth(pair) => pair.inside(end, &command),
        }
    }
}
