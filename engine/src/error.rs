//! Errors, sorted by who is to blame.

use alloc::vec::Vec;
use core::fmt;

use quicket_wire::{TransportErrorCode, Version};

/// A violation of the protocol, or a failure of our own, that closes the connection with a
/// CONNECTION_CLOSE of type 0x1c (RFC 9000, Section 10.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportError {
    /// The code that goes to the peer (RFC 9000, Section 20.1).
    pub code: TransportErrorCode,
    /// The type of the frame at fault; 0 if unknown (RFC 9000, Section 19.19).
    pub frame_type: u64,
    /// What went wrong, for people.
    pub reason: &'static str,
}

impl TransportError {
    /// An error at no particular frame.
    pub const fn new(code: TransportErrorCode, reason: &'static str) -> Self {
        Self { code, frame_type: 0, reason }
    }

    /// An error at a frame of type `frame_type`.
    pub const fn at(code: TransportErrorCode, frame_type: u64, reason: &'static str) -> Self {
        Self { code, frame_type, reason }
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.reason)?;
        if self.frame_type != 0 {
            write!(f, " (frame type {:#x})", self.frame_type)?;
        }
        Ok(())
    }
}

impl core::error::Error for TransportError {}

/// Why a connection ended.
#[derive(Clone, PartialEq, Eq)]
pub enum ConnectionError {
    /// The peer's QUIC stack closed the connection (CONNECTION_CLOSE of type 0x1c).
    PeerTransport {
        /// The peer's code (RFC 9000, Section 20.1).
        code: TransportErrorCode,
        /// The frame that the peer complains of; 0 if it did not say.
        frame_type: u64,
        /// The peer's words.
        reason: Vec<u8>,
    },
    /// The peer's application closed the connection (CONNECTION_CLOSE of type 0x1d).
    PeerApplication {
        /// The application's code.
        code: u64,
        /// The peer's words.
        reason: Vec<u8>,
    },
    /// The peer lost the connection's state and said so with a stateless reset
    /// (RFC 9000, Section 10.3).
    StatelessReset,
    /// The server does not support the version of our first packet (RFC 9000, Section 6.2).
    VersionNegotiation {
        /// What it says it supports; not authenticated.
        versions: Vec<Version>,
    },
    /// The peer broke the protocol, or the TLS handshake failed; we closed the connection.
    Transport(TransportError),
    /// The idle timeout passed without a packet from the peer (RFC 9000, Section 10.1).
    IdleTimeout,
    /// The handshake took longer than the configured limit.
    HandshakeTimeout,
    /// Nobody listens at the server's port, says an ICMP message (RFC 9000, Section 14.2.1).
    PortUnreachable,
    /// The server's host cannot be reached, say ICMP messages (RFC 9000, Section 14.2.1).
    HostUnreachable,
    /// No validated path is left (RFC 9000, Section 9.3.2).
    NoViablePath,
    /// This side's application closed the connection.
    Local {
        /// The code that was sent.
        code: u64,
        /// The words that were sent.
        reason: Vec<u8>,
    },
}

/// In words, for it is what a `main` that returns the error shows.
impl fmt::Debug for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::PeerTransport { .. } => "PeerTransport",
            Self::PeerApplication { .. } => "PeerApplication",
            Self::StatelessReset => "StatelessReset",
            Self::VersionNegotiation { .. } => "VersionNegotiation",
            Self::Transport(_) => "Transport",
            Self::IdleTimeout => "IdleTimeout",
            Self::HandshakeTimeout => "HandshakeTimeout",
            Self::PortUnreachable => "PortUnreachable",
            Self::HostUnreachable => "HostUnreachable",
            Self::NoViablePath => "NoViablePath",
            Self::Local { .. } => "Local",
        };
        write!(f, "{self} (ConnectionError::{name})")
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeerTransport { code, frame_type, reason } => {
                write!(f, "closed by the peer's transport: {code}")?;
                if *frame_type != 0 {
                    write!(f, " at frame type {frame_type:#x}")?;
                }
                Words(reason).fmt(f)
            }
            Self::PeerApplication { code, reason } => {
                write!(f, "closed by the peer's application with code {code:#x}")?;
                Words(reason).fmt(f)
            }
            Self::StatelessReset => f.write_str("reset by the peer, which has lost the connection"),
            Self::VersionNegotiation { versions } => {
                write!(f, "the server does not support our QUIC version, but {versions:?}")
            }
            Self::NoViablePath => f.write_str("no path to the peer is left"),
            Self::PortUnreachable => f.write_str(
                "connection refused: no server listens on this UDP port, says the host (ICMP); does \
                 it run, and at this port?",
            ),
            Self::HostUnreachable => {
                f.write_str("the host cannot be reached, says the network (ICMP)")
            }
            Self::Transport(error) => write!(f, "protocol error: {error}"),
            Self::IdleTimeout => f.write_str("idle timeout: nothing was heard from the peer"),
            Self::HandshakeTimeout => f.write_str("the handshake took too long"),
            Self::Local { code, reason } => {
                write!(f, "closed by this application with code {code:#x}")?;
                Words(reason).fmt(f)
            }
        }
    }
}

impl core::error::Error for ConnectionError {}

/// Shows the words of either side: printable as text, all else escaped.
struct Words<'a>(&'a [u8]);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {}", self.0.escape_ascii()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_either_side_are_text_wherever_they_are_shown() {
        let words = || b"bye\n\x1b[1m\"".to_vec();
        for error in [
            ConnectionError::PeerApplication { code: 7, reason: words() },
            ConnectionError::Local { code: 7, reason: words() },
            ConnectionError::PeerTransport {
                code: TransportErrorCode::NO_ERROR,
                frame_type: 0,
                reason: words(),
            },
        ] {
            let shown = alloc::format!("{error:?}");
            assert!(shown.contains(r#": bye\n\x1b[1m\" (ConnectionError::"#), "{shown}");
        }
    }
}
