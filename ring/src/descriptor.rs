//! What stands at a position of a ring.

/// A slot, and how many octets of it are a frame.
///
/// It is one word, so that it is read and written at once, whatever the other side does meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The number of the slot. Who reads it from shared memory checks it.
    pub slot: u32,
    /// The length of the frame in octets. Who reads it from shared memory checks it.
    pub len: u16,
}

impl Descriptor {
    /// The word: the slot in the lower half, the length above it. The uppermost 16 bits are zero.
    #[inline]
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.slot as u64 | (self.len as u64) << 32
    }

    /// Reads the word. The uppermost 16 bits say nothing.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self { slot: bits as u32, len: (bits >> 32) as u16 }
    }
}
