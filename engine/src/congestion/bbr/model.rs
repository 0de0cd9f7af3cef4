//! The parts of BBR's model of the path that stand alone.

use super::filter::WindowedMax;
use crate::congestion::RateSample;
use crate::congestion::delivery::volume;
use crate::time::{Duration, Time};

/// A bandwidth or volume without bound.
pub(super) const INFINITE: u64 = u64::MAX;
/// MinRTTFilterLen (draft-ietf-ccwg-bbr, Section 2.16.1).
const MIN_RTT_FILTER: Duration = Duration::from_secs(10);
/// ProbeRTTInterval (Section 2.16.2).
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
/// ExtraAckedFilterLen (Section 2.12), in rounds.
const EXTRA_ACKED_ROUNDS: u64 = 10;
/// BBR.Beta (Section 2.8) in tenths.
const BETA_TENTHS: u64 = 7;

/// Packet-timed round trips (Section 5.5.1).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    /// Bytes delivered when the round began.
    next_round_delivered: u64,
    /// How many there were.
    pub(super) count: u64,
    /// The ACK at hand begins one.
    pub(super) start: bool,
}

impl Rounds {
    /// True if the ACK begins a round.
    pub(super) fn update(&mut self, sample: &RateSample) -> bool {
        self.start = sample.prior_delivered >= self.next_round_delivered;
        if self.start {
            self.begin(sample.total_delivered);
            self.count = self.count.saturating_add(1);
        }
        self.start
    }

    /// A round begins now, when `delivered` bytes were ever delivered.
    pub(super) fn begin(&mut self, delivered: u64) {
        self.next_round_delivered = delivered;
    }
}

/// Looks for the plateau of the delivery rate (Section 5.3.1.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullBandwidth {
    baseline: u64,
    count: u32,
    /// The path is full, since it was last looked at anew.
    pub(super) now: bool,
    /// The path has been full.
    pub(super) reached: bool,
}

impl FullBandwidth {
    /// Looks anew, for growth beyond `baseline`.
    pub(super) fn reset(&mut self, baseline: u64) {
        self.baseline = baseline;
        self.count = 0;
        self.now = false;
    }

    /// The rate grew by a quarter when it was last looked at.
    pub(super) fn grows(&self) -> bool {
        self.count == 0
    }

    /// Takes in a sample.
    pub(super) fn check(&mut self, sample: &RateSample, round_start: bool) {
        if self.now || !round_start || sample.app_limited {
            return;
        }
        let rate = sample.rate.unwrap_or(0);
        if rate >= self.baseline.saturating_add(self.baseline / 4) {
            self.reset(rate);
            return;
        }
        self.count = self.count.saturating_add(1);
        self.now = self.count >= 3;
        self.reached |= self.now;
    }
}

/// The round trip time without queues (Section 5.3.4.3: UpdateMinRTT).
#[derive(Clone, Copy, Debug)]
pub(super) struct MinRtt {
    /// The estimate; [`Duration::MAX`] before the first sample.
    pub(super) min: Duration,
    stamp: Time,
    probe_min: Duration,
    probe_stamp: Time,
    /// No low sample for a while: ProbeRTT is due.
    pub(super) probe_due: bool,
}

impl MinRtt {
    pub(super) fn new(now: Time) -> Self {
        Self {
            min: Duration::MAX,
            stamp: now,
            probe_min: Duration::MAX,
            probe_stamp: now,
            probe_due: false,
        }
    }

    /// Takes in an ACK.
    pub(super) fn update(&mut self, now: Time, sample: Option<Duration>) {
        self.probe_due = now > self.probe_stamp + PROBE_RTT_INTERVAL;
        if let Some(rtt) = sample
            && (rtt < self.probe_min || self.probe_due)
        {
            self.probe_min = rtt;
            self.probe_stamp = now;
        }
        let expired = now > self.stamp + MIN_RTT_FILTER;
        if self.probe_min < self.min || expired {
            self.min = self.probe_min;
            self.stamp = self.probe_stamp;
        }
    }

    /// ProbeRTT is over.
    pub(super) fn probed(&mut self, now: Time) {
        self.probe_stamp = now;
    }
}

/// How much more than expected is acknowledged at once (Section 5.5.9).
#[derive(Clone, Copy, Debug)]
pub(super) struct Aggregation {
    interval_start: Time,
    delivered: u64,
    filter: WindowedMax,
    /// The estimate in bytes.
    pub(super) extra_acked: u64,
}

