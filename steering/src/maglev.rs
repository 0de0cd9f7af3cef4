//! Consistent hashing after Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load
//! Balancer" (NSDI 2016), Section 3.4, with weights.
//!
//! Whoever knows the same servers makes the same choice without talking to anybody, each server
//! gets its share, and few flows change their server when one comes or goes.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::keyed_hash::HashKey;

/// The most entries of a table: with [`MAX_BACKENDS`](Maglev::MAX_BACKENDS) servers each still has
/// a hundred of them.
const SIZES: [usize; 4] = [4_099, 65_537, 655_373, 1_048_583];

/// Entries that each server should have, for shares that differ by one in a hundred.
const SHARE: usize = 100;

/// No server yet.
const EMPTY: u32 = u32::MAX;

/// A server that takes a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend<'a> {
    /// What tells it from others, the same everywhere: an address, a server ID.
    pub name: &'a [u8],
    /// Its share in relation to the others'; 0 takes nothing.
    pub weight: u32,
}

/// Why there is no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaglevError {
    /// Nobody has a weight above 0.
    NoBackend,
    /// More servers than a table holds.
    TooMany(usize),
}

impl fmt::Display for MaglevError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBackend => f.write_str("no server has a weight above 0"),
            Self::TooMany(count) => {
                write!(f, "{count} servers, and there may be {}", Maglev::MAX_BACKENDS)
            }
        }
    }
}

impl core::error::Error for MaglevError {}

/// A table from hashes to servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maglev {
    entries: Vec<u32>,
}

impl Maglev {
    /// The most servers.
    pub const MAX_BACKENDS: usize = 10_000;

