//! What the qlog drafts demand of the records that are written here, for tests: the fields, which
//! of them are optional, and their types (draft-ietf-quic-qlog-main-schema,
//! draft-ietf-quic-qlog-quic-events).
//!
//! A definition lists fields as `name type`; `name?` is optional, `name!` is what Quicket adds.
//! Types are `bool`, `text`, `hex`, `float`, `uint8` to `uint64`, words (`=one|other`), records by
//! their name, lists (`[type]`) and lists that are not empty (`[+type]`).

use serde_json::Value;

/// The first record.
const HEADER: &str = "file_schema =urn:ietf:params:qlog:file:sequential, \
    serialization_format =application/qlog+json-seq, title? text, trace trace, \
    qlog_version! =0.3, qlog_format! =JSON-SEQ";

/// Any other record. By `category` qvis finds events.
const EVENT: &str = "time float, name text, data data, \
    category! =connectivity|transport|security|recovery|quicket";

const RECORDS: &[(&str, &str)] = &[
    ("trace", "common_fields? common, vantage_point? vantage_point, event_schemas [+text]"),
    (
        "common",
        "time_format? =relative_to_epoch|relative_to_previous_event, group_id? text, \
         reference_time? reference_time, ODCID! hex",
    ),
    ("reference_time", "clock_type =system|monotonic, epoch text"),
    ("vantage_point", "name? text, type =client|server"),
    ("raw", "length? uint64, payload_length? uint64"),
    ("token", "raw? raw"),
    (
        "endpoint",
        "ip_v4? text, port_v4? uint16, ip_v6? text, port_v6? uint16, connection_ids? [+hex]",
    ),
    // The draft has its stateless reset token too, which is left out: it is a secret.
    ("preferred", "ip_v4? text, port_v4? uint16, ip_v6? text, port_v6? uint16, connection_id hex"),
    ("alpn", "byte_value? hex, string_value? text"),
    (
        "header",
        "packet_type =initial|handshake|0RTT|1RTT|retry|version_negotiation|unknown, \
         spin_bit? bool, key_phase_bit? bool, packet_number_length? uint8, \
         packet_number? uint64, token? token, version? hex, scil? uint8, dcil? uint8, \
         scid? hex, dcid? hex",
    ),
    ("details", "reason text"),
];

/// States of a connection.
const STATE: &str = "=attempted|handshake_started|handshake_complete|closed|peer_validated|\
    early_write|handshake_confirmed|closing|draining";
const ECN_STATE: &str = "=testing|unknown|failed|capable";
const KEY: &str = "key_type =server_initial_secret|client_initial_secret|\
    server_handshake_secret|client_handshake_secret|server_0rtt_secret|client_0rtt_secret|\
    server_1rtt_secret|client_1rtt_secret, key_phase? uint64, \
    trigger? =tls|remote_update|local_update";
const METRICS: &str = "min_rtt? float, smoothed_rtt? float, latest_rtt? float, \
    rtt_variance? float, pto_count? uint16, congestion_window? uint64, bytes_in_flight? uint64, \
    ssthresh? uint64, packets_in_flight? uint64, pacing_rate? uint64";
const PACKET: &str = "header header, frames? [frame], supported_versions? [+hex], raw? raw, \
    ecn! =ECT(0)|ECT(1)|CE";

