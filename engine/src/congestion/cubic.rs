//! CUBIC (RFC 9438) with HyStart++ (RFC 9406), in integers.
//!
//! Time is counted in 1/1024 s, so that its third power is brought to seconds by a shift.

use super::controller::{AckEvent, CongestionController, CongestionEvent};
use super::hystart::{HyStart, SlowStartPhase};
use super::{CongestionParameters, minimum_window};
use crate::time::{Duration, Time};

/// Ticks per second are 2^10.
const TICK_BITS: u32 = 10;
/// C = 0.4 (RFC 9438, Section 5.1), in 1/1024.
const C: u128 = 410;
const C_BITS: u32 = 10;
/// The longest time that the cubic function is evaluated for: about 18 hours.
const MAX_TICKS: u64 = 1 << 26;

/// What follows from beta_cubic, as fractions.
#[derive(Clone, Copy, Debug)]
struct Factors {
    /// beta_cubic (RFC 9438, Section 4.6).
    beta: (u64, u64),
    /// (1 + beta_cubic) / 2 (RFC 9438, Section 4.7).
    fast_convergence: (u64, u64),
    /// 1 / alpha_cubic, where alpha_cubic = 3 * (1 - beta_cubic) / (1 + beta_cubic)
    /// (RFC 9438, Section 4.3).
    inverse_alpha: (u64, u64),
}

impl Factors {
    fn new(parameters: CongestionParameters) -> Self {
        // It is within 50 and 90.
        let beta = parameters.beta();
        let more = beta.saturating_add(100);
        let fast_convergence = if parameters.cubic_fast_convergence { (more, 200) } else { (1, 1) };
        let inverse_alpha = (more, 100_u64.saturating_sub(beta).saturating_mul(3));
        Self { beta: (beta, 100), fast_convergence, inverse_alpha }
    }
}

/// A congestion avoidance stage.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Time,
    /// When the window last could grow; time without use of the window does not count
    /// (RFC 9438, Section 5.8).
    last_ack: Time,
    /// The time to reach w_max again, in ticks.
    k: u64,
    /// What a Reno flow would have (RFC 9438, Section 4.3).
    w_est: u64,
    /// Bytes acknowledged that have not yet raised `w_est`.
    est_acked: u64,
    /// Growth times window, not yet enough for a byte.
    credit: u64,
}

/// What a congestion event changes, and an undo restores (RFC 9438, Section 4.9).
#[derive(Clone, Copy, Debug)]
struct State {
    window: u64,
    ssthresh: u64,
    w_max: u64,
    /// The window before the last congestion event.
    cwnd_prior: u64,
    epoch: Option<Epoch>,
}

/// The CUBIC controller.
#[derive(Debug)]
pub(crate) struct Cubic {
    mtu: u16,
    factors: Factors,
    state: State,
    saved: Option<State>,
    /// Used in the initial slow start only (RFC 9406, Section 4.3).
    hystart: Option<HyStart>,
}

impl Cubic {
    pub(crate) fn new(mtu: u16, parameters: CongestionParameters) -> Self {
        let state = State {
            window: parameters.initial_bytes(mtu),
            ssthresh: u64::MAX,
            w_max: 0,
            cwnd_prior: 0,
            epoch: None,
        };
        let factors = Factors::new(parameters);
        Self { mtu, factors, state, saved: None, hystart: Some(HyStart::new()) }
    }

    fn slow_start(&mut self, ack: &AckEvent<'_>) {
        let mut bytes = ack.growth_bytes;
        if let Some(hystart) = &mut self.hystart {
            let phase = hystart.on_ack(ack.now, ack.latest_time_sent, ack.rtt_sample);
            bytes = hystart.growth(bytes);
            if phase == SlowStartPhase::Done {
                self.state.ssthresh = self.state.window;
                self.hystart = None;
                return;
            }
        }
        self.state.window = self.state.window.saturating_add(bytes).min(self.state.ssthresh);
    }

    fn avoid_congestion(&mut self, ack: &AckEvent<'_>) {
        let (mtu, inverse_alpha) = (u64::from(self.mtu), self.factors.inverse_alpha);
        let state = &mut self.state;
        let epoch = state.epoch.get_or_insert_with(|| {
            // RFC 9438, Section 4.2: without a congestion event before, K is 0.
            state.w_max = state.w_max.max(state.window);
            Epoch {
                start: ack.now,
                last_ack: ack.now,
                k: time_to_reach(state.w_max.saturating_sub(state.window), mtu),
                w_est: state.window,
                est_acked: 0,
                credit: 0,
            }
        });
        if ack.growth_bytes == 0 {
            epoch.start += ack.now.since(epoch.last_ack);
            epoch.last_ack = ack.now;
            return;
        }
        epoch.last_ack = ack.now;
        let windows = (state.window, state.cwnd_prior);
        epoch.grow_estimate(ack.growth_bytes, windows, inverse_alpha, mtu);
        let t = ticks(ack.now.since(epoch.start));
        if w_cubic(t, epoch.k, state.w_max, mtu) < epoch.w_est {
            // RFC 9438, Section 4.3: the Reno-friendly region.
            state.window = state.window.max(epoch.w_est);
            return;
        }
        // RFC 9438, Sections 4.4 and 4.5
        let ahead = t.saturating_add(ticks(ack.rtt.smoothed()));
        let most = state.window.saturating_add(state.window / 2);
        let target = w_cubic(ahead, epoch.k, state.w_max, mtu).clamp(state.window, most);
        let growth = target.saturating_sub(state.window).saturating_mul(ack.growth_bytes);
        epoch.credit = epoch.credit.saturating_add(growth);
        let window = state.window.max(1);
        state.window = state.window.saturating_add(epoch.credit.checked_div(window).unwrap_or(0));
        epoch.credit = epoch.credit.checked_rem(window).unwrap_or(0);
    }
}

