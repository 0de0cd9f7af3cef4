//! What can go wrong, sorted by who can mend it.
//!
//! Each operation has an error type of its own that names only what can happen to it. All of
//! them turn into [`std::io::Error`] with a fitting kind, and [`Blame`] says whose fault they
//! are.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use quicket_engine::crypto::HandshakeError;
use quicket_engine::{ConnectionError, MigrationError, TransportError};
use quicket_wire::TransportErrorCode;

use quicket_udp::BindError;

/// Whose fault an error is, and so who can mend it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The peer's, or something on the way to it.
    Peer,
    /// The application that calls this library.
    Caller,
    /// This host: memory, sockets, files.
    Environment,
    /// This library's: please report it.
    Bug,
}

/// Why the end of a connection came, as far as blame goes.
pub fn blame_of(error: &ConnectionError) -> Blame {
    match error {
        ConnectionError::Local { .. } => Blame::Caller,
        ConnectionError::Transport(TransportError { code, .. })
            if *code == TransportErrorCode::INTERNAL_ERROR =>
        {
            Blame::Bug
        }
        _ => Blame::Peer,
    }
}

/// The kind of I/O error that an ended connection amounts to.
fn kind_of(error: &ConnectionError) -> io::ErrorKind {
    match error {
        ConnectionError::PeerTransport { code, .. }
            if *code == TransportErrorCode::CONNECTION_REFUSED =>
        {
            io::ErrorKind::ConnectionRefused
        }
        ConnectionError::PortUnreachable => io::ErrorKind::ConnectionRefused,
        ConnectionError::HostUnreachable => io::ErrorKind::HostUnreachable,
        ConnectionError::StatelessReset => io::ErrorKind::ConnectionReset,
        ConnectionError::VersionNegotiation { .. } => io::ErrorKind::Unsupported,
        ConnectionError::IdleTimeout | ConnectionError::HandshakeTimeout => io::ErrorKind::TimedOut,
        ConnectionError::Local { .. } => io::ErrorKind::NotConnected,
        _ => io::ErrorKind::ConnectionAborted,
    }
}

/// Implements what all errors of operations have in common: the text comes from `Display`, and from
/// `Debug` with the variant's name, for that is what a `main` that returns the error shows; the I/O
/// error keeps the value itself inside.
macro_rules! operation_error {
    ($type:ident: $($variant:ident)*) => {
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let name = match self {
                    $(Self::$variant { .. } => stringify!($variant),)*
                };
                write!(f, "{self} ({}::{name})", stringify!($type))
            }
        }

        impl std::error::Error for $type {}

        impl From<$type> for io::Error {
            fn from(error: $type) -> Self {
                Self::new(error.kind(), error)
            }
        }
    };
}

/// Why there is no connection.
#[non_exhaustive]
pub enum ConnectError {
    /// The name could not be resolved, or to no address.
    Resolve(io::Error),
    /// No socket could be made.
    Bind(BindError),
    /// The endpoint's socket is bound to another address family than the remote address.
    AddressFamily(SocketAddr),
    /// What was asked for is not possible; the message says why.
    Invalid(quicket_engine::ConnectError),
    /// The handshake did not come to a good end.
    Lost(ConnectionError),
    /// TLS on this side did not agree, such as to the peer's certificate.
    Handshake(HandshakeError),
    /// The deadline passed first.
    TimedOut,
    /// The endpoint was closed.
    EndpointClosed,
}

