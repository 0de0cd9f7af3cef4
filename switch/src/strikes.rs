//! Which session tickets brought early data of late (RFC 8446, Section 8): one register for all programs
//! and generations of a switch, so that a copy of a client's first messages is taken by none of them.

use std::collections::BTreeSet;
use std::mem;

use crate::protocol::{Hex, Register};

/// How long a use is remembered at least, in seconds: older copies are refused by the age of their
/// ticket. A test compares it with what TLS asks for.
const WINDOW: u64 = 120;
/// Uses that are remembered in that time.
pub const MAX_STRIKES: usize = 1 << 16;

/// What identifies a ticket.
type Ticket = [u8; 12];

/// The register. It begins empty and is nobody's copy: what was used before it, programs must not take
/// ([`Register::began`]).
#[derive(Debug)]
pub struct Strikes {
    name: [u8; 8],
    began: u64,
    current: BTreeSet<Ticket>,
    previous: BTreeSet<Ticket>,
    /// When `current` began, in seconds since 1970: by the clock that says how old a ticket is. Where that
    /// is set back, old copies are fresh again, and what is known of them is kept for as much longer.
    since: u64,
}

impl Strikes {
    /// One of a random name, which begins now: `began` is that in seconds since 1970.
    #[must_use]
    pub fn new(name: [u8; 8], began: u64) -> Self {
        let (current, previous) = (BTreeSet::new(), BTreeSet::new());
        Self { name, began, current, previous, since: began }
    }

    /// What programs know of it.
    #[must_use]
    pub const fn register(&self) -> Register {
        Register { name: Hex(self.name), began: self.began }
    }

    /// Notes a use of a ticket at `now`, in seconds since 1970. True if it is the first one; false if it is not, if another register is
    /// meant, or if there are too many to tell.
    pub fn is_first_use(&mut self, now: u64, register: &[u8; 8], ticket: &Ticket) -> bool {
        if *register != self.name {
            return false;
        }
        let age = now.saturating_sub(self.since);
        if age >= WINDOW {
            let ended = mem::take(&mut self.current);
            self.previous = if age < 2 * WINDOW { ended } else { BTreeSet::new() };
            self.since = now;
        }
        if self.previous.contains(ticket) || self.current.len() >= MAX_STRIKES {
            return false;
        }
        self.current.insert(*ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: [u8; 8] = [7; 8];

    const BEGAN: u64 = 1_000_000;

    const fn at(seconds: u64) -> u64 {
        BEGAN + seconds
    }

    fn ticket(number: u32) -> Ticket {
        let mut ticket = [0; 12];
        ticket[..4].copy_from_slice(&number.to_be_bytes());
        ticket
    }

    #[test]
    fn a_ticket_is_used_once_for_at_least_a_window() {
        for start in [0, 1, 119, 120, 121, 239, 500] {
            let mut strikes = Strikes::new(NAME, BEGAN);
            assert!(strikes.is_first_use(at(1), &NAME, &ticket(0)));
            assert!(strikes.is_first_use(at(start.max(1)), &NAME, &ticket(1)));
            for later in [0, 1, 60, 119] {
                assert!(!strikes.is_first_use(at(start.max(1) + later), &NAME, &ticket(1)));
            }
            // What is forgotten in the end makes room.
            assert!(strikes.is_first_use(at(start + 1000), &NAME, &ticket(1)));
            assert_eq!(strikes.current.len() + strikes.previous.len(), 1);
        }
    }

    #[test]
    fn a_use_is_remembered_for_as_long_as_tls_asks_for() {
        const { assert!(WINDOW >= quicket_handshake::STRIKE_WINDOW) };
    }

    /// A copy that was too old is fresh again when the time of day is set back.
    #[test]
    fn what_is_known_is_kept_while_the_clock_stands_behind() {
        let mut strikes = Strikes::new(NAME, BEGAN);
        assert!(strikes.is_first_use(at(0), &NAME, &ticket(1)));
        for back in [600, 300, 10, 0] {
            assert!(!strikes.is_first_use(BEGAN - back, &NAME, &ticket(1)), "{back}");
            assert!(strikes.is_first_use(BEGAN - back, &NAME, &ticket(1000 + back as u32)));
        }
        assert!(!strikes.is_first_use(at(119), &NAME, &ticket(1)));
        let mut early = Strikes::new(NAME, 5);
        assert!(early.is_first_use(0, &NAME, &ticket(1)));
        assert!(!early.is_first_use(0, &NAME, &ticket(1)));
    }

    #[test]
    fn another_register_knows_nothing_and_a_flood_is_refused() {
        let mut strikes = Strikes::new(NAME, BEGAN);
        assert!(!strikes.is_first_use(at(0), &[8; 8], &ticket(1)));
        assert_eq!(strikes.register(), Register { name: Hex(NAME), began: BEGAN });
        for number in 0..MAX_STRIKES as u32 {
            assert!(strikes.is_first_use(at(0), &NAME, &ticket(number)));
        }
        assert!(!strikes.is_first_use(at(0), &NAME, &ticket(u32::MAX)));
        assert!(strikes.is_first_use(at(120), &NAME, &ticket(u32::MAX)));
    }
}
