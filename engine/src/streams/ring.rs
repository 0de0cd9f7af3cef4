//! A ring of bytes addressed by stream offset.

use alloc::vec::Vec;
use core::ops::Range;

use super::pool::{BufferPool, OutOfMemory};

/// The smallest buffer, in bytes.
const MIN_CAPACITY: usize = 1024;

/// Bytes of a stream around some offset, contiguous but for one wrap.
///
/// The byte at stream offset `n` lies at index `n` modulo the capacity, a power of two. Which
/// offsets hold data is for the owner to know; reading others gives old bytes, never a fault.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    bytes: Vec<u8>,
    /// The most that was needed at once since the buffer was taken.
    peak: usize,
    /// The peak of the time before: a stream that is filled and emptied again and again takes as
    /// much at once, instead of growing, and copying, step by step.
    usual: usize,
}

impl Ring {
    pub(crate) const fn new() -> Self {
        Self { bytes: Vec::new(), peak: 0, usual: 0 }
    }

    /// How many bytes are allocated.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Makes room for all offsets from `kept.start` to `end`; the bytes of `kept` survive.
    pub(crate) fn reserve(
        &mut self,
        kept: Range<u64>,
        end: u64,
        pool: &mut BufferPool,
    ) -> Result<(), OutOfMemory> {
        let needed = usize::try_from(end.saturating_sub(kept.start)).map_err(|_| OutOfMemory)?;
        self.peak = self.peak.max(needed);
        if needed <= self.bytes.len() {
            return Ok(());
        }
        let usual = if self.bytes.is_empty() { self.usual } else { 0 };
        let size = needed.max(usual).max(MIN_CAPACITY);
        let size = size.checked_next_power_of_two().ok_or(OutOfMemory)?;
        let mut grown = Self { bytes: pool.take(size)?, ..Self::new() };
        let len = usize::try_from(kept.end.saturating_sub(kept.start)).unwrap_or(0);
        let (first, second) = self.slices(kept.start, len);
        grown.write(kept.start, first);
        grown.write(kept.start.saturating_add(first.len() as u64), second);
        pool.give(core::mem::replace(&mut self.bytes, grown.bytes));
        Ok(())
    }

    /// Copies `data` to the offsets from `offset` on, for which there must be room.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        let at = self.index(offset);
        let (front, back) = self.bytes.split_at_mut(at);
        let (first, second) = data.split_at(data.len().min(back.len()));
        copy(back, first);
        copy(front, second);
    }

    /// The `len` bytes from `offset` on, for which there must be room.
    pub(crate) fn slices(&self, offset: u64, len: usize) -> (&[u8], &[u8]) {
        let (front, back) = self.bytes.split_at(self.index(offset));
        let in_back = len.min(back.len());
        let in_front = (len - in_back).min(front.len());
        (back.split_at(in_back).0, front.split_at(in_front).0)
    }

    /// Gives the memory back; the contents are gone.
    pub(crate) fn release(&mut self, pool: &mut BufferPool) {
        pool.give(core::mem::take(&mut self.bytes));
        self.usual = core::mem::take(&mut self.peak);
    }

    /// Where `offset` lies; always within the buffer or 0.
    fn index(&self, offset: u64) -> usize {
        let mask = self.bytes.len().saturating_sub(1);
        (offset as usize) & mask
    }
}

/// The longest piece that is copied at once. Beyond some 2 KB, C libraries copy with one string
/// instruction, which several AMD processors run six times slower than plain moves when source
/// and target are aligned differently, as stream data is.
const PIECE: usize = 2048;

/// Copies `from` to the start of `to`; what does not fit is left out.
pub(crate) fn copy(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.chunks_mut(PIECE).zip(from.chunks(PIECE)) {
        let len = to.len().min(from.len());
        let (to, _) = to.split_at_mut(len);
        to.copy_from_slice(from.split_at(len).0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(ring: &Ring, offset: u64, len: usize) -> Vec<u8> {
        let (a, b) = ring.slices(offset, len);
        [a, b].concat()
    }

    #[test]
    fn data_survives_wrap_and_growth() {
        let mut pool = BufferPool::new(1 << 20);
        let mut ring = Ring::new();
        let base = 1000;
        let data: Vec<u8> = (0..900u32).map(|n| n as u8).collect();
        ring.reserve(base..base, base + 900, &mut pool).unwrap();
        assert_eq!(ring.capacity(), 1024);
        ring.write(base, &data);
        assert_eq!(joined(&ring, base, 900), data);
        ring.reserve(base..base + 900, base + 1500, &mut pool).unwrap();
        assert_eq!(ring.capacity(), 2048);
        assert_eq!(joined(&ring, base, 900), data);
        assert_eq!(joined(&ring, base + 100, 5), data[100..105]);
    }

    #[test]
    fn an_emptied_ring_takes_at_once_what_it_needed_the_last_time() {
        let mut pool = BufferPool::new(1 << 20);
        let mut ring = Ring::new();
        ring.reserve(0..0, 1000, &mut pool).unwrap();
        ring.reserve(0..1000, 5000, &mut pool).unwrap();
        ring.release(&mut pool);
        ring.reserve(5000..5000, 5010, &mut pool).unwrap();
        assert_eq!(ring.capacity(), 8192);
        ring.release(&mut pool);
        ring.reserve(5010..5010, 5020, &mut pool).unwrap();
        assert_eq!(ring.capacity(), MIN_CAPACITY, "but no more than that");
    }

    #[test]
    fn long_and_short_copies_are_exact() {
        for (room, len) in [(0, 0), (1, 5), (5000, 4097), (4097, 5000), (2048, 2048)] {
            let from: Vec<u8> = (0..len).map(|n: usize| n as u8).collect();
            let mut to = alloc::vec![0xee; room];
            copy(&mut to, &from);
            let fits = room.min(len);
            assert_eq!(to[..fits], from[..fits]);
            assert!(to[fits..].iter().all(|&byte| byte == 0xee));
        }
    }

    #[test]
    fn an_empty_ring_has_nothing_and_tolerates_everything() {
        let mut pool = BufferPool::new(0);
        let mut ring = Ring::new();
        assert_eq!(joined(&ring, 77, 10), []);
        ring.write(77, b"lost");
        assert_eq!(ring.reserve(0..0, u64::MAX, &mut pool), Err(OutOfMemory));
        ring.release(&mut pool);
        assert_eq!(ring.capacity(), 0);
    }
}
