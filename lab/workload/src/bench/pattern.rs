//! The bytes of bulk transfers, made and checked.

use super::Failure;

const PERIOD: u64 = Pattern::PERIOD;

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
    /// Period of the bytes of a timed transfer.
    pub const PERIOD: u64 = 64 * 1024;

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

/// A transfer of bytes of the pattern, in either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Length in bytes.
    pub bytes: u64,
    /// Whether the pattern does not repeat and every byte is compared.
    pub unique: bool,
    /// Bytes that the sender writes at once.
    pub write: u32,
}

impl Transfer {
    /// So many bytes of the pattern that repeats, written in pieces of 64 KiB.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self { bytes, unique: false, write: PERIOD as u32 }
    }

    /// The pattern.
    #[must_use]
    pub fn pattern(self) -> Pattern {
        Pattern::new(self.unique)
    }

    /// Offset and length of each piece that a sender writes. None goes beyond a period, so that
    /// those of the pattern that repeats are pieces of its [block](Pattern::block).
    pub fn pieces(self) -> impl Iterator<Item = (u64, usize)> {
        let mut offset = 0;
        std::iter::from_fn(move || {
            let length = (self.bytes - offset).min(self.write.into()).min(PERIOD - offset % PERIOD);
            let piece = (offset, length as usize);
            offset += length;
            (length > 0).then_some(piece)
        })
    }

    /// Writes the transfer piece by piece. `block` is that of the pattern that repeats.
    ///
    /// # Errors
    ///
    /// Those of `write`.
    pub fn send(
        self,
        block: &[u8],
        mut write: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut own = if self.unique { vec![0; PERIOD as usize] } else { Vec::new() };
        for (offset, length) in self.pieces() {
            if self.unique {
                self.pattern().fill(offset, &mut own[..length]);
                write(&own[..length])?;
            } else {
                let start = (offset % PERIOD) as usize;
                write(&block[start..start + length])?;
            }
        }
        Ok(())
    }
}

/// What comes of a transfer, checked piece by piece.
#[derive(Debug)]
pub struct Arrival {
    transfer: Transfer,
    offset: u64,
    wrong: Option<Failure>,
}

impl Arrival {
    /// Of the transfer that is expected.
    #[must_use]
    pub fn of(transfer: Transfer) -> Self {
        Self { transfer, offset: 0, wrong: None }
    }

    /// Takes in the next bytes.
    pub fn take(&mut self, bytes: &[u8]) {
        if self.wrong.is_none() {
            self.wrong = self.transfer.pattern().check(self.offset, bytes).err();
        }
        self.offset += bytes.len() as u64;
    }

    /// Whether everything has come.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.offset >= self.transfer.bytes
    }

    /// Looks at it after the end.
    ///
    /// # Errors
    ///
    /// When bytes were wrong, or another number came than was expected.
    pub fn finish(self) -> Result<(), Failure> {
        match self.wrong {
            Some(wrong) => Err(wrong),
            None if self.offset == self.transfer.bytes => Ok(()),
            None => Err(format!("{} bytes came of {}", self.offset, self.transfer.bytes).into()),
        }
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

    #[test]
    fn a_transfer_arrives_as_it_was_sent_whatever_the_pieces() {
        let block = Pattern::new(false).block();
        for (unique, write) in [(false, 1024), (false, 65_536), (false, 1000), (true, 65_536)] {
            let transfer = Transfer { bytes: 200_001, unique, write };
            let mut arrival = Arrival::of(transfer);
            let send = |piece: &[u8]| {
                assert!(piece.len() <= write as usize);
                assert!(!arrival.complete());
                arrival.take(piece);
                Ok(())
            };
            transfer.send(&block, send).unwrap();
            assert!(arrival.complete());
            arrival.finish().unwrap();
        }
    }

    #[test]
    fn an_arrival_that_differs_is_an_error() {
        let mut short = Arrival::of(Transfer::new(10));
        short.take(&Pattern::new(false).block()[..9]);
        assert_eq!(short.finish().unwrap_err().to_string(), "9 bytes came of 10");
        let mut wrong = Arrival::of(Transfer::new(2));
        wrong.take(&[0, 0]);
        assert_eq!(wrong.finish().unwrap_err().to_string(), "wrong byte at offset 0");
    }
}