impl ConnectError {
    /// Whose fault it is.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Resolve(_) | Self::Bind(_) => Blame::Environment,
            Self::AddressFamily(_) | Self::Invalid(_) | Self::EndpointClosed => Blame::Caller,
            Self::Lost(error) => blame_of(error),
            Self::Handshake(_) | Self::TimedOut => Blame::Peer,
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Resolve(error) => error.kind(),
            Self::Bind(error) => error.io_error().kind(),
            Self::AddressFamily(_) | Self::Invalid(_) => io::ErrorKind::InvalidInput,
            Self::Lost(error) => kind_of(error),
            Self::Handshake(_) => io::ErrorKind::ConnectionAborted,
            Self::TimedOut => io::ErrorKind::TimedOut,
            Self::EndpointClosed => io::ErrorKind::NotConnected,
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve(error) => write!(f, "cannot resolve the server's address: {error}"),
            Self::Bind(error) => error.fmt(f),
            Self::AddressFamily(remote) => write!(
                f,
                "cannot reach {remote} from this endpoint's socket; bind it to [::] for both \
                 families"
            ),
            Self::Invalid(error) => error.fmt(f),
            Self::Lost(error) => error.fmt(f),
            Self::Handshake(error) => error.fmt(f),
            Self::TimedOut => f.write_str("no connection before the deadline"),
            Self::EndpointClosed => f.write_str("the endpoint is closed"),
        }
    }
}

operation_error!(ConnectError: Resolve Bind AddressFamily Invalid Lost Handshake TimedOut EndpointClosed);

impl From<BindError> for ConnectError {
    fn from(error: BindError) -> Self {
        Self::Bind(error)
    }
}

/// Why nothing was accepted: no connection, or no stream.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcceptError {
    /// There is nothing to accept now, and the call was not to wait.
    WouldBlock,
    /// There was nothing to accept before the deadline.
    TimedOut,
    /// The connection ended.
    Lost(ConnectionError),
    /// The endpoint or its listener was closed.
    EndpointClosed,
    /// A newer generation of the program gets the clients ([`SwitchConfig::replace`]), and all that were
    /// on their way here were accepted. Connections go on.
    ///
    /// [`SwitchConfig::replace`]: crate::SwitchConfig::replace
    Superseded,
}

impl AcceptError {
    /// Whose fault it is.
    pub fn blame(&self) -> Blame {
        match self {
            Self::WouldBlock | Self::EndpointClosed | Self::Superseded => Blame::Caller,
            Self::TimedOut => Blame::Peer,
            Self::Lost(error) => blame_of(error),
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::WouldBlock => io::ErrorKind::WouldBlock,
            Self::TimedOut => io::ErrorKind::TimedOut,
            Self::Lost(error) => kind_of(error),
            Self::EndpointClosed | Self::Superseded => io::ErrorKind::NotConnected,
        }
    }
}

impl fmt::Display for AcceptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldBlock => f.write_str("there is nothing to accept yet"),
            Self::TimedOut => f.write_str("there was nothing to accept before the deadline"),
            Self::Lost(error) => error.fmt(f),
            Self::EndpointClosed => f.write_str("the endpoint or its listener is closed"),
            Self::Superseded => {
                f.write_str("a newer generation of the program gets the clients from now on")
            }
        }
    }
}

operation_error!(AcceptError: WouldBlock TimedOut Lost EndpointClosed Superseded);

/// Why no stream was opened.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The peer allows no more streams now, and the call was not to wait.
    WouldBlock,
    /// The peer allowed no more streams before the deadline.
    TimedOut,
    /// The connection ended.
    Lost(ConnectionError),
    /// Memory could not be had.
    OutOfMemory,
}

impl OpenError {
    /// Whose fault it is.
    pub fn blame(&self) -> Blame {
        match self {
            Self::WouldBlock | Self::TimedOut => Blame::Peer,
            Self::Lost(error) => blame_of(error),
            Self::OutOfMemory => Blame::Environment,
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::WouldBlock => io::ErrorKind::WouldBlock,
            Self::TimedOut => io::ErrorKind::TimedOut,
            Self::Lost(error) => kind_of(error),
            Self::OutOfMemory => io::ErrorKind::OutOfMemory,
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldBlock => f.write_str("the peer allows no more streams yet"),
            Self::TimedOut => f.write_str("the peer allowed no more streams before the deadline"),
            Self::Lost(error) => error.fmt(f),
            Self::OutOfMemory => f.write_str("out of memory for another stream"),
        }
    }
}

operation_error!(OpenError: WouldBlock TimedOut Lost OutOfMemory);

