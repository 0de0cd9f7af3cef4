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
    (Implementation::Noq, None, "http3", "noq has no HTTP/3, and the crate h3 no adapter for it"),
    (
        Implementation::Noq,
        None,
        "v2",
        "noq-proto 1.4 has versions 1 and its drafts only (DEFAULT_SUPPORTED_VERSIONS)",
    ),
    (
        Implementation::Noq,
        Some(End::Client),
        "versionnegotiation",
        "noq-proto derives no Initial keys for a version that it does not know (interpret_version)",
    ),
    (Implementation::S2nQuic, None, "http3", "s2n-quic has no HTTP/3"),
    (
        Implementation::S2nQuic,
        None,
        "resumption",
        "s2n-quic-rustls drops the TLS session with the handshake, before tickets are sent or come \
         (should_discard_session)",
    ),
    (
        Implementation::S2nQuic,
        None,
        "zerortt",
        "s2n-quic-transport drops 0-RTT packets (handle_zero_rtt_packet) and sends none",
    ),
    (
        Implementation::S2nQuic,
        Some(End::Client),
        "keyupdate",
        "s2n-quic updates keys by itself, near their confidentiality limit, and has no call for it",
    ),
    (
        Implementation::S2nQuic,
        None,
        "v2",
        "s2n-quic-transport has version 1 only (SUPPORTED_VERSIONS)",
    ),
    (
        Implementation::S2nQuic,
        Some(End::Client),
        "versionnegotiation",
        "s2n-quic-transport has version 1 only (SUPPORTED_VERSIONS)",
    ),
    (
        Implementation::Quiche,
        Some(End::Client),
        "chacha20",
        "BoringSSL does not let a program choose the ciphers of TLS 1.3 (SSL_CTX_set_cipher_list)",
    ),
    (
        Implementation::Quiche,
        Some(End::Client),
        "keyupdate",
        "quiche follows key updates and has no call for one",
    ),
    (Implementation::Quiche, None, "ecn", "quiche's RecvInfo and SendInfo have no ECN field"),
    (Implementation::Quiche, None, "v2", "quiche has version 1 only (version_is_supported)"),
    (
        Implementation::Quiche,
        None,
        "connectionmigration",
        "quiche's transport parameters have no preferred address",
    ),
    (Implementation::Quiche, None, "ackfrequency", "quiche has no ACK_FREQUENCY frames"),
    (
        Implementation::Tquic,
        Some(End::Client),
        "chacha20",
        "BoringSSL does not let a program choose the ciphers of TLS 1.3 (SSL_CTX_set_cipher_list)",
    ),
    (
        Implementation::Tquic,
        Some(End::Client),
        "keyupdate",
        "TQUIC follows key updates and has no call for one (TlsSession::initiate_key_update is \
         called by its tests only)",
    ),
    (Implementation::Tquic, None, "ecn", "TQUIC's PacketInfo has no ECN field"),
    (Implementation::Tquic, None, "v2", "TQUIC has version 1 only (version_is_supported)"),
    (
        Implementation::Tquic,
        Some(End::Client),
        "versionnegotiation",
        "TQUIC's client starts with version 1 (Connection::new)",
    ),
    (
        Implementation::Tquic,
        None,
        "connectionmigration",
        "TQUIC reads a preferred address and stays where it is, its server has no call for one \
         (TransportParams::preferred_address)",
    ),
    (Implementation::Tquic, None, "datagrams", "TQUIC has no DATAGRAM frames (frame::Frame)"),
    (Implementation::Tquic, None, "ackfrequency", "TQUIC has no ACK_FREQUENCY frames"),
    (Implementation::Ngtcp2, None, "streams-2000", NGTCP2_HTTP3),
    (Implementation::Ngtcp2, None, "datagrams", NGTCP2_HTTP3),
    (Implementation::Ngtcp2, None, "resets", NGTCP2_HTTP3),
    (Implementation::Ngtcp2, None, "statelessreset", NGTCP2_HTTP3),
    (Implementation::Ngtcp2, None, "ackfrequency", "ngtcp2 0.12 has no ACK_FREQUENCY frames"),
    (
        Implementation::Quinn,
        None,
        "connectionmigration",
        "quinn-proto's client takes the connection ID of a preferred address and stays where it is, \
         its server announces one and answers challenges there from its first address, against RFC \
         9000, Section 8.2.2",
    ),
    (
        Implementation::Noq,
        None,
        "connectionmigration",
        "noq-proto's client takes the connection ID of a preferred address and stays where it is, \
         its server announces one and drops what comes there (Connection::local_ip_may_migrate)",
    ),
    (
        Implementation::QuicGo,
        None,
        "connectionmigration",
        "quic-go's client takes the connection ID of a preferred address and stays where it is \
         (AddFromPreferredAddress), its server has no call for one",
    ),
    (
        Implementation::Aioquic,
        None,
        "connectionmigration",
        "aioquic notes a preferred address and stays where it is (_remote_preferred_address), its \
         server names none",
    ),
    (
        Implementation::S2nQuic,
        None,
        "connectionmigration",
        "s2n-quic-transport neither names a preferred address nor moves to one",
    ),
    (
        Implementation::QuicGo,
        None,
        "ackfrequency",
        "quic-go can read and write ACK_FREQUENCY frames, and no connection does (NewFrameParser)",
    ),
    (Implementation::Aioquic, None, "ackfrequency", "aioquic has no ACK_FREQUENCY frames"),
    (Implementation::S2nQuic, None, "ackfrequency", "s2n-quic has no ACK_FREQUENCY frames"),
    (
        Implementation::Aioquic,
        None,
        "statelessreset",
        "aioquic draws tokens at random, sends no stateless reset and looks for none \
         (receive_datagram)",
    ),
    (
        Implementation::Aioquic,
        Some(End::Server),
        "clientauth",
        "aioquic's server asks for certificates in its own tests only \
         (tls.Context._request_client_certificate)",
    ),
    (
        Implementation::Ngtcp2,
        None,
        "v2",
        "ngtcp2 0.12 has a draft of version 2 only (the alias v2draft of its programs)",
    ),
    (
        Implementation::Aioquic,
        Some(End::Client),
        "migration",
        "aioquic's client has no call that moves it (QuicConnectionProtocol)",
    ),
    (
        Implementation::Noq,
        Some(End::Client),
        "migration",
        "noq goes on sending from the old address after Endpoint::rebind to a socket of another one, \
         which hears no answer then (IP_PKTINFO)",
    ),
    (
        Implementation::S2nQuic,
        Some(End::Client),
        "migration",
        "s2n-quic's client has no call that moves it",
    ),
    (
        Implementation::Quiche,
        Some(End::Client),
        "migration",
        "quiche moves between sockets (Connection::migrate_source), and its peer here has one",
    ),
    (
        Implementation::Tquic,
        Some(End::Client),
        "migration",
        "TQUIC moves between sockets (Connection::migrate_path), and its peer here has one",
    ),
];

const NGTCP2_HTTP3: &str = "ngtcp2's programs speak HTTP/3 and nothing else";

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
