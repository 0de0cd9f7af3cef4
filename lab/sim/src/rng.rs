//! The one source of chance in a simulation.

use quicket_engine::random::Random;

/// A seeded generator: xoshiro256** (Blackman and Vigna), its state filled by SplitMix64.
///
/// Equal seeds give equal sequences on every machine. It is not a cryptographic generator: what
/// it gives can be predicted, which is the point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimRng {
    seed: u64,
    state: [u64; 4],
}

impl SimRng {
    /// A generator that starts from `seed`; every value will do, zero too.
    pub fn new(seed: u64) -> Self {
        let mut mixer = seed;
        let state = core::array::from_fn(|_| {
            mixer = mixer.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(mixer)
        });
        Self { seed, state }
    }

    /// An independent generator named `label`.
    ///
    /// It depends on the seed and the label only, not on what was drawn so far, so a new stream
    /// added to a simulation leaves the others as they were.
    pub fn stream(&self, label: &str) -> Self {
        let hash = label.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| {
            (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
        });
        Self::new(mix(self.seed.rotate_left(17) ^ mix(hash)))
    }

    /// The seed that this generator started from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A number from `low` to `high`, both included; `low` if the range is empty.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        match high.checked_sub(low) {
            Some(u64::MAX) => self.next_u64(),
            Some(span) => low + self.below(span + 1),
            None => low,
        }
    }

    /// True once in `n` times on average; never for zero.
    pub fn one_in(&mut self, n: u64) -> bool {
        n != 0 && self.below(n) == 0
    }

    /// One of `choices`.
    ///
    /// # Panics
    /// If there is nothing to choose from.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        assert!(!choices.is_empty(), "pick needs at least one choice");
        &choices[self.below(choices.len() as u64) as usize]
    }
}

impl Random for SimRng {
    fn fork(&mut self) -> Box<dyn Random> {
        Box::new(Self::new(self.next_u64()))
    }

    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }

    fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }
}

/// The finalizer of SplitMix64: spreads every input bit over the whole output.
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_is_pinned() {
        // Changing the generator would make every recorded seed worthless.
        let mut rng = SimRng::new(0);
        assert_eq!(rng.state[0], 0xe220_a839_7b1d_cdaf, "SplitMix64's first output for seed 0");
        let first: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        let mut again = SimRng::new(0);
        assert_eq!(first, (0..3).map(|_| again.next_u64()).collect::<Vec<_>>());
        assert_ne!(first[0], SimRng::new(1).next_u64());
    }

    #[test]
    fn forks_do_not_depend_on_what_was_drawn() {
        let fresh = SimRng::new(7);
        let mut used = SimRng::new(7);
        used.next_u64();
        assert_eq!(fresh.stream("loss"), used.stream("loss"));
        assert_ne!(fresh.stream("loss"), fresh.stream("delay"));
        assert_ne!(fresh.stream("loss"), fresh);
    }

    #[test]
    fn numbers_stay_in_range_and_reach_its_ends() {
        let mut rng = SimRng::new(3);
        let draws: Vec<u64> = (0..200).map(|_| rng.between(5, 8)).collect();
        assert!(draws.iter().all(|d| (5..=8).contains(d)));
        assert!((5..=8).all(|n| draws.contains(&n)));
        assert_eq!(rng.between(9, 2), 9);
        assert!(!rng.one_in(0));
        assert!(rng.one_in(1));
    }

    #[test]
    fn fill_covers_lengths_that_are_no_multiple_of_eight() {
        let mut rng = SimRng::new(4);
        let mut out = [0; 13];
        rng.fill(&mut out);
        assert!(out[8..].iter().any(|b| *b != 0));
    }
}
