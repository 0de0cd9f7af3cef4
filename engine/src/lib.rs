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
pub mod error;
#[allow(dead_code, unused_imports, reason = "the connection is still to come")]
mod path;
pub mod random;
#[allow(dead_code, unused_imports, reason = "the connection is still to come")]
mod recovery;
#[allow(dead_code, reason = "the connection is still to come")]
mod sent_frame;
#[allow(dead_code, reason = "the connection is still to come")]
mod stateless_reset;
pub mod time;
#[allow(dead_code, reason = "the connection is still to come")]
mod token;

pub use cid::{ConnectionIdGenerator, RandomConnectionIds};
pub use congestion::CongestionAlgorithm;
pub(crate) use sent_frame::SentFrame;
pub use token::{StrikeRegister, TokenId, TokenLog};
