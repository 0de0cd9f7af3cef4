//! What an implementation cannot do, and how that is known.

use super::{End, Implementation};

/// Implementation, end (`None` for both), case, evidence.
const TABLE: &[(Implementation, Option<End>, &str, &str)] = &[
    (
        Implementation::Quinn,
        None,
        "v2",
        "quinn-proto 0.11 has versions 1 and its drafts only (DEFAULT_SUPPORTED_VERSIONS)",
    ),
    (
        Implementation::Quinn,
        Some(End::Client),
        "versionnegotiation",
        "quinn-proto derives no Initial keys for a version that it does not know \
         (interpret_version)",
    ),
    (
        Implementation::QuicGo,
        None,
        "v2",
        "quic-go has version 2 but no compatible version negotiation (RFC 9368)",
    ),
    (
        Implementation::QuicGo,
        Some(End::Client),
        "versionnegotiation",
        "quic-go refuses a quic.Config with a version that it does not know (validateConfig)",
    ),
    (
        Implementation::QuicGo,
        Some(End::Client),
        "chacha20",
        "Go's crypto/tls does not let a program choose the ciphers of TLS 1.3 \
         (tls.Config.CipherSuites)",
    ),
    (
        Implementation::Aioquic,
        None,
        "ecn",
        "asyncio's datagram transports give no access to the ECN field",
    ),
];

impl Implementation {
    /// Why this end cannot take part in a case, if it cannot.
    #[must_use]
    pub fn lacks(self, case: &str, end: End) -> Option<&'static str> {
        TABLE
            .iter()
            .find(|(who, ends, what, _)| {
                *who == self && *what == case && ends.is_none_or(|only| only == end)
            })
            .map(|(.., evidence)| *evidence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interop::CASES;

    #[test]
    fn the_table_knows_cases_that_exist_and_quicket_lacks_nothing() {
        for (who, _, what, _) in TABLE {
            assert!(CASES.iter().any(|case| case.name == *what), "{what}");
            assert_ne!(*who, Implementation::Quicket);
        }
        let lacks = |end| Implementation::QuicGo.lacks("chacha20", end);
        assert!(lacks(End::Client).is_some() && lacks(End::Server).is_none());
    }
}
