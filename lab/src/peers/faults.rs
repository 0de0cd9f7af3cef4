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

/// What Quicket's client says when nothing comes for its idle timeout; its server says it too.
const SILENCE: &str = "idle timeout: nothing was heard from the peer";
/// How a client of ours ends whose server sends to where it is no more: nothing comes any more, a
/// stateless reset comes once the server has given up, or it still waits when its time is over.
const LOST: &[&str] =
    &[SILENCE, "reset by the peer, which has lost the connection", "client said nothing in time"];
/// What the peer made of TQUIC says when nothing comes for its idle timeout or the handshake's.
const TQUIC_SILENCE: &str = "the other end has fallen silent";

/// Something that an implementation does wrong.
struct Fault {
    who: Implementation,
    end: End,
    case: &'static str,
    /// The verdict on a case that fails by it has one of these phrases: what fails otherwise is
    /// something else.
    symptoms: &'static [&'static str],
    /// How it is known.
    evidence: &'static str,
}

impl Fault {
    const fn new(
        (who, end): (Implementation, End),
        case: &'static str,
        symptoms: &'static [&'static str],
        evidence: &'static str,
    ) -> Self {
        Self { who, end, case, symptoms, evidence }
    }
}

const QUINN_CLIENT: (Implementation, End) = (Implementation::Quinn, End::Client);
const QUICHE_SERVER: (Implementation, End) = (Implementation::Quiche, End::Server);
const TQUIC_CLIENT: (Implementation, End) = (Implementation::Tquic, End::Client);
const TQUIC_SERVER: (Implementation, End) = (Implementation::Tquic, End::Server);

const TABLE: &[Fault] = &[
    Fault::new(QUINN_CLIENT, "handshakeloss", &[SILENCE], QUINN_PROBES),
    Fault::new(TQUIC_CLIENT, "handshakeloss", &[TQUIC_SILENCE], TQUIC_PROBES),
    Fault::new(TQUIC_CLIENT, "handshakecorruption", &[TQUIC_SILENCE], TQUIC_PROBES),
    Fault::new(QUICHE_SERVER, "handshakeloss", &[SILENCE], QUICHE_COALESCED),
    Fault::new(QUICHE_SERVER, "rebind-port", &[SILENCE], QUICHE_MIGRATION),
    Fault::new(QUICHE_SERVER, "rebind-addr", &[SILENCE], QUICHE_MIGRATION),
    Fault::new(TQUIC_SERVER, "rebind-port", LOST, TQUIC_MIGRATION),
    Fault::new(TQUIC_SERVER, "rebind-addr", LOST, TQUIC_MIGRATION),
    Fault::new(TQUIC_SERVER, "migration", LOST, TQUIC_MIGRATION),
];

impl Implementation {
    /// The fault of this end that explains why a case failed with this verdict, if one is known.
    #[must_use]
    pub fn fault(self, case: &str, end: End, verdict: &str) -> Option<&'static str> {
        TABLE
            .iter()
            .filter(|fault| (fault.who, fault.end, fault.case) == (self, end, case))
            .find(|fault| fault.symptoms.iter().any(|symptom| verdict.contains(symptom)))
            .map(|fault| fault.evidence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interop::CASES;

    #[test]
    fn the_table_knows_cases_that_exist_and_blames_others_only() {
        for fault in TABLE {
            assert!(CASES.iter().any(|case| case.name == fault.case), "{}", fault.case);
            assert_ne!(fault.who, Implementation::Quicket);
            assert!(fault.evidence.contains("RFC"), "{}", fault.evidence);
        }
    }

    #[test]
    fn a_fault_excuses_its_own_symptom_and_no_other() {
        let silence = quicket_engine::ConnectionError::IdleTimeout.to_string();
        let reset = quicket_engine::ConnectionError::StatelessReset.to_string();
        let rebind =
            |verdict: &str| Implementation::Tquic.fault("rebind-port", End::Server, verdict);
        for symptom in [&silence, &reset] {
            let verdict = format!("client ended: {symptom}");
            assert_eq!(rebind(&verdict), Some(TQUIC_MIGRATION));
        }
        assert_eq!(rebind("a PATH_CHALLENGE came and has no PATH_RESPONSE"), None);
        let rebind =
            |verdict: &str| Implementation::Quiche.fault("rebind-port", End::Server, verdict);
        assert_eq!(rebind(&silence), Some(QUICHE_MIGRATION));
        assert_eq!(rebind(&reset), None);
        assert_eq!(rebind("a file differs"), None);
    }
}
