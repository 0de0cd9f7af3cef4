//! The bytes of bulk transfers, made and checked.

use super::Failure;

/// Period of the bytes of a timed transfer.
const PERIOD: u64 = 64 * 1024;

/// A sequence of bytes known to both ends.
///
/// In a timed transfer it repeats every 64 KiB, so that a sender needs one buffer, and a receiver
/// compares the first eight bytes of everything it is handed, which costs next to nothing and yet
/// notices bytes at a wrong offset. In an untimed one it does not repeat and every byte is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    unique: bool,
}

impl Pattern {
    /// The pattern that repeats, or the one that does not (`unique`).
    #[must_use]
    pub fn new(unique: bool) -> Self {
        Self { unique }
    }

    /// The bytes from `offset` on, as many as fit into `buffer`.
    pub fn fill(self, mut offset: u64, buffer: &mut [u8]) {
        let mut rest = buffer;
        while !rest.is_empty() {
            let word = self.word(offset / 8).to_le_bytes();
            let skip = (offset % 8) as usize;
            let length = rest.len().min(8 - skip);
            let (head, tail) = rest.split_at_mut(length);
            head.copy_from_slice(&word[skip..skip + length]);
            offset += length as u64;
            rest = tail;
        }
    }

    /// One period, for a sender of the pattern that repeats: sent again and again it is the whole.
    #[must_use]
    pub fn block(self) -> Vec<u8> {
        let mut block = vec![0; PERIOD as usize];
        self.fill(0, &mut block);
        block
    }

    /// Compares `received`, which begins at `offset`.
    ///
    /// # Errors
    ///
    /// When a byte that is looked at is another one than was sent.
    pub fn check(self, offset: u64, received: &[u8]) -> Result<(), Failure> {
        let looked_at = if self.unique { received } else { &received[..received.len().min(8)] };
        let mut expected = [0; 4096];
        let mut at = offset;
        for chunk in looked_at.chunks(expected.len()) {
            let expected = &mut expected[..chunk.len()];
            self.fill(at, expected);
            if chunk != expected {
                let wrong = chunk.iter().zip(expected.iter()).take_while(|(a, b)| a == b).count();
                return Err(format!("wrong byte at offset {}", at + wrong as u64).into());
            }
            at += chunk.len() as u64;
        }
        Ok(())
    }

    fn word(self, index: u64) -> u64 {
        let index = if self.unique { index } else { index % (PERIOD / 8) };
        let mut z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_make_the_same_whole() {
        let pattern = Pattern::new(true);
        let mut whole = vec![0; 1000];
        pattern.fill(0, &mut whole);
        for size in [1, 3, 8, 13, 999] {
            let mut pieces = Vec::new();
            while pieces.len() < whole.len() {
                let mut piece = vec![0; size.min(whole.len() - pieces.len())];
                pattern.fill(pieces.len() as u64, &mut piece);
                pieces.extend(piece);
            }
            assert_eq!(pieces, whole, "pieces of {size} bytes");
        }
    }

    #[test]
    fn only_the_timed_pattern_repeats() {
        for (unique, equal) in [(false, true), (true, false)] {
            let pattern = Pattern::new(unique);
            let mut later = vec![0; PERIOD as usize];
            pattern.fill(PERIOD, &mut later);
            assert_eq!(pattern.block() == later, equal);
        }
    }

    #[test]
    fn the_unique_pattern_finds_one_wrong_byte_anywhere() {
        let pattern = Pattern::new(true);
        let mut bytes = vec![0; 10_000];
        pattern.fill(77, &mut bytes);
        pattern.check(77, &bytes).unwrap();
        bytes[9_999] ^= 1;
        let error = pattern.check(77, &bytes).unwrap_err().to_string();
        assert_eq!(error, "wrong byte at offset 10076");
    }

    #[test]
    fn the_timed_pattern_finds_bytes_at_a_wrong_offset() {
        let pattern = Pattern::new(false);
        let block = pattern.block();
        pattern.check(PERIOD * 5, &block).unwrap();
        assert!(pattern.check(PERIOD * 5 + 16, &block).is_err());
    }
}
