//! QUIC versions (RFC 8999, Section 5.1; RFC 9000, Section 15).

use core::fmt;

/// A QUIC version number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32);

impl Version {
    /// Marks a Version Negotiation packet (RFC 8999, Section 6).
    pub const NEGOTIATION: Self = Self(0);
    /// QUIC version 1 (RFC 9000).
    pub const V1: Self = Self(1);
    /// QUIC version 2 (RFC 9369, Section 3.1).
    pub const V2: Self = Self(0x6b33_43cf);
    /// The versions this crate understands, the most widely deployed one first.
    pub const SUPPORTED: &'static [Self] = &[Self::V1, Self::V2];

    /// Whether the number has the form 0x?a?a?a?a, reserved to exercise version negotiation
    /// (RFC 9000, Section 15).
    #[inline]
    #[must_use]
    pub const fn is_reserved(self) -> bool {
        self.0 & 0x0f0f_0f0f == 0x0a0a_0a0a
    }

    /// Whether this crate understands the version.
    #[inline]
    #[must_use]
    pub const fn is_supported(self) -> bool {
        matches!(self, Self::V1 | Self::V2)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NEGOTIATION => f.write_str("version negotiation"),
            Self::V1 => f.write_str("QUIC version 1"),
            Self::V2 => f.write_str("QUIC version 2"),
            Self(number) => write!(f, "QUIC version 0x{number:08x}"),
        }
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version(0x{:08x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_versions_have_the_greasing_pattern() {
        assert!(Version(0x1a2a_3a4a).is_reserved());
        assert!(Version(0xfafa_fafa).is_reserved());
        assert!(!Version(0x1a2a_3a4b).is_reserved());
        assert!(Version::SUPPORTED.iter().all(|version| !version.is_reserved()));
    }

    #[test]
    fn only_versions_1_and_2_are_supported() {
        assert!(Version::SUPPORTED.iter().all(|version| version.is_supported()));
        assert!(!Version::NEGOTIATION.is_supported());
        assert!(!Version(0xff00_001d).is_supported());
    }
}