/// What the data of an event holds.
fn data_of(event: &str) -> Option<String> {
    let definition = match event {
        "quic:connection_started" => "local endpoint, remote endpoint",
        "quic:connection_closed" => {
            "initiator? =local|remote, connection_error? transport_error, \
             application_error? =unknown, error_code? uint64, reason? text, \
             trigger? =idle_timeout|application|error|version_mismatch|stateless_reset|aborted|\
             unspecified"
        }
        "quic:connection_state_updated" => return Some(format!("old? {STATE}, new {STATE}")),
        "quic:tuple_assigned" => "tuple_id text, tuple_remote? endpoint, tuple_local? endpoint",
        "quic:mtu_updated" => "old? uint32, new uint32, done? bool",
        "quic:version_information" => {
            "server_versions? [+hex], client_versions? [+hex], chosen_version? hex"
        }
        "quic:alpn_information" => "chosen_alpn? alpn",
        "quic:parameters_set" => {
            "initiator? =local|remote, tls_cipher? text, \
             original_destination_connection_id? hex, initial_source_connection_id? hex, \
             retry_source_connection_id? hex, disable_active_migration? bool, \
             max_idle_timeout? uint64, max_udp_payload_size? uint64, \
             ack_delay_exponent? uint64, max_ack_delay? uint64, \
             active_connection_id_limit? uint64, initial_max_data? uint64, \
             initial_max_stream_data_bidi_local? uint64, \
             initial_max_stream_data_bidi_remote? uint64, initial_max_stream_data_uni? uint64, \
             initial_max_streams_bidi? uint64, initial_max_streams_uni? uint64, \
             preferred_address? preferred, max_datagram_frame_size? uint64, \
             grease_quic_bit? bool, owner! =local|remote, min_ack_delay! uint64, \
             disable_1rtt_encryption! bool"
        }
        "quic:packet_sent" => return Some(format!("{PACKET}, is_mtu_probe_packet? bool")),
        "quic:packet_received" => PACKET,
        "quic:packet_dropped" => {
            "header? header, raw? raw, details? details, trigger? =internal_error|rejected|\
             unsupported|invalid|duplicate|connection_unknown|decryption_failure|\
             key_unavailable|general"
        }
        "quic:packet_buffered" => {
            "header? header, raw? raw, trigger? =backpressure|keys_unavailable"
        }
        "quic:migration_state_updated" => {
            "new =probing_started|probing_abandoned|probing_successful|migration_started|\
             migration_abandoned|migration_complete, tuple_id? text"
        }
        "quic:key_updated" | "quic:key_discarded" => KEY,
        "quic:recovery_parameters_set" => {
            "reordering_threshold? uint16, time_threshold? float, timer_granularity uint16, \
             initial_rtt? float, max_datagram_size? uint32, initial_congestion_window? uint64, \
             minimum_congestion_window? uint64, persistent_congestion_threshold? uint16"
        }
        // The latter is the former's name in draft 02, for qvis.
        "quic:recovery_metrics_updated" | "recovery:metrics_updated" => METRICS,
        "quic:congestion_state_updated" => "old? text, new text",
        "quic:packet_lost" => "header? header, is_mtu_probe_packet? bool",
        "quic:ecn_state_updated" => return Some(format!("old? {ECN_STATE}, new {ECN_STATE}")),
        "quicket:events_dropped" => "count uint64",
        _ => return None,
    };
    Some(definition.to_owned())
}

/// What a frame holds beside its type. `length` is what `raw.payload_length` was once, for qvis.
fn frame_of(frame_type: &str) -> Option<&'static str> {
    Some(match frame_type {
        "padding" => "raw? raw",
        "ping" | "handshake_done" => "",
        "ack" => "ack_delay? float, acked_ranges? [+range], ect1? uint64, ect0? uint64, ce? uint64",
        "reset_stream" => "stream_id uint64, error =unknown, error_code? uint64, final_size uint64",
        "stop_sending" => "stream_id uint64, error =unknown, error_code? uint64",
        "crypto" => "offset uint64, raw raw, length! uint64",
        "new_token" => "token token",
        "stream" => "stream_id uint64, offset? uint64, fin? bool, raw? raw, length! uint64",
        "max_data" => "maximum uint64",
        "max_stream_data" => "stream_id uint64, maximum uint64",
        "max_streams" => "stream_type =unidirectional|bidirectional, maximum uint64",
        "data_blocked" => "limit uint64",
        "stream_data_blocked" => "stream_id uint64, limit uint64",
        "streams_blocked" => "stream_type =unidirectional|bidirectional, limit uint64",
        "new_connection_id" => {
            "sequence_number uint64, retire_prior_to uint64, connection_id_length? uint8, \
             connection_id hex"
        }
        "retire_connection_id" => "sequence_number uint64",
        "path_challenge" | "path_response" => "data? hex",
        "connection_close" => {
            "error_space? =transport|application, error? transport_error, error_code? uint64, \
             reason? text, trigger_frame_type? uint64"
        }
        "datagram" => "raw? raw, length! uint64",
        "unknown" => "frame_type_bytes uint64",
        // Of Quicket's own schema (draft-ietf-quic-ack-frequency).
        "immediate_ack" => "",
        "ack_frequency" => {
            "sequence_number uint64, ack_eliciting_threshold uint64, \
             requested_max_ack_delay uint64, reordering_threshold uint64"
        }
        _ => return None,
    })
}

/// Checks the first record of a file; the error says what is wrong where.
pub(crate) fn check_header(record: &Value) -> Result<(), String> {
    check_record(HEADER, record, &[])
}

