//! What a file tells of one connection.

use serde_json::{Map, Value};

use super::series::{MAX_TIME, Series, Sums};
use super::streams::Streams;
use super::value::{cut, float, length, number, text, version};

/// Transport parameters of a side beyond this many are left out.
const MAX_PARAMETERS: usize = 48;

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Sent,
    Received,
}

/// What one side has sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Half {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) datagram_frames: u64,
    pub(super) streams: Streams,
    /// Bytes of all streams over time.
    pub(super) sequence: Series,
    /// Where on that curve frames were not new.
    pub(super) again: Series,
    /// How many such frames there were by then.
    pub(super) again_count: Series,
    pub(super) rate: Sums,
}

/// Curves of recovery: bytes, milliseconds, bits per second, packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Recovery {
    pub(super) congestion_window: Series,
    pub(super) bytes_in_flight: Series,
    pub(super) latest_rtt: Series,
    pub(super) smoothed_rtt: Series,
    pub(super) min_rtt: Series,
    pub(super) pacing_rate: Series,
    pub(super) lost: u64,
    pub(super) lost_probes: u64,
    /// How many packets were lost by then.
    pub(super) lost_count: Series,
    /// Where on the curve of bytes sent packets were declared lost.
    pub(super) lost_at: Series,
}

/// One connection, as one side has seen it.
#[derive(Clone, Debug, Default)]
pub(super) struct Connection {
    pub(super) name: String,
    pub(super) role: Option<String>,
    pub(super) program: Option<String>,
    pub(super) version: Option<String>,
    pub(super) alpn: Option<String>,
    pub(super) cipher: Option<String>,
    pub(super) local: Vec<(String, String)>,
    pub(super) remote: Vec<(String, String)>,
    /// After so many milliseconds.
    pub(super) handshake_complete: Option<f64>,
    pub(super) closed: Option<String>,
    pub(super) sent: Half,
    pub(super) received: Half,
    pub(super) recovery: Recovery,
    pub(super) packets_dropped: u64,
    /// What the writer of the file has left out, as it says itself.
    pub(super) events_missing: u64,
    pub(super) events: u64,
    /// The first packets of the connection are in the file.
    begun: bool,
    close_is_certain: bool,
    first_time: Option<f64>,
    /// The time of the latest event, in milliseconds since the first.
    pub(super) duration: f64,
}

