//! Transport parameters (RFC 9000, Section 18.2) as `parameters_set` has them.

use std::net::{Ipv4Addr, Ipv6Addr};

use quicket_wire::{ConnectionId, TransportParameters};
use serde::Serialize;

use super::event::is_false;
use super::json::Cid;

/// One side's parameters. Stateless reset tokens are left out: who has one can end the
/// connection.
#[derive(Serialize)]
pub(super) struct ParametersSet {
    initiator: &'static str,
    /// The older name of `initiator`.
    owner: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    original_destination_connection_id: Option<Cid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    initial_source_connection_id: Option<Cid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_source_connection_id: Option<Cid>,
    disable_active_migration: bool,
    max_idle_timeout: u64,
    max_udp_payload_size: u64,
    ack_delay_exponent: u8,
    max_ack_delay: u64,
    active_connection_id_limit: u64,
    initial_max_data: u64,
    initial_max_stream_data_bidi_local: u64,
    initial_max_stream_data_bidi_remote: u64,
    initial_max_stream_data_uni: u64,
    initial_max_streams_bidi: u64,
    initial_max_streams_uni: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) preferred_address: Option<PreferredAddress>,
    max_datagram_frame_size: u64,
    grease_quic_bit: bool,
    /// In microseconds (draft-ietf-quic-ack-frequency).
    #[serde(skip_serializing_if = "Option::is_none")]
    min_ack_delay: Option<u64>,
    #[serde(skip_serializing_if = "is_false")]
    disable_1rtt_encryption: bool,
}

#[derive(Serialize)]
pub(super) struct PreferredAddress {
    #[serde(skip_serializing_if = "Option::is_none")]
    ip_v4: Option<Ipv4Addr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port_v4: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip_v6: Option<Ipv6Addr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port_v6: Option<u16>,
    connection_id: Cid,
}

impl ParametersSet {
    /// `initiator` is `local` or `remote`.
    pub(super) fn new(initiator: &'static str, parameters: &TransportParameters) -> Self {
        let cid = |cid: Option<ConnectionId>| cid.map(Cid);
        Self {
            initiator,
            owner: initiator,
            original_destination_connection_id: cid(parameters.original_destination_connection_id),
            initial_source_connection_id: cid(parameters.initial_source_connection_id),
            retry_source_connection_id: cid(parameters.retry_source_connection_id),
            disable_active_migration: parameters.disable_active_migration,
            max_idle_timeout: parameters.max_idle_timeout,
            max_udp_payload_size: parameters.max_udp_payload_size,
            ack_delay_exponent: parameters.ack_delay_exponent,
            max_ack_delay: parameters.max_ack_delay,
            active_connection_id_limit: parameters.active_connection_id_limit,
            initial_max_data: parameters.initial_max_data,
            initial_max_stream_data_bidi_local: parameters.initial_max_stream_data_bidi_local,
            initial_max_stream_data_bidi_remote: parameters.initial_max_stream_data_bidi_remote,
            initial_max_stream_data_uni: parameters.initial_max_stream_data_uni,
            initial_max_streams_bidi: parameters.initial_max_streams_bidi,
            initial_max_streams_uni: parameters.initial_max_streams_uni,
            preferred_address: parameters.preferred_address.as_deref().map(PreferredAddress::new),
            max_datagram_frame_size: parameters.max_datagram_frame_size,
            grease_quic_bit: parameters.grease_quic_bit,
            min_ack_delay: parameters.min_ack_delay,
            disable_1rtt_encryption: parameters.disable_1rtt_encryption,
        }
    }
}

impl PreferredAddress {
    fn new(preferred: &quicket_wire::PreferredAddress) -> Self {
        Self {
            ip_v4: preferred.ipv4.map(|v4| *v4.ip()),
            port_v4: preferred.ipv4.map(|v4| v4.port()),
            ip_v6: preferred.ipv6.map(|v6| *v6.ip()),
            port_v6: preferred.ipv6.map(|v6| v6.port()),
            connection_id: Cid(preferred.connection_id),
        }
    }
}
