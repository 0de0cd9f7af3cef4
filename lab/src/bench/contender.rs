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
}

impl Contender {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::TcpTls, Self::Quinn];

    /// The name by which it is known.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TcpTls => "tcp-tls",
            Self::Quinn => "quinn",
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

/// The programs of all implementations that take part.
pub(super) struct Contenders {
    programs: BTreeMap<Contender, Program>,
    descriptions: BTreeMap<Contender, String>,
}

impl Contenders {
    pub(super) fn prepare(options: &Options, workshop: &Workshop) -> Result<Self, Failure> {
        let mut made = Self { programs: BTreeMap::new(), descriptions: BTreeMap::new() };
        for &contender in &options.contenders {
            let (program, description) = match contender {
                Contender::TcpTls => {
                    let program = Program {
                        executable: options.executable.clone(),
                        arguments: vec![HIDDEN_BENCH.into(), contender.name().into()],
                    };
                    let what = "TLS 1.3 over TCP: rustls 0.23, unbuffered, blocking sockets";
                    (program, what.to_owned())
                }
                Contender::Quinn => {
                    let mut program = workshop.prepare(Implementation::Quinn)?;
                    program.arguments.push("bench".into());
                    let version = workshop.quinn_version()?;
                    let what = format!(
                        "quinn {version} on a current-thread tokio runtime, windows of 16 MiB, \
                         segmentation offload on, path MTU fixed, ACK frequency extension"
                    );
                    (program, what)
                }
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
