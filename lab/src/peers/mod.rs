//! The implementations that are driven: how to build them and how to start them.

mod build;
mod faults;
mod lacks;

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;

use quicket_workload::peer::{ALPN_H3, ALPN_HQ};
use serde::{Deserialize, Serialize};

pub use build::{PeerError, Workshop};

/// Which end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The one that connects.
    Client,
    /// The one that accepts.
    Server,
}

/// A QUIC implementation with a program that speaks the common command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Implementation {
    /// This one.
    Quicket,
    /// quinn and h3, in Rust.
    Quinn,
    /// quic-go, in Go.
    QuicGo,
    /// aioquic, in Python.
    Aioquic,
    /// s2n-quic, in Rust.
    S2nQuic,
    /// noq, a fork of quinn, in Rust.
    Noq,
    /// ngtcp2's programs as Debian has them, in C++ over libraries in C.
    Ngtcp2,
    /// quiche, in Rust over BoringSSL in C.
    Quiche,
    /// TQUIC, in Rust over BoringSSL in C.
    Tquic,
}

impl Implementation {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Quicket,
        Self::Quinn,
        Self::QuicGo,
        Self::Aioquic,
        Self::S2nQuic,
        Self::Noq,
        Self::Ngtcp2,
        Self::Quiche,
        Self::Tquic,
    ];

    /// Whether it takes minutes to build, and more than Rust and a C compiler: such peers are left
    /// out of the tests.
    #[must_use]
    pub const fn is_costly(self) -> bool {
        matches!(self, Self::Quiche | Self::Tquic)
    }

    /// The name by which it is known.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Quicket => "quicket",
            Self::Quinn => "quinn",
            Self::QuicGo => "quic-go",
            Self::Aioquic => "aioquic",
            Self::S2nQuic => "s2n-quic",
            Self::Noq => "noq",
            Self::Ngtcp2 => "ngtcp2",
            Self::Quiche => "quiche",
            Self::Tquic => "tquic",
        }
    }

    /// Whether its server opens a socket at the address that it prefers, where others leave it to
    /// whoever starts them that datagrams from there come to the one that they have.
    pub(crate) fn binds_preferred_address(self) -> bool {
        self == Self::Ngtcp2
    }

    /// The application protocol for a case that is written for `alpn`: a program that has no
    /// HTTP/0.9 gets its files over HTTP/3.
    pub(crate) fn speaks(self, alpn: &'static str) -> &'static str {
        if self == Self::Ngtcp2 && alpn == ALPN_HQ { ALPN_H3 } else { alpn }
    }
}

impl fmt::Display for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Implementation {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown implementation {name:?}: expected one of {known}")
        })
    }
}

/// A program that is ready to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The executable.
    pub executable: PathBuf,
    /// Arguments in front of all others.
    pub arguments: Vec<String>,
}

impl Program {
    /// A command that starts the program.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.args(&self.arguments);
        command
    }
}
