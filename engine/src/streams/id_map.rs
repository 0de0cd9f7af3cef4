//! From stream ID to slot.

use alloc::vec::Vec;

use super::pool::OutOfMemory;
use super::slab::Slot;

/// The smallest table.
const MIN_CAPACITY: usize = 16;

/// An open-addressing hash table from stream IDs to slots.
///
/// The hash multiplies by a secret odd number, so that a peer that chooses which streams stay
/// open cannot choose collisions. Removal moves entries back instead of leaving marks, so that
/// lookups cost the same after any number of streams.
#[derive(Debug)]
pub(crate) struct IdMap {
    entries: Vec<Option<(u64, Slot)>>,
    len: usize,
    seed: u64,
}

impl IdMap {
    /// An empty table; `seed` should be hard to guess.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { entries: Vec::new(), len: 0, seed: seed | 1 }
    }

    pub(crate) fn get(&self, id: u64) -> Option<Slot> {
        let mut at = self.home(id);
        loop {
            match self.entries.get(at) {
                Some(Some((known, slot))) if *known == id => return Some(*slot),
                Some(Some(_)) => at = self.after(at),
                _ => return None,
            }
        }
    }

    /// Adds an ID that is not in the table.
    pub(crate) fn insert(&mut self, id: u64, slot: Slot) -> Result<(), OutOfMemory> {
        // At most three quarters full: there is always an empty entry to end a search.
        if self.len.saturating_add(1).saturating_mul(4) > self.entries.len().saturating_mul(3) {
            self.resize(self.entries.len().saturating_mul(2).max(MIN_CAPACITY))?;
        }
        self.put(id, slot);
        self.len = self.len.saturating_add(1);
        Ok(())
    }

    /// Gives back the memory that the IDs do not need.
    pub(crate) fn trim(&mut self) {
        if self.len == 0 {
            self.entries = Vec::new();
            return;
        }
        let needed = self.len.saturating_mul(4).div_ceil(3).next_power_of_two();
        if needed < self.entries.len() {
            // As in `remove`.
            let _too_large = self.resize(needed);
        }
    }

    pub(crate) fn remove(&mut self, id: u64) {
        let mut hole = self.home(id);
        loop {
            match self.entries.get(hole) {
                Some(Some((known, _))) if *known == id => break,
                Some(Some(_)) => hole = self.after(hole),
                _ => return,
            }
        }
        self.len = self.len.saturating_sub(1);
        self.fill(hole);
        if self.entries.len() > MIN_CAPACITY * 4 && self.len.saturating_mul(8) < self.entries.len()
        {
            // A table that stays too large for want of memory works as well.
            let _too_large = self.resize(self.entries.len() / 4);
        }
    }

    /// Empties the entry `hole` and moves back into it whoever was pushed past it.
    fn fill(&mut self, mut hole: usize) {
        let mut at = self.after(hole);
        while let Some(Some((id, slot))) = self.entries.get(at).copied() {
            let from_home = self.distance(self.home(id), at);
            if from_home >= self.distance(hole, at) {
                self.set(hole, Some((id, slot)));
                hole = at;
            }
            at = self.after(at);
        }
        self.set(hole, None);
    }

    fn put(&mut self, id: u64, slot: Slot) {
        let mut at = self.home(id);
        while let Some(Some(_)) = self.entries.get(at) {
            at = self.after(at);
        }
        self.set(at, Some((id, slot)));
    }

    fn resize(&mut self, capacity: usize) -> Result<(), OutOfMemory> {
        let mut entries = Vec::new();
        entries.try_reserve_exact(capacity).map_err(|_| OutOfMemory)?;
        entries.resize(capacity, None);
        for (id, slot) in core::mem::replace(&mut self.entries, entries).into_iter().flatten() {
            self.put(id, slot);
        }
        Ok(())
    }

    fn set(&mut self, at: usize, value: Option<(u64, Slot)>) {
        if let Some(entry) = self.entries.get_mut(at) {
            *entry = value;
        }
    }

    /// The entry at which the search for `id` begins.
    fn home(&self, id: u64) -> usize {
        let mixed = u128::from(id ^ self.seed.rotate_left(32)).wrapping_mul(u128::from(self.seed));
        (((mixed >> 64) ^ mixed) as usize) & self.mask()
    }

    fn after(&self, at: usize) -> usize {
        at.saturating_add(1) & self.mask()
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & self.mask()
    }

    fn mask(&self) -> usize {
        self.entries.len().saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use super::*;
    use crate::testing::XorShift;

    #[test]
    fn behaves_as_a_plain_map_under_random_changes() {
        for seed in 0..20 {
            let mut rng = XorShift::new(seed);
            let mut map = IdMap::new(rng.next());
            let mut model = BTreeMap::new();
            for round in 0..5000 {
                let id = rng.below(300) * 4;
                let shrinking = (round / 1000) % 2 == 1;
                if rng.chance(if shrinking { 80 } else { 30 }) {
                    map.remove(id);
                    model.remove(&id);
                } else if map.get(id).is_none() {
                    map.insert(id, Slot::from_index(round)).unwrap();
                    model.insert(id, Slot::from_index(round));
                }
                assert_eq!(map.len, model.len());
                let probe = rng.below(300) * 4;
                assert_eq!(map.get(probe), model.get(&probe).copied());
            }
            assert!(model.iter().all(|(id, slot)| map.get(*id) == Some(*slot)));
        }
    }

    #[test]
    fn the_table_shrinks_with_its_contents() {
        let mut map = IdMap::new(9);
        for id in 0..10_000 {
            map.insert(id, Slot::from_index(0)).unwrap();
        }
        let full = map.entries.len();
        for id in 0..10_000 {
            map.remove(id);
        }
        assert!(full >= 13_000 && map.entries.len() <= 128, "{full} {}", map.entries.len());
    }

    #[test]
    fn a_trimmed_table_has_all_its_ids_and_takes_more() {
        for count in 0..200 {
            let mut map = IdMap::new(XorShift::new(count + 1).next());
            (0..count).for_each(|id| map.insert(id * 4, Slot::from_index(id as u32)).unwrap());
            map.trim();
            let room = map.entries.len() as u64;
            assert!(room * 3 >= count * 4 && room <= count * 8 / 3, "{count}: {room}");
            map.insert(count * 4, Slot::from_index(count as u32)).unwrap();
            let found = |id: u64| map.get(id * 4) == Some(Slot::from_index(id as u32));
            assert!((0..=count).all(found) && map.get(2).is_none(), "{count}");
        }
    }

    #[test]
    fn sequential_ids_spread_evenly() {
        for seed in [1, 2, 0x1234_5678_9abc_def1, u64::MAX] {
            let mut map = IdMap::new(XorShift::new(seed).next());
            for index in 0..6000u64 {
                map.insert(index * 4, Slot::from_index(0)).unwrap();
            }
            let far = (0..6000u64).map(|index| longest_search(&map, index * 4)).max();
            assert!(far < Some(200), "{far:?}");
        }
    }

    fn longest_search(map: &IdMap, id: u64) -> usize {
        let at = map.entries.iter().position(|e| e.is_some_and(|(known, _)| known == id));
        map.distance(map.home(id), at.unwrap())
    }
}
