//! Kinds of packets (RFC 9000, Section 17).

use crate::Version;

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

    /// Whether the fixed bit means anything in the packet (RFC 9000, Sections 17.2 and 17.2.1;
    /// RFC 8999, Section 5.1).
    #[inline]
    #[must_use]
    pub const fn has_fixed_bit(self) -> bool {
        !matches!(self, Self::VersionNegotiation | Self::UnknownVersion)
    }

    /// The kind of a long header packet from the two type bits of its first byte
    /// (RFC 9000, Section 17.2, Table 5; RFC 9369, Section 3.2).
    #[inline]
    pub(super) const fn from_long_type(version: Version, first_byte: u8) -> Self {
        match (version, first_byte >> 4 & 0b11) {
            (Version::NEGOTIATION, _) => Self::VersionNegotiation,
            (Version::V1, 0b00) | (Version::V2, 0b01) => Self::Initial,
            (Version::V1, 0b01) | (Version::V2, 0b10) => Self::ZeroRtt,
            (Version::V1, 0b10) | (Version::V2, 0b11) => Self::Handshake,
            (Version::V1, 0b11) | (Version::V2, 0b00) => Self::Retry,
            _ => Self::UnknownVersion,
        }
    }

    /// The two type bits, in place, of a long header packet; `None` for kinds that have none. Of
    /// versions that are not known only first packets are written, to hear which ones the server
    /// speaks; any bits serve there (RFC 9000, Section 6.3).
    #[inline]
    pub(super) const fn long_type(self, version: Version) -> Option<u8> {
        let bits = match (version, self) {
            (Version::NEGOTIATION, _) => return None,
            (Version::V2, Self::Retry) => 0b00,
            (Version::V2, Self::Initial) => 0b01,
            (Version::V2, Self::ZeroRtt) => 0b10,
            (Version::V2, Self::Handshake) => 0b11,
            (_, Self::Initial) => 0b00,
            (_, Self::ZeroRtt) => 0b01,
            (_, Self::Handshake) => 0b10,
            (_, Self::Retry) => 0b11,
            _ => return None,
        };
        Some(bits << 4)
    }
}