    /// The table for some servers. Their order does not matter, their names and weights do.
    ///
    /// # Errors
    /// When no server has a weight, or there are too many.
    pub fn new(backends: &[Backend<'_>]) -> Result<Self, MaglevError> {
        if backends.len() > Self::MAX_BACKENDS {
            return Err(MaglevError::TooMany(backends.len()));
        }
        let wanted = backends.len().saturating_mul(SHARE);
        let size = SIZES.into_iter().find(|size| *size >= wanted).unwrap_or(SIZES[3]);
        let mut turns = turns(backends, size);
        let heaviest = turns.iter().map(|turn| turn.weight).max().unwrap_or(0);
        if heaviest == 0 {
            return Err(MaglevError::NoBackend);
        }
        let mut table = Self { entries: vec![EMPTY; size] };
        let mut left = size;
        while left > 0 {
            for turn in &mut turns {
                // The heaviest takes an entry in each round, one of half its weight in every other.
                turn.credit = turn.credit.saturating_add(u64::from(turn.weight));
                let Some(rest) = turn.credit.checked_sub(u64::from(heaviest)) else { continue };
                turn.credit = rest;
                table.take_next(turn);
                left = left.saturating_sub(1);
                if left == 0 {
                    break;
                }
            }
        }
        Ok(table)
    }

    /// The index, in the list that the table was made of, of the server for a hash.
    #[must_use]
    pub fn pick(&self, hash: u32) -> usize {
        // Multiplication spreads the hash over the table as a division would, in less time.
        let at = u64::from(hash).saturating_mul(self.entries.len() as u64) >> 32;
        self.entries.get(at as usize).map_or(0, |index| *index as usize)
    }

    /// The table itself, for a BPF map: [`Self::pick`] takes the entry at
    /// `hash * entries >> 32`.
    #[must_use]
    pub fn entries(&self) -> &[u32] {
        &self.entries
    }

    /// The first free entry in the order that a server prefers becomes its own.
    fn take_next(&mut self, turn: &mut Turn) {
        // A server's order has each entry once, so that a free one is found.
        for _ in 0..self.entries.len() {
            let at = turn.next;
            turn.next = turn.next.saturating_add(turn.skip);
            if turn.next >= self.entries.len() {
                turn.next = turn.next.saturating_sub(self.entries.len());
            }
            if let Some(entry) = self.entries.get_mut(at)
                && *entry == EMPTY
            {
                *entry = turn.index;
                return;
            }
        }
    }
}

/// A server in its order of entries.
struct Turn {
    index: u32,
    weight: u32,
    credit: u64,
    next: usize,
    skip: usize,
}

/// The servers in an order that does not depend on that of the list.
fn turns(backends: &[Backend<'_>], size: usize) -> Vec<Turn> {
    let (first, second) = (HashKey::new([1; 8]), HashKey::new([2; 8]));
    let mut order: Vec<(usize, &Backend<'_>)> = backends.iter().enumerate().collect();
    order.sort_by_key(|(_, backend)| backend.name);
    let turn = |(index, backend): (usize, &Backend<'_>)| {
        let scaled =
            |hash: u32, range: usize| (u64::from(hash).saturating_mul(range as u64) >> 32) as usize;
        Turn {
            index: u32::try_from(index).unwrap_or(EMPTY),
            weight: backend.weight,
            credit: 0,
            next: scaled(first.hash(backend.name), size),
            // 1 to size - 1: coprime to the size, which is prime.
            skip: scaled(second.hash(backend.name), size.saturating_sub(1)).saturating_add(1),
        }
    };
    order.into_iter().map(turn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| alloc::format!("192.0.2.{n}:443")).collect()
    }

    fn backends(names: &[String]) -> Vec<Backend<'_>> {
        names.iter().map(|name| Backend { name: name.as_bytes(), weight: 1 }).collect()
    }

    fn shares(table: &Maglev, count: usize) -> Vec<usize> {
        let mut shares = vec![0; count];
        for index in table.entries() {
            shares[*index as usize] += 1;
        }
        shares
    }

    #[test]
    fn sizes_are_prime() {
        for size in SIZES {
            let divides = (2..size).take_while(|d| d * d <= size).find(|d| size % d == 0);
            assert_eq!(divides, None, "{size}");
        }
    }

    #[test]
    fn servers_get_shares_by_their_weights() {
        for count in [1, 2, 10, 640] {
            let names = names(count);
            let shares = shares(&Maglev::new(&backends(&names)).unwrap(), count);
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(most - least <= 1, "{count} servers: {least} to {most} entries");
        }
        let names = names(4);
        let weights = [100, 50, 1, 0];
        let weighted: Vec<_> = backends(&names)
            .into_iter()
            .zip(weights)
            .map(|(backend, weight)| Backend { weight, ..backend })
            .collect();
        let shares = shares(&Maglev::new(&weighted).unwrap(), 4);
        let entries: usize = shares.iter().sum();
        for (share, weight) in shares.iter().zip(weights) {
            let expected = entries * weight as usize / 151;
            assert!(share.abs_diff(expected) <= 2, "{share} for weight {weight}");
        }
    }

    #[test]
    fn few_flows_move_when_a_server_goes() {
        let names = names(100);
        let before = Maglev::new(&backends(&names)).unwrap();
        let mut fewer = backends(&names);
        fewer.remove(37);
        let after = Maglev::new(&fewer).unwrap();
        let (mut moved, mut flows) = (0, 0);
        for flow in 0..1_000_000_u32 {
            let hash = flow.wrapping_mul(0x9e37_79b9);
            let (old, new) = (before.pick(hash), after.pick(hash));
            if old != 37 {
                flows += 1;
                moved += u32::from(names[old] != names[if new < 37 { new } else { new + 1 }]);
            }
        }
        assert!(moved * 20 < flows, "{moved} of {flows} flows lost their living server");
    }

    #[test]
    fn two_balancers_choose_alike_whatever_the_order_of_their_lists() {
        let names = names(50);
        let listed = backends(&names);
        let mut reversed = listed.clone();
        reversed.reverse();
        let [one, other] = [&listed, &reversed].map(|list| Maglev::new(list).unwrap());
        for flow in 0..100_000_u32 {
            let hash = flow.wrapping_mul(0x9e37_79b9);
            assert_eq!(listed[one.pick(hash)], reversed[other.pick(hash)]);
        }
    }

    #[test]
    fn there_is_no_table_without_servers_or_with_too_many() {
        assert_eq!(Maglev::new(&[]), Err(MaglevError::NoBackend));
        let idle = [Backend { name: b"a", weight: 0 }];
        assert_eq!(Maglev::new(&idle), Err(MaglevError::NoBackend));
        let many = vec![Backend { name: b"a", weight: 1 }; Maglev::MAX_BACKENDS + 1];
        assert_eq!(Maglev::new(&many), Err(MaglevError::TooMany(10_001)));
    }
}
