//! Propagation delay, jitter and reordering.

use std::fmt;
use std::str::FromStr;

use quicket_engine::time::{Duration, Time};

use crate::rng::SimRng;
use crate::units::{Probability, parse_time, print_time};

/// Some packets take longer, so that those sent after them overtake them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reorder {
    /// How many.
    pub probability: Probability,
    /// How much longer.
    pub by: Duration,
}

impl fmt::Display for Reorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.probability, print_time(self.by))
    }
}

impl FromStr for Reorder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (probability, by) = text.split_once(',').ok_or_else(|| {
            format!(
                "`{text}` is not a reordering: write `PROBABILITY,TIME` such as `2%,5ms`, or `off`"
            )
        })?;
        Ok(Self { probability: probability.parse()?, by: parse_time(by)? })
    }
}

/// When packets arrive that left a bottleneck.
#[derive(Clone, Debug, Default)]
pub(super) struct Propagation {
    /// Arrival of the latest packet of those that keep their order.
    last: Time,
}

/// One packet's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) at: Time,
    /// It was held back so that others may overtake it.
    pub(super) reordered: bool,
}

impl Propagation {
    /// The arrival of a packet that departs at `departs`. Jitter is uniform from `delay - jitter`
    /// to `delay + jitter` and alone never changes the order; [`Reorder`] does.
    pub(super) fn arrival(
        &mut self,
        departs: Time,
        (delay, jitter): (Duration, Duration),
        reorder: Option<&Reorder>,
        rng: &mut SimRng,
    ) -> Arrival {
        let span = jitter.times(2).as_nanos();
        let shift = if span == 0 { 0 } else { rng.between(0, span) };
        let regular = departs + (delay + Duration::from_nanos(shift) - jitter);
        if let Some(reorder) = reorder.filter(|r| r.probability.draw(rng)) {
            return Arrival { at: regular.max(self.last) + reorder.by, reordered: true };
        }
        self.last = self.last.max(regular);
        Arrival { at: self.last, reordered: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn jitter_stays_in_its_range_and_keeps_order() {
        let (mut p, mut rng) = (Propagation::default(), SimRng::new(2));
        let mut last = Time::ZERO;
        let (mut low, mut high) = (Duration::MAX, Duration::ZERO);
        for i in 0..1_000 {
            let departs = Time::ZERO + MS.times(100 * i);
            let at = p.arrival(departs, (MS.times(10), MS.times(3)), None, &mut rng).at;
            assert!(at > last);
            last = at;
            low = low.min(at - departs);
            high = high.max(at - departs);
        }
        assert!((MS.times(7)..MS.times(8)).contains(&low), "{low:?}");
        assert!(high > MS.times(12) && high <= MS.times(13), "{high:?}");

        let burst: Vec<Time> = (0..100)
            .map(|_| p.arrival(last, (MS.times(10), MS.times(3)), None, &mut rng).at)
            .collect();
        assert!(burst.is_sorted(), "packets that leave together do not overtake each other");
    }

    #[test]
    fn reordered_packets_are_overtaken() {
        let reorder: Reorder = "100%,5ms".parse().unwrap();
        let (mut p, mut rng) = (Propagation::default(), SimRng::new(2));
        let held = p.arrival(Time::ZERO, (MS, Duration::ZERO), Some(&reorder), &mut rng);
        let next = p.arrival(Time::ZERO + MS, (MS, Duration::ZERO), None, &mut rng);
        assert_eq!(held, Arrival { at: Time::ZERO + MS.times(6), reordered: true });
        assert_eq!(next, Arrival { at: Time::ZERO + MS.times(2), reordered: false });
        assert_eq!(reorder.to_string(), "100%,5ms");
        assert!("5ms".parse::<Reorder>().unwrap_err().contains("PROBABILITY,TIME"));
    }
}
