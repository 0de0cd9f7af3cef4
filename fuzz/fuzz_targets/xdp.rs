#![no_main]
#![allow(dead_code, reason = "tests use the rest of what is included")]

#[path = "../../balancer/tests/xdp/both.rs"]
mod both;
#[path = "../../balancer/tests/xdp/packets.rs"]
mod packets;
#[path = "../../balancer/tests/xdp/run.rs"]
mod run;
#[path = "../../balancer/src/testing.rs"]
mod testing;

libfuzzer_sys::fuzz_target!(
    init: {
        // Without the rights there is nothing to compare; that is no fault.
        if let Err(error) = both::namespace() {
            eprintln!("LEFT OUT: {error}");
            std::process::exit(0);
        }
    },
    |input: &[u8]| {
        run::run(input);
    }
);
