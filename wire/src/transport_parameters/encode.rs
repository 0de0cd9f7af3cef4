//! Writing transport parameters.

use alloc::vec::Vec;

use super::{
    MAX_ACK_DELAY_EXPONENT, MAX_ACK_DELAY_LIMIT, PreferredAddress, TransportParameters,
    VersionInformation, id,
};
use crate::{ConnectionId, MAX_STREAMS, Side, Writer, varint};

impl TransportParameters {
    /// Appends the parameters as `sender` sends them: those that differ from their default,
    /// without those only a server sends if `sender` is the client.
    ///
    /// `grease` is a parameter to be ignored by the peer (RFC 9000, Section 18.1): an identifier
    /// from [`reserved_id`](Self::reserved_id) and arbitrary content. Integers above what their
    /// parameter can express are sent as the largest possible value.
    pub fn encode(&self, sender: Side, out: &mut Vec<u8>, grease: Option<(u64, &[u8])>) {
        let default = Self::default();
        let mut integer = |id, value: u64, default| {
            if value != default {
                put_integer(out, id, value);
            }
        };
        integer(id::MAX_IDLE_TIMEOUT, self.max_idle_timeout, 0);
        integer(id::MAX_UDP_PAYLOAD_SIZE, self.max_udp_payload_size, default.max_udp_payload_size);
        integer(id::INITIAL_MAX_DATA, self.initial_max_data, 0);
        let bidi_local = self.initial_max_stream_data_bidi_local;
        integer(id::INITIAL_MAX_STREAM_DATA_BIDI_LOCAL, bidi_local, 0);
        let bidi_remote = self.initial_max_stream_data_bidi_remote;
        integer(id::INITIAL_MAX_STREAM_DATA_BIDI_REMOTE, bidi_remote, 0);
        integer(id::INITIAL_MAX_STREAM_DATA_UNI, self.initial_max_stream_data_uni, 0);
        let streams = self.initial_max_streams_bidi.min(MAX_STREAMS);
        integer(id::INITIAL_MAX_STREAMS_BIDI, streams, 0);
        let streams = self.initial_max_streams_uni.min(MAX_STREAMS);
        integer(id::INITIAL_MAX_STREAMS_UNI, streams, 0);
        let exponent = u64::from(self.ack_delay_exponent).min(MAX_ACK_DELAY_EXPONENT);
        integer(id::ACK_DELAY_EXPONENT, exponent, u64::from(default.ack_delay_exponent));
        let max_ack_delay = self.max_ack_delay.min(MAX_ACK_DELAY_LIMIT - 1);
        integer(id::MAX_ACK_DELAY, max_ack_delay, default.max_ack_delay);
        let cid_limit = self.active_connection_id_limit;
        integer(id::ACTIVE_CONNECTION_ID_LIMIT, cid_limit, default.active_connection_id_limit);
        integer(id::MAX_DATAGRAM_FRAME_SIZE, self.max_datagram_frame_size, 0);
        if let Some(delay) = self.min_ack_delay {
            put_integer(out, id::MIN_ACK_DELAY, delay);
        }
        self.encode_flags(out);
        put_cid(out, id::INITIAL_SOURCE_CONNECTION_ID, self.initial_source_connection_id);
        if let Some(versions) = &self.version_information {
            put_versions(out, versions);
        }
        if sender.is_server() {
            self.encode_server_only(out);
        }
        if let Some((id, value)) = grease {
            put(out, id, value);
        }
    }

    fn encode_flags(&self, out: &mut Vec<u8>) {
        let flags = [
            (id::DISABLE_ACTIVE_MIGRATION, self.disable_active_migration),
            (id::GREASE_QUIC_BIT, self.grease_quic_bit),
            (id::DISABLE_1RTT_ENCRYPTION, self.disable_1rtt_encryption),
        ];
        flags.iter().filter(|(_, set)| *set).for_each(|(id, _)| put(out, *id, &[]));
    }

    fn encode_server_only(&self, out: &mut Vec<u8>) {
        let original = self.original_destination_connection_id;
        put_cid(out, id::ORIGINAL_DESTINATION_CONNECTION_ID, original);
        put_cid(out, id::RETRY_SOURCE_CONNECTION_ID, self.retry_source_connection_id);
        if let Some(token) = &self.stateless_reset_token {
            put(out, id::STATELESS_RESET_TOKEN, &token.0);
        }
        if let Some(address) = &self.preferred_address {
            put_preferred_address(out, address);
        }
    }
}

fn put_varint(out: &mut Vec<u8>, value: u64) {
    let mut buffer = [0; varint::MAX_LEN];
    let mut writer = Writer::new(&mut buffer);
    // Every value up to MAX fits the buffer.
    if writer.varint(value.min(varint::MAX)).is_ok() {
        out.extend_from_slice(writer.written());
    }
}

fn put(out: &mut Vec<u8>, id: u64, value: &[u8]) {
    put_varint(out, id);
    put_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn put_integer(out: &mut Vec<u8>, id: u64, value: u64) {
    put_varint(out, id);
    put_varint(out, varint::len(value) as u64);
    put_varint(out, value);
}

fn put_cid(out: &mut Vec<u8>, id: u64, cid: Option<ConnectionId>) {
    if let Some(cid) = cid {
        put(out, id, cid.as_slice());
    }
}

fn put_versions(out: &mut Vec<u8>, versions: &VersionInformation) {
    let len = versions.available_versions.len().saturating_add(1).saturating_mul(4);
    put_varint(out, id::VERSION_INFORMATION);
    put_varint(out, len as u64);
    out.extend_from_slice(&versions.chosen_version.0.to_be_bytes());
    for version in &versions.available_versions {
        out.extend_from_slice(&version.0.to_be_bytes());
    }
}

fn put_preferred_address(out: &mut Vec<u8>, address: &PreferredAddress) {
    let (ipv4, port4) = address.ipv4.map_or(([0; 4], 0), |a| (a.ip().octets(), a.port()));
    let (ipv6, port6) = address.ipv6.map_or(([0; 16], 0), |a| (a.ip().octets(), a.port()));
    let cid = &address.connection_id;
    put_varint(out, id::PREFERRED_ADDRESS);
    put_varint(out, cid.len().saturating_add(4 + 2 + 16 + 2 + 1 + 16) as u64);
    out.extend_from_slice(&ipv4);
    out.extend_from_slice(&port4.to_be_bytes());
    out.extend_from_slice(&ipv6);
    out.extend_from_slice(&port6.to_be_bytes());
    out.push(cid.len() as u8);
    out.extend_from_slice(cid.as_slice());
    out.extend_from_slice(&address.stateless_reset_token.0);
}
