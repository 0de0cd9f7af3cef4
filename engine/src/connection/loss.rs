//! Acknowledgments, losses and probe timeouts: each frame's fate goes back to its owner
//! (RFC 9002; RFC 9000, Section 13.3).

use quicket_wire::frame::Ack;

use super::parameters::exponent_of;
use super::recovery::{PROBES_PER_PTO, TimerContext};
use super::space::SpaceId;
use super::transmit::MIN_PACKET;
use super::{Connection, Parts};
use crate::crypto::Level;
use crate::error::TransportError;
use crate::observer::{LossTrigger, Observation};
use crate::recovery::{AckSink, LossSink, LossTimer, PathKey, SentPacket};
use crate::sent_frame::SentFrame;
use crate::time::{Duration, Time};

/// Routes the fate of packets and frames of one space to their owners.
struct Fates<'a> {
    now: Time,
    space: SpaceId,
    parts: Parts<'a>,
    crypto: &'a mut crate::crypto_stream::CryptoStream,
    received: &'a mut crate::ack::ReceivedPackets,
    trigger: LossTrigger,
    /// Acknowledged STREAM data that its stream has not heard of: what follows on it is joined,
    /// so that the stream hears of a run of packets once.
    acked_data: Option<SentFrame>,
}

impl Fates<'_> {
    fn acked_stream_frame(&mut self, frame: &SentFrame) {
        if self.acked_data.as_mut().is_some_and(|data| data.join(frame)) {
            return;
        }
        if let Some(before) = self.acked_data.replace(*frame) {
            self.parts.streams.on_acked(&before);
        }
    }

    /// Tells the last stream what it has not heard of.
    fn finish(self) {
        if let Some(data) = self.acked_data {
            self.parts.streams.on_acked(&data);
        }
    }
}

impl AckSink for Fates<'_> {
    fn acked_packet(&mut self, number: u64, packet: &SentPacket) {
        self.parts.paths.on_packet_acked(self.now, number, packet);
        let counters = self.parts.reporting.counters.count();
        counters.packets_acked = counters.packets_acked.saturating_add(1);
    }

    fn spurious_packet(&mut self, _number: u64, packet: &SentPacket) {
        self.parts.paths.on_spurious_loss(self.now, packet);
        let counters = self.parts.reporting.counters.count();
        counters.spurious_losses = counters.spurious_losses.saturating_add(1);
    }

    fn acked_frame(&mut self, frame: &SentFrame) {
        let parts = &mut self.parts;
        match *frame {
            SentFrame::Stream { .. } => self.acked_stream_frame(frame),
            SentFrame::Ack { largest } => self.received.on_ack_of_ack(largest),
            SentFrame::Crypto { offset, len } => self.crypto.on_acked(offset, len),
            SentFrame::NewConnectionId { sequence } => parts.cids.local.on_frame_acked(sequence),
            SentFrame::RetireConnectionId { sequence } => {
                parts.cids.remote.on_frame_acked(sequence);
            }
            SentFrame::AckFrequency { sequence } => parts.ack_frequency.on_frame_acked(sequence),
            SentFrame::Datagram { id } => parts.datagrams.on_acked(id),
            SentFrame::NewToken { index } => parts.pending.on_token_acked(index),
            SentFrame::PathChallenge { .. }
            | SentFrame::HandshakeDone
            | SentFrame::ImmediateAck
            | SentFrame::Ping => {}
            SentFrame::ResetStream { .. }
            | SentFrame::StopSending { .. }
            | SentFrame::MaxData { .. }
            | SentFrame::MaxStreamData { .. }
            | SentFrame::MaxStreams { .. }
            | SentFrame::DataBlocked { .. }
            | SentFrame::StreamDataBlocked { .. }
            | SentFrame::StreamsBlocked { .. } => parts.streams.on_acked(frame),
        }
    }
}

impl LossSink for Fates<'_> {
    fn lost_packet(&mut self, number: u64, packet: &SentPacket) {
        match self.trigger {
            LossTrigger::Threshold | LossTrigger::Silence => {
                self.parts.paths.on_packet_lost(self.now, number, packet);
            }
            LossTrigger::EarlyDataRejected => self.parts.paths.on_packet_discarded(packet),
        }
        let which = (self.space.level(), number);
        self.parts.reporting.packet_lost(self.now, which, packet, self.trigger);
    }

    fn lost_frame(&mut self, frame: &SentFrame) {
        lost_frame(frame, &mut self.parts, self.crypto);
    }
}

