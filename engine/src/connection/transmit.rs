//! Writes the next datagrams: which packets, with which frames, on which path.

use core::net::SocketAddr;

use quicket_wire::{EcnCodepoint, TransportErrorCode};

use super::Connection;
use super::content::{self, Owners, SpaceContent};
use super::packet_builder::{BuiltPacket, HeaderFields, Ledger, PacketBuilder, kind_of};
use super::parameters::exponent_of;
use super::sealing::Draft;
use super::send_run::RunSpace;
use super::space::SpaceId;
use super::state::State;
use super::transmission::Finished;
use crate::config::MIN_UDP_PAYLOAD;
use crate::congestion::RateSnapshot;
use crate::crypto::{Direction, Level};
use crate::error::{ConnectionError, TransportError};
use crate::observer::Observation;
use crate::path::CHALLENGE_ROOM;
use crate::recovery::{PathKey, SentInfo};
use crate::time::Time;

/// Datagrams to send: the first `len` bytes of the buffer, to be cut into datagrams of
/// `segment_size` bytes, of which the last may be shorter. Ready for segmentation offload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to send them.
    pub remote: SocketAddr,
    /// The address to send them from, if it matters.
    pub local: Option<SocketAddr>,
    /// The mark for their IP headers.
    pub ecn: EcnCodepoint,
    /// Bytes of the buffer that are in use.
    pub len: usize,
    /// The size of each datagram; `len` if there is only one.
    pub segment_size: usize,
}

/// What [`Connection::poll_transmit`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransmitStatus {
    /// There is nothing to send now.
    Idle,
    /// Send this, and ask again.
    Ready(Transmit),
    /// The cipher is not done: ask again later with the same, unchanged buffer.
    NotYet,
}

/// Why the connection ends when the cipher does not seal a packet.
const CIPHER_FAILED: TransportError =
    TransportError::new(TransportErrorCode::INTERNAL_ERROR, "the cipher failed to seal a packet");

/// Encryption levels in the order in which their packets are coalesced
/// (RFC 9000, Section 12.2).
const LEVELS: [Level; 4] = [Level::Initial, Level::EarlyData, Level::Handshake, Level::OneRtt];

/// Which path a datagram takes, as the parts need to know it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) key: PathKey,
    pub(super) remote: SocketAddr,
    pub(super) local: Option<SocketAddr>,
    pub(super) ecn: EcnCodepoint,
}

/// What the datagram under construction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Whatever is to be sent on the active path.
    Data,
    /// A larger MTU (RFC 8899).
    MtuProbe,
    /// PATH_CHALLENGE or PATH_RESPONSE, padded to 1200 bytes (RFC 9000, Section 8.2.1).
    PathProbe,
    /// CONNECTION_CLOSE.
    Close,
}

/// A datagram under construction.
#[derive(Debug)]
pub(super) struct Outgoing<'b> {
    pub(super) now: Time,
    /// The whole transmit buffer.
    pub(super) buf: &'b mut [u8],
    /// Where in it the datagram begins.
    pub(super) start: usize,
    /// How long the datagram may be.
    pub(super) limit: usize,
    pub(super) route: Route,
    pub(super) purpose: Purpose,
    /// The congestion controller and the pacer let it carry ack-eliciting frames.
    pub(super) may_elicit: bool,
    /// It carries PATH_CHALLENGE or PATH_RESPONSE.
    path_frames: bool,
    packets: [Option<BuiltPacket>; 4],
    /// Where in the buffer the last packet ends.
    end: usize,
}

impl<'b> Outgoing<'b> {
    pub(super) fn new(
        now: Time,
        buf: &'b mut [u8],
        route: Route,
        limit: usize,
        purpose: Purpose,
    ) -> Self {
        Self {
            now,
            buf,
            start: 0,
            limit,
            route,
            purpose,
            may_elicit: true,
            path_frames: false,
            packets: [None; 4],
            end: 0,
        }
    }

    fn push(&mut self, packet: BuiltPacket) {
        self.end = packet.unsealed.end;
        if let Some(slot) = self.packets.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some(packet);
        }
    }

    fn is_empty(&self) -> bool {
        self.packets.iter().all(Option::is_none)
    }

    /// Pads the last packet so that the datagram has `minimum` bytes.
    fn pad_to(&mut self, minimum: usize) {
        let end = self.start.saturating_add(minimum);
        if let Some(last) = self.packets.iter_mut().rev().flatten().next()
            && last.unsealed.end < end
        {
            last.pad(self.buf, end);
            self.end = end;
        }
    }
}

