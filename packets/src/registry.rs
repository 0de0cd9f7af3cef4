//! Who owns which tuple.

use crate::frame::Ends;
use crate::queues::Queues;
use crate::tuple::Key;

/// Tuples of all ports.
pub const MAX_TUPLES: usize = 131_072;

/// The number of a port.
pub type Owner = u32;

/// Nobody's place. No port has that number.
pub(crate) const NOBODY: Owner = Owner::MAX;
const FEWEST: usize = 1024;

/// Why a tuple was not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Somebody has it, perhaps the same port.
    Taken,
    /// There are [`MAX_TUPLES`].
    Full,
}

#[derive(Clone, Copy)]
struct Place {
    address: u128,
    rest: u32,
    owner: Owner,
}

const FREE: Place = Place { address: 0, rest: 0, owner: NOBODY };

/// A hash table of exact tuples: open addressing, linear probing, at most half full. A tuple that goes leaves no mark,
/// so that looking up costs the same after any number of registrations and removals. The hash has a seed
/// that nobody else knows, so that nobody can choose tuples that lie together.
pub(crate) struct Registry {
    places: Box<[Place]>,
    len: usize,
    seed: [u64; 3],
    /// Ports that have more than one queue.
    pub(crate) queues: Queues,
}

impl Registry {
    pub(crate) fn new(seed: [u64; 3]) -> Self {
        Self { places: vec![FREE; FEWEST].into(), len: 0, seed, queues: Queues::new(seed) }
    }

    /// Who owns it.
    #[inline]
    pub(crate) fn owner(&self, key: Key) -> Option<Owner> {
        let place = &self.places[self.find(key)];
        (place.owner != NOBODY).then_some(place.owner)
    }

    /// Who gets what goes between these ends: the owner of the destination, or the queue of that port that has the flow.
    #[inline]
    pub(crate) fn receiver(&self, ends: &Ends) -> Option<Owner> {
        Some(self.queues.choose(self.owner(ends.destination)?, ends))
    }

    pub(crate) fn register(&mut self, key: Key, owner: Owner) -> Result<(), Refusal> {
        let at = self.find(key);
        if self.places[at].owner != NOBODY {
            return Err(Refusal::Taken);
        }
        if self.len >= MAX_TUPLES {
            return Err(Refusal::Full);
        }
        self.places[at] = Place { address: key.address, rest: key.rest, owner };
        self.len += 1;
        if self.len * 2 > self.places.len() {
            self.grow();
        }
        Ok(())
    }

