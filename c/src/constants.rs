//! Numbers of the interface that the C library does not know.

use std::ffi::c_int;

/// The protocol of QUIC sockets.
pub const IPPROTO_QUIC: c_int = 261;
/// The level of their options and control messages.
pub const SOL_QUIC: c_int = 288;
/// A control message: `struct quic_stream_info`.
pub const QUIC_STREAM_INFO: c_int = 0;
/// A control message: `struct quic_handshake_info`.
pub const QUIC_HANDSHAKE_INFO: c_int = 1;

/// How much waits to be received.
pub(crate) const SIOCINQ: usize = 0x541B;
/// How much was written and is not acknowledged.
pub(crate) const SIOCOUTQ: usize = 0x5411;
/// How much was written and is not sent.
pub(crate) const SIOCOUTQNSD: usize = 0x894B;
/// The most that one call transfers.
pub(crate) const MAX_TRANSFER: usize = 0x7fff_f000;
/// The most parts that a buffer may have.
pub(crate) const MAX_PARTS: usize = 1024;
