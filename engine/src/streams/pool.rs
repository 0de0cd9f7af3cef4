//! Buffers of closed and idle streams, kept for the next stream that needs one.

use alloc::vec::Vec;

use super::lent::Lent;

/// Memory could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfMemory;

/// The exponent of the smallest size that is kept, 1 KiB.
pub(crate) const MIN_BITS: u32 = 10;
/// The exponent of the largest, 64 KiB: about as much as one system call sends or receives.
pub(crate) const MAX_BITS: u32 = 16;

/// How many sizes there are.
const SIZES: usize = (MAX_BITS - MIN_BITS + 1) as usize;

/// What so many takes in a row did not need is freed. More than a burst of a thousand streams
/// takes, so that the next one finds what the last has left.
const SEASON: u32 = 8192;

/// The free buffers of one size.
#[derive(Debug)]
struct Shelf {
    free: Vec<Vec<u8>>,
    /// The fewest there were since the season began.
    low: usize,
}

/// A bounded stock of buffers whose sizes are powers of two.
///
/// Streams own a buffer only while they hold data, so that idle streams cost nothing and short
/// ones allocate nothing. A buffer is given out as it came back: whoever takes it reads only
/// what it has written.
///
/// A buffer is made only when none of its size is free. So the pool never keeps more than was
/// in use at once since it was trimmed.
#[derive(Debug)]
pub(crate) struct BufferPool {
    /// By size, the smallest first; none before the first buffer comes back.
    shelves: Vec<Shelf>,
    bytes: usize,
    /// The bytes of the buffers that are given out.
    out: usize,
    max_bytes: u32,
    /// How many were taken since the season began.
    taken: u32,
    /// Pieces that the application lends, which are memory of the connection until they are given back.
    loans: usize,
    /// Those that are to be given back. There is room for all.
    returned: Vec<Lent>,
}

impl BufferPool {
    /// A pool that keeps at most `max_bytes` bytes; 0 keeps nothing.
    pub(crate) const fn new(max_bytes: u32) -> Self {
        Self {
            shelves: Vec::new(),
            bytes: 0,
            out: 0,
            max_bytes,
            taken: 0,
            loans: 0,
            returned: Vec::new(),
        }
    }

    /// True if anything may be kept.
    pub(crate) fn keeps(&self) -> bool {
        self.max_bytes > 0
    }

    /// A buffer of exactly `size` bytes with whatever is in it.
    pub(crate) fn take(&mut self, size: usize) -> Result<Vec<u8>, OutOfMemory> {
        self.taken = self.taken.saturating_add(1);
        if self.taken >= SEASON {
            self.end_season();
        }
        if let Some(shelf) = shelf_of(size).and_then(|at| self.shelves.get_mut(at))
            && let Some(buffer) = shelf.free.pop()
        {
            shelf.low = shelf.low.min(shelf.free.len());
            self.bytes = self.bytes.saturating_sub(size);
            self.out = self.out.saturating_add(size);
            return Ok(buffer);
        }
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(size).map_err(|_| OutOfMemory)?;
        buffer.resize(size, 0);
        self.out = self.out.saturating_add(size);
        Ok(buffer)
    }

    /// Takes a buffer back, to keep or to free it.
    pub(crate) fn give(&mut self, buffer: Vec<u8>) {
        let size = buffer.len();
        self.out = self.out.saturating_sub(size);
        if size > (self.max_bytes as usize).saturating_sub(self.bytes) || !self.has_shelves() {
            return;
        }
        let Some(shelf) = shelf_of(size).and_then(|at| self.shelves.get_mut(at)) else { return };
        if shelf.free.try_reserve(1).is_ok() {
            self.bytes = self.bytes.saturating_add(size);
            shelf.free.push(buffer);
        }
    }

    /// Counts a piece that the application lends, of so many bytes.
    pub(super) fn begin_loan(&mut self, len: usize) -> Result<(), OutOfMemory> {
        let all = self.loans.saturating_add(1);
        self.returned.try_reserve(all).map_err(|_| OutOfMemory)?;
        self.loans = all;
        self.out = self.out.saturating_add(len);
        Ok(())
    }

    /// The piece was not kept.
    pub(super) fn cancel_loan(&mut self, len: usize) {
        self.loans = self.loans.saturating_sub(1);
        self.out = self.out.saturating_sub(len);
    }

    /// Nobody needs the piece any more.
    pub(super) fn end_loan(&mut self, lent: Lent) {
        self.cancel_loan(lent.len());
        self.returned.push(lent);
    }

    /// A piece to be given back.
    pub(crate) fn take_back(&mut self) -> Option<Lent> {
        self.returned.pop()
    }

    /// Makes the shelves if there are none; false without memory for them.
    fn has_shelves(&mut self) -> bool {
        if self.shelves.is_empty() && self.shelves.try_reserve_exact(SIZES).is_ok() {
            self.shelves.resize_with(SIZES, || Shelf { free: Vec::new(), low: 0 });
        }
        !self.shelves.is_empty()
    }