/// Why nothing was read.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// There is nothing to read now, and the call was not to wait.
    WouldBlock,
    /// There was nothing to read before the deadline.
    TimedOut,
    /// The peer gave up the stream, with this code of its application.
    Reset(u64),
    /// The stream was stopped by this side already.
    Closed,
    /// The connection ended.
    Lost(ConnectionError),
    /// Memory could not be had.
    OutOfMemory,
}

impl ReadError {
    /// Whose fault it is.
    pub fn blame(&self) -> Blame {
        match self {
            Self::WouldBlock | Self::Closed => Blame::Caller,
            Self::TimedOut | Self::Reset(_) => Blame::Peer,
            Self::Lost(error) => blame_of(error),
            Self::OutOfMemory => Blame::Environment,
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::WouldBlock => io::ErrorKind::WouldBlock,
            Self::TimedOut => io::ErrorKind::TimedOut,
            Self::Reset(_) => io::ErrorKind::ConnectionReset,
            Self::Closed => io::ErrorKind::NotConnected,
            Self::Lost(error) => kind_of(error),
            Self::OutOfMemory => io::ErrorKind::OutOfMemory,
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldBlock => f.write_str("there is nothing to read yet"),
            Self::TimedOut => f.write_str("there was nothing to read before the deadline"),
            Self::Reset(code) => write!(f, "the peer reset the stream with code {code:#x}"),
            Self::Closed => f.write_str("the stream was stopped and cannot be read any more"),
            Self::Lost(error) => error.fmt(f),
            Self::OutOfMemory => f.write_str("out of memory for a stream"),
        }
    }
}

operation_error!(ReadError: WouldBlock TimedOut Reset Closed Lost OutOfMemory);

/// Why a stream was not read to its end in one go.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadToEndError {
    /// Reading failed.
    Read(ReadError),
    /// The stream is longer than the given limit, in bytes.
    TooLong(usize),
}

impl ReadToEndError {
    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Read(error) => error.kind(),
            Self::TooLong(_) => io::ErrorKind::InvalidData,
        }
    }
}

impl fmt::Display for ReadToEndError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::TooLong(limit) => write!(f, "the stream is longer than {limit} bytes"),
        }
    }
}

operation_error!(ReadToEndError: Read TooLong);

impl From<ReadError> for ReadToEndError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

/// Why nothing was written.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// There is no room now, and the call was not to wait.
    WouldBlock,
    /// There was no room before the deadline.
    TimedOut,
    /// The peer wants no more of the stream, says this code of its application.
    Stopped(u64),
    /// The stream was finished or reset by this side already.
    Closed,
    /// The connection ended.
    Lost(ConnectionError),
    /// Memory could not be had.
    OutOfMemory,
}

impl WriteError {
    /// Whose fault it is.
    pub fn blame(&self) -> Blame {
        match self {
            Self::WouldBlock | Self::Closed => Blame::Caller,
            Self::TimedOut | Self::Stopped(_) => Blame::Peer,
            Self::Lost(error) => blame_of(error),
            Self::OutOfMemory => Blame::Environment,
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::WouldBlock => io::ErrorKind::WouldBlock,
            Self::TimedOut => io::ErrorKind::TimedOut,
            Self::Stopped(_) | Self::Closed => io::ErrorKind::BrokenPipe,
            Self::Lost(error) => kind_of(error),
            Self::OutOfMemory => io::ErrorKind::OutOfMemory,
        }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldBlock => f.write_str("there is no room to write yet"),
            Self::TimedOut => f.write_str("there was no room to write before the deadline"),
            Self::Stopped(code) => write!(f, "the peer stopped the stream with code {code:#x}"),
            Self::Closed => f.write_str("the stream was finished or reset already"),
            Self::Lost(error) => error.fmt(f),
            Self::OutOfMemory => f.write_str("out of memory for stream data"),
        }
    }
}

operation_error!(WriteError: WouldBlock TimedOut Stopped Closed Lost OutOfMemory);