/// Tells a frame's owner that it must be sent again, if it still matters.
fn lost_frame(
    frame: &SentFrame,
    parts: &mut Parts<'_>,
    crypto: &mut crate::crypto_stream::CryptoStream,
) {
    match *frame {
        SentFrame::Stream { .. }
        | SentFrame::ResetStream { .. }
        | SentFrame::StopSending { .. }
        | SentFrame::MaxData { .. }
        | SentFrame::MaxStreamData { .. }
        | SentFrame::MaxStreams { .. }
        | SentFrame::DataBlocked { .. }
        | SentFrame::StreamDataBlocked { .. }
        | SentFrame::StreamsBlocked { .. } => parts.streams.on_lost(frame),
        SentFrame::Crypto { offset, len } => crypto.on_lost(offset, len),
        SentFrame::NewConnectionId { sequence } => parts.cids.local.on_frame_lost(sequence),
        SentFrame::RetireConnectionId { sequence } => parts.cids.remote.on_frame_lost(sequence),
        SentFrame::AckFrequency { sequence } => parts.ack_frequency.on_frame_lost(sequence),
        SentFrame::Datagram { id } => parts.datagrams.on_lost(id),
        SentFrame::PathChallenge { data } => parts.paths.on_challenge_lost(data),
        SentFrame::HandshakeDone => parts.pending.set_handshake_done(),
        SentFrame::NewToken { index } => parts.pending.on_token_lost(index),
        // Never repeated: the state behind them is sent again when it is next due.
        SentFrame::Ack { .. } | SentFrame::Ping | SentFrame::ImmediateAck => {}
    }
}

