//! The data of events, field by field as draft-ietf-quic-qlog-quic-events has them.

use std::net::SocketAddr;

use serde::Serialize;

use super::frame::FrameList;
use super::json::{Cid, Hex, Millis, RawInfo, Text, VersionHex};

/// Which draft of the events these are.
const EVENTS: &str = "urn:ietf:params:qlog:events:quic-12";
/// What Quicket adds: `quicket:events_dropped`, ACK_FREQUENCY and IMMEDIATE_ACK frames, `ecn`
/// of packets, and the older names for qvis.
const OWN_EVENTS: &str = "https://github.com/quicket/quicket/qlog";

/// The group of an event in drafts up to 02, by which qvis finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Category {
    Connectivity,
    Transport,
    Security,
    Recovery,
    Quicket,
}

/// The first record of a file.
#[derive(Serialize)]
pub(super) struct FileHeader<'a> {
    file_schema: &'static str,
    serialization_format: &'static str,
    qlog_version: &'static str,
    qlog_format: &'static str,
    title: &'static str,
    trace: Trace<'a>,
}

#[derive(Serialize)]
struct Trace<'a> {
    common_fields: CommonFields<'a>,
    vantage_point: VantagePoint<'a>,
    event_schemas: [&'static str; 2],
}

#[derive(Serialize)]
struct CommonFields<'a> {
    #[serde(rename = "ODCID")]
    odcid: &'a str,
    group_id: &'a str,
    time_format: &'static str,
    reference_time: ReferenceTime,
}

#[derive(Serialize)]
struct ReferenceTime {
    clock_type: &'static str,
    epoch: &'static str,
}

#[derive(Serialize)]
struct VantagePoint<'a> {
    name: &'static str,
    #[serde(rename = "type")]
    kind: &'a str,
}

impl<'a> FileHeader<'a> {
    /// `side` is `client` or `server`.
    pub(super) const fn new(odcid: &'a str, side: &'a str) -> Self {
        Self {
            file_schema: "urn:ietf:params:qlog:file:sequential",
            serialization_format: "application/qlog+json-seq",
            qlog_version: "0.3",
            qlog_format: "JSON-SEQ",
            title: "quicket",
            trace: Trace {
                common_fields: CommonFields {
                    odcid,
                    group_id: odcid,
                    time_format: "relative_to_epoch",
                    reference_time: ReferenceTime {
                        clock_type: "system",
                        epoch: "1970-01-01T00:00:00.000Z",
                    },
                },
                vantage_point: VantagePoint { name: "quicket", kind: side },
                event_schemas: [EVENTS, OWN_EVENTS],
            },
        }
    }
}

/// Events that were not written for lack of room.
#[derive(Serialize)]
pub(super) struct EventsDropped {
    pub(super) count: u64,
}

/// One end of a path.
#[derive(Default, Serialize)]
pub(super) struct TupleEndpoint {
    #[serde(skip_serializing_if = "Option::is_none")]
    ip_v4: Option<std::net::Ipv4Addr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port_v4: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip_v6: Option<std::net::Ipv6Addr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port_v6: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection_ids: Option<[Cid; 1]>,
}

impl TupleEndpoint {
    /// An address, as far as it is known.
    pub(super) fn new(address: Option<SocketAddr>) -> Self {
        match address {
            Some(SocketAddr::V4(v4)) => {
                Self { ip_v4: Some(*v4.ip()), port_v4: Some(v4.port()), ..Self::default() }
            }
            Some(SocketAddr::V6(v6)) => {
                Self { ip_v6: Some(*v6.ip()), port_v6: Some(v6.port()), ..Self::default() }
            }
            None => Self::default(),
        }
    }

    pub(super) fn with_cid(self, cid: Cid) -> Self {
        Self { connection_ids: Some([cid]), ..self }
    }
}

#[derive(Serialize)]
pub(super) struct ConnectionStarted {
    pub(super) local: TupleEndpoint,
    pub(super) remote: TupleEndpoint,
}

