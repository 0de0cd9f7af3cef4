//! Packets as the events that the program would have logged that has sent and received them
//! (draft-ietf-quic-qlog-quic-events).

use std::fmt::Write;
use std::time::Duration;

use quicket::Aead;
use quicket_trace::{Content, CryptoData, Packet, tls};
use quicket_wire::frame::ConnectionClose;
use quicket_wire::{Frame, FrameEncode, PacketKind, TransportParameters};
use serde_json::{Value, json};

use super::super::log::Log;
use super::blocks::Way;
use super::recovery::{Recovery, Space};

/// Connections are named by so many bytes of the first ID that their clients have sent to.
const NAME_LEN: usize = 8;

/// Tells events of connections.
#[derive(Debug, Default)]
pub(super) struct Teller {
    /// In the order in which they began, as far as packets of them were opened.
    connections: Vec<Option<Seen>>,
    /// When the first packet was seen.
    begun: Option<Duration>,
}

/// A connection.
#[derive(Debug)]
struct Seen {
    name: String,
    /// Its packets are sent, and the other side's received.
    is_client: bool,
    /// The capture says whose packets those of this host are.
    is_certain: bool,
    recovery: Recovery,
    /// What the server has sent in Handshake packets, until it has told what was agreed on.
    flight: Option<CryptoData>,
    is_complete: bool,
}

impl Seen {
    fn new(number: usize, packet: &Packet, way: Way) -> Self {
        let mut name = String::new();
        for byte in packet.dcid.as_slice().iter().take(NAME_LEN) {
            let _ = write!(name, "{byte:02x}");
        }
        // IDs may be the same, or none at all.
        let _ = write!(name, " ({})", number + 1);
        Self {
            name,
            is_client: match way {
                Way::Out => packet.from_client,
                Way::In => !packet.from_client,
                // Mostly it is the server that sends much.
                Way::Unknown => false,
            },
            is_certain: way != Way::Unknown,
            recovery: Recovery::default(),
            flight: Some(Default::default()),
            is_complete: false,
        }
    }
}

impl Teller {
    /// A packet that was opened.
    pub(super) fn on_packet(&mut self, packet: &Packet, way: Way, log: &mut Log) {
        let Some(content) = &packet.content else { return };
        let begun = *self.begun.get_or_insert(packet.at);
        let at = packet.at.saturating_sub(begun).as_secs_f64() * 1e3;
        if self.connections.len() <= content.connection {
            self.connections.resize_with(content.connection + 1, || None);
        }
        let Some(place) = self.connections.get_mut(content.connection) else { return };
        let seen = place.get_or_insert_with(|| Seen::new(content.connection, packet, way));
        let mut tell = |name: &str, data: Value| {
            let event = json!({"time": at, "name": name, "group_id": seen.name, "data": data});
            log.on_event(&event, || format!("a packet {at} ms after the first"));
        };
        let is_sent = packet.from_client == seen.is_client;
        if packet.kind == PacketKind::OneRtt && packet.from_client && !seen.is_complete {
            // Clients have its keys with the end of the handshake (RFC 9001, Section 5.7).
            seen.is_complete = true;
            tell("quic:connection_state_updated", json!({"new": "handshake_complete"}));
        }
        let (name, data) = (
            if is_sent { "quic:packet_sent" } else { "quic:packet_received" },
            data(packet, content),
        );
        tell(name, data);
        agreed(&mut seen.flight, packet, seen.is_client, &mut tell);
        let (recovery, mut found) = (&mut seen.recovery, 0);
        if is_sent {
            let is_eliciting = packet.frames().any(|frame| frame.is_ack_eliciting());
            let space = space(packet.kind);
            recovery.on_sent(space, content.number, at, packet.len as u64, is_eliciting);
        } else {
            found = acknowledged(recovery, packet, at, &mut tell);
        }
        discard(recovery, packet);
        tell("quic:recovery_metrics_updated", json!({"bytes_in_flight": recovery.in_flight()}));
        if found > 0
            && let Some(connection) = log.named(&seen.name)
        {
            connection.take_losses_back(found);
        }
    }

    /// Tells what is known of connections as a whole.
    pub(super) fn finish(self, ciphers: impl Iterator<Item = Option<Aead>>, log: &mut Log) {
        for (seen, cipher) in self.connections.into_iter().zip(ciphers) {
            let Some(seen) = seen else { continue };
            let Some(connection) = log.named(&seen.name) else { continue };
            connection.role = Some(match (seen.is_certain, seen.is_client) {
                (true, true) => "client".to_owned(),
                (true, false) => "server".to_owned(),
                (false, _) => "network; sent is what the server has sent".to_owned(),
            });
            connection.cipher = cipher.map(|cipher| cipher_name(cipher).to_owned());
        }
    }
}

const fn space(kind: PacketKind) -> Space {
    match kind {
        PacketKind::Initial => Space::Initial,
        PacketKind::Handshake => Space::Handshake,
        _ => Space::Application,
    }
}

const fn cipher_name(cipher: Aead) -> &'static str {
    match cipher {
        Aead::Aes128Gcm => "TLS_AES_128_GCM_SHA256",
        Aead::Aes256Gcm => "TLS_AES_256_GCM_SHA384",
        Aead::ChaCha20Poly1305 => "TLS_CHACHA20_POLY1305_SHA256",
        Aead::Aes128Ccm => "TLS_AES_128_CCM_SHA256",
    }
}