impl Connection {
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        id: SpaceId,
        ack: &Ack<'_>,
    ) -> Result<(), TransportError> {
        let delay = self.peer_ack_delay(ack.delay);
        let Some((space, parts)) = self.split(id) else { return Ok(()) };
        let mut fates = Fates {
            now,
            space: id,
            parts,
            crypto: &mut space.crypto,
            received: &mut space.received,
            trigger: LossTrigger::Threshold,
            acked_data: None,
        };
        let outcome = space.recovery.on_ack(now, ack, &mut fates)?;
        fates.finish();
        let Some(largest) = outcome.largest_newly_acked else { return Ok(()) };
        // What the peer kept until it had the keys, or acknowledges again because its first ACK was
        // lost, says little about the path: a first sample is taken without regard to the delay
        // (RFC 9002, Section 5.3).
        let measures_path = |rtt: &Duration| id == SpaceId::Data || delay.times(2) < *rtt;
        let rtt_sample = outcome.rtt_sample.filter(measures_path);
        if let Some(sample) = rtt_sample {
            let confirmed = self.handshake.confirmed;
            let max_delay = confirmed.then(|| self.recovery.ack_frequency.max_ack_delay());
            // RFC 9002, Section 5.3: the delay MAY be ignored for Initial packets.
            let delay = if id == SpaceId::Initial { Duration::ZERO } else { delay };
            self.paths.on_rtt_sample(now, largest.path, sample, delay, max_delay);
        }
        if outcome.largest_advanced
            && let Some(space) = self.recovery.spaces.get_mut(id)
        {
            self.paths.on_ecn_ack(now, largest, &outcome, ack.ecn, &mut space.ecn);
        }
        if id == SpaceId::Data {
            self.keys.acknowledged_1rtt(largest.number);
        }
        self.recovery.on_acknowledged(id, self.handshake.complete);
        let sample = rtt_sample.map(|rtt| (largest.path, rtt));
        self.detect_lost(now, id, sample);
        self.streams.set_congestion_window(self.paths.active().congestion.window());
        self.recovery.on_progress(now);
        self.after_recovery(now);
        Ok(())
    }

    /// The ACK delay that the peer reports, in time (RFC 9000, Section 13.2.5). A client does not
    /// know the exponent before it has the server's transport parameters: the default it is then.
    fn peer_ack_delay(&self, raw: u64) -> Duration {
        let exponent = exponent_of(self.handshake.remote_parameters.as_ref());
        let factor = 1u64.checked_shl(u32::from(exponent)).unwrap_or(u64::MAX);
        Duration::from_micros(raw.saturating_mul(factor))
    }

    /// Finds lost packets of a space and tells everybody concerned.
    fn detect_lost(&mut self, now: Time, id: SpaceId, sample: Option<(PathKey, Duration)>) {
        let max_ack_delay = self.recovery.ack_frequency.max_ack_delay();
        let rtt = self.paths.active().rtt;
        let Some((space, parts)) = self.split(id) else { return };
        let mut fates = Fates {
            now,
            space: id,
            parts,
            crypto: &mut space.crypto,
            received: &mut space.received,
            trigger: LossTrigger::Threshold,
            acked_data: None,
        };
        let outcome = space.recovery.detect_lost(now, &rtt, max_ack_delay, &mut fates);
        self.paths.process_congestion(now, sample, outcome.persistent_congestion);
    }

    /// 0-RTT was refused: everything in it goes out again (RFC 9001, Section 4.6.2).
    pub(super) fn early_data_rejected(&mut self, now: Time) {
        self.declare_all_lost(now, SpaceId::Data, LossTrigger::EarlyDataRejected);
        self.streams.on_early_data_rejected();
        self.reporting.events.push(crate::Event::EarlyDataRejected);
    }

    /// A peer that sends much and acknowledges nothing makes us remember every packet since: what
    /// is outstanding is given up, and that is congestion as any other loss.
    pub(super) fn give_up_on_silence(&mut self, now: Time, id: SpaceId) {
        if self.recovery.spaces.get(id).is_some_and(|space| space.recovery.is_clogged()) {
            self.declare_all_lost(now, id, LossTrigger::Silence);
            self.paths.process_congestion(now, None, None);
        }
    }

    /// What was sent in a space goes out again.
    pub(super) fn declare_all_lost(&mut self, now: Time, id: SpaceId, trigger: LossTrigger) {
        let Some((space, parts)) = self.split(id) else { return };
        let mut fates = Fates {
            now,
            space: id,
            parts,
            crypto: &mut space.crypto,
            received: &mut space.received,
            trigger,
            acked_data: None,
        };
        let end = space.recovery.next_packet_number();
        space.recovery.declare_lost(0..end, &mut fates);
    }

    /// The loss detection timer fired (RFC 9002, Section A.9).
    pub(super) fn on_loss_timer(&mut self, now: Time, timer: LossTimer) {
        match timer {
            LossTimer::Loss { space, .. } => self.detect_lost(now, space, None),
            LossTimer::Pto { space, .. } => self.on_pto(now, space),
        }
        self.after_recovery(now);
    }

    fn on_pto(&mut self, now: Time, id: SpaceId) {
        let pto_count = self.recovery.on_pto(now);
        self.reporting.probe_timeout();
        self.paths.on_pto(pto_count);
        if id == SpaceId::Data && self.recovery.ack_frequency.is_available() {
            // ACK frequency extension, Section 5: hear of the probe's fate at once.
            self.pending.set_immediate_ack();
        }
        let mut count = PROBES_PER_PTO;
        if id != SpaceId::Data && self.handshake.complete {
            let (ours, handshake) = self.recovery.probes_unconfirmed();
            self.probe(SpaceId::Data, ours);
            // Whatever was found to repeat, the second datagram is of no use without a packet.
            self.recovery.spaces.data.probes = ours;
            count = handshake;
        }
        if id == SpaceId::Data || !self.recovery.probe_with_flights(id, count) {
            self.probe(id, count);
        }
    }

    /// Up to `count` packets go out whatever the congestion window says: with what is oldest and
    /// unacknowledged, or new data if there is none.
    fn probe(&mut self, id: SpaceId, count: u8) {
        let Some((space, mut parts)) = self.split(id) else { return };
        let crypto = &mut space.crypto;
        let found = space.recovery.frames_for_probe(usize::from(count), |frame| {
            lost_frame(frame, &mut parts, crypto);
        });
        space.probes = if found { count } else { 1 };
    }

    /// Chooses the next moment for loss detection.
    pub(super) fn set_loss_timer(&mut self) {
        let path = self.paths.active();
        self.recovery.set_timer(&TimerContext {
            rtt: &path.rtt,
            amplification_limited: path.sendable_data() < MIN_PACKET,
            has_handshake_keys: self.keys.can_send(Level::Handshake),
            handshake_complete: self.handshake.complete,
            handshake_confirmed: self.handshake.confirmed,
        });
    }

    /// Reports the state of recovery and looks whether to ask for fewer ACKs.
    fn after_recovery(&mut self, now: Time) {
        let path = self.paths.active();
        let rtt = path.rtt;
        self.recovery.spaces.data.acks.set_smoothed_rtt(rtt.smoothed());
        if self.handshake.confirmed {
            self.recovery.ack_frequency.update(now, &self.paths.ack_frequency_target());
        }
        if self.reporting.is_observed() {
            let (path, pto_count) = (self.path_stats(), self.recovery.pto_count());
            self.reporting.observe(now, &Observation::Metrics { path: &path, pto_count });
        }
        self.set_loss_timer();
    }

    /// The probe timeout without back-off (RFC 9002, Section 6.2.1).
    pub(crate) fn pto(&self) -> Duration {
        self.recovery.pto(&self.paths.active().rtt)
    }
}
