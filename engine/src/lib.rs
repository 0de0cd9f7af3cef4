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
mod congestion;
pub mod crypto;
pub mod error;
pub mod random;
#[allow(dead_code, unused_imports, reason = "the connection is still to come")]
mod recovery;
#[allow(dead_code, reason = "the connection is still to come")]
mod sent_frame;
pub mod time;

pub use congestion::CongestionAlgorithm;
pub(crate) use sent_frame::SentFrame;
