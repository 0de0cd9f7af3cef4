//! QUIC as a socket.
#![forbid(unsafe_code)]

mod blocking;
mod common;
mod config;
mod core;
mod error;
mod half;
pub mod message;
mod ops;
mod qlog;
mod session;
pub mod steering;
pub mod tokio;
mod udp;
mod waiting;

pub use blocking::{Connection, Endpoint, Incoming, Listener, RecvStream, SendStream, Stream};
pub use common::{HandshakeInfo, PathInfo};
pub use config::{Attempt, ClientConfig, Decision, EndpointConfig, ServerConfig};
pub use error::{
    AcceptError, Blame, ConnectError, DatagramError, ListenError, MigrateError, OpenError,
    ReadError, ReadToEndError, WriteError, blame_of,
};
pub use qlog::Qlog;
pub use session::{FileSessionStore, MemorySessionStore, SessionStore};
pub use udp::{BindError, UdpConfig, UdpOption, UdpStats};

pub use quicket_engine::crypto::{Aead, HandshakeError};
pub use quicket_engine::{
    CongestionAlgorithm, ConnectionError, ConnectionIdGenerator, Counters, EarlyData, EcnState,
    FrameCounts, KeyUpdateError, MigrationError, MtuDiscovery, PathStats, RetryPolicy, Stats,
    TransportConfig, TransportError,
};
pub use quicket_handshake::{
    Beginning, ClientAuth, ClientTls, ConfigError, Fingerprint, Identity, KeyExchange, KeyLog,
    KeyLogFile, ProcessRegister, Roots, STRIKE_WINDOW, ServerTls, StrikeRegister, TicketId,
    TicketKey,
};
pub use quicket_wire::{Dir, StreamId, TransportErrorCode, TransportParameters, Version};

// The examples there are tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../docs/from-tcp-to-quic.md")]
struct FromTcp;
