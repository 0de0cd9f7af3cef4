//! From a datagram to frames: coalesced packets, header protection, packet protection,
//! duplicates (RFC 9000, Section 12; RFC 9001, Section 5).

use quicket_wire::{
    ConnectionId, EcnCodepoint, Header, PacketKind, TransportErrorCode, header_sample,
    packet_number, reserved_bits_are_zero, spin, unprotect,
};

use super::Connection;
use super::keys::KeyChoice;
use super::paths::four_tuple;
use super::space::SpaceId;
use crate::crypto::{CipherError, Direction, Level, OpenJob, TAG_LEN};
use crate::endpoint::Datagram;
use crate::error::{ConnectionError, TransportError};
use crate::observer::{DropReason, Observation, PacketContent};
use crate::path::FourTuple;
use crate::recovery::PathKey;
use crate::stateless_reset;
use crate::time::Time;

/// Where, when and how a packet came in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) now: Time,
    pub(super) tuple: FourTuple,
    /// The path, if it is a known one.
    pub(super) path: Option<PathKey>,
    pub(super) ecn: EcnCodepoint,
    /// Length of the whole datagram.
    pub(super) datagram_len: usize,
}

/// A packet whose header protection is gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    pub(super) number: u64,
    /// Where in the packet the payload begins.
    pub(super) payload: usize,
}

/// What became of a packet.
enum Outcome {
    Processed,
    Dropped(DropReason),
    /// Keep it until there are keys or the cipher is done.
    Wait(Option<Opened>),
}

impl Connection {
    /// Processes a datagram that [`crate::Endpoint::route`] found to be this connection's.
    /// Packets are opened in place.
    pub fn handle_datagram(&mut self, now: Time, datagram: &mut Datagram<'_>) {
        let len = datagram.data.len();
        self.reporting.counters.count().udp_received(len);
        if !self.termination.is_open() {
            self.termination.on_datagram(now);
            return;
        }
        self.wake_keys(now);
        let tuple = four_tuple(datagram.local, datagram.remote);
        let path = self.paths.on_datagram(&tuple, len);
        let arrival = Arrival { now, tuple, path, ecn: datagram.ecn, datagram_len: len };
        let opened_before = self.reporting.counters.count().packets_received;
        let mut first_dcid = None;
        let mut rest = &mut *datagram.data;
        while !rest.is_empty() && self.termination.is_open() {
            let Ok(header) = Header::parse(rest, self.endpoint.cid_generator.len()) else {
                self.reporting.packet_dropped(now, None, rest.len(), DropReason::Malformed);
                break;
            };
            let Some((packet, tail)) = core::mem::take(&mut rest).split_at_mut_checked(header.end)
            else {
                break;
            };
            rest = tail;
            // RFC 9000, Section 12.2: coalesced packets are for one connection.
            if *first_dcid.get_or_insert(header.dcid) != header.dcid {
                let kind = Some(header.kind);
                self.reporting.packet_dropped(
                    now,
                    kind,
                    packet.len(),
                    DropReason::ConnectionIdMismatch,
                );
                continue;
            }
            self.handle_packet(&arrival, &header, packet, None);
        }
        if self.reporting.counters.count().packets_received == opened_before {
            self.detect_stateless_reset(now, datagram.data);
        }
        self.after_receiving(now);
    }

    /// Goes on with a 1-RTT packet whose header protection is gone, alone in its datagram.
    pub(super) fn resume_datagram(
        &mut self,
        arrival: &Arrival,
        header: &Header,
        packet: &mut [u8],
        bare: Opened,
    ) {
        let opened_before = self.reporting.counters.count().packets_received;
        self.handle_packet(arrival, header, packet, Some(bare));
        if self.reporting.counters.count().packets_received == opened_before {
            self.detect_stateless_reset(arrival.now, packet);
        }
    }

