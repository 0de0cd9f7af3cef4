//! What is worked out once and wanted again, as long as it has room.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;

/// How many hashes are known of what was wanted once, and not again.
const SEEN: usize = 32;

/// An entry is in use while no more things than this were to be kept since it was found. What is wanted less often than
/// one in [`SEEN`] is not to be kept: entries that are found in turns as long as that stay.
const PATIENCE: u32 = SEEN as u32;

/// Things by their hashes: those that were wanted again, until newer ones take the room of what is no more in use. Different
/// things may have the same hash: whoever looks compares the whole.
pub(crate) struct Kept<T> {
    /// Of what was wanted once, the next one at this place. 0 is none.
    seen: [u64; SEEN],
    next: usize,
    entries: VecDeque<Entry<T>>,
    /// How many things were to be kept.
    asked: u32,
    /// Of all this, in bytes.
    size: usize,
    max_size: usize,
}

struct Entry<T> {
    hash: u64,
    size: usize,
    /// How many things were to be kept when it was found last, if it was.
    found: Cell<Option<u32>>,
    thing: T,
}

impl<T> Entry<T> {
    fn is_in_use(&self, asked: u32) -> bool {
        self.found.get().is_some_and(|found| asked.wrapping_sub(found) <= PATIENCE)
    }
}

impl<T> Kept<T> {
    /// What an entry takes beside its own bytes. The list of them may be half empty.
    const OVERHEAD: usize = 2 * size_of::<Entry<T>>();

    /// Room for so many bytes, of which this takes some itself.
    pub(crate) fn new(max_size: usize) -> Self {
        let (entries, size) = (VecDeque::new(), size_of::<Self>());
        Self { seen: [0; SEEN], next: 0, entries, asked: 0, size, max_size }
    }

    /// The thing with this hash of which `is_meant` is true, which is in use from now on.
    pub(crate) fn find(&self, hash: u64, is_meant: impl Fn(&T) -> bool) -> Option<&T> {
        let entry = self.entry(hash, is_meant)?;
        entry.found.set(Some(self.asked));
        Some(&entry.thing)
    }

    /// True if there is a thing with this hash of which `is_meant` is true.
    pub(crate) fn has(&self, hash: u64, is_meant: impl Fn(&T) -> bool) -> bool {
        self.entry(hash, is_meant).is_some()
    }

    fn entry(&self, hash: u64, is_meant: impl Fn(&T) -> bool) -> Option<&Entry<T>> {
        self.entries.iter().find(|entry| entry.hash == hash && is_meant(&entry.thing))
    }

    /// True if something with this hash was wanted before, and not long ago.
    pub(crate) fn is_wanted_again(&mut self, hash: u64) -> bool {
        if self.seen.contains(&hash) {
            return true;
        }
        if let Some(oldest) = self.seen.get_mut(self.next) {
            *oldest = hash;
        }
        self.next = (self.next + 1) % SEEN;
        false
    }

    /// Keeps a thing of so many bytes, if there is room. The oldest make it, but those that are in use stay: what is more than
    /// there is room for would drive itself out, and nothing would be found. Where that is not enough, all stay.
    pub(crate) fn insert(&mut self, hash: u64, size: usize, thing: T) {
        self.asked = self.asked.wrapping_add(1);
        let asked = self.asked;
        let size = size.saturating_add(Self::OVERHEAD);
        let Some(most) = self.max_size.checked_sub(size) else { return };
        let in_use = self.entries.iter().filter(|entry| entry.is_in_use(asked));
        if in_use.map(|entry| entry.size).sum::<usize>() + size_of::<Self>() > most {
            return;
        }
        let left = &mut self.size;
        self.entries.retain(|entry| {
            let stays = *left <= most || entry.is_in_use(asked);
            if !stays {
                *left -= entry.size;
            }
            stays
        });
        self.size += size;
        self.entries.push_back(Entry { hash, size, found: Cell::new(None), thing });
    }
}

impl<T> fmt::Debug for Kept<T> {
    /// Without what there is: fields may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("entries", &self.entries.len()).finish_non_exhaustive()
    }
}

