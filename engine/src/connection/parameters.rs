//! Transport parameters: what we announce, and whether the peer's fit what we saw
//! (RFC 9000, Section 7.3 and 7.4; RFC 9368, Section 4).

use alloc::boxed::Box;
use alloc::vec::Vec;

use quicket_wire::{
    ConnectionId, DEFAULT_ACK_DELAY_EXPONENT, Side, TransportErrorCode, TransportParameters,
    Version, VersionInformation,
};

use crate::config::{Announced, EndpointConfig, TransportConfig};
use crate::crypto::Level;
use crate::error::TransportError;
use crate::time::Duration;

/// The connection IDs that the handshake authenticates (RFC 9000, Section 7.3).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HandshakeCids {
    /// The Destination Connection ID of the client's very first packet.
    pub(crate) original_dcid: ConnectionId,
    /// The one that Initial keys come from: the same, or the Retry packet's.
    pub(crate) initial_dcid: ConnectionId,
    /// Our first Source Connection ID.
    pub(crate) local_scid: ConnectionId,
    /// The Source Connection ID of the Retry packet, if there was one.
    pub(crate) retry_scid: Option<ConnectionId>,
    /// The Source Connection ID of the first packet that we opened.
    pub(crate) remote_scid: Option<ConnectionId>,
}

/// How the version came about.
#[derive(Clone, Debug)]
pub(crate) struct Versions {
    /// Of the client's first flight (after a Version Negotiation packet, if there was one).
    pub(crate) original: Version,
    /// In use now.
    pub(crate) current: Version,
    /// What we can speak, best first.
    pub(crate) available: Vec<Version>,
    /// The client began anew after a Version Negotiation packet.
    pub(crate) negotiated: bool,
}

impl Versions {
    /// The version in the headers of a level's packets: 0-RTT keeps the original one
    /// (RFC 9369, Section 4.1).
    pub(crate) fn of_level(&self, level: Level) -> Version {
        if level == Level::EarlyData { self.original } else { self.current }
    }

    /// A server's choice among what the client says it can speak: the client's favourite that
    /// we know, or `preferred` if it is among them, all supported versions being compatible with each other (RFC 9368, Section 2.3).
    pub(crate) fn choose(
        &mut self,
        offered: Option<&VersionInformation>,
        preferred: Option<Version>,
    ) -> Result<(), TransportError> {
        let Some(offered) = offered else { return Ok(()) };
        // RFC 9368, Section 4: the chosen version must be that of the packets.
        if offered.chosen_version != self.original {
            return Err(version_error("chosen version is not that of the first flight"));
        }
        let mut known =
            offered.available_versions.iter().filter(|version| self.available.contains(version));
        let wanted = known.clone().find(|version| Some(**version) == preferred);
        if let Some(version) = wanted.or_else(|| known.next()) {
            self.current = *version;
        }
        Ok(())
    }

    /// A client's check of the server's answer (RFC 9368, Section 4).
    pub(crate) fn check(&self, answer: Option<&VersionInformation>) -> Result<(), TransportError> {
        let Some(answer) = answer else {
            // A server that does not know the extension cannot have changed the version. One that
            // knows version 1 alone is taken at its Version Negotiation packet (Section 8).
            let led_elsewhere = self.negotiated && self.current != Version::V1;
            return if led_elsewhere || self.current != self.original {
                Err(version_error("the version was changed without authentication"))
            } else {
                Ok(())
            };
        };
        if answer.chosen_version != self.current {
            return Err(version_error("chosen version is not the one in use"));
        }
        if self.negotiated {
            // Would an honest Version Negotiation packet have made us choose the same?
            let best = self.available.iter().find(|v| answer.available_versions.contains(v));
            if best != Some(&self.original) {
                return Err(version_error("the version was negotiated down"));
            }
        }
        Ok(())
    }
}

const fn version_error(reason: &'static str) -> TransportError {
    TransportError::new(TransportErrorCode::VERSION_NEGOTIATION_ERROR, reason)
}

/// Whole milliseconds as transport parameters have them, rounded up: a time that is set must not
/// become zero, which has another meaning (RFC 9000, Section 18.2).
fn millis(time: core::time::Duration) -> u64 {
    Duration::from(time).as_nanos().div_ceil(1_000_000)
}

