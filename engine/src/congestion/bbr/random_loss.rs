//! Losses that say nothing about congestion: an addition to draft-ietf-ccwg-bbr.
//!
//! The draft takes any loss in ProbeBW_CRUISE for a sign that less bandwidth is available, and a
//! loss rate above LossThresh (2 %) for a full queue. On a path that loses packets by itself, a
//! radio link for example, both keep the rate far below what the path can carry. This part learns
//! how much is lost while sending *cannot* be the cause: in rounds without a queue in which the
//! sender stayed at or below the bandwidth that it has seen delivered, or in which more was
//! delivered than ever before. Losses up to about twice that rate are then no congestion.
//!
//! It cannot lead a sender to hold on to losses of its own making: what it sends while cruising
//! was delivered within the last two probes, so that without random loss nothing is lost then,
//! and what was learned fades.

use crate::time::Duration;

/// Rates are in 1/10,000.
const UNIT: u64 = 10_000;
/// LossThresh (Section 2.8): 2 %.
const LOSS_THRESHOLD: u64 = 200;
/// No rate above 10 % is learned: a path that loses more has other troubles.
const MOST: u64 = 1000;
/// The last 2,000 to 4,000 packets count.
const WINDOW_PACKETS: u64 = 2000;
/// With fewer packets, or fewer losses, nothing is known.
const LEAST_PACKETS: u64 = 100;
const LEAST_LOST: u64 = 2;
/// So many packets more or less are chance, on a path with room for many.
const CHANCE_PACKETS: u64 = 2;
const CHANCE: u64 = 200;

/// What was lost and delivered in a round, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    pub(super) lost: u64,
    pub(super) delivered: u64,
    /// A packet was marked instead of dropped: that was a queue.
    pub(super) marked: bool,
}

impl Round {
    fn sent(self) -> u64 {
        self.lost.saturating_add(self.delivered)
    }
}

/// The rate of losses that are not congestion.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RandomLoss {
    /// The rate, or 0.
    rate: u64,
    /// What it was learned from.
    seen: Round,
    /// The round so far; what it delivered is known at its end.
    current: Round,
    /// Bytes ever delivered when it began.
    delivered_before: u64,
    min_rtt: Option<Duration>,
}

impl RandomLoss {
    /// Takes in a lost packet.
    pub(super) fn on_lost(&mut self, bytes: u64) {
        self.current.lost = self.current.lost.saturating_add(bytes);
    }

    /// Takes in an ECN-CE mark.
    pub(super) fn on_marked(&mut self) {
        self.current.marked = true;
    }

    /// Takes in the round trip time that an ACK measured.
    pub(super) fn on_rtt(&mut self, rtt: Option<Duration>) {
        self.min_rtt = self.min_rtt.into_iter().chain(rtt).min();
    }

    /// A round ends when `delivered` bytes were ever delivered. Returns it, and whether it was
    /// without a queue, on a path with a round trip time of `path_rtt`.
    pub(super) fn end_round(&mut self, delivered: u64, path_rtt: Duration) -> (Round, bool) {
        let round =
            Round { delivered: delivered.saturating_sub(self.delivered_before), ..self.current };
        let queue_begins = path_rtt.as_nanos().saturating_add(path_rtt.as_nanos() / 8);
        let no_queue = self.min_rtt.is_some_and(|rtt| rtt.as_nanos() <= queue_begins);
        (self.current, self.delivered_before, self.min_rtt) = (Round::default(), delivered, None);
        (round, no_queue)
    }

    /// Learns from a round in which the sender did not cause what was lost.
    pub(super) fn learn(&mut self, round: Round, mss: u64) {
        let most = share(round.sent(), MOST).saturating_add(mss.saturating_mul(CHANCE_PACKETS));
        if round.marked || round.lost > most {
            return;
        }
        if self.seen.sent() > mss.saturating_mul(WINDOW_PACKETS) {
            self.seen.lost /= 2;
            self.seen.delivered /= 2;
        }
        self.seen.lost = self.seen.lost.saturating_add(round.lost);
        self.seen.delivered = self.seen.delivered.saturating_add(round.delivered);
        let known = self.seen.sent() >= mss.saturating_mul(LEAST_PACKETS)
            && self.seen.lost >= mss.saturating_mul(LEAST_LOST);
        self.rate = if known {
            self.seen.lost.saturating_mul(UNIT).checked_div(self.seen.sent()).unwrap_or(0).min(MOST)
        } else {
            0
        };
    }

