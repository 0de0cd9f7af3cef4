#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| quicket_tcp::fuzz::segments(input));
