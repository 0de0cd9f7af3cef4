//! What connections of both APIs have in common: everything that does not wait.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use quicket_engine::crypto::HandshakeSummary;
use quicket_wire::Version;

/// What the handshake of a connection settled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandshakeInfo {
    /// The application protocol (RFC 7301); empty if none was negotiated.
    pub alpn: Vec<u8>,
    /// The QUIC version in use.
    pub version: Version,
    /// The cipher suite, such as `TLS_AES_128_GCM_SHA256`.
    pub cipher_suite: &'static str,
    /// The key exchange group, such as `X25519`; empty if the TLS library does not say.
    pub key_exchange: &'static str,
    /// The peer's certificates as DER, its own first; empty if it sent none.
    pub peer_certificates: Vec<Vec<u8>>,
    /// The name of the server that the client asked for.
    pub server_name: Option<String>,
    /// True if an earlier session was resumed.
    pub resumed: bool,
}

impl HandshakeInfo {
    pub(crate) fn new(summary: &HandshakeSummary, version: Version) -> Self {
        Self {
            alpn: summary.alpn.clone(),
            version,
            cipher_suite: summary.cipher_suite,
            key_exchange: summary.key_exchange,
            peer_certificates: summary.peer_certificates.clone(),
            server_name: summary.server_name.clone(),
            resumed: summary.resumed,
        }
    }
}

/// The two addresses of a connection's active path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathInfo {
    /// This side's, if known.
    pub local: Option<SocketAddr>,
    /// The peer's.
    pub remote: SocketAddr,
}

