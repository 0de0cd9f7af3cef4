//! The cases: what the two ends are told, and what must have happened.

use std::fmt;
use std::str::FromStr;

use quicket_workload::peer::{ALPN_ECHO, ALPN_H3, ALPN_HQ};
use serde::{Deserialize, Serialize};

/// One thing that two implementations must be able to do together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Case {
    /// A handshake and one small file.
    #[serde(rename = "handshake")]
    Handshake,
    /// Files of several sizes, at once.
    #[serde(rename = "transfer")]
    Transfer,
    /// 2,000 echoed streams where a server permits about 100 at once.
    #[serde(rename = "streams-2000")]
    Streams,
    /// A Retry packet validates the client's address.
    #[serde(rename = "retry")]
    Retry,
    /// The second connection resumes the session of the first.
    #[serde(rename = "resumption")]
    Resumption,
    /// The second connection's requests are sent, and accepted, as early data.
    #[serde(rename = "zerortt")]
    ZeroRtt,
    /// The packet protection keys are updated in the middle of a transfer.
    #[serde(rename = "keyupdate")]
    KeyUpdate,
    /// Files over HTTP/3.
    #[serde(rename = "http3")]
    Http3,
    /// Echoed datagrams.
    #[serde(rename = "datagrams")]
    Datagrams,
}

/// What the two ends are told, and what must have happened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) alpn: &'static str,
    /// Whether the server is to send Retry packets.
    pub(super) retry: bool,
    /// Sizes in bytes of the files to download.
    pub(super) files: &'static [usize],
    /// Further options of the client.
    pub(super) options: &'static [&'static str],
    pub(super) expected: Expected,
}

/// What must have happened on the last connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    /// Connections before the last one.
    pub(super) earlier_connections: usize,
    pub(super) resumed: bool,
    /// `None` where it does not matter: a client that resumes may offer early data and send none.
    pub(super) early_data: Option<bool>,
    /// Whether at least one key update is expected; without, their number is of no interest.
    pub(super) key_update: bool,
    pub(super) streams: u32,
    pub(super) datagrams: u32,
}

impl Expected {
    /// An ordinary connection.
    pub(super) const PLAIN: Self = Self {
        earlier_connections: 0,
        resumed: false,
        early_data: Some(false),
        key_update: false,
        streams: 0,
        datagrams: 0,
    };
}

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

impl Case {
    /// All cases.
    pub const ALL: [Self; 9] = [
        Self::Handshake,
        Self::Transfer,
        Self::Streams,
        Self::Retry,
        Self::Resumption,
        Self::ZeroRtt,
        Self::KeyUpdate,
        Self::Http3,
        Self::Datagrams,
    ];

    /// The name by which it is known.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Transfer => "transfer",
            Self::Streams => "streams-2000",
            Self::Retry => "retry",
            Self::Resumption => "resumption",
            Self::ZeroRtt => "zerortt",
            Self::KeyUpdate => "keyupdate",
            Self::Http3 => "http3",
            Self::Datagrams => "datagrams",
        }
    }

    pub(super) fn plan(self) -> Plan {
        let expected = Expected::PLAIN;
        let plan = Plan { alpn: ALPN_HQ, retry: false, files: &[KIB], options: &[], expected };
        match self {
            Self::Handshake => plan,
            Self::Transfer => Plan { files: &[0, 1, 10 * KIB, MIB, 5 * MIB], ..plan },
            Self::Streams => Plan {
                alpn: ALPN_ECHO,
                files: &[],
                options: &["--streams", "2000"],
                expected: Expected { streams: 2000, ..expected },
                ..plan
            },
            Self::Retry => Plan { retry: true, ..plan },
            Self::Resumption => Plan {
                files: &[KIB, 10 * KIB],
                options: &["--resume"],
                expected: Expected {
                    earlier_connections: 1,
                    resumed: true,
                    early_data: None,
                    ..expected
                },
                ..plan
            },
            Self::ZeroRtt => Plan {
                files: &[KIB, 2 * KIB, 3 * KIB],
                options: &["--0rtt"],
                expected: Expected {
                    earlier_connections: 1,
                    resumed: true,
                    early_data: Some(true),
                    ..expected
                },
                ..plan
            },
            Self::KeyUpdate => Plan {
                files: &[KIB, MIB, 2 * MIB],
                options: &["--key-update"],
                expected: Expected { key_update: true, ..expected },
                ..plan
            },
            Self::Http3 => Plan { alpn: ALPN_H3, files: &[0, KIB, 100 * KIB, MIB], ..plan },
            Self::Datagrams => Plan {
                alpn: ALPN_ECHO,
                files: &[],
                options: &["--datagrams", "200"],
                expected: Expected { datagrams: 200, ..expected },
                ..plan
            },
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown case {name:?}: expected one of {known}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_json_and_can_be_read_back() {
        for case in Case::ALL {
            assert_eq!(case.name().parse(), Ok(case));
            assert_eq!(serde_json::to_string(&case).unwrap(), format!("\"{case}\""));
        }
        assert!("handshakes".parse::<Case>().unwrap_err().contains("streams-2000"));
    }
}
