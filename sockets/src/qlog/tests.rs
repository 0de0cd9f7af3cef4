//! A golden sample of each event, and what happens without room or without a file.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use quicket_engine::crypto::{Direction, HandshakeSummary, Level};
use quicket_engine::time::Time;
use quicket_engine::{
    ConnectionError, DropReason, LossTrigger, Observation, Observer, PacketContent,
};
use quicket_wire::frame::FrameEncode;
use quicket_wire::{
    ConnectionId, EcnCodepoint, Frame, PacketKind, Side, TransportParameters, Version, Writer,
};
use serde_json::{Value, json};

use super::observer::ConnectionLog;
use super::schema;
use super::writer::Writer as LogWriter;

/// A place that panics with every file but one.
struct Explosive(Arc<Mutex<usize>>);

impl super::QlogPlace for Explosive {
    fn append(&self, name: &str, _: bool, bytes: &[u8]) -> std::io::Result<()> {
        assert_eq!(name, "good", "this place panics");
        *self.0.lock().unwrap() += bytes.len();
        Ok(())
    }
}

#[test]
fn a_place_that_panics_fails_one_log_and_holds_nobody_up() {
    let written = Arc::default();
    let place = Box::new(Explosive(Arc::clone(&written)));
    let writer = Arc::new(LogWriter::start(place, 1 << 20).unwrap());
    let (bad, good) = (writer.log("bad"), writer.log("good"));
    assert!(bad.append(|bytes| bytes.extend([1; 10])));
    writer.flush();
    assert!(!bad.append(|bytes| bytes.extend([1; 10])), "nothing more is taken");
    assert!(good.append(|bytes| bytes.extend([1; 20])));
    writer.flush();
    assert_eq!(*written.lock().unwrap(), 20);
}

/// A log of a client in a folder of its own.
struct Bench {
    folder: PathBuf,
    writer: Arc<LogWriter>,
    log: ConnectionLog,
}

