#![no_main]

use quicket_sim::fuzz::Target;

libfuzzer_sys::fuzz_target!(|input: &[u8]| Target::Parameters.run(input));