    /// Lets TLS read what came, and opens what waited for its keys.
    pub(super) fn after_receiving(&mut self, now: Time) {
        self.read_all(now);
        if let Some(error) = self.termination.take_hidden_close() {
            self.drain(now, *error);
        }
    }

    fn read_all(&mut self, now: Time) {
        // Each round opens packets only if new keys came, so there are at most as many rounds as
        // key changes.
        for _ in 0..8 {
            if !self.termination.is_open() {
                return;
            }
            if self.reception.take_crypto()
                && let Err(error) = self.drive_handshake(now)
            {
                return self.fail(now, error);
            }
            if !self.reception.take_retry() {
                return;
            }
            self.retry_waiting_packets();
        }
    }

    /// Opens packets that waited, as far as that works now.
    fn retry_waiting_packets(&mut self) {
        for _ in 0..self.reception.waiting() {
            let Some(mut packet) = self.reception.pop() else { return };
            if !self.termination.is_open() {
                return;
            }
            self.handle_packet(&packet.arrival, &packet.header, &mut packet.data, packet.bare);
        }
    }

    fn handle_packet(
        &mut self,
        arrival: &Arrival,
        header: &Header,
        packet: &mut [u8],
        bare: Option<Opened>,
    ) {
        let kind = header.kind;
        let is_valid = self.reception.takes_fixed_bit(header.fixed_bit());
        let outcome = match level_of(kind) {
            _ if !is_valid && kind.has_fixed_bit() => Ok(Outcome::Dropped(DropReason::Malformed)),
            Some(level) => self.open_and_process(arrival, header, level, packet, bare),
            None => self.handle_unprotected(arrival, header, packet),
        };
        match outcome {
            Ok(Outcome::Processed) => {}
            Ok(Outcome::Dropped(reason)) => {
                self.reporting.packet_dropped(arrival.now, Some(kind), packet.len(), reason);
            }
            Ok(Outcome::Wait(bare)) => self.keep(arrival, header, packet, bare),
            Err(error) => self.fail(arrival.now, error),
        }
    }

    /// Retry and Version Negotiation.
    fn handle_unprotected(
        &mut self,
        arrival: &Arrival,
        header: &Header,
        packet: &[u8],
    ) -> Result<Outcome, TransportError> {
        let used = match header.kind {
            PacketKind::Retry => self.handle_retry(arrival, header, packet),
            PacketKind::VersionNegotiation => {
                self.handle_version_negotiation(arrival, header, packet)
            }
            PacketKind::UnknownVersion
            | PacketKind::Initial
            | PacketKind::ZeroRtt
            | PacketKind::Handshake
            | PacketKind::OneRtt => false,
        };
        Ok(if used { Outcome::Processed } else { Outcome::Dropped(DropReason::Unexpected) })
    }

    pub(super) fn keep(
        &mut self,
        arrival: &Arrival,
        header: &Header,
        packet: &[u8],
        bare: Option<Opened>,
    ) {
        let (now, kind, size) = (arrival.now, header.kind, packet.len());
        if self.reception.keep(arrival, header, packet, bare) {
            self.reporting.observe(now, &Observation::PacketBuffered { kind, size });
        } else {
            let reason = DropReason::KeysUnavailable;
            self.reporting.packet_dropped(now, Some(kind), size, reason);
        }
    }