impl Bench {
    fn new(name: &str, limit: usize) -> Self {
        let folder = std::env::temp_dir().join(format!("quicket-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let writer =
            Arc::new(LogWriter::start(Box::new(super::Folder(folder.clone())), limit).unwrap());
        let odcid = ConnectionId::new(&[0xab; 8]).unwrap();
        let log = ConnectionLog::begin(&writer, 5_000_000, (Time::ZERO, Side::Client, odcid));
        Self { folder, writer, log }
    }

    fn see(&mut self, observation: &Observation<'_>) {
        self.log.observe(Time::from_nanos(1_500_000), observation);
    }

    /// All records but the header. Each fits the schema.
    fn events(&self) -> Vec<Value> {
        self.writer.flush();
        let path = self.folder.join("abababababababab_client.sqlog");
        let text = std::fs::read_to_string(path).unwrap();
        let records = text.split('\u{1e}').skip(1).map(|text| serde_json::from_str(text).unwrap());
        let mut records: Vec<Value> = records.collect();
        let header = records.remove(0);
        assert_eq!(schema::check_header(&header), Ok(()), "{header}");
        for event in &records {
            assert_eq!(schema::check_event(event), Ok(()));
        }
        records
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What is logged of one observation.
fn logged(name: &str, observation: &Observation<'_>) -> Vec<Value> {
    let mut bench = Bench::new(name, 1 << 20);
    bench.see(observation);
    bench.events()
}

#[test]
fn without_addresses_there_are_none_of_paths_nor_of_parameters() {
    let mut bench = Bench::new("anonymous", 1 << 20);
    bench.log.anonymous = true;
    let cid = ConnectionId::new(&[1; 8]).unwrap();
    let (local, remote) = ("192.0.2.1:443".parse().unwrap(), "192.0.2.7:1".parse().unwrap());
    let [source_cid, destination_cid] = [cid; 2];
    bench.see(&Observation::Started { local: Some(local), remote, source_cid, destination_cid });
    let preferred = quicket_wire::PreferredAddress {
        ipv4: Some("192.0.2.9:443".parse().unwrap()),
        ipv6: None,
        connection_id: cid,
        stateless_reset_token: [2; 16].into(),
    };
    let parameters =
        TransportParameters { preferred_address: Some(preferred.into()), ..<_>::default() };
    bench.see(&Observation::Parameters { direction: Direction::Receive, parameters: &parameters });
    let events = bench.events();
    assert_eq!(events.len(), 3, "{events:?}");
    assert!(!events.iter().any(|event| event.to_string().contains("192.0.2.")), "{events:?}");
}

fn event(category: &str, name: &str, data: Value) -> Value {
    json!({ "time": 6.5, "name": name, "category": category, "data": data })
}

fn sent(kind: PacketKind, content: PacketContent<'_>) -> Observation<'_> {
    let (direction, ecn) = (Direction::Send, EcnCodepoint::Ect0);
    Observation::Packet { direction, kind, number: 3, size: 50, ecn, mtu_probe: false, content }
}

#[test]
fn a_packet_with_a_short_header() {
    // Spin bit, key phase 1, a packet number of two bytes; PING.
    let content = PacketContent { header: &[0x65, 9, 8, 7, 0, 3], payload: &[1] };
    let expected = json!({
        "header": {
            "packet_type": "1RTT", "spin_bit": true, "key_phase_bit": true,
            "packet_number_length": 2, "packet_number": 3, "dcid": "090807"
        },
        "frames": [{ "frame_type": "ping" }],
        "raw": { "length": 50, "payload_length": 1 },
        "ecn": "ECT(0)"
    });
    let events = logged("short", &sent(PacketKind::OneRtt, content));
    assert_eq!(events, [event("transport", "quic:packet_sent", expected)]);
}

#[test]
fn a_packet_with_a_long_header() {
    let header = [0xc0, 0, 0, 0, 1, 2, 1, 2, 1, 5, 3, 0xaa, 0xbb, 0xcc, 0x40, 20, 3];
    let content = PacketContent { header: &header, payload: &[0, 0, 0] };
    let expected = json!({
        "header": {
            "packet_type": "initial", "packet_number_length": 1, "packet_number": 3,
            "token": { "raw": { "length": 3 } }, "version": "00000001",
            "scil": 1, "dcil": 2, "scid": "05", "dcid": "0102"
        },
        "frames": [{ "frame_type": "padding", "raw": { "length": 3 } }],
        "raw": { "length": 50, "payload_length": 3 },
        "ecn": "ECT(0)"
    });
    let events = logged("long", &sent(PacketKind::Initial, content));
    assert_eq!(events, [event("transport", "quic:packet_sent", expected)]);
}

/// What is logged of a frame that begins with these bytes on the wire.
fn frame(payload: &[u8]) -> Value {
    let name = payload.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let content = PacketContent { header: &[0x40, 3], payload };
    let events = logged(&format!("frame-{name}"), &sent(PacketKind::OneRtt, content));
    let frames = events[0]["data"]["frames"].as_array().unwrap();
    assert_eq!(frames.len(), 1, "{frames:?}");
    frames[0].clone()
}

#[test]
fn frames_of_each_type() {
    let samples: &[(&[u8], Value)] = &[
        // Largest 9, delay 5 (times 8 µs), one more range: 9, then 4 to 6.
        (
            &[2, 9, 5, 1, 0, 1, 2],
            json!({"frame_type": "ack", "ack_delay": 0.04, "acked_ranges": [[9], [4, 6]]}),
        ),
        (
            &[3, 9, 0, 0, 2, 3, 0, 1],
            json!({"frame_type": "ack", "ack_delay": 0.0, "acked_ranges": [[7, 9]], "ect0": 3, "ect1": 0, "ce": 1}),
        ),
        (
            &[4, 4, 7, 9],
            json!({"frame_type": "reset_stream", "stream_id": 4, "error": "unknown", "error_code": 7, "final_size": 9}),
        ),
        (
            &[5, 4, 7],
            json!({"frame_type": "stop_sending", "stream_id": 4, "error": "unknown", "error_code": 7}),
        ),
        (
            &[6, 2, 1, 0],
            json!({"frame_type": "crypto", "offset": 2, "length": 1, "raw": {"payload_length": 1}}),
        ),
        (&[7, 2, 1, 1], json!({"frame_type": "new_token", "token": {"raw": {"length": 2}}})),
        (
            &[0x0f, 4, 8, 1, 0],
            json!({"frame_type": "stream", "stream_id": 4, "offset": 8, "length": 1, "fin": true, "raw": {"payload_length": 1}}),
        ),
        (&[0x10, 9], json!({"frame_type": "max_data", "maximum": 9})),
        (&[0x11, 4, 9], json!({"frame_type": "max_stream_data", "stream_id": 4, "maximum": 9})),
        (
            &[0x12, 9],
            json!({"frame_type": "max_streams", "stream_type": "bidirectional", "maximum": 9}),
        ),
        (&[0x14, 9], json!({"frame_type": "data_blocked", "limit": 9})),
        (&[0x15, 4, 9], json!({"frame_type": "stream_data_blocked", "stream_id": 4, "limit": 9})),
        (
            &[0x17, 9],
            json!({"frame_type": "streams_blocked", "stream_type": "unidirectional", "limit": 9}),
        ),
        (
            &[0x18, 2, 1, 1, 6, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
            json!({"frame_type": "new_connection_id", "sequence_number": 2, "retire_prior_to": 1, "connection_id_length": 1, "connection_id": "06"}),
        ),
        (&[0x19, 2], json!({"frame_type": "retire_connection_id", "sequence_number": 2})),
        (
            &[0x1a, 1, 2, 3, 4, 5, 6, 7, 8],
            json!({"frame_type": "path_challenge", "data": "0102030405060708"}),
        ),
        (
            &[0x1b, 1, 2, 3, 4, 5, 6, 7, 8],
            json!({"frame_type": "path_response", "data": "0102030405060708"}),
        ),
        (
            &[0x1c, 0x0a, 6, 2, b'n', b'o'],
            json!({"frame_type": "connection_close", "error_space": "transport", "error": "protocol_violation", "error_code": 10, "reason": "no", "trigger_frame_type": 6}),
        ),
        (
            &[0x1d, 7, 1, 0xff],
            json!({"frame_type": "connection_close", "error_space": "application", "error": "unknown", "error_code": 7, "reason": "\u{fffd}"}),
        ),
        (&[0x1e], json!({"frame_type": "handshake_done"})),
        (
            &[0x31, 2, 1, 1],
            json!({"frame_type": "datagram", "length": 2, "raw": {"payload_length": 2}}),
        ),
        (&[0x1f], json!({"frame_type": "immediate_ack"})),
        (&[0x3f], json!({"frame_type": "unknown", "frame_type_bytes": 0x3f})),
    ];
    for (payload, expected) in samples {
        assert_eq!(frame(payload), *expected, "{payload:02x?}");
    }
    let request = quicket_wire::frame::AckFrequency {
        sequence_number: 1,
        ack_eliciting_threshold: 2,
        requested_max_ack_delay: 3,
        reordering_threshold: 4,
    };
    let mut bytes = [0; 16];
    let mut writer = Writer::new(&mut bytes);
    Frame::AckFrequency(request).encode(&mut writer).unwrap();
    let expected = json!({"frame_type": "ack_frequency", "sequence_number": 1, "ack_eliciting_threshold": 2, "requested_max_ack_delay": 3, "reordering_threshold": 4});
    assert_eq!(frame(writer.written()), expected);
}

#[test]
fn packets_that_do_not_arrive() {
    let (kind, size) = (PacketKind::Handshake, 40);
    let dropped =
        Observation::PacketDropped { kind: Some(kind), size, reason: DropReason::Undecryptable };
    let expected = json!({
        "header": { "packet_type": "handshake" }, "raw": { "length": 40 },
        "details": { "reason": "undecryptable" }, "trigger": "decryption_failure"
    });
    let events = logged("dropped", &dropped);
    assert_eq!(events, [event("transport", "quic:packet_dropped", expected)]);

    let expected = json!({
        "header": { "packet_type": "handshake" }, "raw": { "length": 40 },
        "trigger": "keys_unavailable"
    });
    let events = logged("buffered", &Observation::PacketBuffered { kind, size });
    assert_eq!(events, [event("transport", "quic:packet_buffered", expected)]);

    let (level, trigger) = (Level::OneRtt, LossTrigger::Threshold);
    let lost = Observation::PacketLost { level, number: 9, mtu_probe: true, trigger };
    let expected = json!({
        "header": { "packet_type": "1RTT", "packet_number": 9 }, "is_mtu_probe_packet": true
    });
    assert_eq!(logged("lost", &lost), [event("recovery", "quic:packet_lost", expected)]);
}

#[test]
fn the_beginning_and_the_end() {
    let started = Observation::Started {
        local: None,
        remote: "192.0.2.1:443".parse().unwrap(),
        source_cid: ConnectionId::new(&[1]).unwrap(),
        destination_cid: ConnectionId::new(&[2]).unwrap(),
    };
    let expected = json!({
        "local": { "connection_ids": ["01"] },
        "remote": { "ip_v4": "192.0.2.1", "port_v4": 443, "connection_ids": ["02"] }
    });
    let state = json!({ "new": "attempted" });
    let expected = [
        event("connectivity", "quic:connection_started", expected),
        event("connectivity", "quic:connection_state_updated", state),
    ];
    assert_eq!(logged("started", &started), expected);

    let closed = logged("closed", &Observation::Closed(&ConnectionError::IdleTimeout));
    let data = json!({ "initiator": "local", "trigger": "idle_timeout" });
    assert_eq!(closed[0], event("connectivity", "quic:connection_closed", data));
    let error = ConnectionError::PeerApplication { code: 7, reason: b"bye".to_vec() };
    let data = json!({
        "initiator": "remote", "application_error": "unknown", "error_code": 7, "reason": "bye",
        "trigger": "application"
    });
    let closed = logged("closed-by-peer", &Observation::Closed(&error));
    assert_eq!(closed[0], event("connectivity", "quic:connection_closed", data));
}

#[test]
fn the_handshake() {
    let summary = HandshakeSummary {
        alpn: b"h3".to_vec(),
        cipher_suite: "TLS_AES_128_GCM_SHA256",
        key_exchange: "X25519",
        peer_certificates: Vec::new(),
        server_name: None,
        resumed: false,
    };
    let alpn = json!({ "chosen_alpn": { "byte_value": "6833", "string_value": "h3" } });
    let expected = [
        event("transport", "quic:alpn_information", alpn),
        event(
            "transport",
            "quic:parameters_set",
            json!({ "tls_cipher": "TLS_AES_128_GCM_SHA256" }),
        ),
        event(
            "connectivity",
            "quic:connection_state_updated",
            json!({ "new": "handshake_complete" }),
        ),
    ];
    assert_eq!(logged("complete", &Observation::HandshakeComplete(&summary)), expected);

    let version = logged("version", &Observation::Version(Version::V2));
    let data = json!({ "chosen_version": "6b3343cf" });
    assert_eq!(version, [event("transport", "quic:version_information", data)]);

    let parameters = TransportParameters { max_idle_timeout: 30, ..Default::default() };
    let observation =
        Observation::Parameters { direction: Direction::Receive, parameters: &parameters };
    let data = json!({
        "initiator": "remote", "owner": "remote", "disable_active_migration": false,
        "max_idle_timeout": 30, "max_udp_payload_size": 65527, "ack_delay_exponent": 3,
        "max_ack_delay": 25, "active_connection_id_limit": 2, "initial_max_data": 0,
        "initial_max_stream_data_bidi_local": 0, "initial_max_stream_data_bidi_remote": 0,
        "initial_max_stream_data_uni": 0, "initial_max_streams_bidi": 0,
        "initial_max_streams_uni": 0, "max_datagram_frame_size": 0, "grease_quic_bit": false
    });
    let events = logged("parameters", &observation);
    assert_eq!(events, [event("transport", "quic:parameters_set", data)]);
}

#[test]
fn keys_and_paths() {
    let (level, direction) = (Level::OneRtt, Direction::Receive);
    let data = json!({ "key_type": "server_1rtt_secret", "key_phase": 0, "trigger": "tls" });
    let events = logged("key", &Observation::KeyInstalled { level, direction });
    assert_eq!(events, [event("security", "quic:key_updated", data)]);

    let data = json!({ "key_type": "client_0rtt_secret" });
    let events = logged("no-key", &Observation::KeysDiscarded { level: Level::EarlyData });
    assert_eq!(events, [event("security", "quic:key_discarded", data)]);

    let update = |key: &str| {
        let data = json!({ "key_type": key, "key_phase": 2, "trigger": "remote_update" });
        event("security", "quic:key_updated", data)
    };
    let events = logged("new-key", &Observation::KeyUpdated { updates: 2, by_peer: true });
    assert_eq!(events, [update("client_1rtt_secret"), update("server_1rtt_secret")]);

    let remote = "[2001:db8::1]:443".parse().unwrap();
    let data = json!({
        "tuple_id": "1", "tuple_remote": { "ip_v6": "2001:db8::1", "port_v6": 443 },
        "tuple_local": {}
    });
    let migration = json!({ "new": "migration_complete", "tuple_id": "1" });
    let expected = [
        event("connectivity", "quic:tuple_assigned", data),
        event("connectivity", "quic:migration_state_updated", migration),
    ];
    assert_eq!(logged("path", &Observation::PathChanged { local: None, remote }), expected);
}

#[test]
fn what_does_not_fit_the_schema_is_found() {
    let good = event("connectivity", "quic:mtu_updated", json!({ "old": 1200, "new": 1452 }));
    assert_eq!(schema::check_event(&good), Ok(()));
    for (data, wrong) in [
        (json!({ "old": 1200 }), "new is missing"),
        (json!({ "new": "1452" }), "new: \"1452\" is not uint32"),
        (json!({ "new": 1u64 << 32 }), "is not uint32"),
        (json!({ "new": 1452, "other": 1 }), "other is not in the schema"),
    ] {
        let event = event("connectivity", "quic:mtu_updated", data);
        let found = schema::check_event(&event).unwrap_err();
        assert!(found.contains(wrong), "{found}");
    }
    let unknown = event("connectivity", "quic:mtu_changed", json!({ "new": 1452 }));
    assert!(schema::check_event(&unknown).unwrap_err().contains("no known name"));
    let frames = json!({ "header": { "packet_type": "1RTT" }, "frames": [{ "frame_type": "x" }] });
    let odd = event("transport", "quic:packet_sent", frames);
    assert!(schema::check_event(&odd).unwrap_err().contains("no frame"));
}

#[test]
fn events_without_room_are_counted_in_the_file() {
    const EVENTS: u64 = 10_000;
    // One byte fills the memory: each time that the thread empties it, one event has room.
    let mut bench = Bench::new("full", 1);
    for _ in 0..EVENTS {
        bench.see(&Observation::Version(Version::V1));
    }
    bench.writer.flush();
    bench.see(&Observation::Version(Version::V2));
    let events = bench.events();
    let dropped = events.iter().filter(|event| event["name"] == "quicket:events_dropped");
    let counts: Vec<_> = dropped.map(|event| event["data"]["count"].as_u64().unwrap()).collect();
    let missing = counts.iter().sum::<u64>();
    assert!(missing > 0);
    let written = (events.len() - counts.len()) as u64;
    assert_eq!(written + missing, EVENTS + 1);
    assert_eq!(events.last().unwrap()["data"]["chosen_version"], "6b3343cf");
}

#[test]
fn a_file_that_exists_is_left_alone() {
    let bench = Bench::new("exists", 1 << 20);
    let path = bench.folder.join("abababababababab_client.sqlog");
    bench.writer.flush();
    let before = std::fs::read(&path).unwrap();
    let odcid = ConnectionId::new(&[0xab; 8]).unwrap();
    let mut second = ConnectionLog::begin(&bench.writer, 0, (Time::ZERO, Side::Client, odcid));
    second.observe(Time::ZERO, &Observation::HandshakeConfirmed);
    bench.writer.flush();
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn time_never_goes_backwards() {
    let mut bench = Bench::new("time", 1 << 20);
    bench.see(&Observation::Version(Version::V1));
    bench.log.observe(Time::ZERO, &Observation::Version(Version::V1));
    let times: Vec<_> = bench.events().iter().map(|event| event["time"].clone()).collect();
    assert_eq!(times, [6.5, 6.5]);
}
