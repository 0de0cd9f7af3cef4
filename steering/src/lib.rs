//! Where a datagram belongs, read from its connection ID.
//!
//! Servers write their place into the connection IDs that they issue, so that whoever receives a
//! datagram can find the connection without a table: a load balancer finds the host, the kernel or
//! another process of the host finds the generation and the worker. Nobody else can read it, or
//! tell that two connection IDs belong together.
//!
//! - [`Format`] says how long the fields are, [`Codec`] writes and reads one such connection ID.
//! - [`Configurations`] holds those in use at a time, told apart by three bits, and is rotated
//!   while connections live.
//! - [`Owner`] is a generation and a worker, in an octet or two that a BPF program can read.
//! - [`secrets`] are those of a site, of which keys are derived and rotated.
//! - [`Maglev`] chooses a server for what has no routable connection ID yet.
//!
//! Everything is a pure function of its arguments; ciphers and randomness come from outside.
//!
//! Sources: draft-ietf-quic-load-balancers-21 (formats, rotation), RFC 9000, Section 5.1
//! (connection IDs must not be linkable), RFC 8999 (what holds for all versions of QUIC).
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

mod cipher;
mod codec;
mod configurations;
mod format;
mod keyed_hash;
mod maglev;
mod owner;
pub mod secrets;
#[cfg(test)]
mod testing;

pub use cipher::{Block, BlockCipher};
pub use codec::{Codec, Place, ServerId};
pub use configurations::{Configurations, RotationError};
pub use format::{ConfigId, FirstOctet, Format, FormatError};
pub use keyed_hash::HashKey;
pub use maglev::{Backend, Maglev, MaglevError};
pub use owner::{Owner, OwnerBits, OwnerError};
pub use secrets::{KeyRing, KeySet, SiteSecrets, Tenant};
