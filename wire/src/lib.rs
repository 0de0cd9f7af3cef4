//! QUIC packet headers, frames and transport parameters as checked views and plain values.
//!
//! The crate turns bytes into values and values into bytes; it holds no state, performs no
//! I/O and never panics on input. Decoding borrows from the datagram and does not allocate,
//! with the exception of [`TransportParameters`], which a connection decodes once.
//!
//! Sources: RFC 8999 (invariants), RFC 9000 (transport), RFC 9001 (header protection),
//! RFC 9221 (DATAGRAM), RFC 9287 (greasing the fixed bit), RFC 9368 (version negotiation),
//! RFC 9369 (version 2) and draft-ietf-quic-ack-frequency.
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

mod client_hello;
mod connection_id;
mod ecn;
mod error;
mod error_code;
pub mod frame;
pub mod header;
pub mod packet_number;
mod reader;
mod stateless_reset;
mod stream_id;
mod transport_parameters;
pub mod varint;
mod version;
mod writer;

pub use client_hello::ClientHello;
pub use connection_id::ConnectionId;
pub use ecn::{EcnCodepoint, EcnCounts};
pub use error::{DecodeError, Full};
pub use error_code::TransportErrorCode;
pub use frame::{Frame, FrameEncode, FrameError, Frames};
pub use header::{
    Header, InvariantHeader, LongHeader, LongHeaderMarks, PacketKind, RETRY_TAG_LEN, RetryHeader,
    RetryPacket, SAMPLE_LEN, ShortHeader, VersionNegotiation, Versions, encode_version_negotiation,
    fixed_bit, header_sample, key_phase, protect, reserved_bits_are_zero, spin, unprotect,
};
pub use reader::Reader;
pub use stateless_reset::StatelessResetToken;
pub use stream_id::{Dir, InvalidStreamId, MAX_STREAMS, Side, StreamId};
pub use transport_parameters::{
    DEFAULT_ACK_DELAY_EXPONENT, ParameterError, PreferredAddress, TransportParameters,
    VersionInformation,
};
pub use version::Version;
pub use writer::Writer;
