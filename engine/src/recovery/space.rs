//! Loss detection in one packet number space (RFC 9002, Section 6 and Appendix A).

use core::ops::{Range, RangeInclusive};

use quicket_wire::TransportErrorCode;
use quicket_wire::frame::Ack;

use super::sent::{Acked, SentPackets};
use super::{PathKey, RttEstimator, SentInfo, SentPacket};
use crate::SentFrame;
use crate::error::TransportError;
use crate::time::{Duration, Time};

/// How many later packets must be acknowledged for a packet to count as lost
/// (RFC 9002, Section 6.1.1: kPacketThreshold).
pub(crate) const PACKET_THRESHOLD: u64 = 3;
/// How far reordering on the path may raise the packet threshold.
const MAX_PACKET_THRESHOLD: u64 = 128;
/// The time threshold in eighths of a round trip (RFC 9002, Section 6.1.2: kTimeThreshold).
pub(crate) const TIME_THRESHOLD: u64 = 9;
/// How far reordering on the path may raise the time threshold.
const MAX_TIME_THRESHOLD: u64 = 12;
/// How many probe timeouts a lost packet is remembered, for a late ACK to be recognised.
const REMEMBER_LOST: u64 = 2;

/// Who wants to hear of acknowledged packets.
pub(crate) trait AckSink {
    /// `packet` was outstanding and is acknowledged.
    fn acked_packet(&mut self, number: u64, packet: &SentPacket);
    /// `packet` was declared lost, and is acknowledged after all. Its frames follow, as those of
    /// any acknowledged packet do.
    fn spurious_packet(&mut self, number: u64, packet: &SentPacket);
    /// A frame of the packet reported last.
    fn acked_frame(&mut self, frame: &SentFrame);
}

/// Who wants to hear of lost packets.
pub(crate) trait LossSink {
    /// `packet` was outstanding and is lost.
    fn lost_packet(&mut self, number: u64, packet: &SentPacket);
    /// A frame of the packet reported last.
    fn lost_frame(&mut self, frame: &SentFrame);
}

/// The largest packet that an ACK newly acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckedPacket {
    /// Its number.
    pub(crate) number: u64,
    /// When it was sent.
    pub(crate) time_sent: Time,
    /// The path it was sent on.
    pub(crate) path: PathKey,
}

/// What an ACK brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AckOutcome {
    /// How many outstanding packets it acknowledged.
    pub(crate) newly_acked: u64,
    /// How many bytes of them were in flight.
    pub(crate) newly_acked_bytes: u64,
    /// How many of them were marked ECT (RFC 9000, Section 13.4.2.1).
    pub(crate) newly_acked_ect: u64,
    /// The largest of them.
    pub(crate) largest_newly_acked: Option<AckedPacket>,
    /// One of them at least was ack-eliciting.
    pub(crate) includes_ack_eliciting: bool,
    /// The time since the largest acknowledged packet was sent, if that makes a sample
    /// (RFC 9002, Section 5.1). It belongs to the path of `largest_newly_acked`.
    pub(crate) rtt_sample: Option<Duration>,
    /// The largest acknowledged packet number went up, so the ECN counts are to be looked at
    /// (RFC 9000, Section 13.4.2.1).
    pub(crate) largest_advanced: bool,
    /// How many packets it acknowledged that had been declared lost.
    pub(crate) spurious: u64,
}

/// What loss detection found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LossOutcome {
    /// How many packets were lost.
    pub(crate) lost_packets: u64,
    /// How many bytes of them were in flight.
    pub(crate) lost_bytes: u64,
    /// The losses amount to persistent congestion of this path (RFC 9002, Section 7.6).
    pub(crate) persistent_congestion: Option<PathKey>,
}

/// The packets sent in one packet number space, and the verdict on each.
#[derive(Debug)]
pub(crate) struct RecoverySpace {
    sent: SentPackets,
    largest_acked: Option<u64>,
    loss_time: Option<Time>,
    last_ack_eliciting: Option<Time>,
    packet_threshold: u64,
    time_threshold: u64,
}

impl Default for RecoverySpace {
    fn default() -> Self {
        Self::new()
    }
}

impl RecoverySpace {
    /// A space in which nothing was sent.
    pub(crate) fn new() -> Self {
        Self {
            sent: SentPackets::default(),
            largest_acked: None,
            loss_time: None,
            last_ack_eliciting: None,
            packet_threshold: PACKET_THRESHOLD,
            time_threshold: TIME_THRESHOLD,
        }
    }

