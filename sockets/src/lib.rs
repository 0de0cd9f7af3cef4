//! QUIC as a socket.
#![forbid(unsafe_code)]

mod blocking;
mod config;
mod core;
mod error;
pub mod message;
mod ops;
mod qlog;
mod session;
mod udp;

pub use blocking::{Connection, Endpoint, Incoming, Listener, RecvStream, SendStream, Stream};
pub use config::{Attempt, ClientConfig, Decision, EndpointConfig, ServerConfig};
pub use error::{
    AcceptError, Blame, ConnectError, DatagramError, ListenError, OpenError, ReadError,
    ReadToEndError, WriteError, blame_of,
};
pub use session::{FileSessionStore, MemorySessionStore, SessionStore};
pub use udp::{BindError, UdpConfig, UdpStats};

pub use quicket_engine::{
    CongestionAlgorithm, ConnectionError, MtuDiscovery, RetryPolicy, TransportConfig,
    TransportError,
};
pub use quicket_handshake::{
    ClientAuth, ClientTls, ConfigError, Fingerprint, Identity, KeyExchange, KeyLog, KeyLogFile,
    Roots, ServerTls, TicketKey,
};
pub use quicket_wire::{Dir, StreamId, TransportErrorCode, Version};

// The examples there are tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
