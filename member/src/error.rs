//! Why a server cannot be one of a site.

use std::fmt;
use std::io;

use quicket::steering::{FormatError, SwitchError};

/// Why a server cannot be one of a site, or not as the file says now.
#[derive(Debug)]
#[non_exhaustive]
pub enum MemberError {
    /// There is nothing to write connection IDs with.
    NoConfiguration,
    /// The server ID does not fit into connection IDs.
    ServerId(FormatError),
    /// Nobody would believe its reports.
    NoReportKey,
    /// Connection IDs have no room for so many workers.
    NoRoom(usize),
    /// There cannot be so many workers.
    Workers(io::Error),
    /// Connection IDs would have another length than those in use.
    Length(SwitchError),
    /// Several workers write connection IDs as they did at the start.
    Restart,
}

impl fmt::Display for MemberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConfiguration => f.write_str("there is no configuration"),
            Self::ServerId(error) => error.fmt(f),
            Self::NoReportKey => f.write_str(
                "reports need a line \"report-key HEX\" in the file of connection IDs, with 64 digits of \
                 openssl rand -hex 32",
            ),
            Self::NoRoom(workers) => {
                // An octet has room for 16 workers of 16 generations.
                let octets = if *workers > 16 { 2 } else { 1 };
                write!(
                    f,
                    "with {workers} workers, connection IDs must say which worker they lead to: add \
                     \"owner {octets} mask HEX\" to each configuration, with 16 digits of openssl rand \
                     -hex 8, or start with --workers 1"
                )
            }
            Self::Workers(error) => error.fmt(f),
            Self::Length(error) => error.fmt(f),
            Self::Restart => f.write_str(
                "with several workers, the configuration that is written changes with a restart only: \
                 start the server again",
            ),
        }
    }
}

impl std::error::Error for MemberError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::ServerId(error) => Some(error),
            Self::Workers(error) => Some(error),
            Self::Length(error) => Some(error),
            Self::NoConfiguration | Self::NoReportKey | Self::NoRoom(_) | Self::Restart => None,
        }
    }
}