    /// The number of the packet under construction.
    pub(crate) fn next_packet_number(&self) -> u64 {
        self.sent.next_packet_number()
    }

    /// Leaves out a packet number, to catch a peer that acknowledges what it never received
    /// (RFC 9000, Section 21.4).
    pub(crate) fn skip_packet_number(&mut self) {
        if self.sent.reserve() {
            self.sent.skip();
        }
    }

    /// The largest packet number that the peer has acknowledged.
    pub(crate) fn largest_acked(&self) -> Option<u64> {
        self.largest_acked
    }

    /// Makes room for one more packet; call before building one. False if the peer has left too
    /// many packets unacknowledged (`MAX_TRACKED_PACKETS`) or memory is exhausted:
    /// then nothing may be sent in this space.
    pub(crate) fn reserve(&mut self) -> bool {
        self.sent.reserve()
    }

    /// True if the peer has left too many packets unacknowledged: see [`Self::reserve`].
    pub(crate) fn is_full(&self) -> bool {
        self.sent.is_full()
    }

    /// True if a peer that does not acknowledge makes us remember too many packets that it need
    /// not acknowledge. What is outstanding is to be given up for lost then.
    pub(crate) fn is_clogged(&self) -> bool {
        self.sent.is_clogged()
    }

    /// Records a frame of the packet under construction.
    pub(crate) fn push_frame(&mut self, frame: SentFrame) {
        self.sent.push_frame(frame);
    }

    /// Gives up the packet under construction. The caller tells the frames' owners itself.
    pub(crate) fn discard_pending_frames(&mut self) {
        self.sent.discard_pending_frames();
    }

    /// Closes the packet under construction and returns its number.
    pub(crate) fn on_sent(&mut self, info: &SentInfo) -> u64 {
        if info.ack_eliciting {
            self.last_ack_eliciting = Some(info.time_sent);
        }
        self.sent.push(info)
    }

    /// The same for a packet on another path than the active one: it does not postpone the probe
    /// timeout of what the active path carries.
    pub(crate) fn on_sent_elsewhere(&mut self, info: &SentInfo) -> u64 {
        if info.ack_eliciting && !self.has_ack_eliciting_in_flight() {
            self.last_ack_eliciting = Some(info.time_sent);
        }
        self.sent.push(info)
    }

    /// The packet with this number, if it is still on record.
    #[cfg(test)]
    pub(crate) fn packet(&self, number: u64) -> Option<&SentPacket> {
        self.sent.get(number)
    }

    /// Handles an ACK frame. An error closes the connection.
    pub(crate) fn on_ack<S: AckSink>(
        &mut self,
        now: Time,
        ack: &Ack<'_>,
        sink: &mut S,
    ) -> Result<AckOutcome, TransportError> {
        self.on_ack_ranges(now, ack.largest, ack.ranges, sink)
    }

    /// Handles what [`Self::on_ack`] finds in an ACK frame; `ranges` are descending and start with
    /// `largest`.
    pub(crate) fn on_ack_ranges<S: AckSink>(
        &mut self,
        now: Time,
        largest: u64,
        ranges: impl IntoIterator<Item = RangeInclusive<u64>>,
        sink: &mut S,
    ) -> Result<AckOutcome, TransportError> {
        // RFC 9000, Section 13.1: an acknowledgment for a packet that was not sent SHOULD be
        // treated as PROTOCOL_VIOLATION.
        if largest >= self.next_packet_number() {
            return Err(violation("acknowledged a packet that was never sent"));
        }
        let mut outcome = AckOutcome::default();
        for range in ranges {
            // RFC 9000, Section 21.4
            if self.sent.any_skipped_in(&range) {
                return Err(violation("acknowledged a packet number that was skipped"));
            }
            self.ack_range(range, &mut outcome, sink);
        }
        // RFC 9002, Section 5.1: a sample needs the largest acknowledged packet to be newly
        // acknowledged, and one ack-eliciting packet newly acknowledged.
        outcome.rtt_sample = outcome
            .largest_newly_acked
            .filter(|packet| packet.number == largest && outcome.includes_ack_eliciting)
            .map(|packet| now.since(packet.time_sent));
        outcome.largest_advanced = self.largest_acked.is_none_or(|known| largest > known);
        if outcome.largest_advanced {
            self.largest_acked = Some(largest);
        }
        Ok(outcome)
    }