/// What was acknowledged tells times and losses; how many packets that were taken for lost were not.
fn acknowledged(
    recovery: &mut Recovery,
    packet: &Packet,
    at: f64,
    tell: &mut impl FnMut(&str, Value),
) -> u64 {
    let mut found = 0;
    for frame in packet.frames() {
        let Frame::Ack(ack) = frame else { continue };
        let told = recovery.on_ack(space(packet.kind), ack.largest, ack.ranges.iter(), at);
        if let Some(rtt) = told.rtt {
            let metrics = json!({"latest_rtt": rtt, "min_rtt": recovery.min_rtt});
            tell("quic:recovery_metrics_updated", metrics);
        }
        for _ in 0..told.lost {
            tell("quic:packet_lost", json!({}));
        }
        found += told.found;
    }
    found
}

/// Keys that are not needed any more are discarded, and what they protected is not awaited (RFC 9001, Section 4.9).
fn discard(recovery: &mut Recovery, packet: &Packet) {
    // A client's first Handshake packet is the end of both sides' Initial packets.
    if packet.kind == PacketKind::Handshake && packet.from_client {
        recovery.discard(Space::Initial);
    }
    if packet.frames().any(|frame| matches!(frame, Frame::HandshakeDone)) {
        recovery.discard(Space::Handshake);
    }
}

/// What the server's TLS messages say, as soon as they do.
fn agreed(
    flight: &mut Option<CryptoData>,
    packet: &Packet,
    is_client: bool,
    tell: &mut impl FnMut(&str, Value),
) {
    if packet.from_client || packet.kind != PacketKind::Handshake {
        return;
    }
    let Some(data) = flight else { return };
    let mut more = false;
    for frame in packet.frames() {
        if let Frame::Crypto(crypto) = frame {
            more |= data.add(crypto.offset, crypto.data);
        }
    }
    if !more {
        return;
    }
    let bytes = data.contiguous();
    let Some(parameters) = tls::server_parameters(bytes) else { return };
    if let Some(alpn) = tls::chosen_alpn(bytes) {
        let alpn = String::from_utf8_lossy(alpn);
        tell("quic:alpn_information", json!({"chosen_alpn": {"string_value": alpn}}));
    }
    tell("quic:parameters_set", declared(&parameters, is_client));
    *flight = None;
}

/// A server's transport parameters.
fn declared(parameters: &TransportParameters, is_client: bool) -> Value {
    json!({
        "initiator": if is_client { "remote" } else { "local" },
        "max_idle_timeout": parameters.max_idle_timeout,
        "max_udp_payload_size": parameters.max_udp_payload_size,
        "initial_max_data": parameters.initial_max_data,
        "initial_max_stream_data_bidi_local": parameters.initial_max_stream_data_bidi_local,
        "initial_max_stream_data_bidi_remote": parameters.initial_max_stream_data_bidi_remote,
        "initial_max_stream_data_uni": parameters.initial_max_stream_data_uni,
        "initial_max_streams_bidi": parameters.initial_max_streams_bidi,
        "initial_max_streams_uni": parameters.initial_max_streams_uni,
        "ack_delay_exponent": parameters.ack_delay_exponent,
        "max_ack_delay": parameters.max_ack_delay,
        "active_connection_id_limit": parameters.active_connection_id_limit,
        "max_datagram_frame_size": parameters.max_datagram_frame_size,
        "disable_active_migration": parameters.disable_active_migration,
    })
}

/// A packet with what is drawn of it.
fn data(packet: &Packet, content: &Content) -> Value {
    let kind = match packet.kind {
        PacketKind::Initial => "initial",
        PacketKind::ZeroRtt => "0RTT",
        PacketKind::Handshake => "handshake",
        PacketKind::OneRtt => "1RTT",
        PacketKind::Retry => "retry",
        PacketKind::VersionNegotiation => "version_negotiation",
        PacketKind::UnknownVersion => "unknown",
    };
    let mut header = json!({"packet_type": kind, "packet_number": content.number});
    if packet.kind != PacketKind::OneRtt {
        header["version"] = format!("{:08x}", packet.version.0).into();
    }
    let frames: Vec<Value> = packet.frames().filter_map(|frame| drawn(&frame)).collect();
    json!({"header": header, "raw": {"length": packet.len}, "frames": frames})
}

/// A frame, if it is drawn.
fn drawn(frame: &Frame<'_>) -> Option<Value> {
    Some(match frame {
        Frame::Stream(stream) => json!({
            "frame_type": "stream",
            "stream_id": stream.id.as_u64(),
            "offset": stream.offset,
            "length": stream.data.len(),
        }),
        Frame::Datagram(_) => json!({"frame_type": "datagram"}),
        Frame::ConnectionClose(close) => {
            let (space, code) = match close {
                ConnectionClose::Transport { error_code, .. } => ("transport", error_code.0),
                ConnectionClose::Application { error_code, .. } => ("application", *error_code),
            };
            let reason = String::from_utf8_lossy(close.reason());
            json!({"frame_type": "connection_close", "error_space": space, "error_code": code, "reason": reason})
        }
        _ => return None,
    })
}
