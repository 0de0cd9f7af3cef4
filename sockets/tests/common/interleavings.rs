//! Interleavings of threads that a scheduler chooses. The tests of TCP have it, too.

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

/// How many switches between threads are chosen against all odds, in half of them.
const DEPTH: usize = 3;

/// Tries so many of a case: the same ones with the same seed.
pub(crate) fn search(seed: u64, interleavings: usize, case: fn()) {
    let random = RandomScheduler::new_from_seed(seed, interleavings / 2);
    Runner::new(random, Config::default()).run(case);
    let against_odds = PctScheduler::new_from_seed(seed, DEPTH, interleavings / 2);
    Runner::new(against_odds, Config::default()).run(case);
}
