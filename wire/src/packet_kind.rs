//! Kinds of packets (RFC 9000, Section 17).

/// What a packet is, as far as its unprotected header tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PacketKind {
    /// Initial (RFC 9000, Section 17.2.2).
    Initial,
    /// 0-RTT (RFC 9000, Section 17.2.3).
    ZeroRtt,
    /// Handshake (RFC 9000, Section 17.2.4).
    Handshake,
    /// Retry (RFC 9000, Section 17.2.5).
    Retry,
    /// Version Negotiation (RFC 9000, Section 17.2.1).
    VersionNegotiation,
    /// 1-RTT (RFC 9000, Section 17.3.1).
    OneRtt,
    /// A long header of a version this crate does not know (RFC 8999, Section 5.1).
    UnknownVersion,
}

impl PacketKind {
    /// Whether the packet has a packet number and protected frames.
    #[inline]
    #[must_use]
    pub const fn carries_frames(self) -> bool {
        matches!(self, Self::Initial | Self::ZeroRtt | Self::Handshake | Self::OneRtt)
    }
}
