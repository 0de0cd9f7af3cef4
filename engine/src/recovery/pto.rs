//! When to look for lost packets or probe: RFC 9002, Sections 6.2 and A.8.

use super::RttEstimator;
use crate::time::{Duration, Time};

/// A packet number space (RFC 9000, Section 12.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum SpaceId {
    /// Initial packets.
    Initial,
    /// Handshake packets.
    Handshake,
    /// 0-RTT and 1-RTT packets.
    Data,
}

impl SpaceId {
    /// All of them, in the order in which they come into use.
    pub(crate) const ALL: [Self; 3] = [Self::Initial, Self::Handshake, Self::Data];
}

/// What the timer needs to know of one packet number space.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpaceTimes {
    /// When the next outstanding packet counts as lost: `RecoverySpace::loss_time`.
    pub(crate) loss_time: Option<Time>,
    /// When the last ack-eliciting packet was sent, if any is in flight:
    /// `RecoverySpace::pto_base`.
    pub(crate) pto_base: Option<Time>,
}

/// What the timer depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimerInputs<'a> {
    /// When an ack-eliciting packet was last sent, an ACK last came or the timer last fired.
    pub(crate) last_progress: Time,
    /// Initial, Handshake and Data; spaces that are not in use are left at the default.
    pub(crate) spaces: [SpaceTimes; 3],
    /// The round trip time of the active path.
    pub(crate) rtt: &'a RttEstimator,
    /// The peer's max_ack_delay.
    pub(crate) max_ack_delay: Duration,
    /// Probe timeouts in a row without an ACK.
    pub(crate) pto_count: u32,
    /// A server that may send nothing until it receives more (RFC 9000, Section 8.1).
    pub(crate) amplification_limited: bool,
    /// The peer is known to have validated this side's address: always so at a server; at a
    /// client once a Handshake packet is acknowledged or the handshake is confirmed
    /// (RFC 9002, Section 6.2.2.1).
    pub(crate) peer_validated_address: bool,
    /// Handshake keys are available.
    pub(crate) has_handshake_keys: bool,
    /// The handshake is confirmed (RFC 9001, Section 4.1.2).
    pub(crate) handshake_confirmed: bool,
}

/// What the loss detection timer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossTimer {
    /// At `at`, `RecoverySpace::detect_lost` will find packets of `space`.
    Loss {
        /// Where.
        space: SpaceId,
        /// When.
        at: Time,
    },
    /// At `at`, send one or two ack-eliciting packets in `space` and count the timeout.
    Pto {
        /// Where.
        space: SpaceId,
        /// When.
        at: Time,
    },
}

impl LossTimer {
    /// When the timer fires.
    pub(crate) fn at(self) -> Time {
        match self {
            Self::Loss { at, .. } | Self::Pto { at, .. } => at,
        }
    }
}

/// The timer to set (RFC 9002, Section A.8: SetLossDetectionTimer); `None` cancels it.
pub(crate) fn loss_detection_timer(inputs: &TimerInputs<'_>) -> Option<LossTimer> {
    // Time threshold loss detection comes first.
    if let Some((at, space)) = earliest_loss_time(inputs) {
        return Some(LossTimer::Loss { space, at });
    }
    // The server's timer is not set if nothing can be sent.
    if inputs.amplification_limited {
        return None;
    }
    let duration = inputs.rtt.pto(Duration::ZERO).backoff(inputs.pto_count);
    if let Some((at, space)) = earliest_pto(inputs, duration) {
        return Some(LossTimer::Pto { space, at });
    }
    if inputs.peer_validated_address {
        return None;
    }
    // The anti-deadlock probe: a client must give a server that is out of credit a reason to go
    // on (RFC 9002, Section 6.2.2.1), even while nothing but 0-RTT packets is in flight.
    let handshake = inputs.has_handshake_keys;
    let space = if handshake { SpaceId::Handshake } else { SpaceId::Initial };
    Some(LossTimer::Pto { space, at: inputs.last_progress + duration })
}

/// RFC 9002, Section A.8: GetLossTimeAndSpace.
fn earliest_loss_time(inputs: &TimerInputs<'_>) -> Option<(Time, SpaceId)> {
    earliest(inputs.spaces.map(|times| times.loss_time))
}

/// RFC 9002, Section A.8: GetPtoTimeAndSpace, as far as packets are in flight.
fn earliest_pto(inputs: &TimerInputs<'_>, duration: Duration) -> Option<(Time, SpaceId)> {
    let [initial, handshake, data] =
        inputs.spaces.map(|times| times.pto_base.map(|at| at + duration));
    // RFC 9002, Section 6.2.1: MUST NOT set the timer for application data until the
    // handshake is confirmed.
    let delay = inputs.max_ack_delay.backoff(inputs.pto_count);
    let data = data.filter(|_| inputs.handshake_confirmed).map(|at| at + delay);
    earliest([initial, handshake, data])
}