/// Our parameters, as far as they follow from the configuration alone.
pub(crate) fn local(
    side: Side,
    config: &TransportConfig,
    endpoint: &EndpointConfig,
    cids: &HandshakeCids,
    versions: &Versions,
) -> TransportParameters {
    let mut parameters = TransportParameters {
        max_idle_timeout: millis(config.max_idle_timeout),
        max_udp_payload_size: u64::from(endpoint.max_udp_payload_size),
        initial_max_data: config.initial_receive_window,
        initial_max_stream_data_bidi_local: config.initial_stream_window,
        initial_max_stream_data_bidi_remote: config.initial_stream_window,
        initial_max_stream_data_uni: config.initial_stream_window,
        initial_max_streams_bidi: config.max_streams_bidi,
        initial_max_streams_uni: config.max_streams_uni,
        max_ack_delay: millis(config.max_ack_delay),
        active_connection_id_limit: config.active_connection_id_limit,
        initial_source_connection_id: Some(cids.local_scid),
        grease_quic_bit: config.takes_any_fixed_bit(endpoint),
        disable_1rtt_encryption: config.disable_1rtt_encryption,
        version_information: Some(VersionInformation {
            chosen_version: versions.current,
            available_versions: versions.available.clone(),
        }),
        ..TransportParameters::default()
    };
    parameters.max_datagram_frame_size = max_datagram_frame_size(config);
    if config.ack_frequency {
        parameters.min_ack_delay = Some(MIN_ACK_DELAY_MICROS);
    }
    apply_announced(&config.announced, &mut parameters);
    if !side.is_client() {
        parameters.original_destination_connection_id = Some(cids.original_dcid);
        parameters.retry_source_connection_id = cids.retry_scid;
    }
    parameters
}

/// The largest DATAGRAM frame that we take (RFC 9221, Section 3): any that fits a packet, or none.
pub(crate) fn max_datagram_frame_size(config: &TransportConfig) -> u64 {
    let chosen = config.announced.max_datagram_frame_size.unwrap_or(u16::MAX);
    if config.datagram_receive_buffer > 0 { u64::from(chosen) } else { 0 }
}

/// What the application chose itself.
fn apply_announced(announced: &Announced, parameters: &mut TransportParameters) {
    let windows = &announced.stream_windows;
    let set = |value: Option<u64>, parameter: &mut u64| {
        if let Some(value) = value {
            *parameter = value;
        }
    };
    set(windows.bidi_local, &mut parameters.initial_max_stream_data_bidi_local);
    set(windows.bidi_remote, &mut parameters.initial_max_stream_data_bidi_remote);
    set(windows.uni, &mut parameters.initial_max_stream_data_uni);
    set(announced.max_udp_payload_size.map(u64::from), &mut parameters.max_udp_payload_size);
    if let Some(exponent) = announced.ack_delay_exponent {
        parameters.ack_delay_exponent = exponent;
    }
    if let Some(disable) = announced.disable_active_migration {
        parameters.disable_active_migration = disable;
    }
    if announced.version_information == Some(false) {
        parameters.version_information = None;
    }
}

/// The shortest ACK delay that we can keep, in microseconds (ACK frequency extension, Section 3).
pub(crate) const MIN_ACK_DELAY_MICROS: u64 = 1_000;

/// RFC 9000, Section 7.3: the connection IDs in the peer's parameters must be those of the
/// packets, lest somebody on the path chose them.
pub(crate) fn check_cids(
    side: Side,
    cids: &HandshakeCids,
    theirs: &TransportParameters,
) -> Result<(), TransportError> {
    let error =
        |reason| Err(TransportError::new(TransportErrorCode::TRANSPORT_PARAMETER_ERROR, reason));
    if theirs.initial_source_connection_id.is_none()
        || theirs.initial_source_connection_id != cids.remote_scid
    {
        return error("initial_source_connection_id is not that of the first packet");
    }
    if side.is_client() {
        if theirs.original_destination_connection_id != Some(cids.original_dcid) {
            return error("original_destination_connection_id is not that of the first packet");
        }
        if theirs.retry_source_connection_id != cids.retry_scid {
            return error("retry_source_connection_id is not that of the Retry packet");
        }
    }
    Ok(())
}

/// Transport parameters as a connection keeps them: encoded, which takes a third of the memory. Little
/// of them is of interest once they were applied.
pub(crate) struct Kept {
    encoded: Box<[u8]>,
    sender: Side,
    ack_delay_exponent: u8,
}

impl Kept {
    /// Keeps what `sender` has sent.
    pub(crate) fn new(parameters: &TransportParameters, sender: Side) -> Self {
        let mut encoded = Vec::new();
        parameters.encode(sender, &mut encoded, None);
        let ack_delay_exponent = parameters.ack_delay_exponent;
        Self { encoded: encoded.into_boxed_slice(), sender, ack_delay_exponent }
    }

