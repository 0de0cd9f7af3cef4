#![no_main]

#[path = "../../packets/tests/fuzz/run.rs"]
mod run;

libfuzzer_sys::fuzz_target!(|input: &[u8]| run::run(input));
