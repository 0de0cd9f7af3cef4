//! Watching the socket for a moment before sleeping.
//!
//! To sleep and to be woken costs a thread more than the exchange of a small request and its
//! answer takes on a fast network. A caller that waits for an answer therefore asks the socket
//! again and again for a moment first, as long as answers come that fast; each time that it did so
//! in vain it goes to sleep at once the next 1, 3, 7, ... [`MOST_SKIPPED`] times.

use quicket_engine::time::{Duration, Time};

use super::Core;
use super::receive::Scratch;
use crate::udp::UdpSocket;

/// The most waits in a row without another attempt.
const MOST_SKIPPED: u32 = 1023;
/// How often the processor's pause instruction is executed between two looks: about 1 µs.
const PAUSES: u32 = 20;

/// Whether watching has been worth it of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spinning {
    /// How many waits to let pass.
    skip: u32,
    /// How many to let pass after the next failure.
    penalty: u32,
    /// What came last was long: the sender has more to do than to answer.
    pub(super) bulk: bool,
}

impl Spinning {
    /// Whether to watch this time.
    fn attempt(&mut self) -> bool {
        if self.bulk {
            return false;
        }
        let attempt = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        attempt
    }

    fn on_outcome(&mut self, success: bool) {
        self.penalty = if success { 0 } else { (self.penalty * 2 + 1).min(MOST_SKIPPED) };
        self.skip = self.penalty;
    }
}

impl Core {
    /// Watches the socket until something comes (true) or `deadline`, or for as long as is worth
    /// it.
    pub(super) fn spin(
        &self,
        socket: &UdpSocket,
        scratch: &mut Scratch,
        now: Time,
        deadline: Option<Time>,
    ) -> bool {
        let limit = self.udp.busy_poll;
        if limit.is_zero() || !scratch.spinning.attempt() {
            return false;
        }
        let until = now + Duration::from(limit);
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        let before = scratch.received;
        let success = loop {
            self.receive_from(socket, scratch);
            if scratch.received != before {
                break true;
            }
            if scratch.paused_until.is_some() || self.clock().now() >= until {
                break false;
            }
            for _ in 0..PAUSES {
                std::hint::spin_loop();
            }
        };
        scratch.spinning.on_outcome(success);
        success
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vain_attempts_grow_rare_and_a_success_forgives_them() {
        let mut spinning = Spinning::default();
        let mut attempts = 0;
        for _ in 0..10_000 {
            if spinning.attempt() {
                attempts += 1;
                spinning.on_outcome(false);
            }
        }
        assert!((15..25).contains(&attempts), "{attempts} attempts");
        while !spinning.attempt() {}
        spinning.on_outcome(true);
        assert!(spinning.attempt() && spinning.attempt());
        spinning.bulk = true;
        assert!(!spinning.attempt());
    }
}
