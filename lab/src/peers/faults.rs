//! What implementations are known to do wrong, and how that is known.

use super::{End, Implementation};

const QUICHE_MIGRATION: &str = "after a new path of the client, quiche never sends again what was \
     in flight on the old one, so that the stream keeps a gap (RFC 9000, Section 13.3; \
     github.com/cloudflare/quiche/issues/2452)";
const QUICHE_COALESCED: &str = "quiche drops the rest of a datagram whose first packet it cannot \
     open, as when a client whose HANDSHAKE_DONE was lost repeats its Finished in front of 1-RTT \
     packets (RFC 9000, Section 12.2: MUST attempt to process the remaining packets; \
     Connection::recv)";
const TQUIC_MIGRATION: &str = "TQUIC validates a new path of the client and goes on sending to the \
     old address (RFC 9000, Section 9.3; github.com/Tencent/tquic/pull/524)";

const QUINN_PROBES: &str = "quinn-proto probes with 1-RTT packets as soon as its handshake is \
     complete, which the server cannot open before it has the Finished, in turn with Handshake \
     packets and at doubled intervals (RFC 9002, Section 6.2.1: not before it is confirmed; \
     Connection::pto_time_and_space)";

const TQUIC_PROBES: &str = "TQUIC probes with 1-RTT packets before its handshake is confirmed, \
     every second time and at doubled intervals (RFC 9002, Section 6.2.1; \
     Recovery::get_pto_time_and_space)";

/// Implementation, end, case, evidence.
const TABLE: &[(Implementation, End, &str, &str)] = &[
    (Implementation::Quinn, End::Client, "handshakeloss", QUINN_PROBES),
    (Implementation::Tquic, End::Client, "handshakeloss", TQUIC_PROBES),
    (Implementation::Tquic, End::Client, "handshakecorruption", TQUIC_PROBES),
    (Implementation::Quiche, End::Server, "handshakeloss", QUICHE_COALESCED),
    (Implementation::Quiche, End::Server, "rebind-port", QUICHE_MIGRATION),
    (Implementation::Quiche, End::Server, "rebind-addr", QUICHE_MIGRATION),
    (Implementation::Tquic, End::Server, "rebind-port", TQUIC_MIGRATION),
    (Implementation::Tquic, End::Server, "rebind-addr", TQUIC_MIGRATION),
];

impl Implementation {
    /// What this end does wrong in a case, if that is known: a case that fails then fails by it.
    #[must_use]
    pub fn fault(self, case: &str, end: End) -> Option<&'static str> {
        TABLE
            .iter()
            .find(|(who, which, what, _)| (*who, *which, *what) == (self, end, case))
            .map(|(.., evidence)| *evidence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interop::CASES;

    #[test]
    fn the_table_knows_cases_that_exist_and_blames_others_only() {
        for (who, _, what, evidence) in TABLE {
            assert!(CASES.iter().any(|case| case.name == *what), "{what}");
            assert_ne!(*who, Implementation::Quicket);
            assert!(evidence.contains("RFC"), "{evidence}");
        }
    }
}