    /// Removes what a port owns; returns whether it did.
    pub(crate) fn remove(&mut self, key: Key, owner: Owner) -> bool {
        let mut hole = self.find(key);
        if self.places[hole].owner != owner || owner == NOBODY {
            return false;
        }
        // Whoever stands behind the hole and could stand in it, moves there: his way from home leads over it.
        let mask = self.places.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let place = self.places[at];
            if place.owner == NOBODY {
                break;
            }
            let home = self.home(Key { address: place.address, rest: place.rest });
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.places[hole] = place;
                hole = at;
            }
        }
        self.places[hole] = FREE;
        self.len -= 1;
        true
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// All tuples.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> {
        let owned = self.places.iter().filter(|place| place.owner != NOBODY);
        owned.map(|place| Key { address: place.address, rest: place.rest })
    }

    /// Where it is, or where it would be.
    #[inline]
    fn find(&self, key: Key) -> usize {
        let mask = self.places.len() - 1;
        let mut at = self.home(key);
        // Half of the places are free.
        loop {
            let place = &self.places[at];
            if place.owner == NOBODY || place.rest == key.rest && place.address == key.address {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    #[inline]
    fn home(&self, key: Key) -> usize {
        let [a, b, c] = self.seed;
        let hash = fold(key.address as u64 ^ a, (key.address >> 64) as u64 ^ b);
        fold(hash ^ u64::from(key.rest), c) as usize & (self.places.len() - 1)
    }

    #[cold]
    fn grow(&mut self) {
        let more = vec![FREE; self.places.len() * 2].into();
        let places = std::mem::replace(&mut self.places, more);
        for place in places.iter().filter(|place| place.owner != NOBODY) {
            let at = self.find(Key { address: place.address, rest: place.rest });
            self.places[at] = *place;
        }
    }
}

/// Both halves of a product.
#[inline]
pub(crate) const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128).wrapping_mul(b as u128);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const SEED: [u64; 3] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0];

    fn key(number: u32) -> Key {
        // A third of them has neighbours' addresses, a third ports, a third is of IPv6.
        match number % 3 {
            0 => Key::v4((0x0a00_0000 + number).to_be_bytes(), 17, 53),
            1 => Key::v4([127, 0, 0, 1], 6 + 11 * (number >> 16 & 1) as u8, number as u16),
            _ => {
                let address = (0x2001_0db8_u128 << 96 | u128::from(number)).to_be_bytes();
                Key::v6(address, 17, 443).unwrap()
            }
        }
    }

    #[test]
    fn a_tuple_has_one_owner_who_alone_can_give_it_back() {
        let mut registry = Registry::new(SEED);
        registry.register(key(1), 7).unwrap();
        assert_eq!(registry.register(key(1), 8), Err(Refusal::Taken));
        assert_eq!(registry.register(key(1), 7), Err(Refusal::Taken));
        assert!(!registry.remove(key(1), 8) && !registry.remove(key(2), 7));
        assert!(!registry.remove(key(2), NOBODY), "a free place is nobody's to remove");
        assert_eq!((registry.owner(key(1)), registry.owner(key(2))), (Some(7), None));
        assert!(registry.remove(key(1), 7) && !registry.remove(key(1), 7));
        assert_eq!((registry.owner(key(1)), registry.len()), (None, 0));
    }

    #[test]
    fn it_is_what_a_map_is_whatever_comes_and_goes() {
        let mut registry = Registry::new(SEED);
        let mut map = HashMap::new();
        let mut random = 1_u64;
        for _ in 0..300_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (number, owner) = ((random >> 40) as u32 % 3000, (random >> 33) as u32 & 3);
            let key = key(number);
            assert_eq!(registry.owner(key), map.get(&key).copied());
            if random >> 32 & 1 == 0 {
                let is_free = !map.contains_key(&key);
                assert_eq!(registry.register(key, owner).is_ok(), is_free);
                map.entry(key).or_insert(owner);
            } else {
                let is_his = map.get(&key) == Some(&owner);
                assert_eq!(registry.remove(key, owner), is_his);
                if is_his {
                    map.remove(&key);
                }
            }
            assert_eq!(registry.len(), map.len());
        }
    }

    #[test]
    fn it_ends_where_it_has_to_and_nobody_stands_far_from_home() {
        let mut registry = Registry::new(SEED);
        for number in 0..MAX_TUPLES as u32 {
            registry.register(key(number), number & 63).unwrap();
        }
        assert_eq!(registry.register(key(MAX_TUPLES as u32), 1), Err(Refusal::Full));
        let mask = registry.places.len() - 1;
        let far = |at: usize, place: &Place| {
            let home = registry.home(Key { address: place.address, rest: place.rest });
            at.wrapping_sub(home) & mask
        };
        let places = registry.places.iter().enumerate();
        let steps = places.filter(|(_, place)| place.owner != NOBODY).map(|(at, p)| far(at, p));
        let (sum, most) = steps.fold((0, 0), |(sum, most), far| (sum + far, far.max(most)));
        // Half a step is what chance gives a table that is half full.
        assert!(sum < MAX_TUPLES && most < 200, "{sum} steps, {most} at most");
        for number in 0..MAX_TUPLES as u32 {
            assert_eq!(registry.owner(key(number)), Some(number & 63));
            assert!(registry.remove(key(number), number & 63));
        }
        assert!(registry.places.iter().all(|place| place.owner == NOBODY));
    }
}
