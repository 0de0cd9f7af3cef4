//! When to send an ACK (RFC 9000, Sections 13.2.1 and 13.2.2; draft-ietf-quic-ack-frequency,
//! Section 6).

use core::ops::RangeInclusive;

use quicket_wire::frame::AckFrequency;
use quicket_wire::{EcnCodepoint, TransportErrorCode};

use super::ReceivedPackets;
use crate::error::TransportError;
use crate::time::{Duration, Time};

/// max_ack_delay of 2^14 ms and more is invalid (RFC 9000, Section 18.2).
const MAX_ACK_DELAY_LIMIT: Duration = Duration::from_millis(1 << 14);
/// Packets in order after which the sender is taken to send in bulk.
const BULK_AFTER: u64 = 100;
/// Packets handed over at the same moment that make a train, as receive offload produces them.
const TRAIN_PACKETS: u64 = 4;
/// In bulk and after a pause an ACK waits for at most this fraction of a round trip.
const DELAY_FRACTION: u64 = 4;
/// ... but no less than this, which timers can still keep.
const MIN_DELAY: Duration = Duration::from_millis(1);

/// This side's own choice of how often to acknowledge, until the peer asks for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckPolicy {
    /// Ack-eliciting packets received before an ACK is sent: 2 by RFC 9000, Section 13.2.2.
    pub(crate) threshold: u64,
    /// The same for a bulk of packets in order that arrives in trains; `threshold` turns the
    /// difference off.
    pub(crate) train_threshold: u64,
    /// The max_ack_delay that we announced.
    pub(crate) max_ack_delay: Duration,
    /// The min_ack_delay that we announced; `None` if we did not offer ACK_FREQUENCY.
    pub(crate) min_ack_delay: Option<Duration>,
}

/// What the peer's newest ACK_FREQUENCY frame asks for.
#[derive(Clone, Copy, Debug)]
struct Request {
    sequence: u64,
    ack_eliciting_threshold: u64,
}

/// Decides when one packet number space sends an ACK.
#[derive(Debug)]
pub(crate) struct AckScheduler {
    policy: AckPolicy,
    /// Initial and Handshake packets are acknowledged at once (RFC 9000, Section 13.2.1).
    immediate: bool,
    request: Option<Request>,
    max_ack_delay: Duration,
    reordering_threshold: u64,
    /// Round trip time; zero while unknown.
    smoothed_rtt: Duration,
    /// Ack-eliciting packets since the last ACK.
    unacked: u64,
    send_now: bool,
    deadline: Option<Time>,
    /// The largest number received, of any packet.
    largest: Option<u64>,
    /// "Largest Unacked": the largest ack-eliciting number received.
    largest_eliciting: Option<u64>,
    /// "Largest Acked": what the last ACK reported.
    largest_acked: Option<u64>,
    last_ack_sent: Option<Time>,
    previous_was_ce: bool,
    /// Ack-eliciting packets in order since the last one out of order.
    in_order: u64,
    train_at: Time,
    train_len: u64,
    trains: bool,
}

impl AckScheduler {
    /// The schedule of the Initial and Handshake spaces: every ack-eliciting packet is
    /// acknowledged at once (RFC 9000, Section 13.2.1).
    pub(crate) fn immediate() -> Self {
        let policy = AckPolicy {
            threshold: 1,
            train_threshold: 1,
            max_ack_delay: Duration::ZERO,
            min_ack_delay: None,
        };
        Self { immediate: true, ..Self::new(policy) }
    }

    /// The schedule of the application data space.
    pub(crate) fn new(policy: AckPolicy) -> Self {
        Self {
            policy,
            immediate: false,
            request: None,
            max_ack_delay: policy.max_ack_delay,
            reordering_threshold: 1,
            smoothed_rtt: Duration::ZERO,
            unacked: 0,
            send_now: false,
            deadline: None,
            largest: None,
            largest_eliciting: None,
            largest_acked: None,
            last_ack_sent: None,
            previous_was_ce: false,
            in_order: 0,
            train_at: Time::ZERO,
            train_len: 0,
            trains: false,
        }
    }

    /// Tells the smoothed round trip time of the active path.
    pub(crate) fn set_smoothed_rtt(&mut self, smoothed_rtt: Duration) {
        self.smoothed_rtt = smoothed_rtt;
    }

    /// A packet was processed; `received` has recorded it already.
    #[inline]
    pub(crate) fn on_packet(
        &mut self,
        now: Time,
        pn: u64,
        ack_eliciting: bool,
        ecn: EcnCodepoint,
        received: &ReceivedPackets,
    ) {
        self.on_run(now, pn..=pn, ack_eliciting, ecn, received);
    }

