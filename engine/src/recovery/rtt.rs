//! Round trip time estimation (RFC 9002, Section 5).

use crate::time::{Duration, Time};

/// The granularity that timers are taken to have (RFC 9002, Section 6.1.2: kGranularity).
pub(crate) const GRANULARITY: Duration = Duration::from_millis(1);
/// Loss for this many probe timeouts is persistent congestion (RFC 9002, Section 7.6.1).
pub(crate) const PERSISTENT_CONGESTION_THRESHOLD: u64 = 3;

/// Longer samples count as this. A peer that is late with its ACKs on purpose would stretch the
/// probe timeout with each of them, and with it how long it may be silent (RFC 9000, Section 10.1).
const MAX_RTT: Duration = Duration::from_secs(60);

/// The round trip time of one path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RttEstimator {
    latest: Duration,
    min: Duration,
    smoothed: Duration,
    variation: Duration,
    first_sample: Option<Time>,
    /// The next sample replaces `min` (RFC 9002, Section 5.2).
    min_is_stale: bool,
}

impl RttEstimator {
    /// An estimator without samples, which assumes `initial` (RFC 9002, Section 6.2.2).
    pub(crate) fn new(initial: Duration) -> Self {
        Self {
            latest: initial,
            min: initial,
            smoothed: initial,
            // RFC 9002, Section 5.3: rttvar starts at half of the first value.
            variation: initial.over(2),
            first_sample: None,
            min_is_stale: false,
        }
    }

    /// Takes in a sample. `ack_delay` is what the peer reported, zero for Initial packets;
    /// `max_ack_delay` is the peer's limit, `None` until the handshake is confirmed.
    pub(crate) fn update(
        &mut self,
        now: Time,
        latest: Duration,
        ack_delay: Duration,
        max_ack_delay: Option<Duration>,
    ) {
        let latest = latest.min(MAX_RTT);
        self.latest = latest;
        if self.first_sample.is_none() {
            // RFC 9002, Section 5.3: the first sample resets the estimator.
            self.first_sample = Some(now);
            self.min = latest;
            self.smoothed = latest;
            self.variation = latest.over(2);
            return;
        }
        // RFC 9002, Section 5.2: min_rtt uses only locally observed times, no ack delay.
        self.min = if self.min_is_stale { latest } else { self.min.min(latest) };
        self.min_is_stale = false;
        // RFC 9002, Section 5.3: MUST use the lesser of the acknowledgment delay and the peer's
        // max_ack_delay after the handshake is confirmed.
        let ack_delay = max_ack_delay.map_or(ack_delay, |limit| ack_delay.min(limit));
        // RFC 9002, Section 5.3: MUST NOT subtract the delay if the result is below min_rtt.
        let adjusted = if latest >= self.min + ack_delay { latest - ack_delay } else { latest };
        let deviation = self.smoothed.max(adjusted) - self.smoothed.min(adjusted);
        self.variation = (self.variation.times(3) + deviation).over(4);
        self.smoothed = (self.smoothed.times(7) + adjusted).over(8);
    }

    /// Forgets the minimum at the next sample: after persistent congestion the path may have
    /// changed (RFC 9002, Section 5.2).
    pub(crate) fn reset_min(&mut self) {
        self.min_is_stale = true;
    }

    /// The most recent sample.
    pub(crate) fn latest(&self) -> Duration {
        self.latest
    }

    /// The smallest sample.
    pub(crate) fn min(&self) -> Duration {
        self.min
    }

    /// The exponentially weighted average.
    pub(crate) fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// The mean deviation.
    pub(crate) fn variation(&self) -> Duration {
        self.variation
    }

    /// When the first sample was taken.
    pub(crate) fn first_sample(&self) -> Option<Time> {
        self.first_sample
    }

    /// The probe timeout before backoff. `max_ack_delay` is zero for Initial and Handshake
    /// packets (RFC 9002, Section 6.2.1).
    pub(crate) fn pto(&self, max_ack_delay: Duration) -> Duration {
        self.smoothed + self.variation.times(4).max(GRANULARITY) + max_ack_delay
    }

    /// How long after it was sent a packet counts as lost once a later one is acknowledged:
    /// the round trip time scaled by `eighths / 8` (RFC 9002, Section 6.1.2).
    pub(crate) fn loss_delay(&self, eighths: u64) -> Duration {
        self.smoothed.max(self.latest).scale(eighths, 8).max(GRANULARITY)
    }

