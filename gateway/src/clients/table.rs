//! A bounded table of addresses. One that takes nothing just now gives its place to another: the one that was
//! there for longest goes first, and those that nobody has proven go before those that are.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use super::{Client, Exceeded};

/// Addresses that are told apart, in each part.
pub(super) const MAX_ADDRESSES: usize = 1024;

/// No place.
const NOWHERE: usize = usize::MAX;

/// Addresses with what they take. Each operation takes the same time, however many there are.
#[derive(Debug, Default)]
pub(super) struct Table {
    places: HashMap<IpAddr, usize>,
    entries: Vec<Entry>,
    /// Those that take nothing, by whether they are proven.
    idle: [Queue; 2],
}

#[derive(Debug)]
struct Entry {
    address: IpAddr,
    client: Client,
    /// It has answered: nobody else has made it up.
    is_proven: bool,
    /// The neighbours in a queue, if it is in one.
    before: usize,
    after: usize,
    is_queued: bool,
}

/// The ends of a list that runs through the entries.
#[derive(Debug)]
struct Queue {
    first: usize,
    last: usize,
}

impl Default for Queue {
    fn default() -> Self {
        Self { first: NOWHERE, last: NOWHERE }
    }
}

impl Table {
    /// Has `take` look at what an address takes.
    pub(super) fn with(
        &mut self,
        address: IpAddr,
        is_proven: bool,
        take: impl FnOnce(&mut Client) -> Result<(), Exceeded>,
    ) -> Result<(), Exceeded> {
        let at = match self.places.get(&address) {
            Some(&at) => at,
            None => self
                .add(address, is_proven)
                .ok_or(Exceeded { reason: "too many addresses to be counted", retry_after: 1 })?,
        };
        self.unqueue(at);
        let entry = &mut self.entries[at];
        entry.is_proven |= is_proven;
        let taken = take(&mut entry.client);
        self.queue(at);
        taken
    }

    /// Changes an address that is there.
    pub(super) fn change(&mut self, address: IpAddr, change: impl FnOnce(&mut Client)) {
        if let Some(&at) = self.places.get(&address) {
            self.unqueue(at);
            change(&mut self.entries[at].client);
            self.queue(at);
        }
    }

    /// Says that an address is nobody's invention, if it is there.
    pub(super) fn prove(&mut self, address: IpAddr) {
        if let Some(&at) = self.places.get(&address) {
            self.unqueue(at);
            self.entries[at].is_proven = true;
            self.queue(at);
        }
    }

    /// A place for a new address; `None` if none is free and nobody has to go for it.
    fn add(&mut self, address: IpAddr, is_proven: bool) -> Option<usize> {
        let client = Client::new(Instant::now());
        let (before, after, is_queued) = (NOWHERE, NOWHERE, false);
        let entry = Entry { address, client, is_proven, before, after, is_queued };
        let at = if self.entries.len() < MAX_ADDRESSES {
            self.entries.push(entry);
            self.entries.len() - 1
        } else {
            let [unproven, proven] = &self.idle;
            let at = match (unproven.first, proven.first) {
                (NOWHERE, NOWHERE) => return None,
                // Who makes addresses up has nobody forgotten who has not.
                (NOWHERE, _) if !is_proven => return None,
                (NOWHERE, proven) => proven,
                (unproven, _) => unproven,
            };
            self.unqueue(at);
            let gone = std::mem::replace(&mut self.entries[at], entry);
            self.places.remove(&gone.address);
            at
        };
        self.places.insert(address, at);
        Some(at)
    }

    /// Puts an entry at the end of its queue, if it takes nothing.
    fn queue(&mut self, at: usize) {
        let entry = &mut self.entries[at];
        if entry.is_queued || !entry.client.is_idle() {
            return;
        }
        let queue = &mut self.idle[usize::from(entry.is_proven)];
        (entry.before, entry.after, entry.is_queued) = (queue.last, NOWHERE, true);
        let last = std::mem::replace(&mut queue.last, at);
        match last {
            NOWHERE => queue.first = at,
            last => self.entries[last].after = at,
        }
    }