impl Aggregation {
    pub(super) fn new(now: Time) -> Self {
        Self { interval_start: now, delivered: 0, filter: WindowedMax::default(), extra_acked: 0 }
    }

    /// The connection was idle until now.
    pub(super) fn restart(&mut self, now: Time) {
        self.interval_start = now;
    }

    /// Takes in an ACK of `acked` bytes in round `round`. `expected` is the bandwidth, `most` the
    /// window, `full` whether the path has been full.
    pub(super) fn update(
        &mut self,
        now: Time,
        acked: u64,
        expected: u64,
        most: u64,
        (round, full): (u64, bool),
    ) {
        let mut due = volume(expected, now.since(self.interval_start));
        if self.delivered <= due {
            self.delivered = 0;
            self.interval_start = now;
            due = 0;
        }
        self.delivered = self.delivered.saturating_add(acked);
        let extra = self.delivered.saturating_sub(due).min(most);
        let window = if full { EXTRA_ACKED_ROUNDS } else { 1 };
        self.extra_acked = self.filter.update(extra, round, window);
    }
}

/// What the last round delivered, and the short-term bounds that losses draw from it
/// (Section 5.5.10.3).
#[derive(Clone, Copy, Debug)]
pub(super) struct ShortTerm {
    /// The bound on bandwidth, in bytes per second.
    pub(super) bandwidth: u64,
    /// The bound on bytes in flight.
    pub(super) inflight: u64,
    bandwidth_latest: u64,
    /// The most that was delivered between the sending and the ACK of a packet of this round.
    pub(super) inflight_latest: u64,
    loss_round_delivered: u64,
    /// The ACK at hand ends a round of the loss clock.
    pub(super) round_start: bool,
    /// A packet was lost in this round.
    pub(super) loss_in_round: bool,
}

impl ShortTerm {
    pub(super) fn new() -> Self {
        Self {
            bandwidth: INFINITE,
            inflight: INFINITE,
            bandwidth_latest: 0,
            inflight_latest: 0,
            loss_round_delivered: 0,
            round_start: false,
            loss_in_round: false,
        }
    }

    /// Takes in an ACK (UpdateLatestDeliverySignals).
    pub(super) fn update(&mut self, sample: &RateSample) {
        self.bandwidth_latest = self.bandwidth_latest.max(sample.rate.unwrap_or(0));
        self.inflight_latest = self.inflight_latest.max(sample.delivered);
        self.round_start = sample.prior_delivered >= self.loss_round_delivered;
        if self.round_start {
            self.loss_round_delivered = sample.total_delivered;
        }
    }

    /// Ends the handling of an ACK (AdvanceLatestDeliverySignals).
    pub(super) fn advance(&mut self, sample: &RateSample) {
        if self.round_start {
            self.bandwidth_latest = sample.rate.unwrap_or(0);
            self.inflight_latest = sample.delivered;
        }
    }

    /// A packet is lost when `delivered` bytes were ever delivered. True if it is the first of
    /// the round.
    pub(super) fn note_loss(&mut self, delivered: u64) -> bool {
        let first = !self.loss_in_round;
        if first {
            self.loss_round_delivered = delivered;
        }
        self.loss_in_round = true;
        first
    }

    /// Lowers the bounds after a round with losses (InitLowerBounds, LossLowerBounds).
    pub(super) fn lower(&mut self, max_bandwidth: u64, window: u64) {
        if self.bandwidth == INFINITE {
            self.bandwidth = max_bandwidth;
        }
        if self.inflight == INFINITE {
            self.inflight = window;
        }
        self.bandwidth = self.bandwidth_latest.max(beta(self.bandwidth));
        self.inflight = self.inflight_latest.max(beta(self.inflight));
    }

    /// Forgets what happened in this round (ResetCongestionSignals).
    pub(super) fn reset_signals(&mut self) {
        self.loss_in_round = false;
        self.bandwidth_latest = 0;
        self.inflight_latest = 0;
    }

    /// Lifts the bounds (ResetShortTermModel).
    pub(super) fn lift(&mut self) {
        self.bandwidth = INFINITE;
        self.inflight = INFINITE;
    }
}

/// BBR.Beta times `value`.
pub(super) fn beta(value: u64) -> u64 {
    (value / 10)
        .saturating_mul(BETA_TENTHS)
        .saturating_add((value % 10).saturating_mul(BETA_TENTHS) / 10)
}
