//! BBR version 3 (draft-ietf-ccwg-bbr), in integers.
//!
//! Functions and states are named so that they can be read beside the draft's pseudocode:
//! `model` holds the estimators, `startup`, `probe_bw` and `probe_rtt` the state machine,
//! `long_term` the reaction to losses while probing, `control` the window and the pacing rate.
//! `random_loss` is an addition to the draft: it tells losses of the path from congestion.

mod control;
mod filter;
mod long_term;
mod model;
mod probe_bw;
mod probe_rtt;
mod random_loss;
mod startup;

use super::controller::{AckEvent, CongestionController, CongestionEvent, LostPacket};
use super::{CongestionParameters, RateSample, minimum_window};
use crate::time::Time;
use filter::MaxBwFilter;
use model::{Aggregation, FullBandwidth, INFINITE, MinRtt, Rounds, ShortTerm};
use probe_bw::ProbeBw;
use probe_rtt::ProbeRtt;
use random_loss::RandomLoss;

/// The state machine (draft-ietf-ccwg-bbr, Section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    ProbeBwDown,
    ProbeBwCruise,
    ProbeBwRefill,
    ProbeBwUp,
    ProbeRtt,
}

impl State {
    fn is_probe_bw(self) -> bool {
        use State::*;
        matches!(self, ProbeBwDown | ProbeBwCruise | ProbeBwRefill | ProbeBwUp)
    }

    /// IsProbingBW
    fn is_probing(self) -> bool {
        matches!(self, Self::Startup | Self::ProbeBwRefill | Self::ProbeBwUp)
    }
}

/// What is restored when losses turn out to be none (Section 5.5.11).
#[derive(Clone, Copy, Debug)]
struct Undo {
    state: Option<State>,
    bandwidth_shortterm: u64,
    inflight_shortterm: u64,
    inflight_longterm: u64,
}

/// The BBR controller.
#[derive(Debug)]
pub(crate) struct Bbr {
    mtu: u16,
    parameters: CongestionParameters,
    random: u64,
    started: bool,
    state: State,
    window: u64,
    /// The last window that neither recovery nor ProbeRTT had changed.
    prior_window: u64,
    pacing_rate: u64,
    has_rtt: bool,
    /// What pacing sends at once.
    offload_budget: u64,
    rounds: Rounds,
    max_bw: MaxBwFilter,
    /// The bandwidth to send at: the maximum within the short-term bound.
    bandwidth: u64,
    min_rtt: MinRtt,
    full_bw: FullBandwidth,
    aggregation: Aggregation,
    short_term: ShortTerm,
    random_loss: RandomLoss,
    inflight_longterm: u64,
    drain_start_round: u64,
    startup_loss: startup::LossRanges,
    probe_bw: ProbeBw,
    probe_rtt: ProbeRtt,
    undo: Undo,
    idle_restart: bool,
    in_recovery: bool,
    /// Bytes ever delivered.
    delivered: u64,
}

impl Bbr {
    /// A controller whose waits are spread by `seed`.
    pub(crate) fn new(mtu: u16, seed: u64, parameters: CongestionParameters) -> Self {
        let mut bbr = Self {
            mtu,
            parameters,
            random: seed | 1,
            started: false,
            state: State::Startup,
            window: parameters.initial_bytes(mtu),
            prior_window: 0,
            pacing_rate: 0,
            has_rtt: false,
            offload_budget: 0,
            rounds: Rounds::default(),
            max_bw: MaxBwFilter::default(),
            bandwidth: 0,
            min_rtt: MinRtt::new(Time::ZERO),
            full_bw: FullBandwidth::default(),
            aggregation: Aggregation::new(Time::ZERO),
            short_term: ShortTerm::new(),
            random_loss: RandomLoss::default(),
            inflight_longterm: INFINITE,
            drain_start_round: 0,
            startup_loss: startup::LossRanges::default(),
            probe_bw: ProbeBw::default(),
            probe_rtt: ProbeRtt::default(),
            undo: Undo {
                state: None,
                bandwidth_shortterm: 0,
                inflight_shortterm: 0,
                inflight_longterm: 0,
            },
            idle_restart: false,
            in_recovery: false,
            delivered: 0,
        };
        bbr.init_pacing_rate(None);
        bbr
    }

    /// The window that the path began with, as its datagrams are now.
    fn initial_window(&self) -> u64 {
        self.parameters.initial_bytes(self.mtu)
    }

    fn mss(&self) -> u64 {
        u64::from(self.mtu)
    }

