//! What the outer header takes from the inner one.

use crate::{Ecn, EcnIngress, Packet};

/// The TTL or hop limit of outer headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ttl {
    /// That of the packet inside, as `ttl inherit` has it.
    #[default]
    Inherit,
    /// Always this one, 1 to 255.
    Fixed(u8),
}

impl Ttl {
    /// The outer value for a packet. Never 0, which no host may send (RFC 1122, Section 3.2.1.7).
    #[must_use]
    pub fn outer(self, inner: &Packet<'_>) -> u8 {
        match self {
            Self::Inherit => inner.ttl.max(1),
            Self::Fixed(ttl) => ttl.max(1),
        }
    }
}

/// The differentiated services field of outer headers; ECN has rules of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tos {
    /// The codepoint of the packet inside, as `tos inherit` has it.
    Inherit,
    /// Always this one, in the six upper bits; the lower two are ignored.
    Fixed(u8),
}

impl Default for Tos {
    fn default() -> Self {
        Self::Fixed(0)
    }
}

impl Tos {
    /// The whole outer octet for a packet.
    #[must_use]
    pub fn outer(self, inner: &Packet<'_>, ingress: EcnIngress) -> u8 {
        let services = match self {
            Self::Inherit => inner.tos,
            Self::Fixed(tos) => tos,
        };
        services & !0b11 | Ecn::from_bits(inner.tos).encapsulate(ingress).bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::tests::{v4, v6};

    #[test]
    fn ttl_and_tos_are_fixed_or_copied_and_ecn_follows_its_own_rules() {
        for bytes in [v4(17, 64, 0xb8 | 0b11, b"x"), v6(17, 64, 0xb8 | 0b11, b"x")] {
            let packet = Packet::parse(&bytes).unwrap();
            assert_eq!(Ttl::Inherit.outer(&packet), 64);
            assert_eq!(Ttl::Fixed(9).outer(&packet), 9);
            assert_eq!(Tos::Inherit.outer(&packet, EcnIngress::Normal), 0xb8 | 0b11);
            assert_eq!(Tos::Inherit.outer(&packet, EcnIngress::ResetCe), 0xb8 | 0b10);
            assert_eq!(Tos::Fixed(0x23).outer(&packet, EcnIngress::Normal), 0x20 | 0b11);
            assert_eq!(Tos::default().outer(&packet, EcnIngress::Compatibility), 0);
        }
        let packet = v4(17, 0, 0, b"");
        assert_eq!(Ttl::Inherit.outer(&Packet::parse(&packet).unwrap()), 1);
    }
}
