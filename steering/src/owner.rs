//! Who on a host owns a connection: a generation of a program and one of its workers.

use core::fmt;

use crate::keyed_hash::HashKey;

/// A generation and a worker within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The slot of the generation: slots are used again once their last connection has ended.
    pub generation: u8,
    /// The worker, from 0.
    pub worker: u16,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "generation {}, worker {}", self.generation, self.worker)
    }
}

/// How many bits of a connection ID name the generation and the worker: 8 or 16 together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerBits {
    generation: u8,
    worker: u8,
}

/// Why an owner cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerError {
    /// The bits are not 8 or 16 together, or the generation has more than 8.
    Bits,
    /// The generation or the worker is too large for its bits.
    TooLarge(Owner),
}

impl fmt::Display for OwnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bits => f.write_str(
                "generation and worker need 8 or 16 bits together, of which at most 8 are the \
                 generation's",
            ),
            Self::TooLarge(owner) => write!(f, "{owner} does not fit into the bits for it"),
        }
    }
}

impl core::error::Error for OwnerError {}

impl OwnerBits {
    /// 16 generations of 16 workers, in one octet.
    pub const ONE_OCTET: Self = Self { generation: 4, worker: 4 };

    /// 64 generations of 1,024 workers, in two octets.
    pub const TWO_OCTETS: Self = Self { generation: 6, worker: 10 };

    /// A division of one or two octets of one's own.
    ///
    /// # Errors
    /// When the bits are not 8 or 16 together, or `generation` has more than 8.
    pub const fn new(generation: u8, worker: u8) -> Result<Self, OwnerError> {
        match (generation, generation.saturating_add(worker)) {
            (0..=8, 8 | 16) => Ok(Self { generation, worker }),
            _ => Err(OwnerError::Bits),
        }
    }

    /// How many octets an owner takes: 1 or 2.
    #[must_use]
    pub const fn octets(self) -> usize {
        if self.generation.saturating_add(self.worker) > 8 { 2 } else { 1 }
    }

    /// How many generations can live at a time.
    #[must_use]
    pub const fn generations(self) -> usize {
        1 << self.generation
    }

    /// How many bits the worker has, the lower ones.
    #[must_use]
    pub const fn worker_bits(self) -> u8 {
        self.worker
    }

    /// How many workers a generation can have.
    #[must_use]
    pub const fn workers(self) -> usize {
        1 << self.worker
    }

    /// The owner as a number in [`Self::octets`] octets, the generation in its upper bits.
    ///
    /// # Errors
    /// [`OwnerError::TooLarge`] when it does not fit.
    pub const fn pack(self, owner: Owner) -> Result<u16, OwnerError> {
        if (owner.generation as usize) < self.generations()
            && (owner.worker as usize) < self.workers()
        {
            let generation = (owner.generation as u32) << self.worker;
            Ok(generation as u16 | owner.worker)
        } else {
            Err(OwnerError::TooLarge(owner))
        }
    }

    pub(crate) const fn unpack(self, packed: u16) -> Owner {
        let (packed, mask) = (packed as u32, (1_u32 << self.worker).saturating_sub(1));
        Owner { generation: (packed >> self.worker) as u8, worker: (packed & mask) as u16 }
    }
}

/// Writes an owner into the last octets of a connection ID, masked by a hash of all before them.
pub(crate) fn seal(bits: OwnerBits, packed: u16, key: &HashKey, id: &mut [u8]) {
    let Some(at) = id.len().checked_sub(bits.octets()) else { return };
    let Some((rest, octets)) = id.split_at_mut_checked(at) else { return };
    write(packed ^ mask(bits, key, rest), octets);
}

/// Reads what [`seal`] wrote.
pub(crate) fn open(bits: OwnerBits, key: &HashKey, id: &[u8]) -> Option<u16> {
    let (rest, octets) = id.split_at_checked(id.len().checked_sub(bits.octets())?)?;
    Some(read(octets) ^ mask(bits, key, rest))
}

/// The lowest bits of the hash.
fn mask(bits: OwnerBits, key: &HashKey, rest: &[u8]) -> u16 {
    let hash = key.hash(rest) as u16;
    if bits.octets() == 1 { hash & 0xff } else { hash }
}

/// A packed owner from one or two octets.
pub(crate) fn read(octets: &[u8]) -> u16 {
    match *octets {
        [low] => u16::from(low),
        [high, low] => u16::from_be_bytes([high, low]),
        _ => 0,
    }
}

/// A packed owner into one or two octets.
pub(crate) fn write(packed: u16, octets: &mut [u8]) {
    let [high, low] = packed.to_be_bytes();
    match octets {
        [one] => *one = low,
        [first, second] => (*first, *second) = (high, low),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quicket_testing::Rng;

    #[test]
    fn owners_are_read_as_they_were_written_and_refused_where_they_do_not_fit() {
        let key = HashKey::new(*b"01234567");
        let mut rng = Rng::new(2);
        for bits in [OwnerBits::ONE_OCTET, OwnerBits::TWO_OCTETS, OwnerBits::new(0, 8).unwrap()] {
            for _ in 0..200 {
                let owner = Owner {
                    generation: (rng.next() as usize % bits.generations()) as u8,
                    worker: (rng.next() as usize % bits.workers()) as u16,
                };
                let mut id = rng.bytes(17 + bits.octets());
                seal(bits, bits.pack(owner).unwrap(), &key, &mut id);
                assert_eq!(open(bits, &key, &id).map(|packed| bits.unpack(packed)), Some(owner));
            }
        }
        let owner = Owner { generation: 16, worker: 0 };
        assert_eq!(OwnerBits::ONE_OCTET.pack(owner), Err(OwnerError::TooLarge(owner)));
        let owner = Owner { generation: 0, worker: 1024 };
        assert_eq!(OwnerBits::TWO_OCTETS.pack(owner), Err(OwnerError::TooLarge(owner)));
        assert_eq!(OwnerBits::new(9, 7), Err(OwnerError::Bits));
        assert_eq!(OwnerBits::new(4, 5), Err(OwnerError::Bits));
    }

    #[test]
    fn one_owner_looks_different_in_every_connection_id() {
        let key = HashKey::new(*b"01234567");
        let mut rng = Rng::new(3);
        let mut seen = [0_u32; 256];
        for _ in 0..25_600 {
            let mut id = rng.bytes(18);
            seal(OwnerBits::ONE_OCTET, 0x21, &key, &mut id);
            seen[usize::from(id[17])] += 1;
        }
        assert!(seen.iter().all(|count| (50..150).contains(count)), "{seen:?}");
    }

    #[test]
    fn what_is_too_short_has_no_owner() {
        let key = HashKey::new([0; 8]);
        assert_eq!(open(OwnerBits::TWO_OCTETS, &key, &[1]), None);
        assert_eq!(open(OwnerBits::ONE_OCTET, &key, &[]), None);
    }
}
