//! Lets each ticket bring early data in only once (RFC 8446, Section 8).

use std::collections::HashSet;
use std::fmt;
use std::mem;
use std::sync::{Mutex, PoisonError};

/// How long a use is remembered, in seconds. rustls refuses early data whose ticket age is off by
/// more than a minute, so a copy of a ClientHello comes in at most two minutes apart.
const WINDOW: u64 = 120;
/// Uses remembered per window, which bounds the memory to a few megabytes.
const CAPACITY: usize = 1 << 16;

/// What identifies a ticket: the random nonce with which it was sealed.
pub type TicketId = [u8; 12];

/// Remembers which tickets brought early data, so that a copy of a client's first messages is not
/// taken for the client (RFC 8446, Section 8.1).
///
/// Unless told otherwise a server asks a register of its own process. Servers that share ticket
/// keys need one that they share too, or each of them takes a copy once.
pub trait StrikeRegister: fmt::Debug + Send + Sync {
    /// Notes that `ticket` came with early data at `now`, in seconds since 1970. True if it is the
    /// first time; false if it is not, or if that cannot be told at once: the client then performs
    /// a full handshake and sends its data again.
    ///
    /// A use must be remembered for [two minutes](STRIKE_WINDOW); older copies are refused by their
    /// age. It is called in the midst of a handshake, by the thread that serves all connections of
    /// an endpoint: a store that is far away should answer from what it knows.
    fn first_use(&self, ticket: &TicketId, now: u64) -> bool;
}

/// How long a [`StrikeRegister`] must remember a use, in seconds.
pub const STRIKE_WINDOW: u64 = WINDOW;

/// The register of one process.
#[derive(Debug, Default)]
pub(super) struct ProcessRegister(Mutex<UsedTickets>);

impl StrikeRegister for ProcessRegister {
    fn first_use(&self, ticket: &TicketId, now: u64) -> bool {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.first_use(*ticket, now)
    }
}

/// The tickets used of late.
#[derive(Debug, Default)]
struct UsedTickets {
    current: HashSet<TicketId>,
    previous: HashSet<TicketId>,
    /// When `current` began, in seconds since 1970.
    since: u64,
}

impl UsedTickets {
    /// Notes a use. False if there was one before, or if too many tickets are in use to tell.
    fn first_use(&mut self, ticket: TicketId, now: u64) -> bool {
        let age = now.saturating_sub(self.since);
        if age >= WINDOW {
            let ended = mem::take(&mut self.current);
            self.previous = if age < 2 * WINDOW { ended } else { HashSet::new() };
            self.since = now;
        }
        if self.previous.contains(&ticket) || self.current.len() >= CAPACITY {
            return false;
        }
        self.current.insert(ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> TicketId {
        let mut id = [0; 12];
        id[..4].copy_from_slice(&number.to_be_bytes());
        id
    }

    #[test]
    fn a_second_use_is_noticed_for_at_least_a_window() {
        for start in [1_000, 1_000 + WINDOW - 1] {
            let mut used = UsedTickets { since: 1_000, ..UsedTickets::default() };
            assert!(used.first_use(id(1), start));
            assert!(!used.first_use(id(1), start));
            assert!(!used.first_use(id(1), start + WINDOW - 1));
            assert!(used.first_use(id(2), start + WINDOW - 1));
        }
    }

    #[test]
    fn uses_are_forgotten_in_the_end() {
        let mut used = UsedTickets::default();
        assert!(used.first_use(id(1), 1_000));
        assert!(used.first_use(id(1), 1_000 + 2 * WINDOW));
        assert_eq!(used.current.len() + used.previous.len(), 1);
    }

    #[test]
    fn a_flood_is_refused_rather_than_forgotten() {
        let mut used = UsedTickets::default();
        for number in 0..CAPACITY as u32 {
            assert!(used.first_use(id(number), 1_000));
        }
        assert!(!used.first_use(id(u32::MAX), 1_000));
        assert!(!used.first_use(id(0), 1_000));
    }
}
