//! Which session tickets brought early data of late (RFC 8446, Section 8): one register for all programs
//! and generations of a switch, so that a copy of a client's first messages is taken by none of them.
//!
//! Each program has a share of it: clients that have very many tickets, or a program that asks about very many, use
//! up that, and others go on.

use std::collections::BTreeMap;

use quicket_engine::UsedLately;

use crate::protocol::{Hex, Register};

/// How long a use is remembered at least, in seconds: older copies are refused by the age of their
/// ticket. A test compares it with what TLS asks for.
const WINDOW: u64 = 120;
/// Uses that are remembered in that time.
pub const MAX_STRIKES: usize = 1 << 18;
/// ... of one program: as many as a register of its own would have.
pub const MAX_STRIKES_OF_PROGRAM: usize = 1 << 16;

/// What identifies a ticket.
type Ticket = [u8; 12];

/// The register. It begins empty and is nobody's copy: what was used before it, programs must not take
/// ([`Register::began`]).
#[derive(Debug)]
pub struct Strikes {
    name: [u8; 8],
    began: u64,
    /// By the clock that says how old a ticket is.
    used: UsedLately<Ticket>,
    /// Uses in this window, of each program by its name.
    shares: BTreeMap<Box<str>, usize>,
}

impl Strikes {
    /// One of a random name, which begins now: `began` is that in seconds since 1970.
    #[must_use]
    pub const fn new(name: [u8; 8], began: u64) -> Self {
        let used = UsedLately::new(began, WINDOW, MAX_STRIKES);
        Self { name, began, used, shares: BTreeMap::new() }
    }

    /// What programs know of it.
    #[must_use]
    pub const fn register(&self) -> Register {
        Register { name: Hex(self.name), began: self.began }
    }

    /// Notes that a program was shown a ticket at `now`, in seconds since 1970. True if it is the first use; false if
    /// it is not, if another register is meant, or if there are too many to tell, or too many of that program.
    pub fn is_first_use(
        &mut self,
        now: u64,
        program: &str,
        register: &[u8; 8],
        ticket: &Ticket,
    ) -> bool {
        if *register != self.name {
            return false;
        }
        if self.used.turn(now) {
            self.shares.clear();
        }
        let share = self.shares.get(program).copied().unwrap_or_default();
        if share >= MAX_STRIKES_OF_PROGRAM || !self.used.first_use(*ticket) {
            return false;
        }
        self.shares.insert(program.into(), share + 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: [u8; 8] = [7; 8];

    const BEGAN: u64 = 1_000_000;

    fn ticket(number: usize) -> Ticket {
        let mut ticket = [0; 12];
        ticket[..8].copy_from_slice(&number.to_be_bytes());
        ticket
    }

    #[test]
    fn a_use_is_remembered_for_as_long_as_tls_asks_for() {
        const { assert!(WINDOW >= quicket_handshake::STRIKE_WINDOW) };
    }

    #[test]
    fn a_ticket_is_used_once_by_all_programs_together_and_of_one_register() {
        let mut strikes = Strikes::new(NAME, BEGAN);
        assert!(!strikes.is_first_use(BEGAN, "a", &[8; 8], &ticket(1)));
        assert_eq!(strikes.register(), Register { name: Hex(NAME), began: BEGAN });
        assert!(strikes.is_first_use(BEGAN, "a", &NAME, &ticket(1)));
        for (later, program) in [(0, "a"), (0, "b"), (119, "b")] {
            assert!(!strikes.is_first_use(BEGAN + later, program, &NAME, &ticket(1)));
        }
        assert!(strikes.is_first_use(BEGAN + 1_000, "b", &NAME, &ticket(1)));
    }

    /// What does not fit is refused, not forgotten; the next window has room again.
    #[test]
    fn a_program_uses_up_its_share_and_not_that_of_others() {
        let mut strikes = Strikes::new(NAME, BEGAN);
        let full = MAX_STRIKES_OF_PROGRAM;
        for number in 0..full {
            assert!(strikes.is_first_use(BEGAN, "flooded", &NAME, &ticket(number)));
        }
        assert!(!strikes.is_first_use(BEGAN, "flooded", &NAME, &ticket(full)));
        assert!(strikes.is_first_use(BEGAN, "other", &NAME, &ticket(full)));
        assert!(!strikes.is_first_use(BEGAN, "other", &NAME, &ticket(0)));
        let next = BEGAN + WINDOW;
        assert!(!strikes.is_first_use(next, "flooded", &NAME, &ticket(full - 1)));
        assert!(strikes.is_first_use(next, "flooded", &NAME, &ticket(full + 1)));
        assert_eq!(strikes.shares.len(), 1);
    }

    #[test]
    fn all_programs_together_have_a_bound_too() {
        let mut strikes = Strikes::new(NAME, BEGAN);
        for number in 0..MAX_STRIKES {
            let program = (number / MAX_STRIKES_OF_PROGRAM).to_string();
            assert!(strikes.is_first_use(BEGAN, &program, &NAME, &ticket(number)));
        }
        assert!(!strikes.is_first_use(BEGAN, "late", &NAME, &ticket(MAX_STRIKES)));
    }
}
