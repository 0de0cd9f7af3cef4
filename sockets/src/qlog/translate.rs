//! From what the engine reports to the events of qlog.

use std::net::SocketAddr;

use quicket_engine::crypto::{Direction, HandshakeSummary, Level};
use quicket_engine::{
    ConnectionError, DropReason, Observation, PacketContent, RecoveryParameters, TransportError,
};
use quicket_wire::{
    ConnectionId, EcnCodepoint, PacketKind, Reader, Side, TransportErrorCode, TransportParameters,
    Version, VersionNegotiation,
};

use super::event::{
    Alpn, AlpnInformation, Category, ConnectionClosed, ConnectionStarted, DropDetails, Key,
    MigrationStateUpdated, Packet, PacketBuffered, PacketDropped, PacketHeader, PacketLost,
    RecoveryParametersSet, StateUpdated, TlsParametersSet, Token, TupleAssigned, TupleEndpoint,
    VersionInformation,
};
use super::frame::{FrameList, UNKNOWN, transport_error};
use super::json::{Cid, Hex, RawInfo, Text, VersionHex};
use super::observer::ConnectionLog;
use super::parameters::ParametersSet;

impl ConnectionLog {
    /// Logs what happened.
    pub(super) fn translate(&mut self, observation: &Observation<'_>) {
        match observation {
            Observation::Packet { .. } => self.on_packet(observation),
            Observation::Metrics { path, pto_count } => self.on_metrics(path, *pto_count),
            Observation::PacketDropped { kind, size, reason } => {
                let data = PacketDropped {
                    header: kind.map(PacketHeader::of_kind),
                    raw: RawInfo::length(*size),
                    details: DropDetails { reason: drop_reason(*reason) },
                    trigger: drop_trigger(*reason),
                };
                self.records.write(Category::Transport, "quic:packet_dropped", &data);
            }
            Observation::PacketBuffered { kind, size } => {
                let header = PacketHeader::of_kind(*kind);
                let raw = RawInfo::length(*size);
                let data = PacketBuffered { header, raw, trigger: "keys_unavailable" };
                self.records.write(Category::Transport, "quic:packet_buffered", &data);
            }
            Observation::PacketLost { level, number, mtu_probe, trigger: _ } => {
                let header = PacketHeader {
                    packet_number: Some(*number),
                    ..PacketHeader::of_kind(kind_of(*level))
                };
                let data = PacketLost { header, is_mtu_probe_packet: *mtu_probe };
                self.records.write(Category::Recovery, "quic:packet_lost", &data);
            }
            _ => self.translate_rare(observation),
        }
    }

    /// What does not happen for packets.
    fn translate_rare(&mut self, observation: &Observation<'_>) {
        match observation {
            Observation::Started { local, remote, source_cid, destination_cid } => {
                let data = ConnectionStarted {
                    local: self.endpoint(*local).with_cid(Cid(*source_cid)),
                    remote: self.endpoint(Some(*remote)).with_cid(Cid(*destination_cid)),
                };
                self.records.write(Category::Connectivity, "quic:connection_started", &data);
                self.set_state("attempted");
            }
            Observation::Recovery(parameters) => {
                let data = RecoveryParametersSet::from(parameters);
                self.records.write(Category::Recovery, "quic:recovery_parameters_set", &data);
            }
            Observation::Version(version) => {
                let chosen_version = Some(VersionHex(*version));
                let data = VersionInformation { chosen_version, ..VersionInformation::default() };
                self.records.write(Category::Transport, "quic:version_information", &data);
            }
            Observation::Parameters { direction, parameters } => {
                self.on_parameters(*direction, parameters);
            }
            Observation::KeyInstalled { level, direction } => {
                self.write_key("quic:key_updated", self.sender(*direction), *level, Some("tls"));
            }
            Observation::KeysDiscarded { level } => self.on_keys_discarded(*level),
            Observation::KeyUpdated { updates, by_peer } => {
                self.on_key_update(*updates, *by_peer);
            }
            Observation::HandshakeComplete(summary) => self.on_handshake_complete(summary),
            Observation::HandshakeConfirmed => self.set_state("handshake_confirmed"),
            Observation::PathChanged { local, remote } => {
                self.moves += 1;
                let tuple_id = self.moves.to_string();
                let data = TupleAssigned {
                    tuple_id: tuple_id.clone(),
                    tuple_remote: self.endpoint(Some(*remote)),
                    tuple_local: self.endpoint(*local),
                };
                self.records.write(Category::Connectivity, "quic:tuple_assigned", &data);
                let data = MigrationStateUpdated { new: "migration_complete", tuple_id };
                self.records.write(Category::Connectivity, "quic:migration_state_updated", &data);
            }
            Observation::Closed(error) => {
                let data = ConnectionClosed::from(*error);
                self.records.write(Category::Connectivity, "quic:connection_closed", &data);
                self.set_state("closed");
            }
            // The engine may report more one day; what this log does not know, it leaves out.
            _ => {}
        }
    }

