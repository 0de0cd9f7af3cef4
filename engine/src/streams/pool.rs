//! Buffers of closed and idle streams, kept for the next stream that needs one.

use alloc::vec::Vec;

/// Memory could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfMemory;

/// The most buffers that a pool keeps, whatever their size.
const MAX_BUFFERS: usize = 64;

/// A bounded stock of buffers whose sizes are powers of two.
///
/// Streams own a buffer only while they hold data, so that idle streams cost nothing and short
/// ones allocate nothing. A buffer is given out as it came back: whoever takes it reads only
/// what it has written.
#[derive(Debug)]
pub(crate) struct BufferPool {
    free: Vec<Vec<u8>>,
    bytes: usize,
    max_bytes: usize,
}

impl BufferPool {
    /// A pool that keeps at most `max_bytes` bytes; 0 keeps nothing.
    pub(crate) const fn new(max_bytes: usize) -> Self {
        Self { free: Vec::new(), bytes: 0, max_bytes }
    }

    /// A buffer of exactly `size` bytes with whatever is in it.
    pub(crate) fn take(&mut self, size: usize) -> Result<Vec<u8>, OutOfMemory> {
        if let Some(at) = self.free.iter().rposition(|buffer| buffer.len() == size) {
            self.bytes = self.bytes.saturating_sub(size);
            return Ok(self.free.swap_remove(at));
        }
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(size).map_err(|_| OutOfMemory)?;
        buffer.resize(size, 0);
        Ok(buffer)
    }

    /// Takes a buffer back, to keep or to free it.
    pub(crate) fn give(&mut self, buffer: Vec<u8>) {
        let fits = buffer.len() <= self.max_bytes.saturating_sub(self.bytes);
        if buffer.is_empty() || !fits || self.free.len() >= MAX_BUFFERS {
            return;
        }
        if self.free.try_reserve(1).is_ok() {
            self.bytes = self.bytes.saturating_add(buffer.len());
            self.free.push(buffer);
        }
    }

    /// How many buffers are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.free.len()
    }

    /// Frees all that is kept.
    pub(crate) fn trim(&mut self) {
        self.free = Vec::new();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn the_number_of_kept_buffers_is_bounded_and_trim_frees_them() {
        let mut pool = BufferPool::new(usize::MAX);
        for _ in 0..2 * MAX_BUFFERS {
            pool.give(alloc::vec![0; 8]);
        }
        assert_eq!(pool.free.len(), MAX_BUFFERS);
        pool.trim();
        assert_eq!((pool.free.capacity(), pool.bytes), (0, 0));
    }
}
