//! Asking the peer for fewer ACKs (draft-ietf-quic-ack-frequency, Sections 4, 7 and 8).

use quicket_wire::frame::AckFrequency;

use crate::time::{Duration, Time};

/// An ACK is asked for this many times in a round trip and in a congestion window.
const ACKS_PER_ROUND_TRIP: u64 = 4;
/// The largest threshold asked for, whatever the window: bounds the burst that one ACK releases.
const MAX_THRESHOLD: u64 = 255;
/// The longest delay asked for, whatever the round trip.
const MAX_REQUEST: Duration = Duration::from_millis(250);

/// What the peer's ACKs should fit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckFrequencyTarget {
    /// The smoothed round trip time (not the smallest, Section 8.1 of the draft).
    pub(crate) smoothed_rtt: Duration,
    /// Congestion window in bytes.
    pub(crate) congestion_window: u64,
    /// Full-size packets' size in bytes.
    pub(crate) packet_size: u16,
    /// The packet threshold of loss detection (RFC 9002, Section 6.1.1).
    pub(crate) reordering_threshold: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Request {
    threshold: u64,
    max_ack_delay: Duration,
    reordering_threshold: u64,
}

impl Request {
    /// Whether asking for `self` instead of `old` is worth a frame (Section 8.1 of the draft).
    fn differs_enough(&self, old: &Self) -> bool {
        fn factor_of_two(a: u64, b: u64) -> bool {
            a >= b.saturating_mul(2) || b >= a.saturating_mul(2)
        }
        self.reordering_threshold != old.reordering_threshold
            || factor_of_two(self.threshold, old.threshold)
            || factor_of_two(self.max_ack_delay.as_micros(), old.max_ack_delay.as_micros())
    }
}

/// Decides which ACK_FREQUENCY frames to send. At most one is in flight at a time.
#[derive(Debug)]
pub(crate) struct AckFrequencySender {
    /// The peer's min_ack_delay; `None` while the extension is not usable.
    min_ack_delay: Option<Duration>,
    /// What the peer is known to use.
    confirmed_max_ack_delay: Duration,
    /// The largest delay in any frame that the peer may have but did not acknowledge.
    unconfirmed_max_ack_delay: Duration,
    /// What the peer uses by what we asked last (or by itself, before we asked).
    last: Request,
    pending: Option<Request>,
    in_flight: Option<u64>,
    next_sequence: u64,
    last_sent: Option<Time>,
}

impl AckFrequencySender {
    /// Before the peer's transport parameters are known, `max_ack_delay` is the default of 25 ms
    /// (RFC 9000, Section 18.2).
    pub(crate) fn new() -> Self {
        let max_ack_delay = Duration::from_millis(25);
        Self {
            min_ack_delay: None,
            confirmed_max_ack_delay: max_ack_delay,
            unconfirmed_max_ack_delay: Duration::ZERO,
            last: Request { threshold: 1, max_ack_delay, reordering_threshold: 1 },
            pending: None,
            in_flight: None,
            next_sequence: 0,
            last_sent: None,
        }
    }

    /// The peer's transport parameters: `min_ack_delay` only if it sent one and we want to use
    /// the extension. Never remembered for 0-RTT (Section 3 of the draft).
    pub(crate) fn on_peer_parameters(
        &mut self,
        min_ack_delay: Option<Duration>,
        max_ack_delay: Duration,
    ) {
        self.min_ack_delay = min_ack_delay;
        self.confirmed_max_ack_delay = max_ack_delay;
        self.last.max_ack_delay = max_ack_delay;
    }

    /// True if IMMEDIATE_ACK and ACK_FREQUENCY may be sent.
    pub(crate) fn is_available(&self) -> bool {
        self.min_ack_delay.is_some()
    }

    /// Considers asking for another frequency: not more than once per round trip, and only for a
    /// change that matters (Section 8.1 of the draft).
    pub(crate) fn update(&mut self, now: Time, target: &AckFrequencyTarget) {
        let Some(min_ack_delay) = self.min_ack_delay else { return };
        if self.in_flight.is_some()
            || self.pending.is_some()
            || self.last_sent.is_some_and(|sent| now.since(sent) < target.smoothed_rtt)
        {
            return;
        }
        let request = Self::choose(target, min_ack_delay);
        if request.differs_enough(&self.last) {
            self.pending = Some(request);
        }
    }

    fn choose(target: &AckFrequencyTarget, min_ack_delay: Duration) -> Request {
        let packets =
            target.congestion_window.checked_div(u64::from(target.packet_size.max(1))).unwrap_or(0);
        let max_ack_delay = target
            .smoothed_rtt
            .over(ACKS_PER_ROUND_TRIP)
            .min(MAX_REQUEST)
            .max(min_ack_delay)
            .max(Duration::from_micros(1));
        Request {
            threshold: (packets / ACKS_PER_ROUND_TRIP).clamp(1, MAX_THRESHOLD),
            max_ack_delay,
            reordering_threshold: target.reordering_threshold,
        }
    }

    /// The connection moved to another path: what was asked for no longer fits and is asked for
    /// anew as soon as the new path is measured (Section 8.4 of the draft).
    pub(crate) fn on_path_changed(&mut self) {
        self.last_sent = None;
    }

    /// The frame to send, if any.
    pub(crate) fn next_frame(&self) -> Option<AckFrequency> {
        let request = self.pending?;
        Some(AckFrequency {
            sequence_number: self.next_sequence,
            ack_eliciting_threshold: request.threshold,
            requested_max_ack_delay: request.max_ack_delay.as_micros(),
            reordering_threshold: request.reordering_threshold,
        })
    }

    /// The frame of [`Self::next_frame`] was sent.
    pub(crate) fn on_frame_sent(&mut self, now: Time) {
        let Some(request) = self.pending.take() else { return };
        self.in_flight = Some(self.next_sequence);
        self.next_sequence = self.next_sequence.saturating_add(1);
        self.unconfirmed_max_ack_delay = self.unconfirmed_max_ack_delay.max(request.max_ack_delay);
        self.last = request;
        self.last_sent = Some(now);
    }

    /// The frame was acknowledged: the peer uses its values now.
    pub(crate) fn on_frame_acked(&mut self, sequence: u64) {
        if self.in_flight == Some(sequence) {
            self.in_flight = None;
            self.confirmed_max_ack_delay = self.last.max_ack_delay;
            self.unconfirmed_max_ack_delay = Duration::ZERO;
        }
    }

    /// The frame was lost: its request goes out again under a new sequence number.
    pub(crate) fn on_frame_lost(&mut self, sequence: u64) {
        if self.in_flight == Some(sequence) {
            self.in_flight = None;
            self.pending = self.pending.or(Some(self.last));
        }
    }

    /// The peer's max_ack_delay for the PTO: the largest that it may be using (Section 7 of the
    /// draft).
    pub(crate) fn max_ack_delay(&self) -> Duration {
        self.confirmed_max_ack_delay.max(self.unconfirmed_max_ack_delay)
    }
}

#[cfg(test)]
#[path = "frequency_tests.rs"]
mod tests;
