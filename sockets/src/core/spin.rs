//! Watching the socket, and what other workers hand over, for a moment before sleeping.
//!
//! To sleep and to be woken costs a thread more than the exchange of a small request and its
//! answer takes on a fast network. A caller that waits for an answer therefore asks the socket
//! again and again for a moment first. That is worth it when answers come within
//! [`UdpConfig::busy_poll`](crate::UdpConfig::busy_poll). They may come late only because the
//! other side sleeps in between, as this one would: so some waits in a row are watched for longer,
//! to find out whether two that watch are fast. Each time that it was in vain the next 1, 3, 7,
//! ... [`MOST_SKIPPED`] waits sleep at once.
//!
//! A timer that is due meanwhile, or a kick, says nothing about answers. It interrupts the watching,
//! which then goes on for the rest of its time.

use quicket_engine::time::{Duration, Time};

use super::Core;
use super::receive::{Origin, Scratch};
use quicket_udp::UdpSocket;

/// The most waits in a row without another attempt.
const MOST_SKIPPED: u32 = 255;
/// How many late answers in a row are waited for.
const LATE_ANSWERS: u32 = 64;
/// How many times longer than answers should take they are waited for.
const PATIENCE: u64 = 4;
/// How many looks at the socket there are for each at what the switch hands over beside it: first packets,
/// mostly.
const LOOKS_BESIDE: u32 = 16;
/// How often the processor's pause instruction is executed between two looks: about 1 µs.
const PAUSES: u32 = 20;

/// What came of watching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// An answer in time.
    Fast,
    /// An answer, but so late that sleeping would have been cheaper.
    Late,
    Nothing,
    /// A timer was due, or somebody kicked, after so many nanoseconds, before it could be told.
    Interrupted(u64),
}

/// Whether watching has been worth it of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spinning {
    /// How many waits to let pass.
    skip: u32,
    /// How many were let pass after the last failure.
    penalty: u32,
    /// How many answers in a row came late.
    late: u32,
    /// For how long this wait was watched before it was interrupted, in nanoseconds.
    watched: u64,
    /// What came last was long: the sender has more to do than to answer.
    pub(super) bulk: bool,
    /// Looks at the socket.
    looks: u32,
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

    /// Whether to look beside the socket, too, this time. Counted over all waits: none of them may be long.
    fn looks_beside(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        self.looks.is_multiple_of(LOOKS_BESIDE)
    }

    /// `chance` shortens the time without attempts by up to a half: two sides that answer each
    /// other must not go on missing each other's.
    fn on_outcome(&mut self, outcome: Outcome, chance: u64) {
        match outcome {
            Outcome::Interrupted(watched) => {
                self.watched = self.watched.saturating_add(watched);
                return;
            }
            Outcome::Fast => (self.penalty, self.late) = (0, 0),
            Outcome::Late if self.late + 1 < LATE_ANSWERS => self.late += 1,
            Outcome::Late | Outcome::Nothing => {
                self.late = 0;
                self.penalty = (self.penalty * 2 + 1).min(MOST_SKIPPED);
                let less = chance % u64::from(self.penalty / 2 + 1);
                self.skip = self.penalty - u32::try_from(less).unwrap_or(0);
            }
        }
        self.watched = 0;
    }
}

impl Core {
    /// Watches the socket and the mailbox until something comes, somebody kicks or `deadline` has passed
    /// (true), or for as long as is worth it.
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
        let limit = Duration::from(limit);
        let patience = limit.times(PATIENCE).as_nanos().saturating_sub(scratch.spinning.watched);
        let until = now + Duration::from_nanos(patience);
        let deadline = deadline.filter(|&deadline| deadline < until);
        let (kick, before) = (self.lead.kick(), scratch.received);
        let outcome = loop {
            self.receive_from(socket, Origin::Socket, scratch);
            if scratch.spinning.looks_beside() && socket.port_beside().is_some() {
                self.receive_from(socket, Origin::Switch, scratch);
            }
            let time = self.clock().now();
            // What another worker hands over is an answer like any other.
            if scratch.received != before || self.has_mail() {
                break if time < now + limit { Outcome::Fast } else { Outcome::Late };
            }
            if scratch.paused_until.is_some() || time >= until {
                break Outcome::Nothing;
            }
            let kicked = kick.is_kicked();
            if kicked || deadline.is_some_and(|deadline| time >= deadline) {
                if kicked {
                    kick.clear();
                }
                break Outcome::Interrupted(time.since(now).as_nanos());
            }
            for _ in 0..PAUSES {
                std::hint::spin_loop();
            }
        };
        scratch.spinning.on_outcome(outcome, self.clock().now().as_nanos() / 64);
        outcome != Outcome::Nothing
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use quicket_wire::EcnCodepoint;

