//! QUIC endpoint and connection as state machines without I/O.
//!
//! [`Endpoint`] finds out whose datagram is whose; [`Connection`] is one connection. Neither does
//! I/O, reads a clock, starts a thread or holds a global: time, randomness, datagrams, ciphers and
//! TLS are arguments.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::float_arithmetic
    )
)]

extern crate alloc;

mod ack;
#[cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
mod cid;
pub mod config;
mod congestion;
mod connection;
pub mod crypto;
#[cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
mod crypto_stream;
#[cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
mod datagrams;
#[cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
mod endpoint;
#[cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
mod error;
#[cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
mod event;
#[cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
mod frame_sink;
#[cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
mod message_queue;
#[cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
mod observer;
mod path;
#[cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
mod pending;
#[cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
pub mod random;
#[cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
mod range_set;
mod recovery;
#[cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
mod sent_frame;
#[cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
mod stateless_reset;
mod stats;
mod streams;
#[cfg(test)]
mod testing;
#[cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
pub mod time;
#[cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
mod token;

pub use cid::{CidNumbers, ConnectionIdGenerator, RandomConnectionIds};
pub use config::{
    Announced, ClientConfig, EndpointConfig, HANDSHAKES_WITHOUT_RETRY, MtuDiscovery, RetryPolicy,
    ServerConfig, StreamWindows, TransportConfig,
};
pub use congestion::CongestionAlgorithm;
pub use connection::{Connection, EarlyData, KeyUpdateError, Transmit, TransmitStatus};
pub use datagrams::{DatagramError, DatagramFate, WhenFull};
pub use endpoint::{
    AcceptError, ConnectError, ConnectionHandle, Datagram, Endpoint, EndpointEvent, Incoming, Route,
};
pub use error::{ConnectionError, TransportError};
pub use event::Event;
pub use observer::{
    DropReason, LossTrigger, NewConnection, Observation, Observer, Observers, PacketContent,
    RecoveryParameters,
};
pub use path::MigrationError;
pub(crate) use sent_frame::SentFrame;
pub use stats::{Counters, EcnState, FrameCounts, PathStats, Stats};
pub use streams::{
    OpenError, Peek, ReadError, ReadOutcome, RecvState, RecvStatus, SendRoom, SendState,
    SendStatus, StreamCounts, StreamEvent, StreamNews, StreamStatus, WriteError,
};
pub use token::{StrikeRegister, TokenId, TokenLog};

pub use quicket_wire::{
    ConnectionId, Dir, EcnCodepoint, Frame, PacketKind, Side, StatelessResetToken, StreamId,
    TransportErrorCode, TransportParameters, Version,
};
