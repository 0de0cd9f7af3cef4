//! Numbers that follow from a seed.

pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }

    /// From `-bound` to `bound`.
    pub(crate) const fn around(&mut self, bound: u64) -> i64 {
        self.below(2 * bound + 1).cast_signed() - bound.cast_signed()
    }

    pub(crate) const fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}
