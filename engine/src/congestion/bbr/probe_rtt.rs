//! ProbeRTT (draft-ietf-ccwg-bbr, Section 5.3.4).

use super::probe_bw::AckPhase;
use super::{AckEvent, Bbr, RateSample, State};
use crate::time::{Duration, Time};

/// ProbeRTTDuration (Section 2.16.2).
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);

/// The state of a probe for the round trip time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProbeRtt {
    /// When it may end; unknown until bytes in flight have fallen.
    done_at: Option<Time>,
    round_done: bool,
}

impl Bbr {
    /// CheckProbeRTT
    pub(super) fn check_probe_rtt(&mut self, ack: &AckEvent<'_>, sample: &RateSample) {
        if self.state != State::ProbeRtt && self.min_rtt.probe_due && !self.idle_restart {
            self.save_window();
            self.state = State::ProbeRtt;
            self.probe_rtt = ProbeRtt::default();
            self.probe_bw.ack_phase = AckPhase::ProbeStopping;
            self.start_round();
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(ack);
        }
        if sample.delivered > 0 {
            self.idle_restart = false;
        }
    }

    /// HandleProbeRTT
    fn handle_probe_rtt(&mut self, ack: &AckEvent<'_>) {
        if self.probe_rtt.done_at.is_none() {
            if ack.in_flight <= self.probe_rtt_window() {
                self.probe_rtt.done_at = Some(ack.now + PROBE_RTT_DURATION);
                self.probe_rtt.round_done = false;
                self.start_round();
            }
            return;
        }
        self.probe_rtt.round_done |= self.rounds.start;
        if self.probe_rtt.round_done {
            self.check_probe_rtt_done(ack.now);
        }
    }

    /// CheckProbeRTTDone and ExitProbeRTT
    pub(super) fn check_probe_rtt_done(&mut self, now: Time) {
        if self.probe_rtt.done_at.is_none_or(|at| now <= at) {
            return;
        }
        self.min_rtt.probed(now);
        self.restore_window();
        self.short_term.lift();
        if self.full_bw.reached {
            self.start_probe_bw_down(now);
            self.start_probe_bw_cruise();
        } else {
            self.enter_startup();
        }
    }
}
