//! What an implementation cannot do, and how that is known.

use super::{End, Implementation};

/// Something that an implementation cannot do.
struct Lack {
    who: Implementation,
    /// Both ends if `None`.
    end: Option<End>,
    case: &'static str,
    /// How it is known.
    evidence: &'static str,
}

impl Lack {
    const fn new(
        who: Implementation,
        end: Option<End>,
        case: &'static str,
        evidence: &'static str,
    ) -> Self {
        Self { who, end, case, evidence }
    }
}

const TABLE: &[Lack] = &[
    Lack::new(
        Implementation::Quinn,
        None,
        "v2",
        "quinn-proto 0.11 has versions 1 and its drafts only (DEFAULT_SUPPORTED_VERSIONS)",
    ),
    Lack::new(
        Implementation::Quinn,
        Some(End::Client),
        "versionnegotiation",
        "quinn-proto derives no Initial keys for a version that it does not know \
         (interpret_version)",
    ),
    Lack::new(
        Implementation::QuicGo,
        None,
        "v2",
        "quic-go has version 2 but no compatible version negotiation (RFC 9368)",
    ),
    Lack::new(
        Implementation::QuicGo,
        Some(End::Client),
        "versionnegotiation",
        "quic-go refuses a quic.Config with a version that it does not know (validateConfig)",
    ),
    Lack::new(
        Implementation::QuicGo,
        Some(End::Client),
        "chacha20",
        "Go's crypto/tls does not let a program choose the ciphers of TLS 1.3 \
         (tls.Config.CipherSuites)",
    ),
    Lack::new(
        Implementation::Aioquic,
        None,
        "ecn",
        "asyncio's datagram transports give no access to the ECN field",
    ),
    Lack::new(
        Implementation::Noq,
        None,
        "http3",
        "noq has no HTTP/3, and the crate h3 no adapter for it",
    ),
    Lack::new(
        Implementation::Noq,
        None,
        "v2",
        "noq-proto 1.4 has versions 1 and its drafts only (DEFAULT_SUPPORTED_VERSIONS)",
    ),
    Lack::new(
        Implementation::Noq,
        Some(End::Client),
        "versionnegotiation",
        "noq-proto derives no Initial keys for a version that it does not know (interpret_version)",
    ),
    Lack::new(Implementation::S2nQuic, None, "http3", "s2n-quic has no HTTP/3"),
    Lack::new(
        Implementation::S2nQuic,
        None,
        "resumption",
        "s2n-quic-rustls drops the TLS session with the handshake, before tickets are sent or come \
         (should_discard_session)",
    ),
    Lack::new(
        Implementation::S2nQuic,
        None,
        "zerortt",
        "s2n-quic-transport drops 0-RTT packets (handle_zero_rtt_packet) and sends none",
    ),
    Lack::new(
        Implementation::S2nQuic,
        Some(End::Client),
        "keyupdate",
        "s2n-quic updates keys by itself, near their confidentiality limit, and has no call for it",
    ),
    Lack::new(
        Implementation::S2nQuic,
        None,
        "v2",
        "s2n-quic-transport has version 1 only (SUPPORTED_VERSIONS)",
    ),
    Lack::new(
        Implementation::S2nQuic,
        Some(End::Client),
        "versionnegotiation",
        "s2n-quic-transport has version 1 only (SUPPORTED_VERSIONS)",
    ),
    Lack::new(
        Implementation::Quiche,
        Some(End::Client),
        "chacha20",
        "BoringSSL does not let a program choose the ciphers of TLS 1.3 (SSL_CTX_set_cipher_list)",
    ),
    Lack::new(
        Implementation::Quiche,
        Some(End::Client),
        "keyupdate",
        "quiche follows key updates and has no call for one",
    ),
    Lack::new(
        Implementation::Quiche,
        None,
        "ecn",
        "quiche's RecvInfo and SendInfo have no ECN field",
    ),
    Lack::new(
        Implementation::Quiche,
        None,
        "v2",
        "quiche has version 1 only (version_is_supported)",
    ),
    Lack::new(
        Implementation::Quiche,
        None,
        "connectionmigration",
        "quiche's transport parameters have no preferred address",
    ),
    Lack::new(Implementation::Quiche, None, "ackfrequency", "quiche has no ACK_FREQUENCY frames"),
    Lack::new(
        Implementation::Tquic,
        Some(End::Client),
        "chacha20",
        "BoringSSL does not let a program choose the ciphers of TLS 1.3 (SSL_CTX_set_cipher_list)",
    ),
    Lack::new(
        Implementation::Tquic,
        Some(End::Client),
        "keyupdate",
        "TQUIC follows key updates and has no call for one (TlsSession::initiate_key_update is \
         called by its tests only)",
    ),
    Lack::new(Implementation::Tquic, None, "ecn", "TQUIC's PacketInfo has no ECN field"),
    Lack::new(Implementation::Tquic, None, "v2", "TQUIC has version 1 only (version_is_supported)"),
    Lack::new(
        Implementation::Tquic,
        Some(End::Client),
        "versionnegotiation",
        "TQUIC's client starts with version 1 (Connection::new)",
    ),
    Lack::new(
        Implementation::Tquic,
        None,
        "connectionmigration",
        "TQUIC reads a preferred address and stays where it is, its server has no call for one \
         (TransportParams::preferred_address)",
    ),
    Lack::new(
        Implementation::Tquic,
        None,
        "datagrams",
        "TQUIC has no DATAGRAM frames (frame::Frame)",
    ),
    Lack::new(Implementation::Tquic, None, "ackfrequency", "TQUIC has no ACK_FREQUENCY frames"),
    Lack::new(Implementation::Ngtcp2, None, "streams-2000", NGTCP2_HTTP3),
    Lack::new(Implementation::Ngtcp2, None, "datagrams", NGTCP2_HTTP3),
    Lack::new(Implementation::Ngtcp2, None, "resets", NGTCP2_HTTP3),
    Lack::new(Implementation::Ngtcp2, None, "statelessreset", NGTCP2_HTTP3),
    Lack::new(
        Implementation::Ngtcp2,
        None,
        "ackfrequency",
        "ngtcp2 0.12 has no ACK_FREQUENCY frames",
    ),
    Lack::new(
        Implementation::Quinn,
        None,
        "connectionmigration",
        "quinn-proto's client takes the connection ID of a preferred address and stays where it is, \
         its server announces one and answers challenges there from its first address, against RFC \
         9000, Section 8.2.2",
    ),
    Lack::new(
        Implementation::Noq,
        None,
        "connectionmigration",
        "noq-proto's client takes the connection ID of a preferred address and stays where it is, \
         its server announces one and drops what comes there (Connection::local_ip_may_migrate)",
    ),
    Lack::new(
        Implementation::QuicGo,
        None,
        "connectionmigration",
        "quic-go's client takes the connection ID of a preferred address and stays where it is \
         (AddFromPreferredAddress), its server has no call for one",
    ),
    Lack::new(
        Implementation::Aioquic,
        None,
        "connectionmigration",
        "aioquic notes a preferred address and stays where it is (_remote_preferred_address), its \
         server names none",
    ),
    Lack::new(
        Implementation::S2nQuic,
        None,
        "connectionmigration",
        "s2n-quic-transport neither names a preferred address nor moves to one",
    ),
    Lack::new(
        Implementation::QuicGo,
        None,
        "ackfrequency",
        "quic-go can read and write ACK_FREQUENCY frames, and no connection does (NewFrameParser)",
    ),
    Lack::new(Implementation::Aioquic, None, "ackfrequency", "aioquic has no ACK_FREQUENCY frames"),
    Lack::new(
        Implementation::S2nQuic,
        None,
        "ackfrequency",
        "s2n-quic has no ACK_FREQUENCY frames",
    ),
    Lack::new(
        Implementation::Aioquic,
        None,
        "statelessreset",
        "aioquic draws tokens at random, sends no stateless reset and looks for none \
         (receive_datagram)",
    ),
    Lack::new(
        Implementation::Aioquic,
        Some(End::Server),
        "clientauth",
        "aioquic's server asks for certificates in its own tests only \
         (tls.Context._request_client_certificate)",
    ),
    Lack::new(
        Implementation::Ngtcp2,
        None,
        "v2",
        "ngtcp2 0.12 has a draft of version 2 only (the alias v2draft of its programs)",
    ),
    Lack::new(
        Implementation::Aioquic,
        Some(End::Client),
        "migration",
        "aioquic's client has no call that moves it (QuicConnectionProtocol)",
    ),
    Lack::new(
        Implementation::Noq,
        Some(End::Client),
        "migration",
        "noq goes on sending from the old address after Endpoint::rebind to a socket of another one, \
         which hears no answer then (IP_PKTINFO)",
    ),
    Lack::new(
        Implementation::S2nQuic,
        Some(End::Client),
        "migration",
        "s2n-quic's client has no call that moves it",
    ),
    Lack::new(
        Implementation::Quiche,
        Some(End::Client),
        "migration",
        "quiche moves between sockets (Connection::migrate_source), and its peer here has one",
    ),
    Lack::new(
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
    pub fn lack(self, case: &str, end: End) -> Option<&'static str> {
        TABLE
            .iter()
            .filter(|lack| (lack.who, lack.case) == (self, case))
            .find(|lack| lack.end.is_none_or(|only| only == end))
            .map(|lack| lack.evidence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interop::CASES;

    #[test]
    fn the_table_knows_cases_that_exist_and_quicket_lacks_nothing() {
        for lack in TABLE {
            assert!(CASES.iter().any(|case| case.name == lack.case), "{}", lack.case);
            assert_ne!(lack.who, Implementation::Quicket);
        }
        let lack = |end| Implementation::QuicGo.lack("chacha20", end);
        assert!(lack(End::Client).is_some() && lack(End::Server).is_none());
    }
}