/// Why a datagram was not sent or received (RFC 9221).
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatagramError {
    /// There is no datagram, or no room for one, and the call was not to wait.
    WouldBlock,
    /// There was none before the deadline.
    TimedOut,
    /// The peer takes no datagrams, or this side's configuration has none.
    Unsupported,
    /// The datagram is larger than the peer or the path takes.
    TooLarge {
        /// What would fit now, in bytes.
        max: usize,
    },
    /// The connection ended.
    Lost(ConnectionError),
    /// Memory could not be had.
    OutOfMemory,
}

impl DatagramError {
    /// Whose fault it is.
    pub fn blame(&self) -> Blame {
        match self {
            Self::WouldBlock | Self::TooLarge { .. } => Blame::Caller,
            Self::TimedOut | Self::Unsupported => Blame::Peer,
            Self::Lost(error) => blame_of(error),
            Self::OutOfMemory => Blame::Environment,
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::WouldBlock => io::ErrorKind::WouldBlock,
            Self::TimedOut => io::ErrorKind::TimedOut,
            Self::Unsupported => io::ErrorKind::Unsupported,
            Self::TooLarge { .. } => io::ErrorKind::InvalidInput,
            Self::Lost(error) => kind_of(error),
            Self::OutOfMemory => io::ErrorKind::OutOfMemory,
        }
    }
}

impl fmt::Display for DatagramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldBlock => f.write_str("no datagram can be sent or received yet"),
            Self::TimedOut => f.write_str("no datagram before the deadline"),
            Self::Unsupported => f.write_str("datagrams were not negotiated"),
            Self::TooLarge { max } => {
                write!(f, "the datagram is too large; {max} bytes fit now")
            }
            Self::Lost(error) => error.fmt(f),
            Self::OutOfMemory => f.write_str("out of memory for a datagram"),
        }
    }
}

operation_error!(DatagramError: WouldBlock TimedOut Unsupported TooLarge Lost OutOfMemory);

/// Why a connection did not move to another address.
#[non_exhaustive]
pub enum MigrateError {
    /// No socket could be made there.
    Bind(BindError),
    /// The connection cannot move, or not now.
    Refused(MigrationError),
}

impl MigrateError {
    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Bind(error) => error.io_error().kind(),
            Self::Refused(_) => io::ErrorKind::Unsupported,
        }
    }
}

impl fmt::Display for MigrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(error) => error.fmt(f),
            Self::Refused(error) => error.fmt(f),
        }
    }
}

operation_error!(MigrateError: Bind Refused);

impl From<BindError> for MigrateError {
    fn from(error: BindError) -> Self {
        Self::Bind(error)
    }
}

/// Why an endpoint does not listen.
#[non_exhaustive]
pub enum ListenError {
    /// No socket could be made.
    Bind(BindError),
    /// The endpoint has a listener already.
    AlreadyListening,
    /// The endpoint was closed.
    EndpointClosed,
    /// The address could not be resolved.
    Resolve(io::Error),
    /// The switch does not hand over clients: others have the same protocols and server names, or it
    /// cannot be reached.
    Switch(io::Error),
}

impl ListenError {
    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Bind(error) => error.io_error().kind(),
            Self::AlreadyListening => io::ErrorKind::AddrInUse,
            Self::EndpointClosed => io::ErrorKind::NotConnected,
            Self::Resolve(error) | Self::Switch(error) => error.kind(),
        }
    }
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(error) => error.fmt(f),
            Self::AlreadyListening => {
                f.write_str("the endpoint has a listener already; drop it first")
            }
            Self::EndpointClosed => f.write_str("the endpoint is closed"),
            Self::Resolve(error) => write!(f, "cannot resolve the address: {error}"),
            Self::Switch(error) => write!(f, "the switch hands over no clients: {error}"),
        }
    }
}

operation_error!(ListenError: Bind AlreadyListening EndpointClosed Resolve Switch);

impl From<BindError> for ListenError {
    fn from(error: BindError) -> Self {
        Self::Bind(error)
    }
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