impl Connection {
    /// Writes the next datagrams into `buf`: up to `max_segments` of equal size (the last may be
    /// shorter) for one destination. `buf` should hold `max_segments` times the path's MTU;
    /// 64 KiB always do. Call until it answers [`TransmitStatus::Idle`].
    pub fn poll_transmit(
        &mut self,
        now: Time,
        buf: &mut [u8],
        max_segments: usize,
    ) -> TransmitStatus {
        if let Some(draft) = self.transmission.take_draft()
            && let Some(status) = self.finish_draft(now, buf, *draft)
        {
            return status;
        }
        self.watch_key_usage(now);
        let draft = match self.termination.state() {
            State::Draining { .. } | State::Drained => None,
            State::Closing { .. } => {
                self.transmit_last_flight(now, buf).or_else(|| self.transmit_close(now, buf))
            }
            State::Open => self
                .transmit_path_probe(now, buf)
                .or_else(|| self.transmit_mtu_probe(now, buf))
                .or_else(|| self.transmit_data(now, buf, max_segments)),
        };
        match draft {
            Some(draft) => self.finish_draft(now, buf, draft).unwrap_or(TransmitStatus::Idle),
            None => {
                if self.transmission.pacing_until().is_none() {
                    self.paths.active_mut().congestion.set_app_limited();
                }
                TransmitStatus::Idle
            }
        }
    }

    /// Seals what is still to be sealed of a draft; `None` if it is given up, and others may follow.
    #[inline(never)] // keeps its frame out of that of `poll_transmit`
    fn finish_draft(
        &mut self,
        now: Time,
        buf: &mut [u8],
        draft: Draft<Transmit>,
    ) -> Option<TransmitStatus> {
        if !self.termination.may_send() {
            self.transmission.abandon(draft);
            return None;
        }
        match self.transmission.finish(&self.keys, buf, draft) {
            Finished::Ready { transmit, discard_initial } => {
                if discard_initial {
                    self.discard_space(now, SpaceId::Initial);
                }
                self.set_loss_timer();
                Some(TransmitStatus::Ready(transmit))
            }
            Finished::NotYet => Some(TransmitStatus::NotYet),
            Finished::Discarded => None,
            // Not a word to the peer: CONNECTION_CLOSE would need the same cipher.
            Finished::Failed => {
                self.drain(now, ConnectionError::Transport(CIPHER_FAILED));
                // Whoever sends on hears of it by a stateless reset.
                self.termination.cut_short(now);
                Some(TransmitStatus::Idle)
            }
        }
    }

    fn transmit_data(
        &mut self,
        now: Time,
        buf: &mut [u8],
        max_segments: usize,
    ) -> Option<Draft<Transmit>> {
        let route = self.active_route();
        let mtu = usize::from(self.paths.active().max_datagram());
        let mut segment_size = mtu;
        let mut end = 0;
        let quantum = usize::try_from(self.paths.active().congestion.send_quantum());
        let max_segments =
            max_segments.min(quantum.unwrap_or(usize::MAX).checked_div(mtu).unwrap_or(0));
        let mut segment = 0;
        while segment < max_segments.max(1) {
            if segment > 0 {
                let most = max_segments.saturating_sub(segment);
                let (start, size) = (end, segment_size);
                let mut run = RunSpace { now, buf: &mut *buf, start, size, most, route };
                let written = self.write_run(&mut run);
                end = end.saturating_add(written.saturating_mul(size));
                segment = segment.saturating_add(written);
                if !self.transmission.takes_more() || segment >= max_segments {
                    break;
                }
                if written > 0 {
                    continue;
                }
            }
            let room = buf.len().saturating_sub(end).min(segment_size);
            // RFC 9000, Section 8.2.1: challenges are to show that the path carries 1200 bytes; it
            // is not known yet whether it carries what the one before did.
            let limit = match self.has_path_frames(now) {
                true => room.min(usize::from(MIN_UDP_PAYLOAD)).min(self.sendable(now)),
                false => room.min(self.sendable(now)),
            };
            // Segments are of one size: what does not fit a whole one waits for the next call.
            if limit < MIN_PACKET || (segment > 0 && limit < segment_size) {
                break;
            }
            let mut out = Outgoing::new(now, &mut *buf, route, limit, Purpose::Data);
            out.start = end;
            out.end = end;
            let congestion = &mut self.paths.active_mut().congestion;
            out.may_elicit = self.transmission.may_elicit(now, congestion, segment_size);
            let Some(len) = self.write_datagram(&mut out) else { break };
            end = end.saturating_add(len);
            if segment == 0 {
                segment_size = len;
            }
            segment = segment.saturating_add(1);
            if len < segment_size || segment_size < mtu {
                break;
            }
            if !self.transmission.goes_on(&self.keys, buf) {
                break;
            }
        }
        (end > 0).then(|| route.transmit(end, segment_size))
    }