    fn ack_range<S: AckSink>(
        &mut self,
        range: RangeInclusive<u64>,
        outcome: &mut AckOutcome,
        sink: &mut S,
    ) {
        let mut latest_spurious = None;
        let mut first_spurious = None;
        self.sent.ack(range, |how, number, packet, frames| {
            if how == Acked::Spurious {
                outcome.spurious = outcome.spurious.saturating_add(1);
                first_spurious = first_spurious.or(Some(number));
                latest_spurious = Some(number);
                sink.spurious_packet(number, packet);
            } else {
                outcome.newly_acked = outcome.newly_acked.saturating_add(1);
                if packet.in_flight {
                    outcome.newly_acked_bytes =
                        outcome.newly_acked_bytes.saturating_add(u64::from(packet.size));
                }
                outcome.newly_acked_ect =
                    outcome.newly_acked_ect.saturating_add(u64::from(packet.ecn_ect));
                outcome.includes_ack_eliciting |= packet.ack_eliciting;
                if outcome.largest_newly_acked.is_none_or(|known| known.number < number) {
                    let (time_sent, path) = (packet.time_sent, packet.path);
                    outcome.largest_newly_acked = Some(AckedPacket { number, time_sent, path });
                }
                sink.acked_packet(number, packet);
            }
            frames.for_each(|frame| sink.acked_frame(frame));
        });
        if let Some(number) = first_spurious {
            self.tolerate_reordering(number);
        }
    }

    /// A packet was declared lost too early: waits longer from now on (RFC 9002, Section 6.1.1
    /// lets thresholds adapt to the reordering that is seen).
    fn tolerate_reordering(&mut self, number: u64) {
        let distance = self.largest_acked.map_or(0, |largest| largest.saturating_sub(number));
        let needed = distance.saturating_add(1).min(MAX_PACKET_THRESHOLD);
        self.packet_threshold = self.packet_threshold.max(needed);
        self.time_threshold = self.time_threshold.saturating_add(1).min(MAX_TIME_THRESHOLD);
    }

    /// Declares packets lost by the packet and time thresholds (RFC 9002, Section 6.1); call
    /// after [`Self::on_ack`] and at [`Self::loss_time`]. `max_ack_delay` is the peer's, and
    /// enters into what counts as persistent congestion.
    pub(crate) fn detect_lost<S: LossSink>(
        &mut self,
        now: Time,
        rtt: &RttEstimator,
        max_ack_delay: Duration,
        sink: &mut S,
    ) -> LossOutcome {
        self.loss_time = None;
        let mut outcome = LossOutcome::default();
        let Some(largest_acked) = self.largest_acked else { return outcome };
        let delay = rtt.loss_delay(self.time_threshold);
        let mut period = LossPeriod::new(rtt, max_ack_delay);
        let mut from = 0;
        while let Some(number) = self.sent.next_outstanding(from, largest_acked) {
            let Some(packet) = self.sent.get(number).copied() else { break };
            let late = now.since(packet.time_sent) >= delay;
            let distance = largest_acked.saturating_sub(number);
            let near = distance < self.packet_threshold
                || self.sent.count_between(number, largest_acked) < self.packet_threshold;
            if !late && near {
                // Packets are lost in the order in which they were sent, so this is the first
                // for which to wait.
                self.loss_time = Some(packet.time_sent + delay);
                break;
            }
            if period.adjoins(number, &self.sent) {
                period.extend(number, &packet);
            } else {
                period.restart(number, &packet);
            }
            self.sent.lose(number, true);
            outcome.lost_packets = outcome.lost_packets.saturating_add(1);
            if packet.in_flight {
                outcome.lost_bytes = outcome.lost_bytes.saturating_add(u64::from(packet.size));
            }
            sink.lost_packet(number, &packet);
            self.sent.frames(&packet).for_each(|frame| sink.lost_frame(frame));
            from = number.saturating_add(1);
        }
        outcome.persistent_congestion = period.verdict;
        let remember = rtt.pto(max_ack_delay).times(REMEMBER_LOST);
        self.sent.release(now - remember);
        outcome
    }

    /// When [`Self::detect_lost`] will next find a packet without another ACK.
    pub(crate) fn loss_time(&self) -> Option<Time> {
        self.loss_time
    }

    /// The time from which the probe timeout runs: when the last ack-eliciting packet was sent,
    /// if one is in flight.
    pub(crate) fn pto_base(&self) -> Option<Time> {
        self.last_ack_eliciting.filter(|_| self.has_ack_eliciting_in_flight())
    }

    /// True if an ack-eliciting packet is outstanding.
    pub(crate) fn has_ack_eliciting_in_flight(&self) -> bool {
        self.sent.ack_eliciting_outstanding() > 0
    }

