//! Transport parameters (RFC 9000, Sections 7.4 and 18).

mod decode;
mod encode;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::net::{SocketAddrV4, SocketAddrV6};

use crate::{ConnectionId, StatelessResetToken, Version};

/// Identifiers of transport parameters.
mod id {
    pub(super) const ORIGINAL_DESTINATION_CONNECTION_ID: u64 = 0x00;
    pub(super) const MAX_IDLE_TIMEOUT: u64 = 0x01;
    pub(super) const STATELESS_RESET_TOKEN: u64 = 0x02;
    pub(super) const MAX_UDP_PAYLOAD_SIZE: u64 = 0x03;
    pub(super) const INITIAL_MAX_DATA: u64 = 0x04;
    pub(super) const INITIAL_MAX_STREAM_DATA_BIDI_LOCAL: u64 = 0x05;
    pub(super) const INITIAL_MAX_STREAM_DATA_BIDI_REMOTE: u64 = 0x06;
    pub(super) const INITIAL_MAX_STREAM_DATA_UNI: u64 = 0x07;
    pub(super) const INITIAL_MAX_STREAMS_BIDI: u64 = 0x08;
    pub(super) const INITIAL_MAX_STREAMS_UNI: u64 = 0x09;
    pub(super) const ACK_DELAY_EXPONENT: u64 = 0x0a;
    pub(super) const MAX_ACK_DELAY: u64 = 0x0b;
    pub(super) const DISABLE_ACTIVE_MIGRATION: u64 = 0x0c;
    pub(super) const PREFERRED_ADDRESS: u64 = 0x0d;
    pub(super) const ACTIVE_CONNECTION_ID_LIMIT: u64 = 0x0e;
    pub(super) const INITIAL_SOURCE_CONNECTION_ID: u64 = 0x0f;
    pub(super) const RETRY_SOURCE_CONNECTION_ID: u64 = 0x10;
    /// RFC 9368, Section 10.1.
    pub(super) const VERSION_INFORMATION: u64 = 0x11;
    /// RFC 9221, Section 3.
    pub(super) const MAX_DATAGRAM_FRAME_SIZE: u64 = 0x20;
    /// RFC 9287, Section 3.
    pub(super) const GREASE_QUIC_BIT: u64 = 0x2ab2;
    /// draft-banks-quic-disable-encryption; used by msquic and the QUIC module of Linux.
    pub(super) const DISABLE_1RTT_ENCRYPTION: u64 = 0xbaad;
    /// draft-ietf-quic-ack-frequency, Section 3.
    pub(super) const MIN_ACK_DELAY: u64 = 0xff04_de1b;
}

/// The ack_delay_exponent of those who name none (RFC 9000, Section 18.2).
pub const DEFAULT_ACK_DELAY_EXPONENT: u8 = 3;
/// Largest ack_delay_exponent (RFC 9000, Section 18.2).
const MAX_ACK_DELAY_EXPONENT: u64 = 20;
/// First invalid max_ack_delay, in milliseconds (RFC 9000, Section 18.2).
const MAX_ACK_DELAY_LIMIT: u64 = 1 << 14;
/// Smallest max_udp_payload_size (RFC 9000, Section 18.2).
const MIN_UDP_PAYLOAD_SIZE: u64 = 1200;
/// Smallest active_connection_id_limit (RFC 9000, Section 18.2).
const MIN_ACTIVE_CONNECTION_ID_LIMIT: u64 = 2;
/// The most versions accepted in version_information, to bound what a peer makes us keep.
const MAX_AVAILABLE_VERSIONS: usize = 256;

