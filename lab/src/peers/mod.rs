//! The implementations that are driven: how to build them and how to start them.

mod build;
mod lacks;

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;

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
}

impl Implementation {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Quicket, Self::Quinn, Self::QuicGo, Self::Aioquic];

    /// The name by which it is known.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Quicket => "quicket",
            Self::Quinn => "quinn",
            Self::QuicGo => "quic-go",
            Self::Aioquic => "aioquic",
        }
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
