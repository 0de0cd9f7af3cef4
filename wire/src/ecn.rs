//! Explicit congestion notification (RFC 3168, Section 5; RFC 9000, Section 13.4).

/// The ECN field of an IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EcnCodepoint {
    /// Not ECN-capable transport, 0b00.
    #[default]
    NotEct,
    /// ECN-capable transport (0), 0b10.
    Ect0,
    /// ECN-capable transport (1), 0b01.
    Ect1,
    /// Congestion experienced, 0b11.
    Ce,
}

impl EcnCodepoint {
    /// The codepoint in the two lowest bits of `bits` (of a traffic class octet, for example);
    /// the other bits are ignored.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0b00 => Self::NotEct,
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// The two bits of the IP header.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::NotEct => 0b00,
            Self::Ect1 => 0b01,
            Self::Ect0 => 0b10,
            Self::Ce => 0b11,
        }
    }
}

/// How many packets arrived with each ECN codepoint (RFC 9000, Section 19.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EcnCounts {
    /// Packets received with ECT(0).
    pub ect0: u64,
    /// Packets received with ECT(1).
    pub ect1: u64,
    /// Packets received with ECN-CE.
    pub ce: u64,
}

impl EcnCounts {
    /// Counts one received packet.
    #[inline]
    pub fn count(&mut self, codepoint: EcnCodepoint) {
        self.count_many(codepoint, 1);
    }

    /// Counts `count` packets with the same mark.
    #[inline]
    pub fn count_many(&mut self, codepoint: EcnCodepoint, count: u64) {
        let counter = match codepoint {
            EcnCodepoint::NotEct => return,
            EcnCodepoint::Ect0 => &mut self.ect0,
            EcnCodepoint::Ect1 => &mut self.ect1,
            EcnCodepoint::Ce => &mut self.ce,
        };
        *counter = counter.saturating_add(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_round_trip_and_neighbouring_bits_are_ignored() {
        for bits in 0..4 {
            assert_eq!(EcnCodepoint::from_bits(bits).bits(), bits);
            assert_eq!(EcnCodepoint::from_bits(0xfc | bits).bits(), bits);
        }
        assert_eq!(EcnCodepoint::Ect0.bits(), 0b10);
        assert_eq!(EcnCodepoint::Ect1.bits(), 0b01);
    }

    #[test]
    fn each_codepoint_has_its_counter() {
        let mut counts = EcnCounts::default();
        for (codepoint, times) in [
            (EcnCodepoint::NotEct, 9),
            (EcnCodepoint::Ect0, 1),
            (EcnCodepoint::Ect1, 2),
            (EcnCodepoint::Ce, 3),
        ] {
            (0..times).for_each(|_| counts.count(codepoint));
        }
        assert_eq!(counts, EcnCounts { ect0: 1, ect1: 2, ce: 3 });
    }
}
