//! ProbeBW (draft-ietf-ccwg-bbr, Section 5.3.3).

use super::{AckEvent, Bbr, INFINITE, RateSample, State};
use crate::time::{Duration, Time};

/// The most rounds between probes, to coexist with Reno (Section 5.3.3.8.3).
const MAX_RENO_ROUNDS: u64 = 63;
/// The least time between probes, and the spread added to it (Section 5.3.3.8.2).
const MIN_PROBE_WAIT: Duration = Duration::from_secs(2);
const PROBE_WAIT_SPREAD_NANOS: u64 = 1_000_000_000;
/// The growth of inflight_longterm doubles in each round of a probe, at most so often.
const MAX_UP_ROUNDS: u32 = 30;

/// What the ACKs of now say of probing (Section 2.14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AckPhase {
    #[default]
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// The state of bandwidth probing (Section 2.14).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProbeBw {
    pub(super) ack_phase: AckPhase,
    /// Samples come from a probing phase that has not yet met with losses.
    pub(super) is_probe_sample: bool,
    pub(super) rounds_since_up: u64,
    pub(super) prev_too_high: bool,
    prev_precautionary: bool,
    wait: Duration,
    cycle_stamp: Time,
    up_rounds: u32,
    up_acked: u64,
    /// How many bytes must be acknowledged to raise inflight_longterm by a packet.
    acked_per_increase: u64,
}

impl Bbr {
    /// StartProbeBW_DOWN
    pub(super) fn start_probe_bw_down(&mut self, now: Time) {
        self.short_term.reset_signals();
        self.probe_bw.acked_per_increase = INFINITE;
        // PickProbeWait
        self.probe_bw.rounds_since_up = self.random_below(2);
        let spread = Duration::from_nanos(self.random_below(PROBE_WAIT_SPREAD_NANOS));
        self.probe_bw.wait = MIN_PROBE_WAIT + spread;
        self.probe_bw.cycle_stamp = now;
        self.probe_bw.ack_phase = AckPhase::ProbeStopping;
        self.start_round();
        self.state = State::ProbeBwDown;
    }

    /// StartProbeBW_CRUISE
    pub(super) fn start_probe_bw_cruise(&mut self) {
        self.state = State::ProbeBwCruise;
    }

    /// StartProbeBW_REFILL
    pub(super) fn start_probe_bw_refill(&mut self) {
        self.short_term.lift();
        self.probe_bw.up_rounds = 0;
        self.probe_bw.up_acked = 0;
        self.probe_bw.prev_precautionary = false;
        self.probe_bw.ack_phase = AckPhase::Refilling;
        self.start_round();
        self.state = State::ProbeBwRefill;
    }

    /// StartProbeBW_UP
    fn start_probe_bw_up(&mut self, sample: &RateSample) {
        self.probe_bw.is_probe_sample = true;
        self.probe_bw.ack_phase = AckPhase::ProbeStarting;
        self.start_round();
        self.full_bw.reset(sample.rate.unwrap_or(0));
        self.state = State::ProbeBwUp;
        self.raise_inflight_longterm_slope();
    }

    /// UpdateProbeBWCyclePhase
    pub(super) fn update_probe_bw_cycle_phase(&mut self, ack: &AckEvent<'_>, sample: &RateSample) {
        if !self.full_bw.reached || self.adapt_long_term_model(ack, sample) {
            return;
        }
        let state = self.state;
        match state {
            State::ProbeBwDown | State::ProbeBwCruise if self.is_time_to_probe_bw(ack.now) => {
                self.start_probe_bw_refill();
            }
            State::ProbeBwDown if self.is_time_to_cruise(ack.in_flight) => {
                self.start_probe_bw_cruise();
            }
            State::ProbeBwRefill if self.rounds.start => self.start_probe_bw_up(sample),
            State::ProbeBwUp if self.is_time_to_go_down(ack, sample) => {
                self.probe_bw.prev_too_high = false;
                self.start_probe_bw_down(ack.now);
            }
            _ => {}
        }
    }