    /// Everything lost for longer than this is persistent congestion
    /// (RFC 9002, Section 7.6.1).
    pub(crate) fn persistent_congestion_duration(&self, max_ack_delay: Duration) -> Duration {
        self.pto(max_ack_delay).times(PERSISTENT_CONGESTION_THRESHOLD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn ms(n: u64) -> Duration {
        MS.times(n)
    }

    fn sampled(first: u64) -> RttEstimator {
        let mut rtt = RttEstimator::new(ms(333));
        rtt.update(Time::ZERO, ms(first), Duration::ZERO, None);
        rtt
    }

    #[test]
    fn before_a_sample_the_initial_value_holds() {
        // RFC 9002, Section 6.2.2: 333 ms gives a first probe timeout of a second.
        let rtt = RttEstimator::new(ms(333));
        assert_eq!(rtt.pto(Duration::ZERO), ms(999));
        assert_eq!(rtt.first_sample(), None);
    }

    #[test]
    fn the_first_sample_replaces_everything() {
        let rtt = sampled(100);
        assert_eq!((rtt.latest(), rtt.min(), rtt.smoothed()), (ms(100), ms(100), ms(100)));
        assert_eq!(rtt.variation(), ms(50));
        assert_eq!(rtt.first_sample(), Some(Time::ZERO));
    }

    #[test]
    fn later_samples_are_averaged() {
        // RFC 9002, Section 5.3: 7/8 and 3/4.
        let mut rtt = sampled(80);
        rtt.update(Time::ZERO, ms(160), Duration::ZERO, None);
        assert_eq!(rtt.smoothed(), ms(90));
        assert_eq!(rtt.variation(), ms(50));
        assert_eq!(rtt.min(), ms(80));
    }

    #[test]
    fn ack_delay_is_subtracted_up_to_the_peers_limit() {
        // RFC 9002, Section 5.3
        let mut rtt = sampled(80);
        rtt.update(Time::ZERO, ms(160), ms(60), Some(ms(40)));
        assert_eq!(rtt.smoothed(), ms(85), "40 ms of the delay count");
        let mut rtt = sampled(80);
        rtt.update(Time::ZERO, ms(160), ms(60), None);
        assert_eq!(rtt.smoothed(), (ms(80).times(7) + ms(100)).over(8), "no limit yet");
    }

    #[test]
    fn ack_delay_that_would_go_below_the_minimum_is_ignored() {
        // RFC 9002, Section 5.3
        let mut rtt = sampled(80);
        rtt.update(Time::ZERO, ms(96), ms(20), Some(ms(25)));
        assert_eq!(rtt.smoothed(), ms(82));
    }

    #[test]
    fn the_minimum_can_be_measured_anew() {
        // RFC 9002, Section 5.2
        let mut rtt = sampled(20);
        rtt.reset_min();
        rtt.update(Time::ZERO, ms(90), Duration::ZERO, None);
        assert_eq!(rtt.min(), ms(90));
        rtt.update(Time::ZERO, ms(95), Duration::ZERO, None);
        assert_eq!(rtt.min(), ms(90));
    }

    #[test]
    fn timeouts_never_fall_below_the_granularity() {
        // RFC 9002, Sections 6.1.2 and 6.2.1
        let mut rtt = RttEstimator::new(ms(333));
        for _ in 0..100 {
            rtt.update(Time::ZERO, Duration::from_micros(40), Duration::ZERO, None);
        }
        assert_eq!(rtt.loss_delay(9), GRANULARITY);
        assert_eq!(rtt.pto(ms(25)), Duration::from_micros(40) + ms(26));
    }

    #[test]
    fn persistent_congestion_takes_three_probe_timeouts() {
        // RFC 9002, Section 7.6.1
        let rtt = sampled(100);
        assert_eq!(rtt.persistent_congestion_duration(ms(25)), ms(325 * 3));
    }

    #[test]
    fn absurd_samples_saturate() {
        let mut rtt = sampled(1);
        rtt.update(Time::ZERO, Duration::MAX, Duration::MAX, None);
        assert_eq!(rtt.latest(), MAX_RTT);
        assert!(rtt.pto(Duration::ZERO) < MAX_RTT.times(2));
        assert!(rtt.pto(Duration::MAX) == Duration::MAX);
    }
}