    fn endpoint(&self, address: Option<SocketAddr>) -> TupleEndpoint {
        TupleEndpoint::new(address.filter(|_| !self.anonymous))
    }

    fn set_state(&mut self, new: &'static str) {
        let old = self.state.replace(new);
        let data = StateUpdated { old, new };
        self.records.write(Category::Connectivity, "quic:connection_state_updated", &data);
    }

    fn on_packet(&mut self, observation: &Observation<'_>) {
        let Observation::Packet { direction, kind, number, size, ecn, mtu_probe, content } =
            observation
        else {
            return;
        };
        let numbered = kind.carries_frames();
        let exponent = if *kind == PacketKind::OneRtt {
            self.ack_delay_exponents.of(*direction)
        } else {
            // RFC 9000, Section 18.2: what holds before the parameter is known.
            DEFAULT_ACK_DELAY_EXPONENT
        };
        let payload = content.payload;
        let data = Packet {
            header: PacketHeader::read(*kind, *number, content),
            frames: numbered.then_some(FrameList { payload, ack_delay_exponent: exponent }),
            supported_versions: supported_versions(*kind, content),
            raw: RawInfo { length: Some(*size), payload_length: numbered.then_some(payload.len()) },
            is_mtu_probe_packet: *mtu_probe,
            ecn: ecn_name(*ecn),
        };
        let name = match direction {
            Direction::Send => "quic:packet_sent",
            Direction::Receive => "quic:packet_received",
        };
        self.records.write(Category::Transport, name, &data);
    }

    fn on_parameters(&mut self, direction: Direction, parameters: &TransportParameters) {
        self.ack_delay_exponents.set(direction, parameters.ack_delay_exponent);
        let mut data = ParametersSet::new(initiator(direction), parameters);
        if self.anonymous {
            data.preferred_address = None;
        }
        self.records.write(Category::Transport, "quic:parameters_set", &data);
        let Some(versions) = &parameters.version_information else { return };
        let available: Vec<_> =
            versions.available_versions.iter().copied().map(VersionHex).collect();
        let available = Some(available).filter(|available| !available.is_empty());
        let chosen_version = Some(VersionHex(versions.chosen_version));
        let data = match self.sender(direction) {
            Side::Client => VersionInformation {
                client_versions: available,
                server_versions: None,
                chosen_version,
            },
            Side::Server => VersionInformation {
                client_versions: None,
                server_versions: available,
                chosen_version,
            },
        };
        self.records.write(Category::Transport, "quic:version_information", &data);
    }

    fn on_handshake_complete(&mut self, summary: &HandshakeSummary) {
        if !summary.alpn.is_empty() {
            let chosen_alpn = Alpn {
                byte_value: Hex(&summary.alpn),
                string_value: std::str::from_utf8(&summary.alpn).ok(),
            };
            let data = AlpnInformation { chosen_alpn };
            self.records.write(Category::Transport, "quic:alpn_information", &data);
        }
        let data = TlsParametersSet { tls_cipher: summary.cipher_suite };
        self.records.write(Category::Transport, "quic:parameters_set", &data);
        self.set_state("handshake_complete");
    }

    fn on_keys_discarded(&mut self, level: Level) {
        self.write_key("quic:key_discarded", Side::Client, level, None);
        // RFC 9001, Section 4.9.3: only clients send early data.
        if level != Level::EarlyData {
            self.write_key("quic:key_discarded", Side::Server, level, None);
        }
    }

    fn write_key(&mut self, name: &str, sender: Side, level: Level, trigger: Option<&'static str>) {
        let key_phase = (level == Level::OneRtt).then_some(0);
        let data = Key { key_type: key_type(sender, level), key_phase, trigger };
        self.records.write(Category::Security, name, &data);
    }

    fn on_key_update(&mut self, updates: u64, by_peer: bool) {
        for sender in [Side::Client, Side::Server] {
            let data = Key {
                key_type: key_type(sender, Level::OneRtt),
                key_phase: Some(updates),
                trigger: Some(if by_peer { "remote_update" } else { "local_update" }),
            };
            self.records.write(Category::Security, "quic:key_updated", &data);
        }
    }