    /// The parameters.
    pub(crate) fn get(&self) -> TransportParameters {
        // What peers send was decoded before, and what a configuration must not be is nothing that was sent.
        TransportParameters::decode(&self.encoded, self.sender).unwrap_or_default()
    }
}

/// The ack_delay_exponent of parameters that may not be known yet. Every ACK needs it.
#[inline]
pub(crate) fn exponent_of(parameters: Option<&Kept>) -> u8 {
    parameters.map_or(DEFAULT_ACK_DELAY_EXPONENT, |parameters| parameters.ack_delay_exponent)
}

/// What a client keeps of a server's parameters for 0-RTT (RFC 9000, Section 7.4.1).
pub(crate) fn remembered(theirs: &TransportParameters) -> TransportParameters {
    TransportParameters {
        max_udp_payload_size: theirs.max_udp_payload_size,
        initial_max_data: theirs.initial_max_data,
        initial_max_stream_data_bidi_local: theirs.initial_max_stream_data_bidi_local,
        initial_max_stream_data_bidi_remote: theirs.initial_max_stream_data_bidi_remote,
        initial_max_stream_data_uni: theirs.initial_max_stream_data_uni,
        initial_max_streams_bidi: theirs.initial_max_streams_bidi,
        initial_max_streams_uni: theirs.initial_max_streams_uni,
        active_connection_id_limit: theirs.active_connection_id_limit,
        max_datagram_frame_size: theirs.max_datagram_frame_size,
        disable_active_migration: theirs.disable_active_migration,
        max_idle_timeout: theirs.max_idle_timeout,
        ..TransportParameters::default()
    }
}

/// RFC 9000, Section 7.4.1: a server that accepts 0-RTT must not lower what the client remembers.
pub(crate) fn check_not_lowered(
    old: &TransportParameters,
    new: &TransportParameters,
) -> Result<(), TransportError> {
    let pairs = [
        (old.initial_max_data, new.initial_max_data),
        (old.initial_max_stream_data_bidi_local, new.initial_max_stream_data_bidi_local),
        (old.initial_max_stream_data_bidi_remote, new.initial_max_stream_data_bidi_remote),
        (old.initial_max_stream_data_uni, new.initial_max_stream_data_uni),
        (old.initial_max_streams_bidi, new.initial_max_streams_bidi),
        (old.initial_max_streams_uni, new.initial_max_streams_uni),
        (old.active_connection_id_limit, new.active_connection_id_limit),
        // RFC 9221, Section 3.
        (old.max_datagram_frame_size, new.max_datagram_frame_size),
    ];
    if pairs.iter().any(|(old, new)| new < old) {
        return Err(TransportError::new(
            TransportErrorCode::PROTOCOL_VIOLATION,
            "a server that accepts 0-RTT lowered a limit that it promised",
        ));
    }
    Ok(())
}

/// A session to resume: version, remembered parameters and TLS ticket in one piece of bytes.
pub(crate) struct Session<'a> {
    pub(crate) version: Version,
    pub(crate) parameters: TransportParameters,
    pub(crate) ticket: &'a [u8],
}

/// First byte of an encoded session: its format.
const SESSION_FORMAT: u8 = 1;

impl<'a> Session<'a> {
    pub(crate) fn encode(version: Version, theirs: &TransportParameters, ticket: &[u8]) -> Vec<u8> {
        let mut encoded = Vec::new();
        remembered(theirs).encode(Side::Client, &mut encoded, None);
        let mut session =
            Vec::with_capacity(encoded.len().saturating_add(ticket.len()).saturating_add(7));
        session.push(SESSION_FORMAT);
        session.extend_from_slice(&version.0.to_be_bytes());
        let len = u16::try_from(encoded.len()).unwrap_or(0);
        session.extend_from_slice(&len.to_be_bytes());
        session.extend_from_slice(encoded.get(..usize::from(len)).unwrap_or(&[]));
        session.extend_from_slice(ticket);
        session
    }

    /// `None` for bytes that are no session: the caller then starts without one.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (&[format, v0, v1, v2, v3, l0, l1], rest) = bytes.split_first_chunk::<7>()?;
        if format != SESSION_FORMAT {
            return None;
        }
        let len = usize::from(u16::from_be_bytes([l0, l1]));
        let (encoded, ticket) = rest.split_at_checked(len)?;
        Some(Self {
            version: Version(u32::from_be_bytes([v0, v1, v2, v3])),
            parameters: TransportParameters::decode(encoded, Side::Client).ok()?,
            ticket,
        })
    }
}