impl Connection {
    pub(super) fn new(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    /// An event, at a time in milliseconds. Tells whether it is one that counts here.
    pub(super) fn on_event(&mut self, time: f64, name: &str, data: &Value) -> bool {
        let first = *self.first_time.get_or_insert(time);
        // Events should be in the order of their times (draft-ietf-quic-qlog-main-schema, Section 7.1).
        self.duration = self.duration.max((time - first).clamp(0.0, MAX_TIME));
        self.events += 1;
        // The groups of events were several before they became one, `quic`.
        match name.rsplit_once(':').map_or(name, |(_, last)| last) {
            "packet_sent" => self.on_packet(Way::Sent, data),
            "packet_received" => self.on_packet(Way::Received, data),
            "packet_lost" => self.on_lost(data),
            "packet_dropped" => self.packets_dropped += 1,
            "metrics_updated" | "recovery_metrics_updated" => self.on_metrics(data),
            "parameters_set" => self.on_parameters(data),
            "version_information" => self.set_version(&data["chosen_version"]),
            "alpn_information" => self.on_alpn(&data["chosen_alpn"]),
            "connection_started" => {
                self.begun = true;
                self.set_version(&data["quic_version"]);
            }
            "connection_state_updated" => self.on_state(&data["new"]),
            "connection_closed" => self.on_closed(data),
            "events_dropped" => {
                let missing = number(&data["count"]).unwrap_or(0);
                self.events_missing = self.events_missing.saturating_add(missing);
            }
            _ => return false,
        }
        true
    }

    fn on_packet(&mut self, way: Way, data: &Value) {
        let header = &data["header"];
        let kind = header["packet_type"].as_str().or_else(|| data["packet_type"].as_str());
        self.begun |= kind == Some("initial");
        self.set_version(&header["version"]);
        // The drafts up to 01 had it in the header.
        let len = length(data, false).or_else(|| number(&header["packet_size"])).unwrap_or(0);
        let half = self.half(way);
        half.packets += 1;
        half.bytes = half.bytes.saturating_add(len);
        let at = self.duration;
        self.half(way).rate.add(at, len);
        for frame in data["frames"].as_array().into_iter().flatten() {
            self.on_frame(way, frame);
        }
    }

    fn on_frame(&mut self, way: Way, frame: &Value) {
        match frame["frame_type"].as_str().unwrap_or_default() {
            "stream" => {
                let Some(id) = number(&frame["stream_id"]) else { return };
                let span =
                    (number(&frame["offset"]).unwrap_or(0), length(frame, true).unwrap_or(0));
                let (begun, at) = (self.begun, self.duration);
                self.half(way).on_stream(at, id, span, begun);
            }
            "datagram" => self.half(way).datagram_frames += 1,
            "connection_close" if self.closed.is_none() => {
                let by = if way == Way::Sent { "this side" } else { "the peer" };
                let space = frame["error_space"].as_str().unwrap_or("transport");
                self.closed = Some(closed_by(by, &cut(space), frame));
            }
            _ => {}
        }
    }

    fn on_lost(&mut self, data: &Value) {
        let at = self.duration;
        let recovery = &mut self.recovery;
        recovery.lost += 1;
        if data["is_mtu_probe_packet"] == true {
            recovery.lost_probes += 1;
        }
        recovery.lost_count.add(at, recovery.lost as f64);
        recovery.lost_at.add(at, self.sent.streams.total() as f64);
    }

    /// So many packets that were declared lost were not.
    pub(super) fn take_losses_back(&mut self, packets: u64) {
        let recovery = &mut self.recovery;
        recovery.lost = recovery.lost.saturating_sub(packets);
        recovery.lost_count.add(self.duration, recovery.lost as f64);
    }

    fn on_metrics(&mut self, data: &Value) {
        let at = self.duration;
        let note = |series: &mut Series, names: [&str; 2]| {
            if let Some(value) = names.iter().find_map(|name| float(&data[*name])) {
                series.add(at, value);
            }
        };
        let recovery = &mut self.recovery;
        // The latter is the name in aioquic's files.
        note(&mut recovery.congestion_window, ["congestion_window", "cwnd"]);
        note(&mut recovery.bytes_in_flight, ["bytes_in_flight"; 2]);
        note(&mut recovery.latest_rtt, ["latest_rtt"; 2]);
        note(&mut recovery.smoothed_rtt, ["smoothed_rtt"; 2]);
        note(&mut recovery.min_rtt, ["min_rtt"; 2]);
        note(&mut recovery.pacing_rate, ["pacing_rate"; 2]);
    }

    fn on_parameters(&mut self, data: &Value) {
        let Some(fields) = data.as_object() else { return };
        if let Some(cipher) = text(&data["tls_cipher"]) {
            self.cipher = Some(cipher);
        }
        if self.alpn.is_none() {
            self.on_alpn(&data["alpn"]);
        }
        let by = data["initiator"].as_str().or_else(|| data["owner"].as_str());
        match by {
            Some("remote") => collect(fields, &mut self.remote),
            Some("local") => collect(fields, &mut self.local),
            _ => {}
        }
    }

    fn on_alpn(&mut self, chosen: &Value) {
        let name = text(chosen).or_else(|| text(&chosen["string_value"]));
        if let Some(name) = name.or_else(|| text(&chosen["byte_value"])) {
            self.alpn = Some(name);
        }
    }

    fn on_state(&mut self, new: &Value) {
        let state = new.as_str().unwrap_or_default();
        if state.starts_with("handshake_complete") && self.handshake_complete.is_none() {
            self.handshake_complete = Some(self.duration);
        }
    }

    fn on_closed(&mut self, data: &Value) {
        if self.close_is_certain {
            return;
        }
        self.close_is_certain = true;
        let by = match data["initiator"].as_str().or_else(|| data["owner"].as_str()) {
            Some("local") => "this side",
            Some("remote") => "the peer",
            _ => "nobody named",
        };
        let why = data["trigger"].as_str().unwrap_or("no trigger named");
        self.closed = Some(closed_by(by, &cut(why), data));
    }

    fn set_version(&mut self, value: &Value) {
        if let Some(chosen) = version(value).filter(|version| version != "0x00000000") {
            self.version = Some(chosen);
        }
    }

    const fn half(&mut self, way: Way) -> &mut Half {
        match way {
            Way::Sent => &mut self.sent,
            Way::Received => &mut self.received,
        }
    }

    /// Whether streams count from their beginnings.
    pub(super) const fn is_whole(&self) -> bool {
        self.begun
    }
}

impl Half {
    fn on_stream(&mut self, at: f64, id: u64, span: (u64, u64), begun: bool) {
        let again = self.streams.on_frame(id, span, begun);
        let total = self.streams.total() as f64;
        self.sequence.add(at, total);
        if again {
            self.again.add(at, total);
            self.again_count.add(at, self.streams.again().0 as f64);
        }
    }
}

/// Transport parameters that are one value each; the latest counts.
fn collect(fields: &Map<String, Value>, known: &mut Vec<(String, String)>) {
    for (name, value) in fields {
        let Some(value) = text(value) else { continue };
        if ["initiator", "owner", "tls_cipher", "alpn"].contains(&&**name) {
            continue;
        }
        let (name, count) = (cut(name), known.len());
        match known.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None if count < MAX_PARAMETERS => known.push((name, value)),
            None => {}
        }
    }
}

