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

pub mod crypto;
pub mod random;
mod sent_frame;
pub mod time;

pub(crate) use sent_frame::SentFrame;
