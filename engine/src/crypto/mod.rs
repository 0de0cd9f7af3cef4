//! What the engine asks of cryptography: packet protection and the TLS handshake, as traits.
//!
//! The boundary to TLS is the message: CRYPTO bytes in and out per [`Level`], traffic secrets
//! handed over, completion (RFC 9001, Section 4.1). Whoever is on the other side (rustls in the
//! same call, a thread that waits for a costly signature, or the application with a TLS library
//! of its own) the engine does not notice.

mod cipher;
mod handshake;

pub use cipher::{
    Aead, CipherError, CryptoProvider, HEADER_SAMPLE_LEN, HeaderKey, OpenJob, PacketKey, SealJob,
    Secret, TAG_LEN,
};
pub use handshake::{
    APPLICATION_LIMITS, Alert, Deferred, Handshake, HandshakeError, HandshakeEvent, HandshakeStart,
    HandshakeSummary, TlsConfig,
};

/// Encryption levels (RFC 9001, Section 2.1), in the order in which they become available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Keys derived from the client's first Destination Connection ID.
    Initial,
    /// 0-RTT: early data from client to server.
    EarlyData,
    /// The rest of the handshake.
    Handshake,
    /// Application data.
    OneRtt,
}

/// The two ways that traffic flows, as seen from this endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// What this endpoint receives.
    Receive,
    /// What this endpoint sends.
    Send,
}