    /// What completes the peer's handshake leaves before the close: the peer learns of the
    /// application's reason from a 1-RTT packet only (RFC 9000, Section 10.2.3), which it cannot
    /// read sooner (RFC 9001, Section 5.7).
    fn transmit_last_flight(&mut self, now: Time, buf: &mut [u8]) -> Option<Draft<Transmit>> {
        let space = self.recovery.spaces.get(SpaceId::Handshake)?;
        if !self.handshake.complete || !space.crypto.has_pending() {
            return None;
        }
        let path = self.paths.active();
        let limit = buf.len().min(usize::from(path.max_datagram())).min(path.sendable());
        let route = self.active_route();
        let mut out = Outgoing::new(now, buf, route, limit, Purpose::Data);
        self.write_packet(&mut out, Level::Handshake);
        let len = self.finish_datagram(&mut out)?;
        Some(route.transmit(len, len))
    }

    /// How long a datagram on the active path may be under the anti-amplification limit.
    fn sendable(&self, now: Time) -> usize {
        let path = self.paths.active();
        let challenge = path.validation.is_challenge_due(now).then_some(CHALLENGE_ROOM);
        path.sendable_data().max(challenge.unwrap_or(0)).min(path.sendable())
    }

    /// Writes one datagram; returns its length.
    fn write_datagram(&mut self, out: &mut Outgoing<'_>) -> Option<usize> {
        if self.datagrams.has_pending() {
            self.update_datagram_limit();
        }
        for level in LEVELS {
            if self.wants_packet(out.now, level, out.may_elicit) {
                self.write_packet(out, level);
            }
        }
        self.finish_datagram(out)
    }

    /// Whether a packet of `level` would have something to say.
    fn wants_packet(&self, now: Time, level: Level, may_elicit: bool) -> bool {
        if !self.keys.can_send(level) {
            return false;
        }
        let Some(space) = self.recovery.spaces.get(SpaceId::of(level)) else { return false };
        if level == Level::EarlyData {
            let early = !self.keys.can_send(Level::OneRtt);
            return early && (space.probes > 0 || (may_elicit && self.has_stream_data()));
        }
        if space.acks.should_send_ack(now) || space.probes > 0 {
            return true;
        }
        if level == Level::OneRtt && self.paths.active().validation.is_challenge_due(now) {
            return true;
        }
        may_elicit
            && (space.crypto.has_pending()
                || space.ping
                || (level == Level::OneRtt && self.has_1rtt_data(now)))
    }

    fn has_stream_data(&self) -> bool {
        self.streams.has_pending() || self.datagrams.has_pending()
    }

    fn has_1rtt_data(&self, now: Time) -> bool {
        self.has_stream_data() || self.has_1rtt_control(now)
    }

    /// Whether PATH_CHALLENGE or PATH_RESPONSE is to go out on the active path.
    fn has_path_frames(&self, now: Time) -> bool {
        let path = self.paths.active();
        path.responses.has_pending() || path.validation.is_challenge_due(now)
    }

    /// Whether there are frames for 1-RTT packets that are not the streams' or DATAGRAM.
    pub(super) fn has_1rtt_control(&self, now: Time) -> bool {
        self.pending.is_pending()
            || self.cids.has_frames()
            || self.recovery.ack_frequency.next_frame().is_some()
            || self.has_path_frames(now)
    }

