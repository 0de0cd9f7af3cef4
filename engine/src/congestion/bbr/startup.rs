//! Startup and Drain (draft-ietf-ccwg-bbr, Sections 5.3.1 and 5.3.2).

use super::{AckEvent, Bbr, RateSample, State};

/// How many separate losses in a round end Startup (Section 5.3.1.3).
const STARTUP_FULL_LOSS_COUNT: u32 = 6;
/// How many rounds Drain may take (Section 5.3.2).
const MAX_DRAIN_ROUNDS: u64 = 3;

/// Counts the discontiguous ranges of packets lost in a round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossRanges {
    count: u32,
    last: Option<u64>,
}

impl LossRanges {
    pub(super) fn note(&mut self, number: u64) {
        if self.last.is_none_or(|last| number != last.saturating_add(1)) {
            self.count = self.count.saturating_add(1);
        }
        self.last = Some(number);
    }

    pub(super) fn reset(&mut self) {
        self.count = 0;
    }
}

impl Bbr {
    pub(super) fn enter_startup(&mut self) {
        self.state = State::Startup;
    }

    fn enter_drain(&mut self) {
        self.state = State::Drain;
        self.drain_start_round = self.rounds.count;
    }

    /// CheckStartupDone
    pub(super) fn check_startup_done(&mut self, ack: &AckEvent<'_>, sample: &RateSample) {
        if self.state != State::Startup {
            return;
        }
        let high_loss = self.short_term.round_start
            && ack.in_recovery
            && self.startup_loss.count >= STARTUP_FULL_LOSS_COUNT
            && self.is_inflight_too_high(sample.lost, sample.tx_in_flight);
        if high_loss {
            self.undo.state = Some(State::Startup);
            self.leave_startup_for_congestion();
        }
        if self.full_bw.reached {
            self.enter_drain();
        }
    }

    /// Congestion shows that the path is full (Section 5.3.1.3).
    pub(super) fn leave_startup_for_congestion(&mut self) {
        self.full_bw.reached = true;
        self.inflight_longterm = self.bdp(100).max(self.short_term.inflight_latest);
    }

    /// CheckDrainDone
    pub(super) fn check_drain_done(&mut self, ack: &AckEvent<'_>) {
        if self.state == State::Drain
            && (ack.in_flight <= self.inflight(self.bandwidth, 100)
                || self.rounds.count > self.drain_start_round.saturating_add(MAX_DRAIN_ROUNDS))
        {
            self.start_probe_bw_down(ack.now);
        }
    }
}
