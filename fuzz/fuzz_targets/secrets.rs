#![no_main]

#[path = "../../switch/tests/fuzz/secrets.rs"]
mod secrets;

libfuzzer_sys::fuzz_target!(|input: &[u8]| secrets::run(input));