    /// Writes one packet of `level` behind those already in the datagram.
    fn write_packet(&mut self, out: &mut Outgoing<'_>, level: Level) {
        let (now, may_elicit) = (out.now, out.may_elicit);
        let mut path_frames = false;
        self.build_packet(out, level, |space, owners, packet| {
            // Challenges do not wait for the congestion window, which packets may fill that went
            // to where the peer is no more. Their own timer spaces them.
            let may_probe = may_elicit || *space.probes > 0 || owners.is_challenge_due();
            if level == Level::OneRtt && may_probe {
                path_frames = owners.write_path(packet);
            }
            if level != Level::EarlyData {
                let acks = (&mut *space.received, &mut *space.acks);
                content::write_ack(now, acks, owners.ack_delay_exponent, packet);
            }
            if !may_elicit && *space.probes == 0 {
                return;
            }
            if matches!(level, Level::Initial | Level::Handshake)
                && *space.probes > 0
                && !space.crypto.has_pending()
            {
                // The second probe carries the flight too, rather than a PING.
                space.crypto.resend_all();
            }
            if level != Level::EarlyData {
                space.crypto.write_frames(packet);
            }
            if matches!(level, Level::EarlyData | Level::OneRtt) {
                owners.write(level, packet);
            }
            let owed = *space.probes > 0 || *space.ping;
            if (packet.is_ack_eliciting() || owed)
                && (packet.is_ack_eliciting() || content::write_ping(packet))
            {
                *space.probes = space.probes.saturating_sub(1);
                *space.ping = false;
            }
        });
        out.path_frames |= path_frames;
    }

