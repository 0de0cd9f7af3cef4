//! Explicit congestion notification through tunnels (RFC 6040, RFC 9601).

/// The ECN field of an IP header (RFC 3168, Section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// Not ECN-capable transport, 0b00.
    #[default]
    NotEct,
    /// ECN-capable transport (1), 0b01.
    Ect1,
    /// ECN-capable transport (0), 0b10.
    Ect0,
    /// Congestion experienced, 0b11.
    Ce,
}

/// How the ECN field of the outer header is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EcnIngress {
    /// Normal mode (RFC 6040, Section 4.1): a copy of the inner field.
    #[default]
    Normal,
    /// Compatibility mode (the same section), for an egress that does not propagate ECN: Not-ECT.
    Compatibility,
    /// As Linux does: CE becomes ECT(0), so that marks made outside are told from older ones.
    ResetCe,
}

/// What becomes of a packet at the egress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrival {
    /// It goes on with this field. `suspicious` if RFC 6040 calls the combination dangerous or
    /// currently unused: something on the way, or the ingress, does not do what it should.
    Forward {
        /// The field of the packet that goes on.
        ecn: Ecn,
        /// Whether the combination should be counted.
        suspicious: bool,
    },
    /// It is dropped: congestion that the transport inside could not be told of in another way.
    Drop,
}

impl Ecn {
    /// The field in the two lowest bits of `bits`; the other bits are ignored.
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
        self as u8
    }

    /// The outer field for a packet with this inner field.
    #[inline]
    #[must_use]
    pub const fn encapsulate(self, ingress: EcnIngress) -> Self {
        match (ingress, self) {
            (EcnIngress::Normal, inner) => inner,
            (EcnIngress::Compatibility, _) => Self::NotEct,
            (EcnIngress::ResetCe, Self::Ce) => Self::Ect0,
            (EcnIngress::ResetCe, inner) => inner,
        }
    }

    /// What becomes of a packet with this inner field that came in an outer header with `outer`
    /// (RFC 6040, Section 4.2, Figure 4).
    #[inline]
    #[must_use]
    pub const fn decapsulate(self, outer: Self) -> Arrival {
        use Ecn::{Ce, Ect0, Ect1, NotEct};
        let (ecn, suspicious) = match (self, outer) {
            (NotEct, Ce) => return Arrival::Drop,
            (NotEct, Ect0 | Ect1) => (NotEct, true),
            (Ect0, Ect1) => (Ect1, false),
            (Ect1, Ect0) => (Ect1, true),
            (Ect0 | Ect1, Ce) => (Ce, false),
            (Ce, Ect1) => (Ce, true),
            (inner, _) => (inner, false),
        };
        Arrival::Forward { ecn, suspicious }
    }
}

#[cfg(test)]
mod tests {
    use super::Ecn::{Ce, Ect0, Ect1, NotEct};
    use super::*;

    const ALL: [Ecn; 4] = [NotEct, Ect0, Ect1, Ce];

    #[test]
    fn the_outgoing_field_is_that_of_figure_4() {
        // Rows: inner; columns: outer; in the order of ALL.
        let table = [
            [Some(NotEct), Some(NotEct), Some(NotEct), None],
            [Some(Ect0), Some(Ect0), Some(Ect1), Some(Ce)],
            [Some(Ect1), Some(Ect1), Some(Ect1), Some(Ce)],
            [Some(Ce), Some(Ce), Some(Ce), Some(Ce)],
        ];
        for (inner, row) in ALL.iter().zip(table) {
            for (outer, expected) in ALL.iter().zip(row) {
                let field = match inner.decapsulate(*outer) {
                    Arrival::Forward { ecn, .. } => Some(ecn),
                    Arrival::Drop => None,
                };
                assert_eq!(field, expected, "inner {inner:?}, outer {outer:?}");
            }
        }
    }

    #[test]
    fn combinations_that_should_not_be_are_reported() {
        let suspicious = |inner: Ecn, outer| {
            matches!(inner.decapsulate(outer), Arrival::Forward { suspicious: true, .. })
        };
        for (inner, outer) in [(NotEct, Ect0), (NotEct, Ect1), (Ect1, Ect0), (Ce, Ect1)] {
            assert!(suspicious(inner, outer), "{inner:?} {outer:?}");
        }
        assert!(!suspicious(Ect0, Ect1), "a second level of congestion, RFC 6660");
        assert!(!suspicious(Ce, Ect0), "an ingress that resets CE, as Linux does");
    }

    #[test]
    fn each_ingress_has_its_rule() {
        for inner in ALL {
            assert_eq!(inner.encapsulate(EcnIngress::Normal), inner);
            assert_eq!(inner.encapsulate(EcnIngress::Compatibility), NotEct);
            let reset = if inner == Ce { Ect0 } else { inner };
            assert_eq!(inner.encapsulate(EcnIngress::ResetCe), reset);
            assert_eq!(Ecn::from_bits(inner.bits() | 0xfc), inner);
        }
    }

    #[test]
    fn marks_survive_any_ingress_whose_outer_header_was_not_touched() {
        for ingress in [EcnIngress::Normal, EcnIngress::Compatibility, EcnIngress::ResetCe] {
            for inner in ALL {
                let arrival = inner.decapsulate(inner.encapsulate(ingress));
                assert_eq!(arrival, Arrival::Forward { ecn: inner, suspicious: false });
            }
        }
    }
}
