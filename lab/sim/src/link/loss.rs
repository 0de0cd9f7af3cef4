//! Loss: independent, in bursts, and of listed packets.

use std::fmt;
use std::str::FromStr;

use crate::rng::SimRng;
use crate::units::Probability;

/// Loss in bursts: the two-state model of Gilbert and Elliott. Each packet first moves the state,
/// then is lost with the probability of the state it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstLoss {
    /// From the good state to the bad one, per packet.
    pub enter: Probability,
    /// From the bad state back, per packet: its inverse is the mean burst in packets.
    pub leave: Probability,
    /// Loss in the bad state; all packets unless stated.
    pub bad: Probability,
    /// Loss in the good state; none unless stated.
    pub good: Probability,
}

impl BurstLoss {
    /// Bursts in which every packet is lost, with none lost between them.
    pub const fn new(enter: Probability, leave: Probability) -> Self {
        Self { enter, leave, bad: Probability::ALWAYS, good: Probability::NEVER }
    }
}

impl fmt::Display for BurstLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.enter, self.leave)?;
        if self.bad != Probability::ALWAYS || !self.good.is_never() {
            write!(f, ",{}", self.bad)?;
        }
        if !self.good.is_never() {
            write!(f, ",{}", self.good)?;
        }
        Ok(())
    }
}

impl FromStr for BurstLoss {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::parse).collect::<Result<Vec<Probability>, _>>()?;
        let base = |enter, leave| Self::new(enter, leave);
        match *parts.as_slice() {
            [enter, leave] => Ok(base(enter, leave)),
            [enter, leave, bad] => Ok(Self { bad, ..base(enter, leave) }),
            [enter, leave, bad, good] => Ok(Self { bad, good, ..base(enter, leave) }),
            _ => Err(format!(
                "`{text}` is not a burst loss: write `ENTER,LEAVE[,LOSS-IN-BAD[,LOSS-IN-GOOD]]` such as `1%,25%`, or `off`"
            )),
        }
    }
}

/// Where a link is in the model of [`BurstLoss`].
#[derive(Clone, Debug, Default)]
pub(super) struct BurstState {
    bad: bool,
}

impl BurstState {
    /// Moves one packet on; true if it is lost.
    pub(super) fn drops(&mut self, model: &BurstLoss, rng: &mut SimRng) -> bool {
        let flip = if self.bad { model.leave } else { model.enter };
        self.bad ^= flip.draw(rng);
        let loss = if self.bad { model.bad } else { model.good };
        loss.draw(rng)
    }
}

/// Independent draws of which no more than some in a row hit.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    hits: u64,
}

impl Runs {
    /// Draws for one packet. After `limit` hits in a row the next packet is spared.
    pub(super) fn draw(
        &mut self,
        probability: Probability,
        limit: Option<u64>,
        rng: &mut SimRng,
    ) -> bool {
        let hit = probability.draw(rng) && limit.is_none_or(|limit| self.hits < limit);
        self.hits = if hit { self.hits + 1 } else { 0 };
        hit
    }
}

/// Numbers of packets, counted from 1 in the order in which they reach the link:
/// `2,5-7` or `100-` (all from the hundredth on).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketList(Vec<(u64, u64)>);

impl PacketList {
    /// The list of these numbers.
    pub fn of(numbers: &[u64]) -> Self {
        Self(numbers.iter().map(|n| (*n, *n)).collect())
    }

    /// True if the `number`-th packet is listed.
    pub fn contains(&self, number: u64) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&number))
    }
}

impl fmt::Display for PacketList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("off");
        }
        for (i, (first, last)) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match *last {
                last if last == *first => write!(f, "{comma}{first}")?,
                u64::MAX => write!(f, "{comma}{first}-")?,
                last => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for PacketList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::default());
        }
        let number = |s: &str| s.parse::<u64>().ok().filter(|n| *n > 0);
        let range = |item: &str| match item.split_once('-') {
            None => number(item).map(|n| (n, n)),
            Some((first, "")) => number(first).map(|n| (n, u64::MAX)),
            Some((first, last)) => {
                Some((number(first)?, number(last)?)).filter(|(first, last)| first <= last)
            }
        };
        text.split(',').map(range).collect::<Option<Vec<_>>>().map(Self).ok_or_else(|| {
            format!(
                "`{text}` is not a list of packets: count from 1 and write `2,5-7,100-`, or `off`"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_have_the_mean_length_and_rate_of_the_model() {
        let model: BurstLoss = "1%,25%".parse().unwrap();
        let (mut state, mut rng) = (BurstState::default(), SimRng::new(5));
        let losses: Vec<bool> = (0..200_000).map(|_| state.drops(&model, &mut rng)).collect();
        let lost = losses.iter().filter(|l| **l).count();
        let bursts = losses.windows(2).filter(|w| !w[0] && w[1]).count();
        // Stationary loss is enter / (enter + leave) = 3.85 %, the mean burst 1 / leave = 4.
        assert!((6_700..8_700).contains(&lost), "{lost}");
        assert!((35..45).contains(&(lost * 10 / bursts)), "{lost} in {bursts}");
    }

    #[test]
    fn runs_end_at_their_limit() {
        let (mut runs, mut rng) = (Runs::default(), SimRng::new(5));
        let always = Probability::ALWAYS;
        let hits: Vec<bool> = (0..8).map(|_| runs.draw(always, Some(3), &mut rng)).collect();
        assert_eq!(hits, [true, true, true, false, true, true, true, false]);
        assert!((0..100).all(|_| runs.draw(always, None, &mut rng)));
    }

    #[test]
    fn burst_loss_prints_what_it_parsed() {
        for text in ["1%,25%", "1%,25%,50%", "1%,25%,100%,0.1%"] {
            assert_eq!(text.parse::<BurstLoss>().unwrap().to_string(), text);
        }
        assert!("1%".parse::<BurstLoss>().unwrap_err().contains("ENTER,LEAVE"));
    }

    #[test]
    fn lists_name_packets_and_ranges() {
        let list: PacketList = "2,5-7,100-".parse().unwrap();
        let named: Vec<u64> = (1..=101).filter(|n| list.contains(*n)).collect();
        assert_eq!(named, [2, 5, 6, 7, 100, 101]);
        assert_eq!(list.to_string(), "2,5-7,100-");
        assert_eq!("off".parse(), Ok(PacketList::default()));
        assert_eq!(PacketList::default().to_string(), "off");
        for text in ["", "0", "7-5", "a", "1,,2", "-3"] {
            assert!(text.parse::<PacketList>().is_err(), "{text}");
        }
    }
}