    /// A number below `bound`, from a generator that need not be hard to guess.
    fn random_below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (u128::from(self.random).wrapping_mul(u128::from(bound)) >> 64) as u64
    }

    /// A packet-timed round begins now.
    fn start_round(&mut self) {
        self.rounds.begin(self.delivered);
    }

    /// UpdateModelAndState (Section 5.2.3)
    fn update_model_and_state(&mut self, ack: &AckEvent<'_>, sample: &RateSample) {
        self.random_loss.on_rtt(ack.rtt_sample);
        self.short_term.update(sample);
        self.update_congestion_signals(sample);
        let clock = (self.rounds.count, self.full_bw.reached);
        self.aggregation.update(ack.now, ack.bytes, self.bandwidth, self.window, clock);
        self.full_bw.check(sample, self.rounds.start);
        self.check_startup_done(ack, sample);
        self.check_drain_done(ack);
        self.update_probe_bw_cycle_phase(ack, sample);
        self.min_rtt.update(ack.now, ack.rtt_sample);
        self.check_probe_rtt(ack, sample);
        self.short_term.advance(sample);
        self.bandwidth = self.max_bw.get().min(self.short_term.bandwidth);
    }

    /// UpdateCongestionSignals and UpdateMaxBw (Sections 5.5.5 and 5.5.10.3)
    fn update_congestion_signals(&mut self, sample: &RateSample) {
        if self.rounds.update(sample) {
            self.probe_bw.rounds_since_up = self.probe_bw.rounds_since_up.saturating_add(1);
        }
        if let Some(rate) = sample.rate
            && (rate >= self.max_bw.get() || !sample.app_limited)
        {
            self.max_bw.update(rate);
        }
        if !self.short_term.round_start {
            return;
        }
        let mss = self.mss();
        let (round, no_queue) =
            self.random_loss.end_round(sample.total_delivered, self.min_rtt.min);
        // AdaptLowerBoundsFromCongestion
        if self.short_term.loss_in_round
            && !self.state.is_probing()
            && !self.random_loss.explains(round, mss)
        {
            self.short_term.lower(self.max_bw.get(), self.window);
        }
        let still_grows = self.state == State::Startup && self.full_bw.grows();
        if no_queue && (still_grows || self.state == State::ProbeBwCruise) {
            self.random_loss.learn(round, mss);
        }
    }

    /// SaveCwnd (Section 5.6.4.4)
    fn save_window(&mut self) {
        self.prior_window = if self.in_recovery || self.state == State::ProbeRtt {
            self.prior_window.max(self.window)
        } else {
            self.window
        };
    }

    /// RestoreCwnd
    fn restore_window(&mut self) {
        self.window = self.window.max(self.prior_window);
    }

    /// NoteLoss and SaveStateUponLoss (Sections 5.5.10.2 and 5.5.11.1)
    fn note_loss(&mut self, delivered: u64) {
        if !self.short_term.note_loss(delivered) {
            return;
        }
        self.save_window();
        self.undo = Undo {
            state: None,
            bandwidth_shortterm: self.short_term.bandwidth,
            inflight_shortterm: self.short_term.inflight,
            inflight_longterm: self.inflight_longterm,
        };
    }

    fn start_clocks(&mut self, now: Time) {
        if !self.started {
            self.started = true;
            self.min_rtt = MinRtt::new(now);
            self.aggregation = Aggregation::new(now);
        }
    }
}

impl CongestionController for Bbr {
    fn on_sent(&mut self, now: Time, bytes: u64, in_flight: u64, app_limited: bool) {
        self.start_clocks(now);
        // HandleRestartFromIdle (Section 5.4.1)
        if in_flight > bytes || !app_limited {
            return;
        }
        self.idle_restart = true;
        self.aggregation.restart(now);
        if self.state.is_probe_bw() {
            self.set_pacing_rate_with_gain(100);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(now);
        }
    }

    fn on_ack(&mut self, ack: &AckEvent<'_>) {
        let Some(sample) = ack.rate else { return };
        self.delivered = sample.total_delivered;
        if self.in_recovery && !ack.in_recovery {
            self.in_recovery = false;
            self.restore_window();
        }
        self.update_model_and_state(ack, &sample);
        if self.short_term.round_start {
            self.short_term.loss_in_round = false;
            self.startup_loss.reset();
        }
        self.update_control_parameters(ack);
    }

    fn on_packet_lost(&mut self, now: Time, packet: &LostPacket) {
        self.delivered = packet.total_delivered;
        self.random_loss.on_lost(packet.bytes);
        self.handle_lost_packet(now, packet);
    }

    fn on_congestion(&mut self, event: &CongestionEvent) {
        self.save_window();
        self.in_recovery = true;
        if event.is_ecn_ce {
            self.handle_ecn_ce(event);
        }
    }

    fn on_persistent_congestion(&mut self, _now: Time) {
        // OnEnterRTO (Section 5.6.4.4), with the window of RFC 9002, Section 7.6.2.
        self.save_window();
        self.in_recovery = false;
        self.window = minimum_window(self.mtu);
    }

    fn on_spurious_loss(&mut self, now: Time) {
        self.handle_spurious_loss(now);
    }

    fn on_mtu_changed(&mut self, mtu: u16) {
        self.mtu = mtu;
        self.window = self.window.max(minimum_window(mtu));
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn pacing_rate(&self) -> Option<u64> {
        Some(self.pacing_rate)
    }

    fn limits_itself(&self) -> bool {
        self.state == State::ProbeRtt
    }

    fn in_slow_start(&self) -> bool {
        self.state == State::Startup
    }

    fn ssthresh(&self) -> u64 {
        INFINITE
    }

    fn state(&self, _in_recovery: bool) -> &'static str {
        match self.state {
            State::Startup => "startup",
            State::Drain => "drain",
            State::ProbeBwDown => "probe_bw_down",
            State::ProbeBwCruise => "probe_bw_cruise",
            State::ProbeBwRefill => "probe_bw_refill",
            State::ProbeBwUp => "probe_bw_up",
            State::ProbeRtt => "probe_rtt",
        }
    }

    fn name(&self) -> &'static str {
        "BBRv3"
    }
}

#[cfg(test)]
mod tests;