/// What one endpoint declares about itself. [`Default`] gives the values that hold for absent
/// parameters (RFC 9000, Section 18.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportParameters {
    /// Destination Connection ID of the client's first Initial; from a server only.
    pub original_destination_connection_id: Option<ConnectionId>,
    /// In milliseconds; 0 means no idle timeout.
    pub max_idle_timeout: u64,
    /// Token of the connection ID used in the handshake; from a server only.
    pub stateless_reset_token: Option<StatelessResetToken>,
    /// The largest UDP payload this endpoint is willing to receive, in bytes; at least 1200.
    pub max_udp_payload_size: u64,
    /// Initial flow control limit of the connection, in bytes.
    pub initial_max_data: u64,
    /// Initial limit, in bytes, of bidirectional streams opened by the sender of the parameter.
    pub initial_max_stream_data_bidi_local: u64,
    /// Initial limit, in bytes, of bidirectional streams opened by the receiver of the parameter.
    pub initial_max_stream_data_bidi_remote: u64,
    /// Initial limit, in bytes, of unidirectional streams opened by the receiver.
    pub initial_max_stream_data_uni: u64,
    /// How many bidirectional streams the receiver can open at first; at most 2^60.
    pub initial_max_streams_bidi: u64,
    /// How many unidirectional streams the receiver can open at first; at most 2^60.
    pub initial_max_streams_uni: u64,
    /// ACK Delay is in units of 2^this microseconds; at most 20.
    pub ack_delay_exponent: u8,
    /// By how many milliseconds the endpoint delays acknowledgments; below 2^14.
    pub max_ack_delay: u64,
    /// The peer must not migrate, except to the preferred address.
    pub disable_active_migration: bool,
    /// Where the server wants to continue; from a server only. Boxed as it is large and rare.
    pub preferred_address: Option<Box<PreferredAddress>>,
    /// How many connection IDs of the peer the endpoint stores; at least 2.
    pub active_connection_id_limit: u64,
    /// Source Connection ID of the endpoint's first Initial. Mandatory: who compares it with
    /// the packets has to refuse its absence (RFC 9000, Section 7.3).
    pub initial_source_connection_id: Option<ConnectionId>,
    /// Source Connection ID of the Retry packet, if there was one; from a server only.
    pub retry_source_connection_id: Option<ConnectionId>,
    /// Chosen and available versions (RFC 9368, Section 3).
    pub version_information: Option<VersionInformation>,
    /// The largest DATAGRAM frame, in bytes with its type and length, that the endpoint accepts;
    /// 0 for none (RFC 9221, Section 3).
    pub max_datagram_frame_size: u64,
    /// The fixed bit of packets sent to the endpoint can have any value (RFC 9287, Section 3).
    pub grease_quic_bit: bool,
    /// The shortest delay of acknowledgments, in microseconds, that the peer can ask for; its
    /// presence allows ACK_FREQUENCY and IMMEDIATE_ACK frames. Not above `max_ack_delay`
    /// (draft-ietf-quic-ack-frequency, Section 3).
    pub min_ack_delay: Option<u64>,
    /// The endpoint is ready to do without encryption of 1-RTT packets, if both sides are
    /// (draft-banks-quic-disable-encryption, Section 2).
    pub disable_1rtt_encryption: bool,
}

impl Default for TransportParameters {
    fn default() -> Self {
        Self {
            original_destination_connection_id: None,
            max_idle_timeout: 0,
            stateless_reset_token: None,
            max_udp_payload_size: 65527,
            initial_max_data: 0,
            initial_max_stream_data_bidi_local: 0,
            initial_max_stream_data_bidi_remote: 0,
            initial_max_stream_data_uni: 0,
            initial_max_streams_bidi: 0,
            initial_max_streams_uni: 0,
            ack_delay_exponent: DEFAULT_ACK_DELAY_EXPONENT,
            max_ack_delay: 25,
            disable_active_migration: false,
            preferred_address: None,
            active_connection_id_limit: 2,
            initial_source_connection_id: None,
            retry_source_connection_id: None,
            version_information: None,
            max_datagram_frame_size: 0,
            grease_quic_bit: false,
            min_ack_delay: None,
            disable_1rtt_encryption: false,
        }
    }
}

impl TransportParameters {
    /// The `n`-th identifier reserved to exercise that unknown parameters are ignored,
    /// 31 * n + 27 (RFC 9000, Section 18.1). Only the low 56 bits of `n` count, so that the
    /// result always fits a variable-length integer.
    #[must_use]
    pub const fn reserved_id(n: u64) -> u64 {
        (n & 0x00ff_ffff_ffff_ffff).saturating_mul(31).saturating_add(27)
    }
}

/// Another address of the server, with the connection ID to use there
/// (RFC 9000, Sections 9.6 and 18.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PreferredAddress {
    /// The IPv4 address; `None` (all zeros on the wire) if there is none.
    pub ipv4: Option<SocketAddrV4>,
    /// The IPv6 address, likewise.
    pub ipv6: Option<SocketAddrV6>,
    /// The connection ID, 1 to 20 bytes, with sequence number 1.
    pub connection_id: ConnectionId,
    /// The stateless reset token of the connection ID.
    pub stateless_reset_token: StatelessResetToken,
}

/// The content of version_information (RFC 9368, Section 3).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VersionInformation {
    /// The version of the packets that carry the parameter.
    pub chosen_version: Version,
    /// From a client, the versions its first flight is compatible with, most wanted first; from
    /// a server, all versions it has deployed.
    pub available_versions: Vec<Version>,
}

/// The transport parameters of the peer are malformed or forbidden: close the connection with
/// TRANSPORT_PARAMETER_ERROR (RFC 9000, Section 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ParameterError {
    /// The identifier of the offending parameter, if one can be named.
    pub id: Option<u64>,
    reason: &'static str,
}

impl ParameterError {
    const fn new(id: u64, reason: &'static str) -> Self {
        Self { id: Some(id), reason }
    }

    /// A static explanation, fit for the reason phrase of a CONNECTION_CLOSE frame.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        self.reason
    }
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(f, "transport parameter 0x{id:02x}: {}", self.reason),
            None => write!(f, "transport parameters: {}", self.reason),
        }
    }
}

impl core::error::Error for ParameterError {}
