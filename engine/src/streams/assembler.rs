//! Puts received stream data in order.

use super::chunk::Chunk;
use super::pool::{BufferPool, OutOfMemory};
use super::ring::{Ring, copy};
use crate::range_set::RangeSet;

/// Why data could not be taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AssembleError {
    /// There are too many separate pieces.
    TooManyGaps,
    /// Memory could not be had.
    OutOfMemory,
}

impl From<OutOfMemory> for AssembleError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// Received data of a stream between what is read and the highest offset.
///
/// The bytes lie in one ring at their offset, so that memory depends on the highest offset, which
/// flow control bounds, and not on how many pieces the data came in. Data far ahead costs a page. A piece ahead of a gap
/// costs one range (RFC 9000, Section 21.7). In order, nothing but the ring is touched.
#[derive(Debug)]
pub(crate) struct Assembler {
    ring: Ring,
    /// All before it has been consumed.
    read: u64,
    /// All before it has been received.
    ready: u64,
    /// What was received beyond the first gap.
    ahead: RangeSet,
}

impl Assembler {
    /// An assembler that follows at most `max_pieces` pieces beyond the first gap.
    pub(crate) const fn new(max_pieces: usize) -> Self {
        Self { ring: Ring::new(), read: 0, ready: 0, ahead: RangeSet::new(max_pieces) }
    }

    /// Gives back memory of gaps.
    pub(crate) fn trim(&mut self) {
        self.ahead.trim();
    }

    /// How many bytes were consumed.
    pub(crate) fn consumed(&self) -> u64 {
        self.read
    }

    /// The offset up to which there is no gap.
    pub(crate) fn ready(&self) -> u64 {
        self.ready
    }

    /// True if there is something to read.
    pub(crate) fn is_readable(&self) -> bool {
        self.ready > self.read
    }

    /// How many separate pieces wait beyond the first gap.
    pub(crate) fn pieces_ahead(&self) -> usize {
        self.ahead.len()
    }

    /// How much memory the data takes.
    #[cfg(test)]
    pub(crate) fn allocated(&self) -> usize {
        self.ring.allocated()
    }

    /// Takes in `data` found at `offset`; true if there is more to read than before.
    ///
    /// The caller has checked that the data lies within the window.
    pub(crate) fn insert(
        &mut self,
        offset: u64,
        data: &[u8],
        pool: &mut BufferPool,
    ) -> Result<bool, AssembleError> {
        let end = offset.saturating_add(data.len() as u64);
        if end <= self.ready {
            return Ok(false);
        }
        let known = usize::try_from(self.ready.saturating_sub(offset)).unwrap_or(data.len());
        let data = data.get(known..).unwrap_or_default();
        if data.is_empty() {
            return Ok(false);
        }
        let start = offset.max(self.ready);
        let kept = self.ahead.max().map_or(self.ready, |last| last.saturating_add(1));
        self.ring.reserve(self.read..kept, start..end, pool)?;
        if start > self.ready {
            self.ahead.insert(start..end).map_err(|_| AssembleError::TooManyGaps)?;
            self.ring.write(start, data);
            return Ok(false);
        }
        self.ring.write(start, data);
        self.ready = end;
        while let Some(next) = self.ahead.first().filter(|next| next.start <= self.ready) {
            self.ready = self.ready.max(next.end);
            self.ahead.pop_first();
        }
        Ok(true)
    }

    /// The data that is ready, in one or two parts; there may be more behind them.
    pub(crate) fn peek(&self) -> (&[u8], &[u8]) {
        self.ring.slices(self.read, self.readable())
    }

    /// Copies ready data out; returns how much.
    pub(crate) fn read(&mut self, out: &mut [u8], pool: &mut BufferPool) -> usize {
        let len = self.readable().min(out.len());
        let (mut rest, _) = out.split_at_mut(len);
        let mut at = self.read;
        while !rest.is_empty() {
            let (part, _) = self.ring.slices(at, rest.len());
            if part.is_empty() {
                break;
            }
            let (to, behind) = rest.split_at_mut(part.len());
            copy(to, part);
            rest = behind;
            at = at.saturating_add(part.len() as u64);
        }
        self.consume(len, pool)
    }