    /// Reports the frames of the oldest `packets` ack-eliciting packets, for their owners to send
    /// again in probes (RFC 9002, Section 6.2.4). The packets stay outstanding. False if there
    /// are none, so that a probe needs a PING.
    pub(crate) fn frames_for_probe(
        &mut self,
        packets: usize,
        mut sink: impl FnMut(&SentFrame),
    ) -> bool {
        let mut left = packets.min(self.sent.ack_eliciting_outstanding());
        let found = left > 0;
        let mut from = 0;
        while left > 0
            && let Some(number) = self.sent.next_outstanding(from, u64::MAX)
            && let Some(packet) = self.sent.get(number)
        {
            if packet.ack_eliciting {
                self.sent.frames(packet).for_each(&mut sink);
                left = left.saturating_sub(1);
            }
            from = number.saturating_add(1);
        }
        found
    }

    /// Declares all outstanding packets of `range` lost without a look at ACKs: 0-RTT was rejected
    /// (RFC 9001, Section 4.6.2), a Retry came (RFC 9000, Section 17.2.5), or ACKs do not come.
    pub(crate) fn declare_lost<S: LossSink>(&mut self, range: Range<u64>, sink: &mut S) {
        let Some(last) = range.end.checked_sub(1) else { return };
        let mut from = range.start;
        while let Some(number) = self.sent.next_outstanding(from, last) {
            let Some(packet) = self.sent.get(number).copied() else { break };
            self.sent.lose(number, false);
            sink.lost_packet(number, &packet);
            self.sent.frames(&packet).for_each(|frame| sink.lost_frame(frame));
            from = number.saturating_add(1);
        }
        if !self.has_ack_eliciting_in_flight() {
            self.loss_time = None;
        }
    }

    /// Forgets all packets and gives their memory back, if none is in flight; false if one is. What
    /// was declared lost is no longer recognised when an ACK comes for it.
    pub(crate) fn trim(&mut self) -> bool {
        self.sent.trim()
    }

    /// Ends the space when its keys are discarded (RFC 9002, Section 6.4). Reports the packets
    /// that leave the flight, for their bytes to be taken off their paths.
    pub(crate) fn discard(&mut self, mut sink: impl FnMut(&SentPacket)) {
        let mut from = 0;
        while let Some(number) = self.sent.next_outstanding(from, u64::MAX) {
            if let Some(packet) = self.sent.get(number).filter(|packet| packet.in_flight) {
                sink(packet);
            }
            from = number.saturating_add(1);
        }
        *self = Self::new();
    }
}

fn violation(reason: &'static str) -> TransportError {
    TransportError::new(TransportErrorCode::PROTOCOL_VIOLATION, reason)
}

/// A period in which everything that was sent on a path was lost (RFC 9002, Section 7.6.2).
struct LossPeriod {
    limit: Duration,
    /// Packets sent before the first round trip sample do not count.
    not_before: Option<Time>,
    path: PathKey,
    /// When the first ack-eliciting packet of the period was sent.
    start: Option<Time>,
    last: Option<u64>,
    verdict: Option<PathKey>,
}

impl LossPeriod {
    fn new(rtt: &RttEstimator, max_ack_delay: Duration) -> Self {
        Self {
            limit: rtt.persistent_congestion_duration(max_ack_delay),
            not_before: rtt.first_sample(),
            path: PathKey::default(),
            start: None,
            last: None,
            verdict: None,
        }
    }

    /// True if nothing between the last packet of the period and `number` was acknowledged.
    fn adjoins(&self, number: u64, sent: &SentPackets) -> bool {
        self.last.is_some_and(|last| {
            !(last.saturating_add(1)..number).any(|between| sent.is_acked(between))
        })
    }

    fn restart(&mut self, number: u64, packet: &SentPacket) {
        self.start = None;
        self.path = packet.path;
        self.extend(number, packet);
    }

    fn extend(&mut self, number: u64, packet: &SentPacket) {
        self.last = Some(number);
        if packet.path != self.path {
            self.path = packet.path;
            self.start = None;
        }
        // RFC 9002, Section 7.6.2: the packets that begin and end the period MUST be
        // ack-eliciting, and a prior RTT sample must have existed when they were sent.
        let counts = self.not_before.is_some_and(|first| packet.time_sent > first);
        if !counts || !packet.ack_eliciting {
            return;
        }
        let start = *self.start.get_or_insert(packet.time_sent);
        if packet.time_sent.since(start) > self.limit {
            self.verdict = Some(self.path);
        }
    }
}

#[cfg(test)]
#[path = "space_tests.rs"]
mod tests;
