//! NewReno, the controller of RFC 9002, Section 7 and Appendix B.

use super::controller::{AckEvent, CongestionController, CongestionEvent};
use super::{CongestionParameters, minimum_window};
use crate::time::Time;

/// What an undo restores.
#[derive(Clone, Copy, Debug)]
struct Saved {
    window: u64,
    ssthresh: u64,
}

/// The NewReno controller.
#[derive(Debug)]
pub(crate) struct NewReno {
    mtu: u16,
    window: u64,
    ssthresh: u64,
    /// Bytes acknowledged in congestion avoidance that have not yet raised the window.
    acked: u64,
    saved: Option<Saved>,
}

impl NewReno {
    pub(crate) fn new(mtu: u16, parameters: CongestionParameters) -> Self {
        let window = parameters.initial_bytes(mtu);
        Self { mtu, window, ssthresh: u64::MAX, acked: 0, saved: None }
    }
}

impl CongestionController for NewReno {
    fn on_ack(&mut self, ack: &AckEvent<'_>) {
        let mut bytes = ack.growth_bytes;
        if self.in_slow_start() {
            // RFC 9002, Section 7.3.1: by the number of bytes acknowledged.
            let step = bytes.min(self.ssthresh.saturating_sub(self.window));
            self.window = self.window.saturating_add(step);
            bytes = bytes.saturating_sub(step);
        }
        // RFC 9002, Section 7.3.3: by at most one maximum datagram size for each congestion
        // window that is acknowledged.
        self.acked = self.acked.saturating_add(bytes);
        if self.acked >= self.window {
            self.acked = self.acked.saturating_sub(self.window).min(self.window);
            self.window = self.window.saturating_add(u64::from(self.mtu));
        }
    }

    fn on_congestion(&mut self, event: &CongestionEvent) {
        let saved = Saved { window: self.window, ssthresh: self.ssthresh };
        self.saved = (!event.is_ecn_ce).then_some(saved);
        // RFC 9002, Section 7.3.2: ssthresh becomes half the congestion window.
        self.ssthresh = (self.window / 2).max(minimum_window(self.mtu));
        self.window = self.ssthresh;
        self.acked = 0;
    }

    fn on_persistent_congestion(&mut self, _now: Time) {
        // RFC 9002, Section 7.6.2: MUST reduce to the minimum window.
        self.window = minimum_window(self.mtu);
        self.acked = 0;
        self.saved = None;
    }

    fn on_spurious_loss(&mut self, _now: Time) {
        if let Some(saved) = self.saved.take() {
            self.window = self.window.max(saved.window);
            self.ssthresh = self.ssthresh.max(saved.ssthresh);
        }
    }

    fn on_mtu_changed(&mut self, mtu: u16) {
        self.mtu = mtu;
        self.window = self.window.max(minimum_window(mtu));
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn in_slow_start(&self) -> bool {
        self.window < self.ssthresh
    }

    fn ssthresh(&self) -> u64 {
        self.ssthresh
    }

    fn name(&self) -> &'static str {
        "NewReno"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::RttEstimator;
    use crate::time::Duration;

    const MTU: u64 = 1200;

    fn acked(reno: &mut NewReno, growth_bytes: u64) {
        let rtt = RttEstimator::new(Duration::from_millis(100));
        reno.on_ack(&AckEvent {
            now: Time::ZERO,
            bytes: growth_bytes,
            growth_bytes,
            in_flight: 0,
            peak_in_flight: 0,
            latest_time_sent: Time::ZERO,
            rtt_sample: None,
            rtt: &rtt,
            rate: None,
            in_recovery: false,
        });
    }

    fn congestion(reno: &mut NewReno) {
        let (now, is_ecn_ce) = (Time::ZERO, false);
        reno.on_congestion(&CongestionEvent { now, prior_in_flight: 0, is_ecn_ce });
    }

    #[test]
    fn slow_start_adds_what_is_acknowledged() {
        // RFC 9002, Section 7.3.1
        let mut reno = NewReno::new(1200, CongestionParameters::default());
        acked(&mut reno, 5000);
        assert_eq!(reno.window(), 17_000);
        assert!(reno.in_slow_start());
    }

    #[test]
    fn a_loss_halves_the_window() {
        // RFC 9002, Section 7.3.2
        let mut reno = NewReno::new(1200, CongestionParameters::default());
        congestion(&mut reno);
        assert_eq!((reno.window(), reno.ssthresh()), (6000, 6000));
        assert!(!reno.in_slow_start());
    }

    #[test]
    fn congestion_avoidance_adds_a_datagram_for_each_window() {
        // RFC 9002, Section 7.3.3
        let mut reno = NewReno::new(1200, CongestionParameters::default());
        congestion(&mut reno);
        acked(&mut reno, 5999);
        assert_eq!(reno.window(), 6000);
        acked(&mut reno, 1);
        assert_eq!(reno.window(), 7200);
    }

    #[test]
    fn slow_start_ends_at_the_threshold() {
        let mut reno = NewReno::new(1200, CongestionParameters::default());
        congestion(&mut reno);
        reno.on_persistent_congestion(Time::ZERO);
        assert_eq!(reno.window(), 2 * MTU, "RFC 9002, Section 7.6.2");
        acked(&mut reno, 100_000);
        assert_eq!(reno.window(), 6000 + MTU, "the rest counts for congestion avoidance");
    }

    #[test]
    fn the_window_never_falls_below_two_datagrams() {
        // RFC 9002, Section 7.2
        let mut reno = NewReno::new(1200, CongestionParameters::default());
        (0..20).for_each(|_| congestion(&mut reno));
        assert_eq!(reno.window(), 2 * MTU);
    }

    #[test]
    fn a_spurious_loss_is_undone() {
        let mut reno = NewReno::new(1200, CongestionParameters::default());
        congestion(&mut reno);
        reno.on_spurious_loss(Time::ZERO);
        assert_eq!((reno.window(), reno.ssthresh()), (12_000, u64::MAX));
    }
}
