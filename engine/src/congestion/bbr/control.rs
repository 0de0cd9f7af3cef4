//! Pacing rate, send quantum and window (draft-ietf-ccwg-bbr, Section 5.6). Gains are in percent.

use super::{AckEvent, Bbr, INFINITE, State};
use crate::congestion::delivery::{rate, volume};
use crate::congestion::pacer;
use crate::time::Duration;

/// What stays below the estimated bandwidth, in percent (Section 5.6.2: PacingMarginPercent).
const PACING_MARGIN: u64 = 1;
/// BBR.Headroom (Section 2.8) in percent.
const HEADROOM: u64 = 15;
/// The round trip assumed before it is measured (Section 5.6.2).
const NOMINAL_RTT: Duration = Duration::from_millis(1);

fn percent(value: u64, gain: u64) -> u64 {
    (value / 100).saturating_mul(gain).saturating_add((value % 100).saturating_mul(gain) / 100)
}

impl State {
    /// Section 5.6.1
    fn pacing_gain(self) -> u64 {
        match self {
            Self::Startup => 277,
            Self::Drain => 50,
            Self::ProbeBwDown => 90,
            Self::ProbeBwCruise | Self::ProbeBwRefill | Self::ProbeRtt => 100,
            Self::ProbeBwUp => 125,
        }
    }

    /// Section 5.6.1
    fn window_gain(self) -> u64 {
        match self {
            Self::ProbeBwUp => 225,
            Self::ProbeRtt => 50,
            _ => 200,
        }
    }
}

impl Bbr {
    /// UpdateControlParameters
    pub(super) fn update_control_parameters(&mut self, ack: &AckEvent<'_>) {
        if !self.has_rtt && ack.rtt_sample.is_some() {
            self.has_rtt = true;
            self.init_pacing_rate(Some(ack.rtt.smoothed()));
        }
        self.set_pacing_rate_with_gain(self.state.pacing_gain());
        self.offload_budget = volume(self.pacing_rate, pacer::QUANTUM);
        self.set_window(ack);
    }

    /// InitPacingRate
    pub(super) fn init_pacing_rate(&mut self, smoothed_rtt: Option<Duration>) {
        let interval = smoothed_rtt.filter(|rtt| !rtt.is_zero()).unwrap_or(NOMINAL_RTT);
        let nominal = rate(self.initial_window(), interval);
        self.pacing_rate = percent(nominal, State::Startup.pacing_gain());
    }

    /// SetPacingRateWithGain
    pub(super) fn set_pacing_rate_with_gain(&mut self, gain: u64) {
        let rate = percent(percent(self.bandwidth, gain), 100 - PACING_MARGIN);
        if self.full_bw.reached || rate > self.pacing_rate {
            // A rate of 0 would stop a connection that has lost its model for good.
            self.pacing_rate = rate.max(1);
        }
    }

    /// SetCwnd
    fn set_window(&mut self, ack: &AckEvent<'_>) {
        let max_inflight = self.max_inflight();
        let grown = self.window.saturating_add(ack.bytes);
        if self.full_bw.reached {
            self.window = grown.min(max_inflight);
        } else if self.window < max_inflight || self.delivered < self.initial_window() {
            self.window = grown;
        }
        self.window = self.window.max(self.min_pipe_window());
        if self.state == State::ProbeRtt {
            self.window = self.window.min(self.probe_rtt_window());
        }
        self.window = self.window.min(self.model_cap());
    }

    /// BoundCwndForModel
    fn model_cap(&self) -> u64 {
        let long_term = match self.state {
            State::ProbeBwDown | State::ProbeBwRefill | State::ProbeBwUp => self.inflight_longterm,
            State::ProbeBwCruise | State::ProbeRtt => self.inflight_with_headroom(),
            State::Startup | State::Drain => INFINITE,
        };
        long_term.min(self.short_term.inflight).max(self.min_pipe_window())
    }

    /// UpdateMaxInflight
    fn max_inflight(&self) -> u64 {
        let cap = self.bdp(self.state.window_gain());
        self.quantization_budget(cap.saturating_add(self.aggregation.extra_acked))
    }

    /// Inflight
    pub(super) fn inflight(&self, bandwidth: u64, gain: u64) -> u64 {
        self.quantization_budget(self.bdp_multiple(bandwidth, gain))
    }

    /// QuantizationBudget. The offload budget is what pacing sends at once (Section 5.5.8.2).
    fn quantization_budget(&self, inflight_cap: u64) -> u64 {
        let cap = inflight_cap.max(self.offload_budget).max(self.min_pipe_window());
        if self.state == State::ProbeBwUp {
            cap.saturating_add(self.mss().saturating_mul(2))
        } else {
            cap
        }
    }

    /// BDPMultiple
    fn bdp_multiple(&self, bandwidth: u64, gain: u64) -> u64 {
        if self.min_rtt.min == Duration::MAX {
            return self.initial_window();
        }
        percent(volume(bandwidth, self.min_rtt.min), gain)
    }

    /// The estimated bandwidth-delay product, times `gain`.
    pub(super) fn bdp(&self, gain: u64) -> u64 {
        self.bdp_multiple(self.bandwidth, gain)
    }

    /// TargetInflight
    pub(super) fn target_inflight(&self) -> u64 {
        self.bdp(100).min(self.window)
    }

    /// InflightWithHeadroom
    pub(super) fn inflight_with_headroom(&self) -> u64 {
        if self.inflight_longterm == INFINITE {
            return INFINITE;
        }
        let headroom = percent(self.inflight_longterm, HEADROOM).max(self.mss());
        self.inflight_longterm.saturating_sub(headroom).max(self.min_pipe_window())
    }

    /// ProbeRTTCwnd
    pub(super) fn probe_rtt_window(&self) -> u64 {
        self.bdp(State::ProbeRtt.window_gain()).max(self.min_pipe_window())
    }

    /// MinPipeCwnd (Section 2.8)
    fn min_pipe_window(&self) -> u64 {
        self.mss().saturating_mul(4)
    }
}
