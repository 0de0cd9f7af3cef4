/// Numbers that look random and are the same for the same seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Numbers of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A place in a list of `len`, which is not 0.
    pub const fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number that a variable-length integer can hold, of any magnitude (RFC 9000, Section 16).
    pub const fn varint(&mut self) -> u64 {
        (self.next() & ((1 << 62) - 1)) >> self.below(62)
    }

    /// One of these, of which there is at least one.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())]
    }

    /// Fills `out`.
    pub fn fill(&mut self, out: &mut [u8]) {
        out.fill_with(|| self.next() as u8);
    }

    /// So many octets.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
    }

    /// At most so many octets.
    pub fn bytes_up_to(&mut self, max: usize) -> Vec<u8> {
        let len = self.index(max + 1);
        self.bytes(len)
    }

    /// Puts a list into another order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.index(at + 1));
        }
    }
}
