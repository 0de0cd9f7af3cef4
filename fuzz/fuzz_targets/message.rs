#![no_main]

#[path = "../../sockets/tests/calls/run.rs"]
mod run;

libfuzzer_sys::fuzz_target!(|input: &[u8]| run::run(input));
