//! What is worked out once and wanted again, as long as it has room.

use std::collections::VecDeque;
use std::fmt;

/// How many hashes are known of what was wanted once, and not again.
const SEEN: usize = 32;
/// What an entry takes beside its own bytes, as they are counted.
const OVERHEAD: usize = 64;

/// Things by their hashes: those that were wanted twice, until newer ones take their room. Different things may have the
/// same hash: whoever looks compares the whole.
pub(crate) struct Kept<T> {
    /// Of what was wanted once, the next one at this place. 0 is none.
    seen: [u64; SEEN],
    next: usize,
    entries: VecDeque<Entry<T>>,
    /// Of all entries, in bytes.
    size: usize,
    max_size: usize,
}

struct Entry<T> {
    hash: u64,
    size: usize,
    thing: T,
}

impl<T> Kept<T> {
    /// Room for so many bytes.
    pub(crate) fn new(max_size: usize) -> Self {
        Self { seen: [0; SEEN], next: 0, entries: VecDeque::new(), size: 0, max_size }
    }

    /// The thing with this hash of which `is_meant` is true.
    pub(crate) fn find(&self, hash: u64, is_meant: impl Fn(&T) -> bool) -> Option<&T> {
        let mut entries = self.entries.iter();
        let found = entries.find(|entry| entry.hash == hash && is_meant(&entry.thing));
        found.map(|entry| &entry.thing)
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

    /// Keeps a thing of so many bytes, unless that is too much. The oldest make room.
    pub(crate) fn insert(&mut self, hash: u64, size: usize, thing: T) {
        let size = size.saturating_add(OVERHEAD);
        if size > self.max_size {
            return;
        }
        while self.size > self.max_size - size {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.size -= oldest.size;
        }
        self.size += size;
        self.entries.push_back(Entry { hash, size, thing });
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

    #[test]
    fn the_oldest_make_room_and_what_is_too_large_is_not_kept() {
        let mut kept = Kept::new(3 * (OVERHEAD + 10));
        for number in 0..5 {
            kept.insert(number, 10, number);
        }
        let found: Vec<_> =
            (0..5).filter(|&number| kept.find(number, |_| true).is_some()).collect();
        assert_eq!(found, [2, 3, 4]);
        kept.insert(5, 2 * OVERHEAD, 5);
        let found: Vec<_> =
            (0..6).filter(|&number| kept.find(number, |_| true).is_some()).collect();
        assert_eq!(found, [5]);
        kept.insert(6, 3 * (OVERHEAD + 10), 6);
        assert!(kept.find(6, |_| true).is_none() && kept.find(5, |_| true).is_some());
    }

    #[test]
    fn of_one_hash_the_one_that_is_meant_is_found() {
        let mut kept = Kept::new(1000);
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
