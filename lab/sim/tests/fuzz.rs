//! A short run of every fuzz target: the corpus, and inputs of a seeded generator. The same
//! functions run for long, and guided by coverage, in `fuzz/`.
//!
//! `FUZZ_INPUTS` is how many generated inputs each target gets, 2000 without it; a failure tells
//! the seed, and `FUZZ_SEED` begins with it.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use quicket_sim::fuzz::Target;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

fn smoke(target: Target) {
    let first = from_environment("FUZZ_SEED").unwrap_or(0);
    let count = from_environment("FUZZ_INPUTS").unwrap_or(2_000);
    for seed in first..first + count {
        let input = target.generate(seed);
        let done = catch_unwind(|| target.run(&input));
        assert!(done.is_ok(), "{}: the input of FUZZ_SEED={seed} fails", target.name());
    }
}

#[test]
fn the_corpus_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for target in Target::ALL {
        let mut inputs = 0;
        for entry in fs::read_dir(corpus.join(target.name())).unwrap().flatten() {
            target.run(&fs::read(entry.path()).unwrap());
            inputs += 1;
        }
        assert!(inputs > 0, "{} has a corpus", target.name());
    }
}

#[test]
fn datagrams_into_an_endpoint_harm_nobody() {
    smoke(Target::Datagrams);
}

#[test]
fn sealed_frames_into_a_connection_harm_nobody() {
    smoke(Target::Frames);
}

#[test]
fn transport_parameters_harm_nobody() {
    smoke(Target::Parameters);
}

#[test]
fn tokens_harm_nobody() {
    smoke(Target::Tokens);
}