    /// IsTimeToProbeBW and IsRenoCoexistenceProbeTime
    fn is_time_to_probe_bw(&self, now: Time) -> bool {
        let reno_rounds = self.target_inflight().checked_div(self.mss().max(1)).unwrap_or(0);
        now > self.probe_bw.cycle_stamp + self.probe_bw.wait
            || self.probe_bw.rounds_since_up >= reno_rounds.min(MAX_RENO_ROUNDS)
    }

    /// IsTimeToCruise
    fn is_time_to_cruise(&self, in_flight: u64) -> bool {
        in_flight <= self.inflight_with_headroom()
            && in_flight <= self.inflight(self.max_bw.get(), 100)
    }

    /// IsTimeToGoDown
    fn is_time_to_go_down(&mut self, ack: &AckEvent<'_>, sample: &RateSample) -> bool {
        if self.probe_bw.prev_too_high && ack.in_flight >= self.inflight_longterm {
            self.probe_bw.prev_precautionary = true;
            return true;
        }
        if self.is_window_limited(ack) && self.window >= self.inflight_longterm {
            self.full_bw.reset(sample.rate.unwrap_or(0));
            return false;
        }
        self.full_bw.now
    }

    /// C.is_cwnd_limited (Section 2.2)
    fn is_window_limited(&self, ack: &AckEvent<'_>) -> bool {
        ack.peak_in_flight.saturating_add(self.mss()) > self.window
    }

    /// RaiseInflightLongtermSlope
    fn raise_inflight_longterm_slope(&mut self) {
        let growth = 1u64 << self.probe_bw.up_rounds;
        self.probe_bw.up_rounds = self.probe_bw.up_rounds.saturating_add(1).min(MAX_UP_ROUNDS);
        self.probe_bw.acked_per_increase =
            self.window.checked_div(growth).unwrap_or(0).max(self.mss());
    }

    /// ProbeInflightLongtermUpward
    fn probe_inflight_longterm_upward(&mut self, ack: &AckEvent<'_>) {
        if !self.is_window_limited(ack) || self.window < self.inflight_longterm {
            return;
        }
        self.probe_bw.up_acked = self.probe_bw.up_acked.saturating_add(ack.bytes);
        let per_increase = self.probe_bw.acked_per_increase.max(1);
        let delta = self.probe_bw.up_acked.checked_div(per_increase).unwrap_or(0);
        self.probe_bw.up_acked = self.probe_bw.up_acked.checked_rem(per_increase).unwrap_or(0);
        let increase = delta.saturating_mul(self.mss());
        self.inflight_longterm = self.inflight_longterm.saturating_add(increase);
        if self.rounds.start {
            self.raise_inflight_longterm_slope();
        }
    }

    /// AdaptLongTermModel; true if it changed the state.
    fn adapt_long_term_model(&mut self, ack: &AckEvent<'_>, sample: &RateSample) -> bool {
        if self.rounds.start {
            let phase = self.probe_bw.ack_phase;
            match phase {
                AckPhase::ProbeStarting => self.probe_bw.ack_phase = AckPhase::ProbeFeedback,
                AckPhase::ProbeStopping if self.end_of_probe_feedback(sample) => return true,
                _ => {}
            }
        }
        let too_high = self.is_inflight_too_high(sample.lost, sample.tx_in_flight);
        if !too_high && self.inflight_longterm != INFINITE {
            self.inflight_longterm = self.inflight_longterm.max(sample.tx_in_flight);
            if self.state == State::ProbeBwUp {
                self.probe_inflight_longterm_upward(ack);
            }
        }
        false
    }

    /// A round after a probe, its last samples are in. True if another probe begins at once.
    fn end_of_probe_feedback(&mut self, sample: &RateSample) -> bool {
        self.probe_bw.is_probe_sample = false;
        self.probe_bw.ack_phase = AckPhase::Init;
        if !self.state.is_probe_bw() {
            return false;
        }
        if !sample.app_limited {
            self.max_bw.advance();
        }
        let again = self.probe_bw.prev_precautionary && !self.probe_bw.prev_too_high;
        if again {
            self.start_probe_bw_refill();
        }
        again
    }
}