    fn unqueue(&mut self, at: usize) {
        let entry = &mut self.entries[at];
        if !std::mem::take(&mut entry.is_queued) {
            return;
        }
        let (before, after, is_proven) = (entry.before, entry.after, entry.is_proven);
        let queue = &mut self.idle[usize::from(is_proven)];
        match before {
            NOWHERE => queue.first = after,
            before => self.entries[before].after = after,
        }
        match after {
            NOWHERE => queue.last = before,
            after => self.entries[after].before = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(at: usize) -> IpAddr {
        IpAddr::from((at as u32).to_be_bytes())
    }

    /// True if it is told apart, having asked before.
    fn knows(table: &Table, at: usize) -> bool {
        table.places.contains_key(&address(at))
    }

    fn touch(table: &mut Table, at: usize, is_proven: bool) -> bool {
        table.with(address(at), is_proven, |_| Ok(())).is_ok()
    }

    fn hold(table: &mut Table, at: usize) -> bool {
        let take = |client: &mut Client| {
            client.connections += 1;
            Ok(())
        };
        table.with(address(at), true, take).is_ok()
    }

    #[test]
    fn the_one_that_was_idle_for_longest_goes_first() {
        let mut table = Table::default();
        for at in 0..MAX_ADDRESSES {
            assert!(touch(&mut table, at, true));
        }
        assert!(touch(&mut table, 0, false), "it is used again, and stays proven");
        for more in 0..10 {
            assert!(touch(&mut table, MAX_ADDRESSES + more, true));
        }
        assert!(knows(&table, 0) && (1..=10).all(|at| !knows(&table, at)));
        assert!((11..MAX_ADDRESSES + 10).all(|at| knows(&table, at)));
        assert_eq!((table.entries.len(), table.places.len()), (MAX_ADDRESSES, MAX_ADDRESSES));
    }

    #[test]
    fn addresses_that_somebody_made_up_push_out_none_that_is_proven() {
        let mut table = Table::default();
        for at in 0..MAX_ADDRESSES / 2 {
            assert!(touch(&mut table, at, true));
        }
        for at in MAX_ADDRESSES..MAX_ADDRESSES * 10 {
            assert!(touch(&mut table, at, false), "there are others that were made up");
        }
        assert!((0..MAX_ADDRESSES / 2).all(|at| knows(&table, at)));
        // One that is proven finds a place in any case, until none is left.
        for at in MAX_ADDRESSES / 2..MAX_ADDRESSES {
            assert!(touch(&mut table, at, true));
        }
        assert!((0..MAX_ADDRESSES).all(|at| knows(&table, at)));
        assert!(!touch(&mut table, MAX_ADDRESSES, false));
        assert!(touch(&mut table, MAX_ADDRESSES, true) && !knows(&table, 0));
        table.prove(address(MAX_ADDRESSES));
    }

    #[test]
    fn who_takes_something_stays() {
        let mut table = Table::default();
        for at in 0..MAX_ADDRESSES {
            assert!(hold(&mut table, at));
        }
        assert!(!touch(&mut table, MAX_ADDRESSES, true));
        for at in [7, 5] {
            table.change(address(at), |client| client.connections -= 1);
        }
        assert!(touch(&mut table, MAX_ADDRESSES, true) && !knows(&table, 7) && knows(&table, 5));
        assert!(hold(&mut table, MAX_ADDRESSES) && hold(&mut table, 5));
        assert!(!touch(&mut table, MAX_ADDRESSES + 1, true));
    }

    /// The queues against a plain list.
    #[test]
    fn the_order_is_that_of_a_plain_list() {
        let mut table = Table::default();
        let mut plain: Vec<(usize, bool)> = Vec::new();
        let mut state = 1_u64;
        for _ in 0..50_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let (at, is_proven) = ((state >> 33) as usize % 1500, state >> 62 == 0);
            let is_taken = touch(&mut table, at, is_proven);
            let known = plain.iter().position(|&(known, _)| known == at);
            let entry = known.map(|known| plain.remove(known));
            let expected = match entry {
                Some((_, before)) => Some(before || is_proven),
                None if plain.len() < MAX_ADDRESSES => Some(is_proven),
                None => {
                    let unproven = plain.iter().position(|&(_, is_proven)| !is_proven);
                    let gone = unproven.or(is_proven.then_some(0));
                    gone.map(|gone| {
                        plain.remove(gone);
                        is_proven
                    })
                }
            };
            plain.extend(expected.map(|is_proven| (at, is_proven)));
            assert_eq!(is_taken, expected.is_some());
        }
        assert_eq!(plain.len(), table.places.len());
        assert!(plain.iter().all(|&(at, _)| knows(&table, at)));
    }
}
