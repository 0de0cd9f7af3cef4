//! Sockets of messages under arbitrary sequences of calls: the corpus, and inputs of a seeded
//! generator. `scripts/fuzz message` runs the same guided by coverage.
//!
//! `FUZZ_INPUTS` is how many generated inputs there are, 60 without it; a failure tells the seed,
//! and `FUZZ_SEED` begins with it.

mod run;

use std::fs;
use std::panic;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Panics of any thread.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// Bytes that look like chance.
fn generate(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = move || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let len = 20 + next() % 600;
    (0..len).map(|_| next() as u8).collect()
}

#[test]
fn any_sequence_of_calls_harms_nobody() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        hook(info);
    }));
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/message");
    let mut inputs = 0;
    for entry in fs::read_dir(corpus).unwrap().flatten() {
        let path = entry.path();
        check(&fs::read(&path).unwrap(), &path.display().to_string());
        inputs += 1;
    }
    assert!(inputs > 0, "there is a corpus");
    let first = from_environment("FUZZ_SEED").unwrap_or(0);
    let count = from_environment("FUZZ_INPUTS").unwrap_or(60);
    for seed in first..first + count {
        check(&generate(seed), &format!("FUZZ_SEED={seed}"));
    }
}

fn check(input: &[u8], name: &str) {
    let done = panic::catch_unwind(|| run::run(input));
    let panics = PANICS.load(Ordering::SeqCst);
    assert!(done.is_ok() && panics == 0, "the input {name} fails");
}
