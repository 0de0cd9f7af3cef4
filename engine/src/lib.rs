//! QUIC endpoint and connection as state machines without I/O.
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

#[allow(dead_code, unused_imports, reason = "the connection is still to come")]
mod ack;
#[allow(dead_code, unused_imports, reason = "the connection is still to come")]
mod cid;
pub mod config;
#[allow(dead_code, unused_imports, reason = "the connection is still to come")]
mod congestion;
pub mod crypto;
#[allow(dead_code, reason = "the connection is still to come")]
mod crypto_stream;
#[allow(dead_code, reason = "the connection is still to come")]
mod datagrams;
pub mod error;
#[allow(dead_code, reason = "the connection is still to come")]
mod frame_sink;
#[allow(dead_code, reason = "the connection is still to come")]
mod message_queue;
#[allow(dead_code, unused_imports, reason = "the connection is still to come")]
mod path;
pub mod random;
#[allow(dead_code, reason = "the connection is still to come")]
mod range_set;
#[allow(dead_code, unused_imports, reason = "the connection is still to come")]
mod recovery;
#[allow(dead_code, reason = "the connection is still to come")]
mod sent_frame;
#[allow(dead_code, reason = "the connection is still to come")]
mod stateless_reset;
#[allow(dead_code, reason = "the connection is still to come")]
mod streams;
#[cfg(test)]
mod testing;
pub mod time;
#[allow(dead_code, reason = "the connection is still to come")]
mod token;

pub use cid::{ConnectionIdGenerator, RandomConnectionIds};
pub use congestion::CongestionAlgorithm;
pub use datagrams::{DatagramError, DatagramFate, WhenFull};
pub(crate) use sent_frame::SentFrame;
pub use streams::{OpenError, Peek, ReadError, ReadOutcome, StreamEvent, WriteError};
pub use token::{StrikeRegister, TokenId, TokenLog};
