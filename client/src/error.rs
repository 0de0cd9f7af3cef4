//! Why there is no answer.

use std::fmt;
use std::io;

use h3::error::StreamError;
use quicket::{ConfigError, ConnectError, ConnectionError};

/// What went wrong.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The request cannot be made; the words say what is missing or wrong.
    Request(String),
    /// Keys, certificates or the store of sessions cannot be used.
    Config(ConfigError),
    /// The store of sessions cannot be opened.
    Store(io::Error),
    /// The server's name leads to no address.
    Resolve {
        /// Which name.
        host: String,
        /// What the system says.
        error: io::Error,
    },
    /// There is no connection to the server.
    Connect(ConnectError),
    /// The connection ended before the answer did.
    Lost(ConnectionError),
    /// The server has cancelled the answer, or something about the exchange is wrong.
    Exchange(StreamError),
    /// The answer is not what HTTP/3 allows; the words say how.
    Malformed(&'static str),
    /// The answer is longer than it may be; the number is the bound in bytes.
    TooLong(usize),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(words) => f.write_str(words),
            Self::Config(error) => error.fmt(f),
            Self::Store(error) => write!(f, "sessions cannot be kept: {error}"),
            Self::Resolve { host, error } => write!(f, "{host} cannot be looked up: {error}"),
            Self::Connect(error) => error.fmt(f),
            Self::Lost(error) => write!(f, "the connection ended before the answer: {error}"),
            Self::Exchange(error) => error.fmt(f),
            Self::Malformed(words) => write!(f, "the answer is malformed: {words}"),
            Self::TooLong(most) => write!(f, "the answer is longer than {most} bytes"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(match self {
            Self::Request(_) | Self::Malformed(_) | Self::TooLong(_) => return None,
            Self::Config(error) => error,
            Self::Store(error) | Self::Resolve { error, .. } => error,
            Self::Connect(error) => error,
            Self::Lost(error) => error,
            Self::Exchange(error) => error,
        })
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        Self::Connect(error)
    }
}
