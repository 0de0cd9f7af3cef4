//! HyStart++ (RFC 9406): leaves slow start when the round trip time rises, before loss does it.

use crate::time::{Duration, Time};

const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u64 = 8;
const N_RTT_SAMPLE: u32 = 8;
const CSS_GROWTH_DIVISOR: u64 = 4;
const CSS_ROUNDS: u32 = 5;

/// Conservative Slow Start.
#[derive(Clone, Copy, Debug)]
struct Css {
    baseline_min_rtt: Duration,
    rounds: u32,
}

/// What HyStart++ makes of an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlowStartPhase {
    /// Slow start.
    Standard,
    /// Conservative slow start: grow by a quarter.
    Conservative,
    /// Congestion avoidance begins.
    Done,
}

/// HyStart++ for one initial slow start. Sending is paced, so growth per ACK has no limit
/// (RFC 9406, Section 4.3: L = infinity).
#[derive(Clone, Debug)]
pub(crate) struct HyStart {
    /// A packet sent at this time or later ends the round.
    round_start: Time,
    last_round_min_rtt: Duration,
    current_round_min_rtt: Duration,
    rtt_samples: u32,
    css: Option<Css>,
}

impl HyStart {
    pub(crate) fn new() -> Self {
        Self {
            round_start: Time::ZERO,
            last_round_min_rtt: Duration::MAX,
            current_round_min_rtt: Duration::MAX,
            rtt_samples: 0,
            css: None,
        }
    }

    /// Takes in an ACK of a packet sent at `latest_time_sent` (RFC 9406, Section 4.2).
    pub(crate) fn on_ack(
        &mut self,
        now: Time,
        latest_time_sent: Time,
        rtt_sample: Option<Duration>,
    ) -> SlowStartPhase {
        if latest_time_sent >= self.round_start && self.start_round(now) {
            return SlowStartPhase::Done;
        }
        if let Some(rtt) = rtt_sample {
            self.current_round_min_rtt = self.current_round_min_rtt.min(rtt);
            self.rtt_samples = self.rtt_samples.saturating_add(1);
        }
        if self.rtt_samples >= N_RTT_SAMPLE {
            self.judge();
        }
        match self.css {
            None => SlowStartPhase::Standard,
            Some(_) => SlowStartPhase::Conservative,
        }
    }

    /// How much of `bytes` may be added to the window.
    pub(crate) fn growth(&self, bytes: u64) -> u64 {
        if self.css.is_some() { bytes / CSS_GROWTH_DIVISOR } else { bytes }
    }

    /// True when conservative slow start has run its course.
    fn start_round(&mut self, now: Time) -> bool {
        self.round_start = now;
        self.last_round_min_rtt = self.current_round_min_rtt;
        self.current_round_min_rtt = Duration::MAX;
        self.rtt_samples = 0;
        self.css.as_mut().is_some_and(|css| {
            css.rounds = css.rounds.saturating_add(1);
            css.rounds >= CSS_ROUNDS
        })
    }

    fn judge(&mut self) {
        let (current, last) = (self.current_round_min_rtt, self.last_round_min_rtt);
        match self.css {
            // The rise was a jitter: slow start goes on.
            Some(css) if current < css.baseline_min_rtt => self.css = None,
            Some(_) => {}
            None if last != Duration::MAX => {
                let threshold = last.over(MIN_RTT_DIVISOR).max(MIN_RTT_THRESH).min(MAX_RTT_THRESH);
                if current >= last + threshold {
                    self.css = Some(Css { baseline_min_rtt: current, rounds: 0 });
                }
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds rounds of ten ACKs 50 ms apart whose samples are `rtt_ms`, and returns the phase.
    struct Rounds {
        hystart: HyStart,
        now: Time,
    }

    impl Rounds {
        fn new() -> Self {
            Self { hystart: HyStart::new(), now: Time::ZERO }
        }

        fn round(&mut self, rtt_ms: u64) -> SlowStartPhase {
            let sent = self.now;
            let mut phase = SlowStartPhase::Standard;
            for n in 0..10 {
                let now = sent + Duration::from_millis(50 + n);
                let rtt = Duration::from_millis(rtt_ms);
                phase = self.hystart.on_ack(now, sent, Some(rtt));
                self.now = now;
            }
            self.now += Duration::from_millis(1);
            phase
        }
    }

    #[test]
    fn a_steady_round_trip_keeps_slow_start() {
        let mut rounds = Rounds::new();
        for _ in 0..50 {
            assert_eq!(rounds.round(50), SlowStartPhase::Standard);
        }
        assert_eq!(rounds.hystart.growth(1000), 1000);
    }

    #[test]
    fn a_rise_by_an_eighth_enters_conservative_slow_start_for_five_rounds() {
        // RFC 9406, Section 4.2
        let mut rounds = Rounds::new();
        rounds.round(80);
        assert_eq!(rounds.round(89), SlowStartPhase::Standard);
        assert_eq!(rounds.round(101), SlowStartPhase::Conservative);
        assert_eq!(rounds.hystart.growth(1000), 250);
        for _ in 0..CSS_ROUNDS - 1 {
            assert_eq!(rounds.round(101), SlowStartPhase::Conservative);
        }
        let (now, sent) = (rounds.now + Duration::from_millis(50), rounds.now);
        assert_eq!(rounds.hystart.on_ack(now, sent, None), SlowStartPhase::Done);
    }

    #[test]
    fn a_spurious_rise_returns_to_slow_start() {
        // RFC 9406, Section 4.2
        let mut rounds = Rounds::new();
        rounds.round(80);
        assert_eq!(rounds.round(120), SlowStartPhase::Conservative);
        assert_eq!(rounds.round(80), SlowStartPhase::Standard);
    }

    #[test]
    fn thresholds_are_clamped() {
        // RFC 9406, Section 4.2: at least 4 ms, at most 16 ms.
        let mut rounds = Rounds::new();
        rounds.round(8);
        assert_eq!(rounds.round(11), SlowStartPhase::Standard);
        assert_eq!(rounds.round(15), SlowStartPhase::Conservative);
        let mut rounds = Rounds::new();
        rounds.round(800);
        assert_eq!(rounds.round(815), SlowStartPhase::Standard);
        assert_eq!(rounds.round(831), SlowStartPhase::Conservative);
    }

    #[test]
    fn few_samples_decide_nothing() {
        // RFC 9406, Section 4.2: N_RTT_SAMPLE
        let mut hystart = HyStart::new();
        let mut now = Time::ZERO;
        for n in 0..20 {
            let sent = now;
            now += Duration::from_millis(50);
            for _ in 0..N_RTT_SAMPLE - 1 {
                let phase = hystart.on_ack(now, sent, Some(Duration::from_millis(50 * n)));
                assert_eq!(phase, SlowStartPhase::Standard);
                now += Duration::from_micros(10);
            }
        }
    }
}
