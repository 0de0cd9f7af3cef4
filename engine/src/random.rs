//! Randomness as an argument.

use alloc::boxed::Box;

/// A source of random bytes that the caller of the engine provides.
///
/// Connection IDs, PATH_CHALLENGE data and skipped packet numbers must be hard to guess
/// (RFC 9000, Sections 5.1, 8.2.1 and 21.4), so outside simulation this is a cryptographic
/// generator.
pub trait Random: Send {
    /// Fills `out` with random bytes.
    fn fill(&mut self, out: &mut [u8]);

    /// An independent source, for a new connection.
    fn fork(&mut self) -> Box<dyn Random>;

    /// A uniformly distributed number.
    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A number below `bound` (0 when `bound` is 0), near enough to uniform for protocol use.
    fn below(&mut self, bound: u64) -> u64 {
        (u128::from(self.next_u64()).saturating_mul(u128::from(bound)) >> 64) as u64
    }
}
