//! A switch for packets in this process.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

#[path = "../../../packets/tests/common/switch.rs"]
mod switch;

use std::time::{Duration, Instant};

use quicket_tcp::{Options, Stack};

pub use switch::Switch;

/// What a test waits for at most.
pub const PATIENCE: Duration = Duration::from_secs(20);

impl Switch {
    pub fn stack(&self) -> Stack {
        Stack::open(&self.path).unwrap()
    }

    pub fn stack_with(&self, options: Options) -> Stack {
        Stack::with_options(&self.path, options).unwrap()
    }
}

/// Octets that differ from place to place.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n ^ n >> 8 ^ n >> 16) as u8).collect()
}

/// Waits until it is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
