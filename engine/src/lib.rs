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
        clippy::arithmetic_side_effects,
        clippy::float_arithmetic
    )
)]

extern crate alloc;

mod ack;
mod cid;
pub mod config;
mod congestion;
mod connection;
pub mod crypto;
mod crypto_stream;
mod datagrams;
mod endpoint;
mod error;
mod event;
mod frame_sink;
mod message_queue;
mod observer;
mod path;
mod pending;
pub mod random;
mod range_set;
mod recovery;
pub mod replies;
mod reply_limit;
mod sent_frame;
mod site_keys;
mod stateless_reset;
mod stats;
mod streams;
mod tally;
#[cfg(test)]
mod testing;
pub mod time;
mod token;
mod used;

pub use cid::{CidNumbers, ConnectionIdGenerator, RandomConnectionIds};
pub use config::{
    ANSWER_TIME, Announced, ClientConfig, EndpointConfig, HANDSHAKES_WITHOUT_RETRY, MtuDiscovery,
    ReplyRates, RetryPolicy, ServerConfig, StreamWindows, TransportConfig,
};
pub use congestion::{Congestion, CongestionAlgorithm, CongestionParameters};
pub use connection::{
    Connection, EarlyData, KeyUpdateError, Transmit, TransmitStatus, Unreachable,
};
pub use datagrams::{DatagramError, DatagramFate, WhenFull};
pub use endpoint::{
    AcceptError, ConnectError, ConnectionHandle, Datagram, Endpoint, EndpointEvent, Incoming,
    Neighbours, Reached, Route, Stray,
};
pub use error::{ConnectionError, TransportError};
pub use event::Event;
pub use observer::{
    DropReason, LossTrigger, NewConnection, Observation, Observer, Observers, PacketContent,
    RecoveryParameters,
};
pub use path::MigrationError;
pub(crate) use sent_frame::SentFrame;
pub use site_keys::{SiteKeys, TokenKeys};
pub use stats::{Counters, EcnState, FrameCounts, PathStats, Stats};
pub use streams::{
    Chunk, Lent, NotTaken, OpenError, Peek, ReadError, ReadOutcome, RecvState, RecvStatus,
    SendRoom, SendState, SendStatus, StreamCounts, StreamEvent, StreamNews, StreamStatus,
    WriteError,
};
pub use token::{StrikeRegister, TokenId, TokenLog};
pub use used::UsedLately;

pub use quicket_wire::{
    ConnectionId, Dir, EcnCodepoint, Frame, PacketKind, Side, StatelessResetToken, StreamId,
    TransportErrorCode, TransportParameters, Version,
};
