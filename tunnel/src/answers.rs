//! How many probes of a path are answered: each other end has its own share of a second.

use std::collections::HashMap;
use std::net::IpAddr;

/// Probes of one other end that are answered in a second.
const ANSWERS_PER_SECOND: u32 = 20;
/// Other ends that are answered in a second.
const MAX_ASKING: usize = 4096;

/// The answers of one second.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    second: u64,
    counts: HashMap<IpAddr, u32>,
}

impl Answers {
    /// Whether a probe that comes in this second is answered; counts it.
    pub(crate) fn may(&mut self, source: IpAddr, second: u64) -> bool {
        if self.second != second {
            self.second = second;
            self.counts.clear();
        }
        if self.counts.len() >= MAX_ASKING && !self.counts.contains_key(&source) {
            return false;
        }
        let count = self.counts.entry(source).or_default();
        *count = count.saturating_add(1);
        *count <= ANSWERS_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn who_asks_too_often_waits_and_keeps_nobody_else_from_an_answer() {
        let mut answers = Answers::default();
        let flood = (0..1000).filter(|_| answers.may(ip(1), 7)).count();
        assert_eq!(flood as u32, ANSWERS_PER_SECOND);
        assert!(answers.may(ip(2), 7));
        assert!(answers.may(ip(1), 8), "in the next second again");
    }

    #[test]
    fn other_ends_are_bounded() {
        let mut answers = Answers::default();
        let asking = (0..10_000).filter(|number| answers.may(ip(*number), 1)).count();
        assert_eq!((asking, answers.counts.len()), (MAX_ASKING, MAX_ASKING));
        assert!(answers.may(ip(0), 1), "who was there goes on");
    }
}