/// Where a socket for `remote` is bound when it does not matter.
pub(crate) fn unspecified_for(remote: SocketAddr) -> SocketAddr {
    match remote {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// Implements the methods that do not wait, for a type with a field `conn: ConnRef`.
macro_rules! connection_methods {
    () => {
        /// Closes the connection: the peer gets `code` and up to 256 bytes of `reason`, and what
        /// was not delivered is lost (RFC 9000, Section 10.2).
        pub fn close(&self, code: u64, reason: &[u8]) {
            self.conn.close(code, reason);
        }

        /// Why the connection ended; `None` while it lives.
        pub fn close_reason(&self) -> Option<quicket_engine::ConnectionError> {
            self.conn.close_reason()
        }

        /// The address of the peer; it changes when the peer moves.
        pub fn remote_addr(&self) -> std::net::SocketAddr {
            self.conn.path().remote
        }

        /// This side's address on the path in use; `None` where the socket is bound to all
        /// addresses and the operating system does not say which of them is used.
        pub fn local_addr(&self) -> Option<std::net::SocketAddr> {
            self.conn.path().local
        }

        /// Both addresses of the path in use.
        pub fn path(&self) -> $crate::PathInfo {
            self.conn.path()
        }

        /// What the handshake settled; `None` before it is complete.
        pub fn handshake(&self) -> Option<$crate::HandshakeInfo> {
            self.conn.handshake()
        }

        /// The application protocol once it is settled: on servers before early data can be read,
        /// which is before the handshake is complete.
        pub fn alpn(&self) -> Option<Vec<u8>> {
            self.conn.look(|conn| conn.engine.alpn().map(<[u8]>::to_vec))
        }

        /// The server name that the client has asked for; on servers it is known with [`Self::alpn`]. `None` if it asked for
        /// none.
        pub fn server_name(&self) -> Option<String> {
            self.conn.look(|conn| conn.engine.server_name().map(str::to_owned))
        }

        /// The limits of its own that an application has to announce on this connection, as tickets promise them which are made for it
        /// (`ServerTls::announce_application_limits`); known with [`Self::alpn`]. `None` on clients, and where TLS promises none.
        pub fn application_limits(
            &self,
        ) -> Option<[u64; quicket_engine::crypto::APPLICATION_LIMITS]> {
            self.conn.look(|conn| conn.engine.application_limits())
        }

        /// The QUIC version in use.
        pub fn version(&self) -> quicket_wire::Version {
            self.conn.look(|conn| conn.engine.version())
        }

        /// What became of early data (RFC 9001, Section 4.6).
        pub fn early_data(&self) -> quicket_engine::EarlyData {
            self.conn.look(|conn| conn.engine.early_data())
        }

        /// True if packets are not encrypted, because both sides asked for that
        /// ([`TransportConfig::disable_1rtt_encryption`](crate::TransportConfig)).
        pub fn is_encryption_disabled(&self) -> bool {
            self.conn.look(|conn| conn.engine.is_1rtt_encryption_disabled())
        }

        /// Counters since the connection began, and gauges of its path at this moment.
        pub fn stats(&self) -> $crate::Stats {
            self.conn.look(|conn| conn.engine.stats())
        }

        /// True if the peer has acknowledged all that was written, finished or reset on any stream: closing the
        /// connection loses nothing then (RFC 9000, Section 10.2). Looks at all streams.
        pub fn is_delivered(&self) -> bool {
            self.conn.look(|conn| conn.engine.is_delivered())
        }

        /// The peer's transport parameters (RFC 9000, Section 18.2), once known.
        pub fn peer_transport_parameters(&self) -> Option<quicket_wire::TransportParameters> {
            self.conn.look(|conn| conn.engine.peer_transport_parameters())
        }

        /// The largest datagram that can be sent now, in bytes; `None` if the peer takes none.
        pub fn max_datagram_size(&self) -> Option<usize> {
            self.conn.look(|conn| conn.engine.max_datagram_size())
        }

        /// Keying material for the application (RFC 8446, Section 7.5): the same on both sides
        /// for the same label and context.
        ///
        /// # Errors
        ///
        /// Before the handshake is complete, or if `out` is too long for TLS.
        pub fn export_keying_material(
            &self,
            label: &[u8],
            context: &[u8],
            out: &mut [u8],
        ) -> Result<(), quicket_engine::crypto::HandshakeError> {
            self.conn.look(|conn| conn.engine.export_keying_material(label, context, out))
        }

        /// Updates the keys that packets are protected with (RFC 9001, Section 6). That happens
        /// by itself often enough.
        ///
        /// # Errors
        ///
        /// Before the handshake is confirmed, and while an update is under way.
        pub fn update_keys(&self) -> Result<(), quicket_engine::KeyUpdateError> {
            self.conn.act(|conn, now| conn.engine.update_keys(now))
        }

        /// Sends each write at once (true), or lets small ones (less than 60 KiB together) wait for
        /// more to go out with them (false, as at first). They wait until a call of the
        /// application has to wait, or [`flush`](std::io::Write::flush), or 1 ms at the most.
        /// Datagrams never wait.
        pub fn set_nodelay(&self, nodelay: bool) {
            self.conn.act(|conn, _| conn.nodelay = nodelay);
        }

        /// Has another congestion controller decide from now on, as it would on a new path: it is meant for the
        /// beginning of a connection, once the handshake tells more of the peer: what it asked for, and the
        /// round trip time. Nothing changes if it is the one that decides already.
        ///
        /// A [`CongestionAlgorithm`](crate::CongestionAlgorithm) is one with the parameters that the RFCs recommend.
        pub fn set_congestion(&self, congestion: impl Into<$crate::Congestion>) {
            let congestion = congestion.into();
            self.conn.act(|conn, now| conn.engine.set_congestion(now, congestion));
        }

        /// Asks the peer for a sign of life; the round trip time is measured with it.
        pub fn ping(&self) {
            self.conn.act(|conn, _| conn.engine.ping());
        }

        /// Lets both sides address each other by other connection IDs (RFC 9000, Section 5.1.2),
        /// so that observers cannot link what follows to what was; false if the peer has given no
        /// other, or a replacement is under way.
        pub fn rotate_connection_ids(&self) -> bool {
            self.conn.act(|conn, now| {
                let local = conn.engine.rotate_local_cids(now);
                conn.engine.rotate_remote_cid(now) && local
            })
        }

        /// Client: moves the connection to a new socket, bound to `local` (port 0 for any), once
        /// the path from there is found to work (RFC 9000, Section 9). Other connections of the
        /// endpoint stay where they are.
        ///
        /// # Errors
        ///
        /// If the socket cannot be made, or the connection cannot move, or not now.
        pub fn migrate(&self, local: std::net::SocketAddr) -> Result<(), $crate::MigrateError> {
            self.conn.migrate(local)
        }
    };
}

pub(crate) use connection_methods;
