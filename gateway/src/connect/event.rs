//! What is said while it runs, and what it ends with.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quicket::{ConnectError, ConnectionError};

use super::Local;
use crate::carry::code;

/// Who hears of what happens.
pub type Say = Arc<dyn Fn(&Event) + Send + Sync>;

/// What happens.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The local socket is there.
    Listening(Local),
    /// There is a connection.
    Connected {
        /// The server's address.
        remote: SocketAddr,
        /// A session was resumed; streams may begin before the handshake is complete.
        early: bool,
    },
    /// The connection has ended: another is made after this time.
    Lost(ConnectionError, Duration),
    /// There was none to be had: it is tried again after this time.
    Failed(Error, Duration),
    /// A stream has broken off with this code.
    Broken(u64),
    /// A packet of so many bytes is larger than the way takes: the first of a flow of which that is so.
    TooLarge(usize),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listening(local) => write!(f, "Listening on {local}"),
            Self::Connected { remote, early: false } => write!(f, "Connected to {remote}"),
            Self::Connected { remote, early: true } => {
                write!(f, "Connected to {remote}: sending 0-RTT data")
            }
            Self::Lost(error, wait) => {
                write!(f, "The connection has ended: {}; trying again in {wait:?}", Ended(error))
            }
            Self::Failed(error, wait) => write!(f, "{error}; trying again in {wait:?}"),
            Self::Broken(code) => write!(f, "A stream broke off: {}", Code(*code)),
            Self::TooLarge(len) => write!(
                f,
                "A packet of {len} bytes is larger than the way to the server takes, and lost; so are others \
                 like it"
            ),
        }
    }
}

/// Why it ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The local socket cannot be had.
    Local(Local, io::Error),
    /// Standard input cannot be read.
    Input(io::Error),
    /// Standard output cannot be written.
    Output(io::Error),
    /// There is no connection to the server.
    Connect {
        /// Its name and port, as given.
        server: String,
        /// The address that was tried last, if it has one.
        remote: Option<SocketAddr>,
        /// Why.
        error: ConnectError,
    },
    /// The connection ended before the stream.
    Lost(ConnectionError),
    /// The server takes no datagrams.
    NoDatagrams,
    /// The stream broke off with this code.
    Broken(u64),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(local, error) => {
                write!(f, "cannot listen on {local}: {error}")?;
                match (error.kind(), local) {
                    (io::ErrorKind::AddrInUse, Local::Tcp(at)) => {
                        write!(f, "; ss -ltnp 'sport = :{}' says who has it", at.port())
                    }
                    (io::ErrorKind::AddrInUse, Local::Udp(at)) => {
                        write!(f, "; ss -lunp 'sport = :{}' says who has it", at.port())
                    }
                    (io::ErrorKind::AddrInUse, _) => f.write_str("; somebody listens there"),
                    (io::ErrorKind::PermissionDenied, Local::Tcp(_) | Local::Udp(_)) => {
                        f.write_str("; ports below 1024 need root, or CAP_NET_BIND_SERVICE")
                    }
                    _ => Ok(()),
                }
            }
            Self::Input(error) => write!(f, "cannot read standard input: {error}"),
            Self::Output(error) => write!(f, "cannot write standard output: {error}"),
            Self::Connect { server, remote, error } => {
                write!(f, "{server}")?;
                if let Some(remote) = remote.filter(|remote| remote.to_string() != *server) {
                    write!(f, " ({remote})")?;
                }
                write!(f, ": {error}")
            }
            Self::Lost(error) => write!(f, "the connection has ended: {}", Ended(error)),
            Self::NoDatagrams => f.write_str("the server takes no datagrams (RFC 9221)"),
            Self::Broken(code) => write!(f, "the stream broke off: {}", Code(*code)),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Local(_, error) | Self::Input(error) | Self::Output(error) => Some(error),
            Self::Connect { error, .. } => Some(error),
            Self::Lost(error) => Some(error),
            Self::NoDatagrams | Self::Broken(_) => None,
        }
    }
}

/// The end of a connection, in a gateway's words if the code is a gateway's.
struct Ended<'a>(&'a ConnectionError);

impl fmt::Display for Ended<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ConnectionError::PeerApplication { code, .. } if code::meaning(*code).is_some() => {
                Code(*code).fmt(f)
            }
            error => error.fmt(f),
        }
    }
}

struct Code(u64);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match code::meaning(self.0) {
            Some(meaning) => f.write_str(meaning),
            None => write!(f, "the application's code is {:#x}", self.0),
        }
    }
}
