//! Losses: the long-term bound on bytes in flight while probing, and the undo of both
//! (draft-ietf-ccwg-bbr, Sections 5.5.10.2 and 5.5.11).

use super::model::beta;
use super::{Bbr, CongestionEvent, LostPacket, State};
use crate::time::Time;

impl Bbr {
    /// IsInflightTooHigh
    pub(super) fn is_inflight_too_high(&self, lost: u64, tx_in_flight: u64) -> bool {
        lost > self.random_loss.threshold(tx_in_flight, self.mss())
    }

    /// HandleLostPacket
    pub(super) fn handle_lost_packet(&mut self, now: Time, packet: &LostPacket) {
        self.note_loss(packet.total_delivered);
        self.startup_loss.note(packet.number);
        if self.probe_bw.is_probe_sample
            && self.is_inflight_too_high(packet.lost_since_sent, packet.tx_in_flight)
        {
            let inflight = self.inflight_at_loss(packet);
            self.handle_inflight_too_high(now, inflight, packet.app_limited);
        }
    }

    /// HandleInflightTooHigh
    fn handle_inflight_too_high(&mut self, now: Time, tx_in_flight: u64, app_limited: bool) {
        self.probe_bw.prev_too_high = true;
        self.probe_bw.is_probe_sample = false;
        if !app_limited {
            self.inflight_longterm = tx_in_flight.max(beta(self.target_inflight()));
        }
        if self.state == State::ProbeBwUp {
            self.undo.state = Some(State::ProbeBwUp);
            self.start_probe_bw_down(now);
        }
    }

    /// The draft leaves the answer to ECN-CE marks open but for that they MUST count as
    /// congestion (Section 3.7): a round with a mark is a round with losses beyond the threshold.
    pub(super) fn handle_ecn_ce(&mut self, event: &CongestionEvent) {
        self.note_loss(self.delivered);
        self.random_loss.on_marked();
        if self.state == State::Startup {
            self.leave_startup_for_congestion();
        } else if self.probe_bw.is_probe_sample {
            self.handle_inflight_too_high(event.now, event.prior_in_flight, false);
        }
        // What was saved is no loss that could turn out to be spurious.
        self.undo.state = None;
    }

    /// HandleSpuriousLossDetection
    pub(super) fn handle_spurious_loss(&mut self, _now: Time) {
        self.in_recovery = false;
        self.restore_window();
        self.short_term.loss_in_round = false;
        self.full_bw.reset(0);
        let undo = self.undo;
        self.short_term.bandwidth = self.short_term.bandwidth.max(undo.bandwidth_shortterm);
        self.short_term.inflight = self.short_term.inflight.max(undo.inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(undo.inflight_longterm);
        match undo.state {
            Some(State::Startup) if self.state != State::Startup => {
                self.full_bw.reached = false;
                if self.state != State::ProbeRtt {
                    self.enter_startup();
                }
            }
            Some(State::ProbeBwUp) if !matches!(self.state, State::ProbeBwUp | State::ProbeRtt) => {
                self.start_probe_bw_refill();
            }
            _ => {}
        }
        self.undo.state = None;
    }

    /// How much was in flight when the loss rate went beyond the threshold (InflightAtLoss).
    fn inflight_at_loss(&self, packet: &LostPacket) -> u64 {
        let inflight_prev = packet.tx_in_flight.saturating_sub(packet.bytes);
        let lost_prev = packet.lost_since_sent.saturating_sub(packet.bytes);
        // Of the packet itself, the part that was still allowed.
        let allowed = self.random_loss.threshold(inflight_prev, self.mss());
        inflight_prev.saturating_add(allowed.saturating_sub(lost_prev))
    }
}