    fn open_and_process(
        &mut self,
        arrival: &Arrival,
        header: &Header,
        level: Level,
        packet: &mut [u8],
        bare: Option<Opened>,
    ) -> Result<Outcome, TransportError> {
        if level != Level::OneRtt && !self.version_is_expected(header, level) {
            return Ok(Outcome::Dropped(DropReason::UnexpectedVersion));
        }
        // RFC 9001, Section 5.7: no 1-RTT packet is processed before the handshake is complete.
        if level == Level::OneRtt && !self.handshake.complete {
            return Ok(Outcome::Wait(None));
        }
        if !self.keys_exist(level, header) {
            let gone = match level {
                Level::Initial | Level::Handshake => {
                    self.recovery.spaces.get(SpaceId::of(level)).is_none()
                }
                Level::EarlyData => self.role.side().is_client() || self.handshake.complete,
                Level::OneRtt => false,
            };
            return Ok(if gone || level == Level::Initial {
                Outcome::Dropped(DropReason::KeysUnavailable)
            } else {
                Outcome::Wait(None)
            });
        }
        let plain = level == Level::OneRtt && self.keys.is_1rtt_plain();
        let bare = match bare {
            Some(bare) => bare,
            None => match self.remove_header_protection(level, header, packet, plain) {
                Some(bare) => bare,
                None => return Ok(Outcome::Dropped(DropReason::Malformed)),
            },
        };
        let space = self.recovery.spaces.get(SpaceId::of(level));
        if space.is_some_and(|space| space.received.is_duplicate(bare.number)) {
            return Ok(Outcome::Dropped(DropReason::Duplicate));
        }
        let len = if plain {
            packet.len().saturating_sub(bare.payload)
        } else {
            match self.open_packet(arrival.now, level, header, packet, bare)? {
                Ok(len) => len,
                Err(CipherError::NotYet) => return Ok(Outcome::Wait(Some(bare))),
                Err(CipherError::Failed) => {
                    self.keys.open_failed()?;
                    return Ok(Outcome::Dropped(DropReason::Undecryptable));
                }
            }
        };
        // RFC 9000, Section 17.2 and 17.3.1: checked only once the packet has authenticated.
        if !packet.first().is_some_and(|first| reserved_bits_are_zero(*first)) {
            return Err(TransportError::new(
                TransportErrorCode::PROTOCOL_VIOLATION,
                "reserved bits of a packet header are set",
            ));
        }
        let spin = packet.first().is_some_and(|first| spin(*first));
        let content = PacketContent {
            header: packet.get(..bare.payload).unwrap_or_default(),
            payload: packet.get(bare.payload..bare.payload.saturating_add(len)).unwrap_or_default(),
        };
        self.process_packet(arrival, header, (level, bare.number, spin), content)?;
        Ok(Outcome::Processed)
    }

    fn keys_exist(&self, level: Level, header: &Header) -> bool {
        self.keys.receiving(level, header.version).is_some()
    }

    fn remove_header_protection(
        &mut self,
        level: Level,
        header: &Header,
        packet: &mut [u8],
        plain: bool,
    ) -> Option<Opened> {
        let mask = if plain {
            [0; 5]
        } else {
            let sample = header_sample(packet, header.pn_offset)?;
            self.keys.receiving(level, header.version)?.header.mask(sample)
        };
        let (pn_len, truncated) = unprotect(packet, header.pn_offset, mask)?;
        let expected = self.recovery.spaces.get(SpaceId::of(level))?.received.expected();
        let number = packet_number::decode(truncated, pn_len, expected);
        Some(Opened { number, payload: header.pn_offset.saturating_add(pn_len) })
    }

    fn open_packet(
        &mut self,
        now: Time,
        level: Level,
        header: &Header,
        packet: &mut [u8],
        bare: Opened,
    ) -> Result<Result<usize, CipherError>, TransportError> {
        if packet.len() < bare.payload.saturating_add(TAG_LEN) {
            return Ok(Err(CipherError::Failed));
        }
        let phase = packet.first().is_some_and(|first| quicket_wire::key_phase(*first));
        let mut job = OpenJob { packet_number: bare.number, header_len: bare.payload, packet };
        if level != Level::OneRtt {
            let Some(keys) = self.keys.receiving(level, header.version) else {
                return Ok(Err(CipherError::Failed));
            };
            return Ok(keys.packet.open(&mut job));
        }
        let choice = self.keys.choose(phase, bare.number);
        let Some(key) = self.keys.chosen(choice) else { return Ok(Err(CipherError::Failed)) };
        let result = key.open(&mut job);
        if result.is_ok() {
            self.opened_1rtt(now, choice, bare.number)?;
        }
        Ok(result)
    }

