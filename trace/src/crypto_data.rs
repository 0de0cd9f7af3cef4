//! CRYPTO data, put together in the order in which TLS sent it.

use std::collections::BTreeMap;

/// Bytes of TLS messages that are put together, unless another number is given.
pub(crate) const MAX_CRYPTO_BYTES: usize = 64 << 10;
/// Pieces beyond gaps.
const MAX_PIECES: usize = 256;

/// CRYPTO data in whatever order.
#[derive(Debug)]
pub struct CryptoData {
    /// From the start to the first gap.
    start: Vec<u8>,
    /// Beyond gaps, by their offsets.
    beyond: BTreeMap<u64, Vec<u8>>,
    beyond_bytes: usize,
    most: usize,
}

impl Default for CryptoData {
    fn default() -> Self {
        Self::up_to(MAX_CRYPTO_BYTES)
    }
}

impl CryptoData {
    /// Of so many bytes at most; those behind are left out.
    #[must_use]
    pub const fn up_to(most: usize) -> Self {
        Self { start: Vec::new(), beyond: BTreeMap::new(), beyond_bytes: 0, most }
    }

    /// Adds a piece; of two at one offset the longer one is kept. Returns whether more is there up to the first gap.
    pub fn add(&mut self, offset: u64, data: &[u8]) -> bool {
        let Ok(offset) = usize::try_from(offset) else { return false };
        let room = self.most.saturating_sub(offset);
        let data = data.get(..room).unwrap_or(data);
        if offset + data.len() <= self.start.len() {
            return false;
        }
        if offset > self.start.len() {
            self.keep(offset as u64, data);
            return false;
        }
        self.append(offset, data);
        while let Some(next) = self.beyond.first_entry()
            && *next.key() <= self.start.len() as u64
        {
            let (offset, data) = next.remove_entry();
            self.beyond_bytes -= data.len();
            self.append(offset as usize, &data);
        }
        true
    }

    /// Adds what a piece has beyond the start, which it reaches.
    fn append(&mut self, offset: usize, data: &[u8]) {
        let known = self.start.len() - offset;
        self.start.extend_from_slice(data.get(known..).unwrap_or_default());
    }

    /// Keeps a piece beyond a gap, if there is room.
    fn keep(&mut self, offset: u64, data: &[u8]) {
        let before = self.beyond.get(&offset).map(Vec::len);
        let bytes = self.beyond_bytes - before.unwrap_or(0) + data.len();
        let is_full = before.is_none() && self.beyond.len() >= MAX_PIECES;
        if !is_full && bytes <= self.most && before.unwrap_or(0) < data.len() {
            self.beyond.insert(offset, data.to_vec());
            self.beyond_bytes = bytes;
        }
    }

    /// What is there from the start to the first gap.
    #[must_use]
    pub fn contiguous(&self) -> &[u8] {
        &self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crypto_data_is_put_together_up_to_the_first_gap() {
        let mut data = CryptoData::default();
        assert!(!data.add(3, b"def"));
        assert!(data.add(0, b"ab"));
        assert_eq!(data.contiguous(), b"ab");
        assert!(data.add(1, b"bcd"));
        assert!(!data.add(9, b"x"));
        assert!(!data.add(3, b"d"));
        assert_eq!(data.contiguous(), b"abcdef");
        assert_eq!(data.beyond_bytes, 1);
        data.add(9, b"xyz");
        assert!(data.add(6, b"ghi"));
        assert_eq!(data.contiguous(), b"abcdefghixyz");
        assert_eq!((data.beyond_bytes, data.beyond.len()), (0, 0));
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let mut data = CryptoData::default();
        for offset in 0..2 * MAX_CRYPTO_BYTES as u64 {
            assert_eq!(data.add(offset, b"a"), offset < MAX_CRYPTO_BYTES as u64);
        }
        assert_eq!(data.contiguous().len(), MAX_CRYPTO_BYTES);
        // Overlapping pieces, longer and longer, and offsets that are none.
        let mut data = CryptoData::default();
        data.add(1, b"bc");
        for round in 0..20_000usize {
            data.add(1 + round as u64 % 300, &vec![0; round * 7 % 40_000]);
            data.add(u64::MAX - round as u64, b"abc");
            assert!(data.beyond_bytes <= MAX_CRYPTO_BYTES && data.beyond.len() <= MAX_PIECES);
        }
        assert_eq!(data.beyond.values().map(Vec::len).sum::<usize>(), data.beyond_bytes);
        assert!(data.add(0, b"a") && data.contiguous().len() >= 3);
    }
}
