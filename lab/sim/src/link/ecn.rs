//! What routers do to the ECN field.

use quicket_wire::EcnCodepoint;

/// True if a router may mark the packet (RFC 3168, Section 5).
pub(super) fn is_capable(ecn: EcnCodepoint) -> bool {
    matches!(ecn, EcnCodepoint::Ect0 | EcnCodepoint::Ect1)
}

/// What a path does to the ECN field apart from marking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EcnTreatment {
    /// The field passes as it is.
    #[default]
    Keep,
    /// The field is cleared: all packets arrive as Not-ECT.
    Bleach,
    /// ECT packets all arrive as CE, as from a router that takes the field for something else.
    Mangle,
}

impl EcnTreatment {
    /// The field after the treatment.
    pub(super) fn apply(self, ecn: EcnCodepoint) -> EcnCodepoint {
        match self {
            Self::Keep => ecn,
            Self::Bleach => EcnCodepoint::NotEct,
            Self::Mangle if is_capable(ecn) => EcnCodepoint::Ce,
            Self::Mangle => ecn,
        }
    }
}