    pub(super) fn opened_1rtt(
        &mut self,
        now: Time,
        choice: KeyChoice,
        number: u64,
    ) -> Result<(), TransportError> {
        // RFC 9001, Section 6.5: keep old keys for three times the PTO at most.
        let forget_at = now + self.pto().times(3);
        if self.keys.opened(choice, number, forget_at)? {
            self.on_key_update(now, true);
        }
        Ok(())
    }

    /// A packet has authenticated.
    pub(super) fn process_packet(
        &mut self,
        arrival: &Arrival,
        header: &Header,
        (level, number, spin): (Level, u64, bool),
        content: PacketContent<'_>,
    ) -> Result<(), TransportError> {
        let now = arrival.now;
        let Some(path) = self.admit_path(arrival, header, level)? else {
            self.reporting.packet_dropped(
                now,
                Some(header.kind),
                header.end,
                DropReason::Unexpected,
            );
            return Ok(());
        };
        let counters = self.reporting.counters.count();
        counters.packets_received = counters.packets_received.saturating_add(1);
        self.observe_received(arrival, header, number, content);
        if level != Level::OneRtt {
            self.on_long_header(now, header, level)?;
        }
        let space = self.recovery.spaces.get(SpaceId::of(level));
        let known = space.and_then(|space| space.received.largest());
        let newest = known.is_none_or(|largest| number > largest);
        let summary = self.process_frames(arrival, header, (level, path), content.payload)?;
        self.idle.on_received(now, summary.ack_eliciting);
        if let Some(space) = self.recovery.spaces.of_level_mut(level) {
            space.received.record(number, now, arrival.ecn);
            let eliciting = summary.ack_eliciting;
            space.acks.on_packet(now, number, eliciting, arrival.ecn, &space.received);
            if eliciting {
                self.recovery.hurry_handshake(level);
            }
        }
        if level == Level::OneRtt {
            self.update_spin(path, spin, newest);
            self.on_packet_path(now, &header.dcid, path, (newest, summary.probing_only))?;
        }
        Ok(())
    }

    pub(super) fn observe_received(
        &mut self,
        arrival: &Arrival,
        header: &Header,
        number: u64,
        content: PacketContent<'_>,
    ) {
        let packet = Observation::Packet {
            direction: Direction::Receive,
            kind: header.kind,
            number,
            size: header.end,
            ecn: arrival.ecn,
            mtu_probe: false,
            content,
        };
        self.reporting.observe(arrival.now, &packet);
    }

    /// RFC 9000, Section 10.3.1: a datagram with no packet for us may tell us that the peer has
    /// lost the connection.
    pub(super) fn detect_stateless_reset(&mut self, now: Time, datagram: &[u8]) {
        let crypto = self.keys.crypto().clone();
        let is_reset = stateless_reset::candidate_token(datagram)
            .is_some_and(|token| self.cids.remote.is_reset_token(&*crypto, &token.0));
        if is_reset {
            self.end(now, ConnectionError::StatelessReset);
        }
    }

    /// The peer's connection ID of the first packet that we opened (RFC 9000, Section 7.2).
    pub(super) fn remember_peer_cid(&mut self, scid: ConnectionId) {
        if self.handshake.cids.remote_scid.is_none() {
            self.handshake.cids.remote_scid = Some(scid);
            self.cids.remote.set_initial(scid);
        }
    }
}

const fn level_of(kind: PacketKind) -> Option<Level> {
    match kind {
        PacketKind::Initial => Some(Level::Initial),
        PacketKind::ZeroRtt => Some(Level::EarlyData),
        PacketKind::Handshake => Some(Level::Handshake),
        PacketKind::OneRtt => Some(Level::OneRtt),
        PacketKind::Retry | PacketKind::VersionNegotiation | PacketKind::UnknownVersion => None,
    }
}