/// A hash of some bytes. Who chooses them can have two with the same one, and gains nothing.
pub(crate) fn hash(pieces: [&[u8]; 2]) -> u64 {
    /// Odd, and its bits are those of the golden ratio.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * u128::from(FACTOR);
        (product as u64) ^ (product >> 64) as u64
    };
    let mut hash = FACTOR;
    for piece in pieces {
        let (words, rest) = piece.as_chunks::<8>();
        hash = words.iter().fold(hash, |hash, word| mix(hash, u64::from_le_bytes(*word)));
        let rest = rest.iter().fold(0, |all, &byte| all << 8 | u64::from(byte));
        // With the length, where a piece ends makes a difference.
        hash = mix(mix(hash, rest), piece.len() as u64);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What there is of these, by their numbers.
    fn there(kept: &Kept<u64>) -> Vec<u64> {
        kept.entries.iter().map(|entry| entry.thing).collect()
    }

    const OWN: usize = size_of::<Kept<u64>>();
    const OVERHEAD: usize = Kept::<u64>::OVERHEAD;

    #[test]
    fn the_oldest_make_room_and_what_is_too_large_is_not_kept() {
        let mut kept = Kept::new(OWN + 3 * (OVERHEAD + 10));
        for number in 0..5 {
            kept.insert(number, 10, number);
        }
        assert_eq!(there(&kept), [2, 3, 4]);
        kept.insert(5, 2 * OVERHEAD + 30, 5);
        assert_eq!(there(&kept), [5]);
        kept.insert(6, 3 * (OVERHEAD + 10), 6);
        assert_eq!(there(&kept), [5]);
        kept.insert(7, usize::MAX, 7);
        assert_eq!(there(&kept), [5]);
    }

    #[test]
    fn what_is_in_use_stays_and_none_of_too_many_drives_out_all() {
        let mut kept = Kept::new(OWN + 3 * OVERHEAD);
        (0..3).for_each(|number| kept.insert(number, 0, number));
        assert!(kept.find(0, |_| true).is_some());
        kept.insert(3, 0, 3);
        assert_eq!(there(&kept), [0, 2, 3]);
        // More in turns than there is room for: those that are there are found each time.
        for _ in 0..100 {
            for number in [0, 2, 3] {
                assert!(kept.find(number, |_| true).is_some());
            }
            (4..7).for_each(|number| kept.insert(number, 0, number));
        }
        assert_eq!(there(&kept), [0, 2, 3]);
        // They are wanted no more.
        (0..PATIENCE - 2).for_each(|_| kept.insert(7, 0, 7));
        assert_eq!(there(&kept), [2, 3, 7]);
    }

    /// One that is too large for what the others leave takes nothing from them.
    #[test]
    fn what_finds_no_room_drives_out_nothing() {
        let mut kept = Kept::new(OWN + 3 * OVERHEAD);
        (0..3).for_each(|number| kept.insert(number, 0, number));
        assert!(kept.find(1, |_| true).is_some());
        kept.insert(3, 2 * OVERHEAD, 3);
        assert_eq!(there(&kept), [0, 1, 2]);
        kept.insert(3, OVERHEAD, 3);
        assert_eq!(there(&kept), [1, 3]);
    }

    #[test]
    fn of_one_hash_the_one_that_is_meant_is_found() {
        let mut kept = Kept::new(2000);
        kept.insert(1, 0, "a");
        kept.insert(1, 0, "b");
        assert_eq!(kept.find(1, |thing| *thing == "b"), Some(&"b"));
        assert_eq!(kept.find(1, |thing| *thing == "c"), None);
    }

    #[test]
    fn what_is_wanted_for_the_second_time_is_known_unless_much_came_between() {
        let mut kept = Kept::<()>::new(1000);
        assert_eq!([7, 8, 7, 8].map(|hash| kept.is_wanted_again(hash)), [false, false, true, true]);
        for other in 0..SEEN as u64 {
            assert!(!kept.is_wanted_again(100 + other));
        }
        assert!(!kept.is_wanted_again(7));
    }

    #[test]
    fn bytes_and_where_they_are_cut_make_a_hash() {
        let all = b"0123456789abcdef0123456789abcdef";
        let mut hashes: Vec<u64> = (0..=32).map(|at| hash([&all[..at], &all[at..]])).collect();
        hashes.extend((0..32).map(|at| hash([&all[..at], b""])));
        hashes.push(hash([b"\0", b""]));
        let count = hashes.len() - 1;
        hashes.sort_unstable();
        hashes.dedup();
        // Nothing before all, and all before nothing, are in both.
        assert_eq!(hashes.len(), count + 1);
    }
}