    /// Who sends what goes in `direction`.
    const fn sender(&self, direction: Direction) -> Side {
        match direction {
            Direction::Send => self.side,
            Direction::Receive => self.side.peer(),
        }
    }
}

/// Each side's ack_delay_exponent.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckDelayExponents {
    sent: u8,
    received: u8,
}

/// RFC 9000, Section 18.2.
const DEFAULT_ACK_DELAY_EXPONENT: u8 = 3;

impl Default for AckDelayExponents {
    fn default() -> Self {
        Self { sent: DEFAULT_ACK_DELAY_EXPONENT, received: DEFAULT_ACK_DELAY_EXPONENT }
    }
}

impl AckDelayExponents {
    const fn of(self, direction: Direction) -> u8 {
        match direction {
            Direction::Send => self.sent,
            Direction::Receive => self.received,
        }
    }

    const fn set(&mut self, direction: Direction, exponent: u8) {
        match direction {
            Direction::Send => self.sent = exponent,
            Direction::Receive => self.received = exponent,
        }
    }
}

impl PacketHeader {
    fn of_kind(kind: PacketKind) -> Self {
        Self { packet_type: packet_type(kind), ..Self::default() }
    }

    fn read(kind: PacketKind, number: u64, content: &PacketContent<'_>) -> Self {
        let known =
            Self { packet_number: kind.carries_frames().then_some(number), ..Self::of_kind(kind) };
        let header = content.header;
        if kind == PacketKind::OneRtt { known.with_short(header) } else { known.with_long(header) }
    }

    /// RFC 9000, Section 17.3.1.
    fn with_short(self, header: &[u8]) -> Self {
        let Some((first, rest)) = header.split_first() else { return self };
        let number_len = (first & 0x03) + 1;
        let cid_len = rest.len().saturating_sub(number_len.into());
        Self {
            spin_bit: Some(quicket_wire::spin(*first)),
            key_phase_bit: Some(quicket_wire::key_phase(*first)),
            packet_number_length: Some(number_len),
            dcid: rest.get(..cid_len).and_then(ConnectionId::new).map(Cid),
            ..self
        }
    }

    /// RFC 9000, Section 17.2.
    fn with_long(self, header: &[u8]) -> Self {
        let mut reader = Reader::new(header);
        let (Ok(first), Ok(version), Ok(dcid), Ok(scid)) = (
            reader.u8(),
            reader.u32(),
            ConnectionId::decode_with_len(&mut reader),
            ConnectionId::decode_with_len(&mut reader),
        ) else {
            return self;
        };
        let token = (self.packet_type == packet_type(PacketKind::Initial))
            .then(|| reader.bytes_with_varint_len().ok())
            .flatten()
            .filter(|token| !token.is_empty())
            .map(|token| Token { raw: RawInfo::length(token.len()) });
        Self {
            packet_number_length: self.packet_number.map(|_| (first & 0x03) + 1),
            token,
            version: Some(VersionHex(Version(version))),
            scil: Some(scid.len()),
            dcil: Some(dcid.len()),
            scid: Some(Cid(scid)),
            dcid: Some(Cid(dcid)),
            ..self
        }
    }
}

impl From<&RecoveryParameters> for RecoveryParametersSet {
    fn from(parameters: &RecoveryParameters) -> Self {
        Self {
            reordering_threshold: parameters.packet_threshold,
            time_threshold: parameters.time_threshold_eighths as f64 / 8.0,
            timer_granularity: parameters.granularity.as_millis(),
            initial_rtt: parameters.initial_rtt.into(),
            max_datagram_size: parameters.max_datagram_size,
            initial_congestion_window: parameters.initial_window,
            minimum_congestion_window: parameters.minimum_window,
            persistent_congestion_threshold: parameters.persistent_congestion_threshold,
        }
    }
}