    /// Frees what was not needed for a whole season.
    fn end_season(&mut self) {
        self.taken = 0;
        for shelf in &mut self.shelves {
            for buffer in shelf.free.drain(..shelf.low.min(shelf.free.len())) {
                self.bytes = self.bytes.saturating_sub(buffer.len());
            }
            shelf.low = shelf.free.len();
        }
    }

    /// How many bytes there are, given out or kept.
    pub(crate) const fn footprint(&self) -> usize {
        self.out.saturating_add(self.bytes)
    }

    /// Keeps at most `max_bytes` bytes from now on.
    pub(crate) fn restrict(&mut self, max_bytes: u32) {
        self.max_bytes = max_bytes;
        if self.bytes > max_bytes as usize {
            self.trim();
        }
    }

    /// How many buffers are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shelves.iter().map(|shelf| shelf.free.len()).sum()
    }

    /// Frees all that is kept.
    pub(crate) fn trim(&mut self) {
        self.shelves = Vec::new();
        self.bytes = 0;
        self.taken = 0;
    }
}

/// Where buffers of `size` bytes are kept.
fn shelf_of(size: usize) -> Option<usize> {
    let at = size.trailing_zeros().checked_sub(MIN_BITS)?;
    (size.is_power_of_two() && at <= MAX_BITS - MIN_BITS).then_some(at as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;

    #[test]
    fn a_returned_buffer_serves_again_until_the_bound() {
        let mut pool = BufferPool::new(3000);
        let (mut a, b) = (pool.take(2048).unwrap(), pool.take(1024).unwrap());
        a[0] = 7;
        pool.give(a);
        pool.give(b);
        assert_eq!(pool.bytes, 2048, "the second would exceed 3000 bytes");
        assert_eq!(pool.take(1024).unwrap().len(), 1024);
        assert_eq!(pool.bytes, 2048);
        assert_eq!(pool.take(2048).unwrap()[0], 7);
        assert_eq!(pool.bytes, 0);
    }

    #[test]
    fn a_pool_without_bytes_keeps_nothing() {
        let mut pool = BufferPool::new(0);
        let buffer = pool.take(KIB).unwrap();
        pool.give(buffer);
        assert_eq!((pool.len(), pool.bytes, pool.shelves.capacity()), (0, 0, 0));
    }

    #[test]
    fn only_sizes_that_rings_ask_for_are_kept() {
        let mut pool = BufferPool::new(1 << 20);
        for size in [0, 8, 512, 1023, 1025, 3 * KIB, 128 * KIB] {
            let buffer = pool.take(size).unwrap();
            assert_eq!(buffer.len(), size);
            pool.give(buffer);
        }
        assert_eq!((pool.len(), pool.bytes), (0, 0));
        for bits in MIN_BITS..=MAX_BITS {
            let buffer = pool.take(1 << bits).unwrap();
            assert_eq!(buffer.len(), 1 << bits);
            pool.give(buffer);
        }
        assert_eq!((pool.len(), pool.bytes), (SIZES, 127 * KIB));
    }

    #[test]
    fn no_more_is_kept_than_was_in_use_at_once_and_trim_frees_it() {
        let mut pool = BufferPool::new(1 << 24);
        for _ in 0..5 {
            let mut out: Vec<_> = (0..1000).map(|_| pool.take(16 * KIB).unwrap()).collect();
            out.extend((0..10).map(|_| pool.take(KIB).unwrap()));
            out.drain(..).for_each(|buffer| pool.give(buffer));
            assert_eq!((pool.len(), pool.bytes), (1010, 16_010 * KIB));
        }
        pool.trim();
        assert_eq!((pool.len(), pool.bytes), (0, 0));
        assert_eq!(pool.shelves.capacity(), 0);
    }

    #[test]
    fn what_is_out_counts_with_what_is_kept() {
        let mut pool = BufferPool::new(1 << 20);
        let (a, b) = (pool.take(4 * KIB).unwrap(), pool.take(100).unwrap());
        assert_eq!(pool.footprint(), 4 * KIB + 100);
        pool.give(b);
        assert_eq!(pool.footprint(), 4 * KIB, "odd sizes are not kept");
        pool.give(a);
        assert_eq!(pool.footprint(), 4 * KIB, "kept");
        let held = pool.take(KIB).unwrap();
        pool.restrict(KIB as u32);
        assert_eq!(pool.footprint(), KIB, "what is out stays, what is kept goes");
        pool.give(held);
        assert_eq!(pool.footprint(), KIB);
    }

    #[test]
    fn what_is_not_needed_any_more_is_freed_while_what_is_stays() {
        let mut pool = BufferPool::new(1 << 24);
        let burst: Vec<_> = (0..100).map(|_| pool.take(16 * KIB).unwrap()).collect();
        burst.into_iter().for_each(|buffer| pool.give(buffer));
        // The season of the burst, in which all were needed, and one in which three are.
        for _ in 0..SEASON {
            let few: Vec<_> = (0..3).map(|_| pool.take(16 * KIB).unwrap()).collect();
            few.into_iter().for_each(|buffer| pool.give(buffer));
        }
        assert_eq!((pool.len(), pool.bytes), (3, 48 * KIB));
    }
}