    /// The same for packets in order, all ack-eliciting or none, with one mark; if there are
    /// several, none of them closes a gap.
    #[inline]
    pub(crate) fn on_run(
        &mut self,
        now: Time,
        run: RangeInclusive<u64>,
        ack_eliciting: bool,
        ecn: EcnCodepoint,
        received: &ReceivedPackets,
    ) {
        let pn = *run.end();
        let is_ce = ecn == EcnCodepoint::Ce;
        let ce_began = is_ce && !self.previous_was_ce;
        self.previous_was_ce = is_ce;
        self.largest = self.largest.max(Some(pn));
        // Packets that elicit no ACK get none by themselves, or two endpoints would acknowledge
        // each other's ACKs forever (RFC 9000, Section 13.2.1).
        if !ack_eliciting {
            return;
        }
        let count = pn.saturating_sub(*run.start()).saturating_add(1);
        let in_order = self.note_order(&run, received);
        self.note_train(now, count);
        self.unacked = self.unacked.saturating_add(count);

        let threshold = self.threshold();
        self.send_now |= self.immediate
            || self.unacked >= threshold
            || (!in_order && self.reordering_calls_for_ack(pn, received))
            // Every CE mark at the usual rate of ACKs, else only the first of a row
            // (draft-ietf-quic-ack-frequency, Section 6.3).
            || (is_ce && (threshold <= 2 || ce_began));
        if self.deadline.is_none() {
            let soon = self.was_idle(now, threshold);
            self.deadline = Some(now + if soon { self.part_of_rtt() } else { self.delay() });
        }
    }

    /// Updates "Largest Unacked"; true if nothing is missing between it and the packet.
    #[inline]
    fn note_order(&mut self, run: &RangeInclusive<u64>, received: &ReceivedPackets) -> bool {
        let (pn, last) = (*run.start(), *run.end());
        let next = self.largest_eliciting.map_or(0, |largest| largest.saturating_add(1));
        let in_order = pn == next || (pn > next && received.first_missing(next) > pn);
        self.largest_eliciting = self.largest_eliciting.max(Some(last));
        let count = last.saturating_sub(pn).saturating_add(1);
        self.in_order = if in_order { self.in_order.saturating_add(count) } else { 0 };
        // A hole below that the peer has not heard of keeps counting (Table 1 of the draft).
        in_order && !self.has_unreported_missing(received)
    }

    #[inline]
    fn note_train(&mut self, now: Time, count: u64) {
        if now == self.train_at {
            self.train_len = self.train_len.saturating_add(count);
        } else {
            self.trains = self.train_len >= TRAIN_PACKETS;
            self.train_at = now;
            self.train_len = count;
        }
    }

    /// The lowest number whose loss the peer could not have told from the last ACK.
    #[inline]
    fn first_unreported(&self) -> u64 {
        match self.largest_acked.and_then(|pn| pn.checked_sub(self.reordering_threshold)) {
            Some(largest_reported) => largest_reported.saturating_add(1),
            None => 0,
        }
    }

    #[inline]
    fn has_unreported_missing(&self, received: &ReceivedPackets) -> bool {
        self.largest_eliciting.is_some_and(|l| received.first_missing(self.first_unreported()) < l)
    }

    /// The two conditions of draft-ietf-quic-ack-frequency, Section 6.2; with the default
    /// threshold of 1 they are those of RFC 9000, Section 13.2.1.
    fn reordering_calls_for_ack(&self, pn: u64, received: &ReceivedPackets) -> bool {
        if self.reordering_threshold == 0 {
            return false;
        }
        let Some(largest) = self.largest_eliciting else { return false };
        let missing = received.first_missing(self.first_unreported());
        let passed_threshold = largest
            .checked_sub(missing)
            .is_some_and(|gap| gap > 0 && gap >= self.reordering_threshold);
        let came_late = self
            .largest_acked
            .and_then(|acked| acked.checked_sub(self.reordering_threshold))
            .is_some_and(|reported| pn <= reported);
        let fills_a_hole = self.reordering_threshold == 1 && pn < largest;
        passed_threshold || came_late || fills_a_hole
    }

    /// With few ACKs asked for, the first packet after a pause gets one soon, so that stale round
    /// trip times are renewed (draft-ietf-quic-ack-frequency, Section 6.1); not at once, as an
    /// answer may be about to take it along.
    #[inline]
    fn was_idle(&self, now: Time, threshold: u64) -> bool {
        threshold > 2
            && !self.smoothed_rtt.is_zero()
            && self.unacked == 1
            && self.last_ack_sent.is_some_and(|sent| {
                now.since(sent) > self.smoothed_rtt.times(2) && now.since(sent) > self.max_ack_delay
            })
    }