    /// What may be lost of `sent` bytes by chance, beside `threshold`.
    fn allowance(&self, sent: u64, threshold: u64, mss: u64) -> u64 {
        let most_chance = mss.saturating_mul(CHANCE_PACKETS).min(share(sent, CHANCE));
        let chance = if self.rate > 0 { most_chance } else { 0 };
        share(sent, threshold.saturating_add(self.rate.saturating_mul(2))).saturating_add(chance)
    }

    /// True if a round lost no more than the path does by itself.
    pub(super) fn explains(&self, round: Round, mss: u64) -> bool {
        !round.marked && round.lost <= self.allowance(round.sent(), 0, mss)
    }

    /// How many of `inflight` bytes may be lost before the flight is too high (LossThresh).
    pub(super) fn threshold(&self, inflight: u64, mss: u64) -> u64 {
        self.allowance(inflight, LOSS_THRESHOLD, mss)
    }
}

fn share(bytes: u64, rate: u64) -> u64 {
    bytes.saturating_mul(rate) / UNIT
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1250;
    const RTT: Duration = Duration::from_millis(50);

    fn round(sent: u64, lost: u64) -> Round {
        Round { lost: lost * MSS, delivered: (sent - lost) * MSS, marked: false }
    }

    /// What is learned from rounds of 400 packets that lose `lost` each.
    fn learned(lost: u64) -> RandomLoss {
        let mut random_loss = RandomLoss::default();
        (0..20).for_each(|_| random_loss.learn(round(400, lost), MSS));
        random_loss
    }

    #[test]
    fn without_experience_any_loss_counts_and_the_threshold_is_the_drafts() {
        let nothing = learned(0);
        assert!(nothing.explains(round(400, 0), MSS));
        assert!(!nothing.explains(round(400, 1), MSS));
        assert_eq!(nothing.threshold(100 * MSS, MSS), 2 * MSS);
        assert_eq!(nothing.threshold(u64::MAX, MSS), u64::MAX / UNIT, "saturates");
    }

    #[test]
    fn up_to_twice_the_rate_of_the_path_is_no_congestion() {
        let five_percent = learned(20);
        assert!(five_percent.explains(round(400, 42), MSS));
        assert!(!five_percent.explains(round(400, 43), MSS));
        assert_eq!(five_percent.threshold(400 * MSS, MSS), 50 * MSS);
        assert!(!five_percent.explains(round(20, 3), MSS), "chance is for large flights");
    }

    #[test]
    fn losses_of_more_than_a_tenth_are_never_learned() {
        assert!(!learned(43).explains(round(400, 1), MSS));
        let mut random_loss = learned(20);
        random_loss.learn(round(400, 200), MSS);
        assert!(!random_loss.explains(round(400, 43), MSS));
    }

    #[test]
    fn what_was_learned_fades() {
        let mut random_loss = learned(20);
        (0..100).for_each(|_| random_loss.learn(round(400, 0), MSS));
        assert!(!random_loss.explains(round(400, 1), MSS));
    }

    #[test]
    fn a_round_with_a_mark_is_congestion_and_teaches_nothing() {
        let marked = Round { marked: true, ..round(400, 0) };
        assert!(!learned(20).explains(marked, MSS));
        let mut random_loss = RandomLoss::default();
        (0..20).for_each(|_| random_loss.learn(Round { marked: true, ..round(400, 20) }, MSS));
        assert!(!random_loss.explains(round(400, 1), MSS));
    }

    #[test]
    fn a_round_counts_what_happened_in_it_and_sees_a_queue_by_its_shortest_round_trip() {
        let mut random_loss = RandomLoss::default();
        random_loss.on_lost(MSS);
        random_loss.on_marked();
        random_loss.on_rtt(Some(RTT.times(2)));
        random_loss.on_rtt(None);
        random_loss.on_rtt(Some(RTT));
        let (first, no_queue) = random_loss.end_round(9 * MSS, RTT);
        assert_eq!((first.lost, first.delivered, first.marked), (MSS, 9 * MSS, true));
        assert!(no_queue);
        random_loss.on_rtt(Some(RTT.times(2)));
        let (second, no_queue) = random_loss.end_round(19 * MSS, RTT);
        assert_eq!((second.lost, second.delivered, second.marked), (0, 10 * MSS, false));
        assert!(!no_queue);
        assert!(!random_loss.end_round(29 * MSS, RTT).1, "no sample tells nothing");
    }
}