#[derive(Serialize)]
pub(super) struct StateUpdated<T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) old: Option<T>,
    pub(super) new: T,
}

#[derive(Default, Serialize)]
pub(super) struct ConnectionClosed<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) initiator: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) connection_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) application_error: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error_code: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<Text<'a>>,
    pub(super) trigger: &'static str,
}

#[derive(Serialize)]
pub(super) struct TupleAssigned {
    pub(super) tuple_id: String,
    pub(super) tuple_remote: TupleEndpoint,
    pub(super) tuple_local: TupleEndpoint,
}

#[derive(Serialize)]
pub(super) struct MigrationStateUpdated {
    pub(super) new: &'static str,
    pub(super) tuple_id: String,
}

#[derive(Default, Serialize)]
pub(super) struct VersionInformation {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server_versions: Option<Vec<VersionHex>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client_versions: Option<Vec<VersionHex>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) chosen_version: Option<VersionHex>,
}

#[derive(Serialize)]
pub(super) struct AlpnInformation<'a> {
    pub(super) chosen_alpn: Alpn<'a>,
}

#[derive(Serialize)]
pub(super) struct Alpn<'a> {
    pub(super) byte_value: Hex<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) string_value: Option<&'a str>,
}

/// What TLS settled.
#[derive(Serialize)]
pub(super) struct TlsParametersSet {
    pub(super) tls_cipher: &'static str,
}

#[derive(Default, Serialize)]
pub(super) struct PacketHeader {
    pub(super) packet_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) spin_bit: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key_phase_bit: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) packet_number_length: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) packet_number: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<VersionHex>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scil: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dcil: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scid: Option<Cid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dcid: Option<Cid>,
}

/// A token, whose bytes are not logged: who has it can use it.
#[derive(Serialize)]
pub(super) struct Token {
    pub(super) raw: RawInfo,
}

#[derive(Serialize)]
pub(super) struct Packet<'a> {
    pub(super) header: PacketHeader,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) frames: Option<FrameList<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) supported_versions: Option<Vec<VersionHex>>,
    pub(super) raw: RawInfo,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) is_mtu_probe_packet: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ecn: Option<&'static str>,
}

#[derive(Serialize)]
pub(super) struct PacketDropped {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) header: Option<PacketHeader>,
    pub(super) raw: RawInfo,
    pub(super) details: DropDetails,
    pub(super) trigger: &'static str,
}

/// Why a packet was dropped, in more words than there are triggers.
#[derive(Serialize)]
pub(super) struct DropDetails {
    pub(super) reason: &'static str,
}

#[derive(Serialize)]
pub(super) struct PacketBuffered {
    pub(super) header: PacketHeader,
    pub(super) raw: RawInfo,
    pub(super) trigger: &'static str,
}

#[derive(Serialize)]
pub(super) struct PacketLost {
    pub(super) header: PacketHeader,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) is_mtu_probe_packet: bool,
}

#[derive(Serialize)]
pub(super) struct Key {
    pub(super) key_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key_phase: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trigger: Option<&'static str>,
}

#[derive(Serialize)]
pub(super) struct RecoveryParametersSet {
    pub(super) reordering_threshold: u64,
    pub(super) time_threshold: f64,
    pub(super) timer_granularity: u64,
    pub(super) initial_rtt: Millis,
    pub(super) max_datagram_size: u16,
    pub(super) initial_congestion_window: u64,
    pub(super) minimum_congestion_window: u64,
    pub(super) persistent_congestion_threshold: u64,
}

#[derive(Serialize)]
pub(super) struct MtuUpdated {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) old: Option<u16>,
    pub(super) new: u16,
}

/// Metrics that changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct RecoveryMetrics {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) min_rtt: Option<Millis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) smoothed_rtt: Option<Millis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latest_rtt: Option<Millis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rtt_variance: Option<Millis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pto_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) congestion_window: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes_in_flight: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ssthresh: Option<u64>,
    /// In bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pacing_rate: Option<u64>,
}

pub(super) fn is_false(value: &bool) -> bool {
    !value
}
