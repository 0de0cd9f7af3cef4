#![no_main]

#[path = "../../h3/tests/fuzz/run.rs"]
mod http3;

libfuzzer_sys::fuzz_target!(|input: &[u8]| http3::run(input));
