//! What is worked out once and wanted again, as long as it has room.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;

/// How many hashes are known of what was wanted once, and not again.
const SEEN: usize = 32;

/// Things by their hashes: those that were wanted again, until newer ones take the room of what was not wanted since. Different
/// things may have the same hash: whoever looks compares the whole.
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
    /// It was found since room was made last.
    was_found: Cell<bool>,
    thing: T,
}

impl<T> Kept<T> {
    /// What an entry takes beside its own bytes. The list of them may be half empty.
    const OVERHEAD: usize = 2 * size_of::<Entry<T>>();

    /// Room for so many bytes.
    pub(crate) fn new(max_size: usize) -> Self {
        Self { seen: [0; SEEN], next: 0, entries: VecDeque::new(), size: 0, max_size }
    }

    /// The thing with this hash of which `is_meant` is true.
    pub(crate) fn find(&self, hash: u64, is_meant: impl Fn(&T) -> bool) -> Option<&T> {
        let mut entries = self.entries.iter();
        let found = entries.find(|entry| entry.hash == hash && is_meant(&entry.thing));
        found.map(|entry| {
            entry.was_found.set(true);
            &entry.thing
        })
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

    /// Whether there is room for so many bytes. The oldest make it, but those that were found since this was asked have
    /// another chance: what is more than there is room for would drive itself out, and nothing would be found.
    pub(crate) fn make_room(&mut self, size: usize) -> bool {
        let size = size.saturating_add(Self::OVERHEAD);
        let Some(most) = self.max_size.checked_sub(size) else { return false };
        for _ in 0..self.entries.len() {
            if self.size <= most {
                break;
            }
            let Some(oldest) = self.entries.pop_front() else { break };
            if oldest.was_found.take() {
                self.entries.push_back(oldest);
            } else {
                self.size -= oldest.size;
            }
        }
        self.size <= most
    }

    /// Keeps a thing of so many bytes, if there is room.
    pub(crate) fn insert(&mut self, hash: u64, size: usize, thing: T) {
        if self.make_room(size) {
            let size = size + Self::OVERHEAD;
            self.size += size;
            self.entries.push_back(Entry { hash, size, was_found: Cell::new(false), thing });
        }
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

    #[test]
    fn the_oldest_make_room_and_what_is_too_large_is_not_kept() {
        const OVERHEAD: usize = Kept::<u64>::OVERHEAD;
        let mut kept = Kept::new(3 * (OVERHEAD + 10));
        for number in 0..5 {
            kept.insert(number, 10, number);
        }
        assert_eq!(there(&kept), [2, 3, 4]);
        kept.insert(5, 2 * OVERHEAD + 30, 5);
        assert_eq!(there(&kept), [5]);
        kept.insert(6, 3 * (OVERHEAD + 10), 6);
        assert_eq!(there(&kept), [5]);
    }

    #[test]
    fn what_was_found_stays_while_there_are_others_and_none_of_too_many_drives_out_all() {
        const OVERHEAD: usize = Kept::<u64>::OVERHEAD;
        let mut kept = Kept::new(3 * OVERHEAD);
        (0..3).for_each(|number| kept.insert(number, 0, number));
        assert!(kept.find(0, |_| true).is_some());
        kept.insert(3, 0, 3);
        assert_eq!(there(&kept), [2, 0, 3]);
        // All of them are in use: another one has to wait.
        for number in [2, 0, 3] {
            assert!(kept.find(number, |_| true).is_some());
        }
        kept.insert(4, 0, 4);
        assert_eq!(there(&kept), [2, 0, 3]);
        kept.insert(4, 0, 4);
        assert_eq!(there(&kept), [0, 3, 4]);
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
