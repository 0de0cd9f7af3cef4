//! Windowed maxima.

/// The largest delivery rate of the current and the previous ProbeBW cycle
/// (draft-ietf-ccwg-bbr, Section 5.5.3: MaxBwFilterLen = 2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MaxBwFilter {
    current: u64,
    previous: u64,
}

impl MaxBwFilter {
    /// Takes in a sample.
    pub(super) fn update(&mut self, rate: u64) {
        self.current = self.current.max(rate);
    }

    /// A cycle ends. One without samples changes nothing.
    pub(super) fn advance(&mut self) {
        if self.current > 0 {
            self.previous = self.current;
            self.current = 0;
        }
    }

    /// The maximum, 0 before the first sample.
    pub(super) fn get(&self) -> u64 {
        self.current.max(self.previous)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    value: u64,
    round: u64,
}

/// The maximum over a window of rounds, from the best three candidates of ever later parts of
/// the window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WindowedMax {
    best: Candidate,
    second: Candidate,
    third: Candidate,
}

impl WindowedMax {
    /// Takes in a sample and returns the maximum over the last `window` rounds.
    pub(super) fn update(&mut self, value: u64, round: u64, window: u64) -> u64 {
        let new = Candidate { value, round };
        let is_old = |candidate: Candidate| round.saturating_sub(candidate.round) > window;
        if value >= self.best.value || is_old(self.third) {
            (self.best, self.second, self.third) = (new, new, new);
        } else if value >= self.second.value {
            (self.second, self.third) = (new, new);
        } else if value >= self.third.value {
            self.third = new;
        }
        if is_old(self.best) {
            (self.best, self.second, self.third) = (self.second, self.third, new);
            if is_old(self.best) {
                (self.best, self.second) = (self.second, self.third);
            }
        } else if self.second.round == self.best.round
            && round.saturating_sub(self.second.round) > window / 4
        {
            // A quarter of the window without a second best: take one from the rest of it.
            (self.second, self.third) = (new, new);
        } else if self.third.round == self.second.round
            && round.saturating_sub(self.third.round) > window / 2
        {
            self.third = new;
        }
        self.best.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_filter_remembers_two_cycles() {
        let mut filter = MaxBwFilter::default();
        filter.update(10);
        filter.update(7);
        filter.advance();
        filter.update(5);
        assert_eq!(filter.get(), 10);
        filter.advance();
        assert_eq!(filter.get(), 5);
        filter.advance();
        filter.advance();
        assert_eq!(filter.get(), 5, "cycles without samples do not count");
    }

    #[test]
    fn the_windowed_maximum_is_at_least_recent_and_at_most_within_the_window() {
        let mut filter = WindowedMax::default();
        let (mut samples, mut seed) = ([0u64; 400], 1u64);
        for round in 0..400usize {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            samples[round] = seed % 1000;
            let max = filter.update(samples[round], round as u64, 10);
            let window = &samples[round.saturating_sub(10)..=round];
            assert!(window.contains(&max), "round {round}: {max} is from the window");
            assert!(max >= samples[round]);
        }
    }

    #[test]
    fn a_peak_is_remembered_for_the_window_and_then_forgotten() {
        let mut filter = WindowedMax::default();
        assert_eq!(filter.update(100, 0, 10), 100);
        for round in 1..=10 {
            assert_eq!(filter.update(50 - round, round, 10), 100);
        }
        assert!(filter.update(30, 11, 10) < 50);
    }
}