/// The first of three moments, and the space that it is of; of two that are equal, that of the earlier space.
fn earliest(times: [Option<Time>; 3]) -> Option<(Time, SpaceId)> {
    let mut first = None;
    for (at, space) in times.into_iter().zip(SpaceId::ALL) {
        if let Some(at) = at
            && first.is_none_or(|(before, _)| at < before)
        {
            first = Some((at, space));
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn rtt() -> RttEstimator {
        let mut rtt = RttEstimator::new(Duration::from_millis(333));
        rtt.update(Time::ZERO, Duration::from_millis(100), Duration::ZERO, None);
        rtt
    }

    /// A connection in steady state with a probe timeout of 300 ms, plus 25 ms for Data.
    fn inputs(rtt: &RttEstimator) -> TimerInputs<'_> {
        TimerInputs {
            last_progress: at(1000),
            spaces: [SpaceTimes::default(); 3],
            rtt,
            max_ack_delay: Duration::from_millis(25),
            pto_count: 0,
            amplification_limited: false,
            peer_validated_address: true,
            has_handshake_keys: true,
            handshake_confirmed: true,
        }
    }

    fn pto(space: SpaceId, ms: u64) -> Option<LossTimer> {
        Some(LossTimer::Pto { space, at: at(ms) })
    }

    #[test]
    fn nothing_in_flight_needs_no_timer() {
        let rtt = rtt();
        assert_eq!(loss_detection_timer(&inputs(&rtt)), None);
    }

    #[test]
    fn the_earliest_loss_time_comes_before_any_probe() {
        // RFC 9002, Section 6.2.1: MUST NOT set the PTO timer while a loss timer is set.
        let rtt = rtt();
        let mut inputs = inputs(&rtt);
        inputs.spaces[0].pto_base = Some(at(1));
        inputs.spaces[1].loss_time = Some(at(900));
        inputs.spaces[2].loss_time = Some(at(800));
        let timer = loss_detection_timer(&inputs).unwrap();
        assert_eq!(timer, LossTimer::Loss { space: SpaceId::Data, at: at(800) });
        assert_eq!(timer.at(), at(800));
    }

    #[test]
    fn probe_timeouts_double_and_only_data_waits_for_delayed_acks() {
        // RFC 9002, Section 6.2.1
        let rtt = rtt();
        let mut inputs = inputs(&rtt);
        inputs.spaces[2].pto_base = Some(at(1000));
        assert_eq!(loss_detection_timer(&inputs), pto(SpaceId::Data, 1325));
        inputs.pto_count = 2;
        assert_eq!(loss_detection_timer(&inputs), pto(SpaceId::Data, 1000 + 4 * 325));
        inputs.spaces[1].pto_base = Some(at(1000));
        assert_eq!(loss_detection_timer(&inputs), pto(SpaceId::Handshake, 1000 + 4 * 300));
        inputs.pto_count = u32::MAX;
        assert!(loss_detection_timer(&inputs).is_some(), "the backoff saturates");
    }

    #[test]
    fn data_is_not_probed_before_the_handshake_is_confirmed() {
        // RFC 9002, Section 6.2.1
        let rtt = rtt();
        let mut inputs = inputs(&rtt);
        inputs.handshake_confirmed = false;
        inputs.spaces[2].pto_base = Some(at(0));
        assert_eq!(loss_detection_timer(&inputs), None);
        inputs.spaces[1].pto_base = Some(at(1000));
        assert_eq!(loss_detection_timer(&inputs), pto(SpaceId::Handshake, 1300));
    }

    #[test]
    fn a_server_out_of_credit_waits() {
        // RFC 9002, Section 6.2.2.1
        let rtt = rtt();
        let mut inputs = inputs(&rtt);
        inputs.spaces[1].pto_base = Some(at(1000));
        inputs.amplification_limited = true;
        assert_eq!(loss_detection_timer(&inputs), None);
    }

    #[test]
    fn a_client_probes_until_its_address_is_known_to_be_validated() {
        // RFC 9002, Section 6.2.2.1
        let rtt = rtt();
        let mut inputs = inputs(&rtt);
        inputs.peer_validated_address = false;
        inputs.handshake_confirmed = false;
        assert_eq!(loss_detection_timer(&inputs), pto(SpaceId::Handshake, 1300));
        inputs.has_handshake_keys = false;
        assert_eq!(loss_detection_timer(&inputs), pto(SpaceId::Initial, 1300));
        inputs.spaces[2].pto_base = Some(at(1200));
        assert_eq!(loss_detection_timer(&inputs), pto(SpaceId::Initial, 1300), "0-RTT in flight");
    }
}