    /// True while the sender is taken to send in bulk, so that fewer ACKs do it no harm.
    #[inline]
    fn is_bulk(&self) -> bool {
        self.request.is_none()
            && self.in_order >= BULK_AFTER
            && (self.trains || self.train_len >= TRAIN_PACKETS)
    }

    /// How many unacknowledged ack-eliciting packets make an ACK due.
    #[inline]
    fn threshold(&self) -> u64 {
        match self.request {
            Some(request) => request.ack_eliciting_threshold.saturating_add(1),
            None if self.is_bulk() => self.policy.train_threshold.max(self.policy.threshold),
            None => self.policy.threshold,
        }
    }

    /// How long an ACK may wait.
    #[inline]
    fn delay(&self) -> Duration {
        if self.is_bulk() && !self.smoothed_rtt.is_zero() {
            return self.part_of_rtt();
        }
        self.max_ack_delay
    }

    /// A delay that is short beside a round trip, which must be known.
    #[inline]
    fn part_of_rtt(&self) -> Duration {
        self.smoothed_rtt.over(DELAY_FRACTION).max(MIN_DELAY).min(self.max_ack_delay)
    }

    /// An ACK_FREQUENCY frame arrived. Older ones than the newest are ignored
    /// (draft-ietf-quic-ack-frequency, Section 4).
    ///
    /// # Errors
    ///
    /// PROTOCOL_VIOLATION if we did not offer the extension or the delay is out of range.
    pub(crate) fn on_ack_frequency(&mut self, frame: &AckFrequency) -> Result<(), TransportError> {
        let violation = |reason| {
            Err(TransportError::at(
                TransportErrorCode::PROTOCOL_VIOLATION,
                AckFrequency::TYPE,
                reason,
            ))
        };
        let Some(min_ack_delay) = self.policy.min_ack_delay else {
            return violation("ACK_FREQUENCY was not offered by min_ack_delay");
        };
        let max_ack_delay = Duration::from_micros(frame.requested_max_ack_delay);
        if max_ack_delay < min_ack_delay {
            return violation("requested max_ack_delay below min_ack_delay");
        }
        if max_ack_delay >= MAX_ACK_DELAY_LIMIT {
            return violation("requested max_ack_delay of 2^14 ms or more");
        }
        if self.request.is_some_and(|r| frame.sequence_number <= r.sequence) {
            return Ok(());
        }
        self.request = Some(Request {
            sequence: frame.sequence_number,
            ack_eliciting_threshold: frame.ack_eliciting_threshold,
        });
        self.max_ack_delay = max_ack_delay;
        self.reordering_threshold = frame.reordering_threshold;
        Ok(())
    }

    /// An IMMEDIATE_ACK frame arrived (draft-ietf-quic-ack-frequency, Section 5).
    ///
    /// # Errors
    ///
    /// PROTOCOL_VIOLATION if we did not offer the extension.
    pub(crate) fn on_immediate_ack(&mut self) -> Result<(), TransportError> {
        if self.policy.min_ack_delay.is_none() {
            return Err(TransportError::at(
                TransportErrorCode::PROTOCOL_VIOLATION,
                quicket_wire::frame::ImmediateAck::TYPE,
                "IMMEDIATE_ACK was not offered by min_ack_delay",
            ));
        }
        self.send_now = true;
        Ok(())
    }

    /// True if an ACK must be sent now, even in a packet of its own.
    #[inline]
    pub(crate) fn should_send_ack(&self, now: Time) -> bool {
        self.send_now || self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// True if an ACK should go along with whatever else is sent: ack-eliciting packets wait for
    /// one (RFC 9000, Section 13.2.1).
    #[inline]
    pub(crate) fn should_bundle_ack(&self) -> bool {
        self.unacked > 0 || self.send_now
    }

    /// When an ACK must be sent at the latest; in the past if it is due already.
    #[inline]
    pub(crate) fn ack_deadline(&self) -> Option<Time> {
        if self.send_now { Some(Time::ZERO) } else { self.deadline }
    }

    /// An ACK of everything received was sent.
    #[inline]
    pub(crate) fn on_ack_sent(&mut self, now: Time) {
        self.unacked = 0;
        self.send_now = false;
        self.deadline = None;
        self.largest_acked = self.largest;
        self.last_ack_sent = Some(now);
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