impl<'a> From<&'a ConnectionError> for ConnectionClosed<'a> {
    fn from(error: &'a ConnectionError) -> Self {
        let by_transport = |initiator, code: TransportErrorCode, reason: &'a [u8]| Self {
            initiator: Some(initiator),
            connection_error: Some(transport_error(code)),
            error_code: Some(code.0),
            reason: Some(Text(reason)),
            trigger: "error",
            ..Self::default()
        };
        let by_application = |initiator, code: u64, reason: &'a [u8]| Self {
            initiator: Some(initiator),
            application_error: Some(UNKNOWN),
            error_code: Some(code),
            reason: Some(Text(reason)),
            trigger: "application",
            ..Self::default()
        };
        let silent = |initiator, trigger| Self { initiator, trigger, ..Self::default() };
        match error {
            ConnectionError::PeerTransport { code, reason, .. } => {
                by_transport("remote", *code, reason)
            }
            ConnectionError::PeerApplication { code, reason } => {
                by_application("remote", *code, reason)
            }
            ConnectionError::Local { code, reason } => by_application("local", *code, reason),
            ConnectionError::Transport(TransportError { code, reason, .. }) => {
                by_transport("local", *code, reason.as_bytes())
            }
            ConnectionError::StatelessReset => silent(Some("remote"), "stateless_reset"),
            ConnectionError::VersionNegotiation { .. } => {
                silent(Some("remote"), "version_mismatch")
            }
            ConnectionError::IdleTimeout => silent(Some("local"), "idle_timeout"),
            ConnectionError::HandshakeTimeout
            | ConnectionError::PortUnreachable
            | ConnectionError::HostUnreachable
            | ConnectionError::NoViablePath => silent(Some("local"), "aborted"),
        }
    }
}

fn supported_versions(kind: PacketKind, content: &PacketContent<'_>) -> Option<Vec<VersionHex>> {
    if kind != PacketKind::VersionNegotiation {
        return None;
    }
    let offer = VersionNegotiation::parse(content.header).ok()?;
    Some(offer.versions().map(VersionHex).collect())
}

const fn initiator(direction: Direction) -> &'static str {
    match direction {
        Direction::Send => "local",
        Direction::Receive => "remote",
    }
}

const fn kind_of(level: Level) -> PacketKind {
    match level {
        Level::Initial => PacketKind::Initial,
        Level::EarlyData => PacketKind::ZeroRtt,
        Level::Handshake => PacketKind::Handshake,
        Level::OneRtt => PacketKind::OneRtt,
    }
}

const fn packet_type(kind: PacketKind) -> &'static str {
    match kind {
        PacketKind::Initial => "initial",
        PacketKind::ZeroRtt => "0RTT",
        PacketKind::Handshake => "handshake",
        PacketKind::Retry => "retry",
        PacketKind::VersionNegotiation => "version_negotiation",
        PacketKind::OneRtt => "1RTT",
        PacketKind::UnknownVersion => UNKNOWN,
    }
}

const fn key_type(sender: Side, level: Level) -> &'static str {
    match (sender, level) {
        (Side::Client, Level::Initial) => "client_initial_secret",
        (Side::Client, Level::EarlyData) => "client_0rtt_secret",
        (Side::Client, Level::Handshake) => "client_handshake_secret",
        (Side::Client, Level::OneRtt) => "client_1rtt_secret",
        (Side::Server, Level::Initial) => "server_initial_secret",
        (Side::Server, Level::EarlyData) => "server_0rtt_secret",
        (Side::Server, Level::Handshake) => "server_handshake_secret",
        (Side::Server, Level::OneRtt) => "server_1rtt_secret",
    }
}

/// Not-ECT, the mark of most packets on most paths, is left out.
const fn ecn_name(ecn: EcnCodepoint) -> Option<&'static str> {
    match ecn {
        EcnCodepoint::NotEct => None,
        EcnCodepoint::Ect0 => Some("ECT(0)"),
        EcnCodepoint::Ect1 => Some("ECT(1)"),
        EcnCodepoint::Ce => Some("CE"),
    }
}

const fn drop_trigger(reason: DropReason) -> &'static str {
    match reason {
        DropReason::Malformed => "invalid",
        DropReason::KeysUnavailable => "key_unavailable",
        DropReason::Undecryptable => "decryption_failure",
        DropReason::Duplicate => "duplicate",
        DropReason::UnexpectedVersion => "unsupported",
        DropReason::Unexpected => "general",
        DropReason::ConnectionIdMismatch => "connection_unknown",
        DropReason::Limit => "rejected",
    }
}

const fn drop_reason(reason: DropReason) -> &'static str {
    match reason {
        DropReason::Malformed => "malformed",
        DropReason::KeysUnavailable => "keys_unavailable",
        DropReason::Undecryptable => "undecryptable",
        DropReason::Duplicate => "duplicate",
        DropReason::UnexpectedVersion => "unexpected_version",
        DropReason::Unexpected => "unexpected",
        DropReason::ConnectionIdMismatch => "connection_id_mismatch",
        DropReason::Limit => "limit",
    }
}