/// Checks an event.
pub(crate) fn check_event(event: &Value) -> Result<(), String> {
    let checked = || {
        check_record(EVENT, event, &[])?;
        let name = event["name"].as_str().unwrap_or_default();
        let data = data_of(name).ok_or("an event of no known name")?;
        check_record(&data, &event["data"], &[])
    };
    checked().map_err(|wrong: String| format!("{wrong}: {event}"))
}

/// Checks the fields of a record, but for those of `known`.
fn check_record(definition: &str, value: &Value, known: &[&str]) -> Result<(), String> {
    let object = value.as_object().ok_or_else(|| format!("{value} is not a record"))?;
    let mut names = known.to_vec();
    for field in definition.split(", ").filter(|field| !field.is_empty()) {
        let (name, kind) = field.split_once(' ').ok_or(field)?;
        let bare = name.trim_end_matches(['?', '!']);
        match object.get(bare) {
            Some(value) => check(kind, value).map_err(|wrong| format!("{bare}: {wrong}"))?,
            None if bare == name => return Err(format!("{bare} is missing")),
            None => {}
        }
        names.push(bare);
    }
    match object.keys().find(|key| !names.contains(&key.as_str())) {
        Some(key) => Err(format!("{key} is not in the schema")),
        None => Ok(()),
    }
}

/// Checks a value against a type.
fn check(kind: &str, value: &Value) -> Result<(), String> {
    let text = value.as_str();
    let fits = match kind {
        "bool" => value.is_boolean(),
        "text" => text.is_some(),
        "float" => value.as_f64().is_some_and(|number| number >= 0.0),
        "data" => value.is_object(),
        "hex" => text.is_some_and(is_hex),
        "transport_error" => text.is_some_and(is_transport_error),
        // From, to; or one number.
        "range" => value.as_array().is_some_and(|range| match &range[..] {
            [one] => one.is_u64(),
            [from, to] => from.is_u64() && from.as_u64() < to.as_u64(),
            _ => false,
        }),
        "frame" => return check_frame(value),
        _ => return check_composed(kind, value),
    };
    if fits { Ok(()) } else { Err(format!("{value} is not {kind}")) }
}

/// Numbers of a size, words, lists and records.
fn check_composed(kind: &str, value: &Value) -> Result<(), String> {
    let wrong = || Err(format!("{value} is not {kind}"));
    if let Some(bits) = kind.strip_prefix("uint") {
        let most = u64::MAX >> (64 - bits.parse::<u32>().map_err(|error| error.to_string())?);
        return if value.as_u64().is_some_and(|number| number <= most) { Ok(()) } else { wrong() };
    }
    if let Some(words) = kind.strip_prefix('=') {
        let text = value.as_str().unwrap_or_default();
        return if words.split('|').any(|word| word == text) { Ok(()) } else { wrong() };
    }
    if let Some(element) = kind.strip_prefix('[').and_then(|kind| kind.strip_suffix(']')) {
        let Some(list) = value.as_array() else { return wrong() };
        let element = match element.strip_prefix('+') {
            Some(_) if list.is_empty() => return wrong(),
            Some(element) => element,
            None => element,
        };
        return list.iter().try_for_each(|value| check(element, value));
    }
    let record = RECORDS.iter().find(|(name, _)| *name == kind);
    let (_, definition) = record.ok_or_else(|| format!("{kind} is no type"))?;
    check_record(definition, value, &[])
}

fn check_frame(value: &Value) -> Result<(), String> {
    let frame_type = value["frame_type"].as_str().unwrap_or_default();
    let definition = frame_of(frame_type).ok_or_else(|| format!("{value} is no frame"))?;
    check_record(definition, value, &["frame_type"])
        .map_err(|wrong| format!("{frame_type}: {wrong}"))
}

fn is_hex(text: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len().is_multiple_of(2) && text.bytes().all(digit)
}

fn is_transport_error(text: &str) -> bool {
    const NAMES: &str = "no_error internal_error connection_refused flow_control_error \
        stream_limit_error stream_state_error final_size_error frame_encoding_error \
        transport_parameter_error connection_id_limit_error protocol_violation invalid_token \
        application_error crypto_buffer_exceeded key_update_error aead_limit_reached \
        no_viable_path unknown";
    let crypto = text.strip_prefix("crypto_error_0x1").filter(|alert| alert.len() == 2);
    crypto.is_some_and(is_hex) || NAMES.split_whitespace().any(|name| name == text)
}
