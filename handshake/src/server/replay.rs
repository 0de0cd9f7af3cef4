//! Lets each ticket bring early data in only once (RFC 8446, Section 8).

use std::collections::HashSet;
use std::mem;

/// How long a use is remembered, in seconds. rustls refuses early data whose ticket age is off by
/// more than a minute, so a copy of a ClientHello comes in at most two minutes apart.
const WINDOW: u64 = 120;
/// Uses remembered per window, which bounds the memory to a few megabytes.
const CAPACITY: usize = 1 << 16;

/// What identifies a ticket: the random nonce with which it was sealed.
pub(super) type TicketId = [u8; 12];

/// Remembers the tickets used of late.
#[derive(Debug, Default)]
pub(super) struct UsedTickets {
    current: HashSet<TicketId>,
    previous: HashSet<TicketId>,
    /// When `current` began, in seconds since 1970.
    since: u64,
}

impl UsedTickets {
    /// Notes a use. False if there was one before, or if too many tickets are in use to tell.
    pub(super) fn first_use(&mut self, ticket: TicketId, now: u64) -> bool {
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