    use super::*;
    use crate::config::{EndpointConfig, Workers};
    use crate::core::mailbox::Parcels;
    use crate::ops;

    /// Whoever watches leaves when somebody else is to lead, or a timer was set.
    #[test]
    fn a_kick_ends_the_watching() {
        let mut config = EndpointConfig::default();
        config.udp.busy_poll = std::time::Duration::from_secs(3600);
        let core = ops::endpoint("127.0.0.1:0".parse().unwrap(), config).unwrap();
        let (tell, told) = mpsc::channel();
        thread::spawn({
            let core = core.clone();
            move || {
                let links = core.links();
                let socket = &links.current().unwrap().socket;
                let mut scratch = Scratch::default();
                for _ in 0..2 {
                    let now = core.clock().now();
                    tell.send(core.spin(socket, &mut scratch, now, None)).unwrap();
                }
            }
        });
        for _ in 0..2 {
            core.lead.kick().kick();
            let answer = told.recv_timeout(std::time::Duration::from_secs(20));
            assert_eq!(answer, Ok(true), "it is watched on");
        }
    }

    /// Whoever does not sleep is not woken, and finds what another worker has left all the same.
    #[test]
    fn what_another_worker_hands_over_ends_the_watching() {
        let mut config = EndpointConfig::default().workers(Workers::Count(2));
        config.udp.busy_poll = std::time::Duration::from_secs(3600);
        let core = ops::endpoint("127.0.0.1:0".parse().unwrap(), config).unwrap();
        let (tell, told) = mpsc::channel();
        thread::spawn({
            let core = core.clone();
            move || {
                let links = core.links();
                let socket = &links.current().unwrap().socket;
                let now = core.clock().now();
                tell.send(core.spin(socket, &mut Scratch::default(), now, None)).unwrap();
            }
        });
        let mut parcels = Parcels::default();
        parcels.add((core.local_addr(), None), EcnCodepoint::NotEct, 1, &[0]);
        let pushed = core.switch.mailbox(core.number).unwrap().push(&mut parcels);
        assert!(!pushed.wake, "nobody sleeps");
        assert_eq!(told.recv_timeout(std::time::Duration::from_secs(20)), Ok(true));
    }

    #[test]
    fn vain_attempts_grow_rare_and_a_success_forgives_them() {
        let mut spinning = Spinning::default();
        let mut attempts = 0;
        for _ in 0..10_000 {
            if spinning.attempt() {
                attempts += 1;
                spinning.on_outcome(Outcome::Nothing, 0);
            }
        }
        assert!((40..60).contains(&attempts), "{attempts} attempts");
        while !spinning.attempt() {}
        spinning.on_outcome(Outcome::Fast, 0);
        assert!(spinning.attempt() && spinning.attempt());
        spinning.bulk = true;
        assert!(!spinning.attempt());
    }

    #[test]
    fn a_timer_says_nothing_about_answers_and_gives_no_more_time() {
        let mut spinning = Spinning { penalty: 3, late: 5, ..Spinning::default() };
        for _ in 0..3 {
            assert!(spinning.attempt());
            spinning.on_outcome(Outcome::Interrupted(40), 0);
        }
        assert_eq!((spinning.penalty, spinning.late, spinning.watched), (3, 5, 120));
        spinning.on_outcome(Outcome::Nothing, 0);
        assert_eq!((spinning.penalty, spinning.watched), (7, 0));
        assert!(!spinning.attempt());
    }

    /// Two sides that answer each other: a wait is short if the other side watches too.
    #[test]
    fn two_sides_that_answer_each_other_find_out_that_both_should_watch() {
        let mut sides = [Spinning { skip: 255, penalty: 255, ..Spinning::default() }; 2];
        sides[1].skip = 100;
        let mut chance = 1_u64;
        let mut other_watches = false;
        let mut fast = 0;
        for turn in 0..4000 {
            let side = &mut sides[turn % 2];
            let watches = side.attempt();
            if watches {
                chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let outcome = if other_watches { Outcome::Fast } else { Outcome::Late };
                side.on_outcome(outcome, chance >> 33);
            }
            fast = if watches && other_watches { fast + 1 } else { 0 };
            other_watches = watches;
        }
        assert!(fast > 2000, "{fast} fast answers in a row at the end");
    }
}
