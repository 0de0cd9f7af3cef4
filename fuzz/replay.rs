//! Bytes of strangers: a corpus, changed at chance. `scripts/fuzz` runs the same target guided by
//! coverage. Tests of several crates include this file.
//!
//! `FUZZ_INPUTS` is how many changed inputs there are, 20,000 without it; a failure tells the seed,
//! and `FUZZ_SEED` begins with it.

use std::panic::RefUnwindSafe;
use std::path::Path;
use std::{fs, panic};

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// One of the corpus, with bytes changed and its end cut off.
fn change(corpus: &[Vec<u8>], seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = move |below: usize| {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as usize % below
    };
    let mut input = corpus[next(corpus.len())].clone();
    for _ in 0..next(5) {
        let at = next(input.len());
        input[at] = next(256) as u8;
    }
    if next(3) == 0 {
        input.truncate(1 + next(input.len()));
    }
    input
}

/// Runs a target with the corpus of this name, below `fuzz/corpus`, and with changed inputs; returns
/// with how many.
pub(crate) fn replay(name: &str, run: impl Fn(&[u8]) + RefUnwindSafe) -> u64 {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
    let files = fs::read_dir(folder).unwrap().flatten();
    let corpus: Vec<Vec<u8>> = files.map(|file| fs::read(file.path()).unwrap()).collect();
    assert!(corpus.len() > 5, "there is a corpus");
    corpus.iter().for_each(|input| run(input));
    let first = from_environment("FUZZ_SEED").unwrap_or(0);
    let count = from_environment("FUZZ_INPUTS").unwrap_or(20_000);
    for seed in first..first + count {
        let input = change(&corpus, seed);
        let done = panic::catch_unwind(|| run(&input));
        assert!(done.is_ok(), "the input of FUZZ_SEED={seed} fails: {input:?}");
    }
    corpus.len() as u64 + count
}