    /// Takes ready data out, as much as lies in one page: in that page if nothing else is in there.
    pub(crate) fn take(&mut self, pool: &mut BufferPool) -> Result<Chunk, OutOfMemory> {
        let readable = self.readable();
        let chunk = self.ring.take(self.read, readable, self.ahead.is_empty(), pool)?;
        self.consume(chunk.len(), pool);
        Ok(chunk)
    }

    /// Drops up to `len` bytes of ready data; returns how many.
    pub(crate) fn consume(&mut self, len: usize, pool: &mut BufferPool) -> usize {
        let len = len.min(self.readable());
        let before = self.read;
        self.read = self.read.saturating_add(len as u64);
        if self.read == self.ready && self.ahead.is_empty() {
            self.ring.release(pool);
        } else {
            self.ring.release_before(before, self.read, pool);
        }
        len
    }

    /// Drops all data.
    pub(crate) fn discard(&mut self, pool: &mut BufferPool) {
        self.ahead.clear();
        self.read = self.ready;
        self.ring.release(pool);
    }

    /// How many bytes are ready.
    pub(crate) fn readable(&self) -> usize {
        usize::try_from(self.ready.saturating_sub(self.read)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::testing::XorShift;

    fn assembler() -> (Assembler, BufferPool) {
        (Assembler::new(100), BufferPool::new(1 << 20))
    }

    #[test]
    fn data_comes_out_in_order_whatever_order_it_came_in() {
        let (mut assembler, mut pool) = assembler();
        assert_eq!(assembler.insert(6, b"world", &mut pool), Ok(false));
        assert_eq!(assembler.insert(3, b"lo wor", &mut pool), Ok(false));
        assert_eq!(assembler.pieces_ahead(), 1);
        assert_eq!(assembler.insert(0, b"hell", &mut pool), Ok(true));
        let mut out = [0; 20];
        assert_eq!(assembler.read(&mut out, &mut pool), 11);
        assert_eq!(&out[..11], b"hello world");
        assert_eq!(assembler.insert(0, b"hello world", &mut pool), Ok(false));
    }

    #[test]
    fn memory_is_held_only_while_there_is_data() {
        let (mut assembler, _) = assembler();
        let mut pool = BufferPool::new(0);
        assembler.insert(0, b"abc", &mut pool).unwrap();
        assert!(assembler.ring.allocated() > 0);
        assembler.consume(3, &mut pool);
        assert_eq!(assembler.ring.allocated(), 0);
        assembler.insert(10, b"abc", &mut pool).unwrap();
        assembler.discard(&mut pool);
        assert_eq!((assembler.ring.allocated(), assembler.pieces_ahead()), (0, 0));
    }

    #[test]
    fn one_byte_pieces_cost_no_more_than_the_window() {
        let (mut assembler, mut pool) = assembler();
        let window = 64 * 1024;
        for at in (1..window).rev() {
            assembler.insert(at, &[at as u8], &mut pool).unwrap();
        }
        assert_eq!(assembler.pieces_ahead(), 1);
        assert_eq!(assembler.ring.allocated(), window as usize);
        assert_eq!(assembler.insert(0, &[0], &mut pool), Ok(true));
        assert_eq!(assembler.ready(), window);
    }

    #[test]
    fn a_byte_at_the_end_of_the_window_costs_a_page() {
        let (mut assembler, mut pool) = assembler();
        assembler.insert((1 << 20) - 1, &[1], &mut pool).unwrap();
        assert_eq!(assembler.ring.allocated(), 1 << 16);
    }

    #[test]
    fn pieces_beyond_the_limit_are_refused_without_harm() {
        let (mut assembler, mut pool) = assembler();
        for at in 0..100 {
            assembler.insert(1 + 2 * at, &[9], &mut pool).unwrap();
        }
        assert_eq!(assembler.insert(500, &[9], &mut pool), Err(AssembleError::TooManyGaps));
        assert_eq!(assembler.insert(2, &[9], &mut pool), Ok(false), "fills a gap");
        assert_eq!(assembler.insert(0, &[9], &mut pool), Ok(true));
        assert_eq!(assembler.ready(), 4);
    }

    #[test]
    fn behaves_as_a_plain_vector_under_random_pieces() {
        let mut rng = XorShift::new(3);
        for _ in 0..100 {
            let (mut assembler, mut pool) = (Assembler::new(10_000), BufferPool::new(1 << 14));
            let total = 1 + rng.below(9000);
            let data: Vec<u8> = (0..total).map(|_| rng.next() as u8).collect();
            let mut model: Vec<Option<u8>> = alloc::vec![None; data.len()];
            let mut read = 0;
            while read < data.len() {
                let start = (read as u64).saturating_sub(50) + rng.below(1500);
                let start = start.min(total - 1) as usize;
                let end = (start + 1 + rng.below(400) as usize).min(data.len());
                let ready_before = contiguous(&model);
                for at in start..end {
                    model[at] = Some(data[at]);
                }
                let grown = assembler.insert(start as u64, &data[start..end], &mut pool).unwrap();
                assert_eq!(grown, contiguous(&model) > ready_before);
                assert_eq!(assembler.ready(), contiguous(&model) as u64);
                let mut out = alloc::vec![0; rng.below(600) as usize];
                let len = assembler.read(&mut out, &mut pool);
                assert_eq!(len, out.len().min(contiguous(&model) - read));
                assert_eq!(out[..len], data[read..read + len]);
                read += len;
            }
        }
    }

    #[test]
    fn chunks_hold_what_was_put_together_whatever_comes_meanwhile() {
        let mut rng = XorShift::new(4);
        for round in 0..200 {
            let (mut assembler, mut pool) = (Assembler::new(10_000), BufferPool::new(1 << 20));
            let total = 1 + rng.below(if round % 4 == 0 { 400_000 } else { 9_000 });
            let data: Vec<u8> = (0..total).map(|_| rng.next() as u8).collect();
            let (mut sent, mut read) = (0, 0);
            let mut chunks = Vec::new();
            while read < data.len() {
                // Mostly in order, sometimes a piece ahead.
                let start =
                    sent + if rng.below(8) == 0 { 1 + rng.below(3_000) as usize } else { 0 };
                let start = start.min(data.len() - 1);
                let end = (start + 1 + rng.below(30_000) as usize).min(data.len());
                assembler.insert(start as u64, &data[start..end], &mut pool).unwrap();
                sent = assembler.ready() as usize;
                if rng.below(3) == 0 {
                    let chunk = assembler.take(&mut pool).unwrap();
                    let len = chunk.len();
                    chunks.push((chunk, read));
                    read += len;
                }
                if rng.below(4) == 0 {
                    for (mut chunk, mut at) in chunks.drain(..) {
                        while !chunk.is_empty() {
                            let len = chunk.bytes().len().min(1 + rng.below(5_000) as usize);
                            assert_eq!(chunk.bytes()[..len], data[at..at + len]);
                            chunk.advance(len);
                            at += len;
                        }
                        pool.give(chunk.into_buffer());
                    }
                }
            }
            chunks.into_iter().for_each(|(chunk, _)| pool.give(chunk.into_buffer()));
            assembler.discard(&mut pool);
            pool.trim();
            assert_eq!(pool.footprint(), 0, "each buffer has come back");
        }
    }

    #[test]
    fn a_chunk_is_copied_only_where_data_behind_a_gap_shares_its_page() {
        let (mut assembler, mut pool) = assembler();
        let page = 1 << 16;
        let data = alloc::vec![7; 3 * page];
        assembler.insert(0, &data, &mut pool).unwrap();
        let held = pool.footprint();
        for _ in 0..3 {
            let chunk = assembler.take(&mut pool).unwrap();
            assert_eq!((chunk.len(), pool.footprint()), (page, held), "no other buffer");
            pool.give(chunk.into_buffer());
        }
        let at = assembler.ready();
        assembler.insert(at, b"first", &mut pool).unwrap();
        assembler.insert(at + 10, b"ahead", &mut pool).unwrap();
        let held = pool.footprint();
        let chunk = assembler.take(&mut pool).unwrap();
        assert_eq!(chunk.bytes(), b"first");
        assert!(pool.footprint() >= held);
        assembler.insert(at + 5, b"later", &mut pool).unwrap();
        assert_eq!(chunk.bytes(), b"first");
        assert_eq!(assembler.take(&mut pool).unwrap().bytes(), b"laterahead");
    }

    fn contiguous(model: &[Option<u8>]) -> usize {
        model.iter().take_while(|byte| byte.is_some()).count()
    }
}