impl Epoch {
    /// RFC 9438, Section 4.3, Figure 4.
    fn grow_estimate(
        &mut self,
        bytes: u64,
        (window, cwnd_prior): (u64, u64),
        inverse_alpha: (u64, u64),
        mtu: u64,
    ) {
        self.est_acked = self.est_acked.saturating_add(bytes);
        let per_segment =
            if self.w_est >= cwnd_prior { window } else { scale(window, inverse_alpha) };
        if self.est_acked >= per_segment {
            self.est_acked = self.est_acked.saturating_sub(per_segment).min(per_segment);
            self.w_est = self.w_est.saturating_add(mtu);
        }
    }
}

impl CongestionController for Cubic {
    fn on_ack(&mut self, ack: &AckEvent<'_>) {
        if ack.in_recovery {
            return;
        }
        if self.in_slow_start() {
            self.slow_start(ack);
        } else {
            self.avoid_congestion(ack);
        }
    }

    fn on_congestion(&mut self, event: &CongestionEvent) {
        self.saved = (!event.is_ecn_ce).then_some(self.state);
        self.hystart = None;
        let state = &mut self.state;
        // RFC 9438, Section 4.7: a flow that did not get back to w_max gives way.
        state.w_max = if state.window < state.w_max {
            scale(state.window, self.factors.fast_convergence)
        } else {
            state.window
        };
        state.cwnd_prior = state.window;
        state.ssthresh = scale(state.window, self.factors.beta).max(minimum_window(self.mtu));
        state.window = state.ssthresh;
        state.epoch = None;
    }

    fn on_persistent_congestion(&mut self, _now: Time) {
        // RFC 9002, Section 7.6.2: MUST reduce to the minimum window.
        self.state.window = minimum_window(self.mtu);
        self.state.epoch = None;
        // RFC 9438, Section 4.8: the growth after a timeout starts afresh.
        self.state.w_max = 0;
        self.saved = None;
    }

    fn on_spurious_loss(&mut self, _now: Time) {
        if let Some(saved) = self.saved.take()
            && saved.window > self.state.window
        {
            self.state = saved;
        }
    }

    fn on_mtu_changed(&mut self, mtu: u16) {
        self.mtu = mtu;
        self.state.window = self.state.window.max(minimum_window(mtu));
    }

    fn window(&self) -> u64 {
        self.state.window
    }

    fn in_slow_start(&self) -> bool {
        self.state.window < self.state.ssthresh
    }

    fn ssthresh(&self) -> u64 {
        self.state.ssthresh
    }

    fn name(&self) -> &'static str {
        "CUBIC"
    }
}

fn scale(value: u64, (numerator, denominator): (u64, u64)) -> u64 {
    u128::from(value)
        .wrapping_mul(u128::from(numerator))
        .checked_div(u128::from(denominator))
        .unwrap_or(0) as u64
}

fn ticks(time: Duration) -> u64 {
    // 10^9 / 2^10 is 5^9 / 2: exact but for rounding down.
    (time.as_nanos() / 1_953_125).saturating_mul(2).min(MAX_TICKS)
}

/// W_cubic (RFC 9438, Section 4.2, Figure 1) in bytes.
fn w_cubic(t: u64, k: u64, w_max: u64, mtu: u64) -> u64 {
    let distance = u128::from(t.abs_diff(k).min(MAX_TICKS));
    let segments =
        distance.saturating_mul(distance).saturating_mul(distance).saturating_mul(C) >> C_BITS;
    let bytes = segments.saturating_mul(u128::from(mtu)) >> (3 * TICK_BITS);
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    if t >= k { w_max.saturating_add(bytes) } else { w_max.saturating_sub(bytes) }
}

/// K (RFC 9438, Section 4.2, Figure 2) in ticks, for a window that is `bytes` below w_max.
fn time_to_reach(bytes: u64, mtu: u64) -> u64 {
    let cube = (u128::from(bytes) << (3 * TICK_BITS + C_BITS))
        .checked_div(C.saturating_mul(u128::from(mtu.max(1))))
        .unwrap_or(0);
    cube_root(cube).min(MAX_TICKS)
}

/// The largest integer whose third power is at most `value`, up to 2^40.
fn cube_root(value: u128) -> u64 {
    let mut root = 0u64;
    for bit in (0..40).rev() {
        let candidate = u128::from(root | 1 << bit);
        if candidate.saturating_mul(candidate).saturating_mul(candidate) <= value {
            root |= 1 << bit;
        }
    }
    root
}

#[cfg(test)]
#[path = "cubic_tests.rs"]
mod tests;