    /// Builds a packet that `write` fills; nothing comes of it if `write` writes no frame.
    #[inline(never)] // keeps the frames of its callers small
    pub(super) fn build_packet(
        &mut self,
        out: &mut Outgoing<'_>,
        level: Level,
        write: impl FnOnce(&mut SpaceContent<'_>, &mut Owners<'_>, &mut PacketBuilder<'_>),
    ) {
        self.wake_keys(out.now);
        let id = SpaceId::of(level);
        let Some(dcid) = self.cids.remote.get(out.route.key) else { return };
        self.give_up_on_silence(out.now, id);
        let Some(space) = self.recovery.spaces.get_mut(id) else { return };
        if !space.recovery.reserve() {
            return;
        }
        space.maybe_skip_packet_number(&mut *self.rng);
        let path = self.paths.get_mut(out.route.key);
        let spin = level == Level::OneRtt
            && path.is_some_and(|path| path.spin.next(&dcid, &mut *self.rng));
        let header = HeaderFields {
            level,
            version: self.handshake.versions.of_level(level),
            dcid,
            scid: self.handshake.cids.local_scid,
            token: if level == Level::Initial { self.role.token() } else { &[] },
            fixed_bit: self.transmission.fixed_bit(&mut *self.rng),
            spin,
            key_phase: self.keys.phase(),
        };
        let ledger = Ledger {
            recovery: &mut space.recovery,
            counts: &mut self.reporting.counters.count().frames_sent,
        };
        let mut space = SpaceContent {
            received: &mut space.received,
            acks: &mut space.acks,
            crypto: &mut space.crypto,
            probes: &mut space.probes,
            ping: &mut space.ping,
        };
        let mut owners = Owners {
            now: out.now,
            path: out.route.key,
            ack_delay_exponent: exponent_of(self.handshake.local_parameters.as_ref()),
            pending: &mut self.pending,
            cids: &mut self.cids,
            paths: &mut self.paths,
            ack_frequency: &mut self.recovery.ack_frequency,
            datagrams: &mut self.datagrams,
            streams: &mut self.streams,
            rng: &mut *self.rng,
        };
        let limit = out.start.saturating_add(out.limit);
        let begin = out.end;
        let Some(room) = out.buf.get_mut(begin..limit) else { return };
        let plain = level == Level::OneRtt && self.keys.is_1rtt_plain();
        let Some(mut packet) = PacketBuilder::begin(room, begin, &header, plain, ledger) else {
            return;
        };
        write(&mut space, &mut owners, &mut packet);
        if packet.is_empty() {
            packet.abandon();
        } else {
            let built = packet.finish();
            out.push(built);
        }
    }

    /// Pads the datagram where it must be, and records its packets as sent; returns its length.
    pub(super) fn finish_datagram(&mut self, out: &mut Outgoing<'_>) -> Option<usize> {
        if out.is_empty() {
            return None;
        }
        out.pad_to(self.minimum_datagram(out));
        let len = out.end.saturating_sub(out.start);
        for packet in out.packets.iter().flatten() {
            self.on_packet_sent(out, packet);
        }
        self.reporting.counters.count().udp_sent(len);
        let pto = self.pto();
        self.paths.on_datagram_sent(out.now, out.route.key, len, out.route.ecn, pto);
        Some(len)
    }

    /// How long a datagram must be (RFC 9000, Sections 8.2.1, 8.2.2 and 14.1).
    fn minimum_datagram(&self, out: &Outgoing<'_>) -> usize {
        let initial = out.packets.iter().flatten().any(|packet| {
            packet.unsealed.level == Level::Initial
                && (self.role.side().is_client() || packet.ack_eliciting)
        });
        let full = out.limit.min(usize::from(MIN_UDP_PAYLOAD));
        match out.purpose {
            Purpose::MtuProbe => out.limit,
            Purpose::PathProbe => full,
            Purpose::Data if initial || out.path_frames => full,
            Purpose::Close if initial => full,
            Purpose::Data | Purpose::Close => 0,
        }
    }

    fn on_packet_sent(&mut self, out: &Outgoing<'_>, packet: &BuiltPacket) {
        let (now, level) = (out.now, packet.unsealed.level);
        let size = packet.unsealed.end.saturating_sub(packet.unsealed.start);
        let size = u16::try_from(size).unwrap_or(u16::MAX);
        let rate = match self.paths.get_mut(out.route.key) {
            Some(path) if packet.in_flight => path.congestion.on_sent(now, size),
            _ => RateSnapshot::default(),
        };
        let info = SentInfo {
            time_sent: now,
            size,
            path: out.route.key,
            ack_eliciting: packet.ack_eliciting,
            in_flight: packet.in_flight,
            mtu_probe: out.purpose == Purpose::MtuProbe,
            ecn_ect: matches!(out.route.ecn, EcnCodepoint::Ect0 | EcnCodepoint::Ect1),
            rate,
        };
        if let Some(space) = self.recovery.spaces.of_level_mut(level) {
            space.ecn.on_sent(out.route.ecn);
            if out.purpose == Purpose::PathProbe {
                space.recovery.on_sent_elsewhere(&info);
            } else {
                space.recovery.on_sent(&info);
            }
        }
        self.transmission.push(packet.unsealed);
        let counters = self.reporting.counters.count();
        counters.packets_sent = counters.packets_sent.saturating_add(1);
        if packet.ack_eliciting {
            self.idle.on_sent_ack_eliciting(now);
        }
        if level == Level::OneRtt {
            self.keys.sealing_1rtt(packet.unsealed.packet_number, 1);
        }
        if level == Level::Handshake && self.role.side().is_client() {
            let has_initial = self.recovery.spaces.get(SpaceId::Initial).is_some();
            self.transmission.on_handshake_packet(has_initial);
        }
        self.reporting.observe(
            now,
            &Observation::Packet {
                direction: Direction::Send,
                kind: kind_of(level),
                number: packet.unsealed.packet_number,
                size: usize::from(size),
                ecn: out.route.ecn,
                mtu_probe: out.purpose == Purpose::MtuProbe,
                content: packet.content(out.buf),
            },
        );
    }
}

impl Route {
    pub(super) fn transmit(&self, len: usize, segment_size: usize) -> Draft<Transmit> {
        let Self { remote, local, ecn, .. } = *self;
        Draft::new(Transmit { remote, local, ecn, len, segment_size })
    }
}

/// Less room than this is not worth a packet.
pub(super) const MIN_PACKET: usize = CHALLENGE_ROOM;

/// Room for a packet with nothing but an ACK of one range, in bytes, all at their longest: first
/// byte, version, connection IDs, lengths of token and packet, packet number; type, largest number,
/// delay, count, range, ECN counts; tag.
pub(super) const ACK_ROOM: usize = (1 + 4 + 2 * 21 + 1 + 2 + 4) + (1 + 8 + 8 + 1 + 8 + 3 * 8) + 16;
