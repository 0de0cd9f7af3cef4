//! Servers by their IDs, as a program finds them: an array of buckets of 64 octets, one line of the
//! processor's cache, with two servers each. A server is in one of two buckets, nearly always in the
//! first (cuckoo hashing). One line is read where a table of the kernel's would take three.

use quicket_steering::ServerId;

/// A server ID and its length before it, filled up with zeros.
pub(crate) const KEY: usize = 16;
/// What is kept of a server.
pub(crate) const VALUE: usize = 16;
/// A key and its value.
pub(crate) const ENTRY: usize = KEY + VALUE;
/// Entries of a bucket.
pub(crate) const ENTRIES: usize = 2;
/// Octets of a bucket.
pub(crate) const BUCKET: usize = ENTRIES * ENTRY;

/// What the hash is made with: odd, and positive as a number of 32 bits with a sign, as programs have
/// their constants. From the fractional part of the golden ratio.
pub(crate) const FACTORS: [u32; 2] = [0x4f1b_bcdd, 0x2c1b_3c6d];
/// By how much it is shifted.
pub(crate) const SHIFTS: [u32; 3] = [32, 29, 32];

/// How often entries change their places for a new one.
const MAX_KICKS: usize = 500;
/// How often the table is made twice as large for want of a way.
const DOUBLINGS: u32 = 4;
/// Of the places four fifths are taken at most: beyond, it takes long to find one.
const FULL: (usize, usize) = (4, 5);

/// A table that is made as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Buckets(Vec<[u8; BUCKET]>);

/// The key of a server ID. No key is zero, as no server ID is empty.
pub(crate) fn key(server: &ServerId) -> [u8; KEY] {
    let mut key = [0; KEY];
    let octets = server.as_slice();
    // At most 15.
    let parts = [octets.len() as u8].into_iter().chain(octets.iter().copied());
    key.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
    key
}

/// What chooses the buckets of a key, as programs compute it.
fn hash(key: &[u8; KEY]) -> u64 {
    let [first, second] = [0, 8].map(|at| {
        let mut half = [0; 8];
        half.iter_mut().zip(key.iter().skip(at)).for_each(|(to, from)| *to = *from);
        u64::from_ne_bytes(half)
    });
    let [f, g] = FACTORS.map(u64::from);
    let [a, b, c] = SHIFTS;
    let mut x = first ^ second.wrapping_mul(f);
    x ^= x >> a;
    x = x.wrapping_mul(g);
    x ^= x >> b;
    x = x.wrapping_mul(f);
    x ^ x >> c
}

/// The two buckets of a key, of as many as are a power of two, at most 2^31.
pub(crate) fn places(key: &[u8; KEY], buckets: usize) -> [usize; 2] {
    let (hash, mask) = (hash(key), buckets.saturating_sub(1));
    [hash as u32 as usize & mask, (hash >> 32) as usize & mask]
}

impl Buckets {
    /// A table of entries whose keys are all different; none if there is no way to arrange them,
    /// which takes five keys or more with the same places.
    pub(crate) fn new(entries: &[([u8; KEY], [u8; VALUE])]) -> Option<Self> {
        let wanted = entries.len().saturating_mul(FULL.1).div_ceil(FULL.0 * ENTRIES);
        let count = wanted.max(1).next_power_of_two();
        (0..DOUBLINGS).find_map(|times| Self::filled(entries, count << times))
    }

    fn filled(entries: &[([u8; KEY], [u8; VALUE])], count: usize) -> Option<Self> {
        let mut buckets = Self(vec![[0; BUCKET]; count]);
        // Which of those that are in the way has to go, in turn.
        let mut turn = 0_usize;
        for (key, value) in entries {
            let mut homeless = [0; ENTRY];
            let octets = key.iter().chain(value);
            homeless.iter_mut().zip(octets).for_each(|(to, from)| *to = *from);
            let mut kicks = 0;
            while !buckets.put(&homeless) {
                if kicks == MAX_KICKS {
                    return None;
                }
                kicks += 1;
                turn = turn.wrapping_add(1);
                homeless = buckets.swap(homeless, turn)?;
            }
        }
        Some(buckets)
    }

