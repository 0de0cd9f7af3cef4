//! The implementations that are measured.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use quicket_workload::bench::Failure;
use serde::{Deserialize, Serialize};

use super::Options;
use crate::hidden::HIDDEN_BENCH;
use crate::peers::{Implementation, Program, Workshop};

/// An implementation that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// TLS 1.3 over TCP: rustls, blocking sockets.
    TcpTls,
    /// quinn.
    Quinn,
    /// Quicket, its blocking sockets.
    Quicket,
    /// Quicket, its sockets for tokio.
    QuicketTokio,
}

impl Contender {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::TcpTls, Self::Quinn, Self::Quicket, Self::QuicketTokio];

    /// The name by which it is known.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TcpTls => "tcp-tls",
            Self::Quinn => "quinn",
            Self::Quicket => "quicket",
            Self::QuicketTokio => "quicket-tokio",
        }
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

const TCP_TLS: &str = "TLS 1.3 over TCP: rustls 0.23, unbuffered, blocking sockets";
const QUINN: &str = "on a current-thread tokio runtime, windows of 16 MiB, segmentation offload \
                     on, path MTU fixed, ACK frequency extension";
const QUICKET: &str =
    "Quicket's blocking sockets, windows of 16 MiB, path MTU fixed, otherwise its defaults";
const QUICKET_TOKIO: &str = "Quicket's sockets for tokio on a current-thread runtime, configured \
                             as the blocking ones";

/// The programs of all implementations that take part.
pub(super) struct Contenders {
    programs: BTreeMap<Contender, Program>,
    descriptions: BTreeMap<Contender, String>,
}

impl Contenders {
    pub(super) fn prepare(options: &Options, workshop: &Workshop) -> Result<Self, Failure> {
        let mut made = Self { programs: BTreeMap::new(), descriptions: BTreeMap::new() };
        let this_program = |contender: Contender| Program {
            executable: options.executable.clone(),
            arguments: vec![HIDDEN_BENCH.into(), contender.name().into()],
        };
        for &contender in &options.contenders {
            let (program, description) = match contender {
                Contender::TcpTls => (this_program(contender), TCP_TLS.to_owned()),
                Contender::Quinn => {
                    let mut program = workshop.prepare(Implementation::Quinn)?;
                    program.arguments.push("bench".into());
                    (program, format!("quinn {} {QUINN}", workshop.quinn_version()?))
                }
                Contender::Quicket => (this_program(contender), QUICKET.to_owned()),
                Contender::QuicketTokio => (this_program(contender), QUICKET_TOKIO.to_owned()),
            };
            made.programs.insert(contender, program);
            made.descriptions.insert(contender, description);
        }
        Ok(made)
    }

    pub(super) fn program(&self, contender: Contender) -> Result<&Program, Failure> {
        self.programs.get(&contender).ok_or_else(|| format!("{contender} is not prepared").into())
    }

    pub(super) fn descriptions(&self) -> BTreeMap<Contender, String> {
        self.descriptions.clone()
    }
}
