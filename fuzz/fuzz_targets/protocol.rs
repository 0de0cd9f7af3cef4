#![no_main]

#[path = "../../switch/tests/fuzz/protocol.rs"]
mod protocol;

libfuzzer_sys::fuzz_target!(|input: &[u8]| protocol::run(input));