    /// Puts an entry where there is room.
    fn put(&mut self, entry: &[u8; ENTRY]) -> bool {
        let Some(key) = entry.first_chunk::<KEY>() else { return false };
        for place in places(key, self.0.len()) {
            let bucket = self.0.get_mut(place).map_or(&mut [][..], |bucket| bucket);
            let mut all = bucket.chunks_exact_mut(ENTRY);
            if let Some(free) = all.find(|entry| entry.first() == Some(&0)) {
                free.copy_from_slice(entry);
                return true;
            }
        }
        false
    }

    /// Puts an entry in the place of one of four, and gives that.
    fn swap(&mut self, entry: [u8; ENTRY], turn: usize) -> Option<[u8; ENTRY]> {
        // Not always the same four in a circle.
        let which = turn.wrapping_mul(FACTORS[0] as usize) >> 7;
        let [first, second] = places(entry.first_chunk()?, self.0.len());
        let place = if which & 1 == 0 { first } else { second };
        let bucket = self.0.get_mut(place)?;
        let old = bucket.chunks_exact_mut(ENTRY).nth(which >> 1 & 1)?;
        let gone = *old.first_chunk()?;
        old.copy_from_slice(&entry);
        Some(gone)
    }

    /// All of them, in order.
    pub(crate) fn as_slice(&self) -> &[[u8; BUCKET]] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(count: u32, len: usize) -> Vec<([u8; KEY], [u8; VALUE])> {
        let entry = |number: u32| {
            let mut octets = [0; 15];
            octets[len - 4..len].copy_from_slice(&number.to_be_bytes());
            let server = ServerId::new(&octets[..len]).unwrap();
            let mut value = [0; VALUE];
            value[..4].copy_from_slice(&number.to_ne_bytes());
            (key(&server), value)
        };
        (0..count).map(entry).collect()
    }

    fn find(buckets: &Buckets, key: &[u8; KEY]) -> Option<([u8; VALUE], bool)> {
        let places = places(key, buckets.0.len());
        places.iter().enumerate().find_map(|(number, place)| {
            let mut all = buckets.0[*place].chunks_exact(ENTRY);
            let entry = all.find(|entry| entry[..KEY] == *key)?;
            Some((*entry.last_chunk().unwrap(), number == 0))
        })
    }

    #[test]
    fn every_server_is_in_one_of_its_two_places() {
        for (count, len) in [(0, 4), (1, 4), (2, 15), (3, 8), (100, 4), (10_000, 4), (70_000, 9)] {
            let entries = entries(count, len);
            let buckets = Buckets::new(&entries).unwrap();
            let room = buckets.0.len() * ENTRIES;
            assert!(room <= (count as usize * 4).max(2), "{count}: {room}");
            let mut first = 0;
            for (key, value) in &entries {
                let (found, is_first) = find(&buckets, key).unwrap();
                assert_eq!(found, *value);
                first += usize::from(is_first);
            }
            assert!(
                count < 1000 || first * 10 >= entries.len() * 6,
                "{first} of {count} in the first place"
            );
            let other = key(&ServerId::new(&[9; 3]).unwrap());
            assert_eq!(find(&buckets, &other), None);
        }
    }

    #[test]
    fn what_cannot_be_arranged_is_refused() {
        let same = vec![entries(1, 4)[0]; 5];
        assert_eq!(Buckets::new(&same), None);
        assert!(Buckets::new(&same[..4]).is_some());
    }

    #[test]
    fn lengths_tell_server_ids_apart() {
        let keys = [&[0][..], &[0, 0], &[0; 15]].map(|id| key(&ServerId::new(id).unwrap()));
        assert!(keys[0] != keys[1] && keys[1] != keys[2]);
        assert!(keys.iter().all(|key| key[0] != 0), "an empty place is none of them");
    }
}
