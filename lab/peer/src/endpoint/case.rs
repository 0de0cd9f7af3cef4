//! The test cases of the runner: what each asks of an endpoint.

use quicket_workload::peer::{ALPN_H3, ALPN_HQ};

/// What a test case asks of both ends. An end that has no part in something ignores it by nature:
/// a server cannot resume, a client cannot send Retry packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) alpn: &'static str,
    /// ChaCha20-Poly1305 is the only cipher offered.
    pub(super) chacha20: bool,
    /// The server sends Retry packets.
    pub(super) retry: bool,
    pub(super) second: Second,
    /// The client updates the keys early in the connection.
    pub(super) key_update: bool,
    /// Each file has a connection of its own.
    pub(super) one_by_one: bool,
    /// Windows start so small that they must grow.
    pub(super) small_windows: bool,
    /// The server moves its clients to another address.
    pub(super) preferred_address: bool,
    pub(super) versions: Versions,
}

/// Whether the client connects a second time after the first file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Second {
    /// No.
    Never,
    /// It does, and resumes the session.
    Resumed,
    /// It does, and sends the requests as early data.
    Early,
}

/// Versions of QUIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Versions {
    /// Version 1 alone.
    One,
    /// The client starts with version 1, the server moves to version 2 (RFC 9368, Section 2.3).
    Upgrade,
    /// The client starts with a version that nobody has.
    Unknown,
}

impl Case {
    const PLAIN: Self = Self {
        alpn: ALPN_HQ,
        chacha20: false,
        retry: false,
        second: Second::Never,
        key_update: false,
        one_by_one: false,
        small_windows: false,
        preferred_address: false,
        versions: Versions::One,
    };

    /// The case of that name: one that the matrix shows, or one that the runner passes in its
    /// place, as `multiconnect` for `handshakeloss`.
    pub(super) fn named(name: &str) -> Option<Self> {
        let plain = Self::PLAIN;
        Some(match name {
            "handshake" | "longrtt" | "ecn" | "ipv6" => plain,
            "transfer" | "multiplexing" | "blackhole" | "amplificationlimit" | "transferloss"
            | "transfercorruption" | "rebind-port" | "rebind-addr" => {
                Self { small_windows: true, ..plain }
            }
            "connectionmigration" => Self { preferred_address: true, small_windows: true, ..plain },
            "chacha20" => Self { chacha20: true, ..plain },
            "retry" => Self { retry: true, ..plain },
            "resumption" => Self { second: Second::Resumed, ..plain },
            "zerortt" => Self { second: Second::Early, ..plain },
            "keyupdate" => Self { key_update: true, ..plain },
            "http3" => Self { alpn: ALPN_H3, ..plain },
            "multiconnect" | "handshakeloss" | "handshakecorruption" => {
                Self { one_by_one: true, ..plain }
            }
            "v2" => Self { versions: Versions::Upgrade, ..plain },
            "versionnegotiation" => Self { versions: Versions::Unknown, ..plain },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All cases of the runner's matrix.
    const MATRIX: &[&str] = &[
        "handshake",
        "transfer",
        "longrtt",
        "chacha20",
        "multiplexing",
        "retry",
        "resumption",
        "zerortt",
        "http3",
        "blackhole",
        "keyupdate",
        "ecn",
        "amplificationlimit",
        "handshakeloss",
        "transferloss",
        "handshakecorruption",
        "transfercorruption",
        "ipv6",
        "v2",
        "rebind-port",
        "rebind-addr",
        "connectionmigration",
        "versionnegotiation",
    ];

    #[test]
    fn every_case_of_the_matrix_is_known_and_no_other() {
        assert!(MATRIX.iter().all(|name| Case::named(name).is_some()));
        assert!(Case::named("multiconnect").is_some(), "what the runner says for handshakeloss");
        for name in ["", "Handshake", "webtransport", "transfer2"] {
            assert_eq!(Case::named(name), None, "{name}");
        }
    }
}