/// Who has closed, why, with which error.
fn closed_by(by: &str, why: &str, data: &Value) -> String {
    let mut sentence = format!("by {by}: {why}");
    let names = ["connection_error", "connection_code", "application_error", "application_code"];
    let name = names.iter().chain(&["error"]).find_map(|name| text(&data[*name]));
    if let Some(name) = name.filter(|name| name != "unknown") {
        sentence = format!("{sentence}, {name}");
    }
    if let Some(code) = text(&data["error_code"]) {
        sentence = format!("{sentence}, error code {code}");
    }
    match data["reason"].as_str().filter(|reason| !reason.is_empty()) {
        Some(reason) => format!("{sentence}, “{}”", cut(reason)),
        None => sentence,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn packets_of_old_and_new_drafts_count() {
        let mut connection = Connection::new("a".into());
        let new = json!({"header": {"packet_type": "1RTT"}, "raw": {"length": 100},
            "frames": [{"frame_type": "stream", "stream_id": 0, "offset": 0,
                        "raw": {"length": 60, "payload_length": 50}}]});
        let old = json!({"packet_type": "1RTT", "header": {"packet_size": "90"},
            "frames": [{"frame_type": "stream", "stream_id": "0", "offset": "40", "length": 40}]});
        connection.begun = true;
        assert!(connection.on_event(1e12, "quic:packet_sent", &new));
        assert!(connection.on_event(1e12 + 5.0, "transport:packet_sent", &old));
        assert!(!connection.on_event(1e12 + 7.0, "made:up", &json!(null)));
        let sent = &connection.sent;
        assert_eq!((sent.packets, sent.bytes, sent.streams.total()), (2, 190, 80));
        assert_eq!(sent.streams.again(), (1, 10));
        assert!((connection.duration - 7.0).abs() < 1e-3);
    }

    #[test]
    fn a_close_is_told_in_words() {
        let mut connection = Connection::new("a".into());
        let frame = json!({"frames": [{"frame_type": "connection_close", "error_space":
            "application", "error_code": 7, "reason": "done"}]});
        connection.on_event(0.0, "quic:packet_received", &frame);
        assert_eq!(
            connection.closed.as_deref(),
            Some("by the peer: application, error code 7, “done”")
        );
        let event = json!({"initiator": "local", "trigger": "idle_timeout"});
        connection.on_event(0.0, "quic:connection_closed", &event);
        assert_eq!(connection.closed.as_deref(), Some("by this side: idle_timeout"));
    }

    #[test]
    fn parameters_of_a_file_are_bounded() {
        let mut connection = Connection::new("a".into());
        let mut fields = Map::new();
        for number in 0..1000 {
            fields.insert(format!("{number}{}", "x".repeat(1000)), json!("y".repeat(1000)));
        }
        fields.insert("owner".into(), json!("remote"));
        connection.on_event(0.0, "transport:parameters_set", &Value::Object(fields));
        assert_eq!(connection.remote.len(), MAX_PARAMETERS);
        assert!(connection.remote.iter().all(|(name, value)| name.len() + value.len() < 400));
    }
}
