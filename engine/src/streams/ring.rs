//! A ring of bytes addressed by stream offset.

use alloc::vec::Vec;
use core::ops::Range;

use super::chunk::Chunk;
use super::pool::{BufferPool, MAX_BITS, MIN_BITS, OutOfMemory};

/// The smallest buffer, in bytes.
const MIN_CAPACITY: u64 = 1 << MIN_BITS;
/// The least that a buffer grows to, in bytes: whoever needs more than a packet or two fill
/// mostly needs much more, and each step of growth copies all there is. Not so without a stock of
/// buffers: handshakes hold a few KiB, and there may be many of them.
const GROWN_CAPACITY: u64 = 16 << 10;
/// The exponent of the largest page. Long transfers move through few pages, which are used again
/// while they are in the cache.
const PAGE_BITS: u32 = MAX_BITS;

/// The pages of a ring. A single one lies in the ring itself, so that a short stream allocates
/// nothing but what the pool has.
#[derive(Debug, Default)]
enum Pages {
    #[default]
    None,
    One(Vec<u8>),
    Many(Vec<Vec<u8>>),
}

impl Pages {
    /// `count` absent pages.
    fn new(count: usize) -> Result<Self, OutOfMemory> {
        match count {
            0 => Ok(Self::None),
            1 => Ok(Self::One(Vec::new())),
            _ => {
                let mut pages = Vec::new();
                pages.try_reserve_exact(count).map_err(|_| OutOfMemory)?;
                pages.resize_with(count, Vec::new);
                Ok(Self::Many(pages))
            }
        }
    }

    fn as_slice(&self) -> &[Vec<u8>] {
        match self {
            Self::None => &[],
            Self::One(page) => core::slice::from_ref(page),
            Self::Many(pages) => pages,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [Vec<u8>] {
        match self {
            Self::None => &mut [],
            Self::One(page) => core::slice::from_mut(page),
            Self::Many(pages) => pages,
        }
    }

    fn len(&self) -> usize {
        self.as_slice().len()
    }
}

/// Bytes of a stream around some offset, in pages of one size.
///
/// The byte at stream offset `n` lies at index `n` modulo the capacity, a power of two. Up to
/// 64 KiB there is one page, of that capacity. Beyond, pages are only where something was
/// written and not let go of yet. Which offsets hold data is for the owner to know; reading
/// others gives old bytes or none, never a fault.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    /// A power of two of them; those of a large ring may be absent (empty).
    pages: Pages,
    /// The exponent of the size of pages.
    page_bits: u32,
    /// The most that was needed at once since the buffer was taken.
    peak: u64,
    /// The peak of the time before: a stream that is filled and emptied again and again takes as
    /// much at once, instead of growing, and copying, step by step.
    usual: u64,
}

impl Ring {
    pub(crate) const fn new() -> Self {
        Self { pages: Pages::None, page_bits: 0, peak: 0, usual: 0 }
    }

    /// How many bytes are allocated.
    #[cfg(test)]
    pub(crate) fn allocated(&self) -> usize {
        self.pages.as_slice().iter().map(Vec::len).sum()
    }

    /// Makes room for the offsets `new`; the bytes at the offsets `kept` survive.
    pub(crate) fn reserve(
        &mut self,
        kept: Range<u64>,
        new: Range<u64>,
        pool: &mut BufferPool,
    ) -> Result<(), OutOfMemory> {
        let all = kept.start.min(new.start)..kept.end.max(new.end);
        self.peak = self.peak.max(len(&all));
        if self.has_room(&all, &new) { Ok(()) } else { self.make_room(kept, &all, &new, pool) }
    }

    /// True if, as mostly, the ring is large enough and the offsets `new` lie in a page that is
    /// there.
    #[inline]
    fn has_room(&self, all: &Range<u64>, new: &Range<u64>) -> bool {
        let pages = self.pages.as_slice();
        let block = new.start >> self.page_bits;
        block == new.end.saturating_sub(1) >> self.page_bits
            && pages.get(slot(block, pages.len())).is_some_and(|page| !page.is_empty())
            && covers(all, self.page_bits, pages.len())
    }

    #[inline(never)] // keeps the way of most packets short
    fn make_room(
        &mut self,
        kept: Range<u64>,
        all: &Range<u64>,
        new: &Range<u64>,
        pool: &mut BufferPool,
    ) -> Result<(), OutOfMemory> {
        if !covers(all, self.page_bits, self.pages.len()) {
            self.grow(kept, all, pool)?;
        }
        self.allocate(new, pool)
    }

    /// Makes the ring large enough for the offsets `all`.
    fn grow(
        &mut self,
        kept: Range<u64>,
        all: &Range<u64>,
        pool: &mut BufferPool,
    ) -> Result<(), OutOfMemory> {
        let is_first = matches!(self.pages, Pages::None);
        let least = match is_first {
            true => self.usual.max(MIN_CAPACITY),
            false if pool.keeps() => GROWN_CAPACITY,
            false => MIN_CAPACITY,
        };
        let size = len(all).max(least).checked_next_power_of_two();
        let size = size.ok_or(OutOfMemory)?;
        let page_bits = size.trailing_zeros().min(PAGE_BITS);
        let mut count = size >> page_bits;
        if count > 1 {
            // One page more than the size suggests if the range does not begin with one.
            count = count.max(len(&blocks(all, page_bits)).next_power_of_two());
        }
        let count = usize::try_from(count).map_err(|_| OutOfMemory)?;
        let pages = Pages::new(count)?;
        let mut grown = Self { pages, page_bits, peak: self.peak, usual: self.usual };
        self.hand_over(&kept, &mut grown, pool)?;
        self.release(pool);
        *self = grown;
        Ok(())
    }

    /// Moves the bytes at the offsets `kept` to a larger ring.
    fn hand_over(
        &mut self,
        kept: &Range<u64>,
        to: &mut Self,
        pool: &mut BufferPool,
    ) -> Result<(), OutOfMemory> {
        if self.pages.len() > 1 {
            for block in blocks(kept, self.page_bits) {
                if let (Some(old), Some(new)) = (self.page_mut(block), to.page_mut(block)) {
                    *new = core::mem::take(old);
                }
            }
            return Ok(());
        }
        to.allocate(kept, pool)?;
        let (first, second) = self.slices(kept.start, usize::try_from(len(kept)).unwrap_or(0));
        to.write(kept.start, first);
        to.write(kept.start.saturating_add(first.len() as u64), second);
        Ok(())
    }

    /// Sees to it that there are pages at the offsets `range`.
    fn allocate(&mut self, range: &Range<u64>, pool: &mut BufferPool) -> Result<(), OutOfMemory> {
        let size = 1 << self.page_bits;
        for block in blocks(range, self.page_bits) {
            if let Some(page) = self.page_mut(block).filter(|page| page.is_empty()) {
                *page = pool.take(size)?;
            }
        }
        Ok(())
    }

    /// Copies `data` to the offsets from `offset` on, for which there must be room.
    pub(crate) fn write(&mut self, mut offset: u64, mut data: &[u8]) {
        while !data.is_empty() {
            let at = self.index_in_page(offset);
            let Some(page) = self.page_mut(offset >> self.page_bits) else { return };
            let room = page.get_mut(at..).unwrap_or_default();
            let (first, rest) = data.split_at(data.len().min(room.len()));
            if first.is_empty() {
                return;
            }
            copy(room, first);
            offset = offset.saturating_add(first.len() as u64);
            data = rest;
        }
    }

    /// The `len` bytes from `offset` on, for which there must be room, or as many as lie in two
    /// pages.
    pub(crate) fn slices(&self, offset: u64, len: usize) -> (&[u8], &[u8]) {
        let first = self.part(offset, len);
        let second =
            self.part(offset.saturating_add(first.len() as u64), len.saturating_sub(first.len()));
        (first, second)
    }

    /// The `len` bytes from `offset` on, or as many as lie in one page.
    fn part(&self, offset: u64, len: usize) -> &[u8] {
        let pages = self.pages.as_slice();
        let page = pages.get(slot(offset >> self.page_bits, pages.len()));
        let rest = page.and_then(|page| page.get(self.index_in_page(offset)..));
        let rest = rest.unwrap_or_default();
        rest.get(..len).unwrap_or(rest)
    }

    /// Takes the `len` bytes from `offset` on out, or as many as lie in one page, which the caller lets
    /// go of then. In that page if nothing else is in it; else in a copy. `is_all`: no others are
    /// in the ring.
    pub(crate) fn take(
        &mut self,
        offset: u64,
        len: usize,
        is_all: bool,
        pool: &mut BufferPool,
    ) -> Result<Chunk, OutOfMemory> {
        let part = self.part(offset, len);
        if part.is_empty() {
            return Ok(Chunk::default());
        }
        let start = self.index_in_page(offset);
        let first = start..start.saturating_add(part.len());
        let is_single = self.pages.len() == 1;
        let fills_page = !is_single && first.end == 1 << self.page_bits;
        if fills_page || (is_all && (is_single || part.len() == len)) {
            // What is not at the end of a single page is at its start.
            let second = 0..if is_single { len.saturating_sub(part.len()) } else { 0 };
            let page = self.page_mut(offset >> self.page_bits).map(core::mem::take);
            return Ok(Chunk::new(page.unwrap_or_default(), first, second));
        }
        let size = part.len().checked_next_power_of_two().ok_or(OutOfMemory)?;
        let mut buffer = pool.take(size.max(1 << MIN_BITS))?;
        copy(&mut buffer, part);
        Ok(Chunk::new(buffer, 0..part.len(), 0..0))
    }

    /// Lets go of the pages before `end`; `start` is where the last call ended.
    pub(crate) fn release_before(&mut self, start: u64, end: u64, pool: &mut BufferPool) {
        if self.pages.len() > 1 {
            for block in (start >> self.page_bits)..(end >> self.page_bits) {
                if let Some(page) = self.page_mut(block) {
                    pool.give(core::mem::take(page));
                }
            }
        }
    }

    /// Gives the memory back; the contents are gone.
    pub(crate) fn release(&mut self, pool: &mut BufferPool) {
        match core::mem::take(&mut self.pages) {
            Pages::None => {}
            Pages::One(page) => pool.give(page),
            Pages::Many(pages) => pages.into_iter().for_each(|page| pool.give(page)),
        }
        self.usual = core::mem::take(&mut self.peak);
    }

    fn page_mut(&mut self, block: u64) -> Option<&mut Vec<u8>> {
        let pages = self.pages.as_mut_slice();
        let slot = slot(block, pages.len());
        pages.get_mut(slot)
    }

    /// Where `offset` lies in its page.
    fn index_in_page(&self, offset: u64) -> usize {
        (offset as usize) & !(usize::MAX << self.page_bits)
    }
}

fn len(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

/// True if each of these offsets has a place of its own in `count` pages.
fn covers(all: &Range<u64>, page_bits: u32, count: usize) -> bool {
    if count > 1 {
        len(&blocks(all, page_bits)) <= count as u64
    } else {
        len(all) <= (count as u64) << page_bits
    }
}

/// Where the page of a block lies among `count`, a power of two; always within them or 0.
fn slot(block: u64, count: usize) -> usize {
    (block as usize) & count.saturating_sub(1)
}

/// The numbers of the pages in which these offsets lie.
fn blocks(range: &Range<u64>, page_bits: u32) -> Range<u64> {
    let first = range.start >> page_bits;
    let last = range.end.saturating_sub(1) >> page_bits;
    first..if range.is_empty() { first } else { last.saturating_add(1) }
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
    use crate::testing::XorShift;

    const PAGE: u64 = 1 << PAGE_BITS;

    fn joined(ring: &Ring, offset: u64, len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while out.len() < len {
            let (a, b) = ring.slices(offset + out.len() as u64, len - out.len());
            if a.is_empty() {
                break;
            }
            out.extend([a, b].concat());
        }
        out
    }

    fn data(offset: u64, len: usize) -> Vec<u8> {
        (offset..).take(len).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect()
    }

    #[test]
    fn data_survives_wrap_and_growth() {
        let mut pool = BufferPool::new(1 << 20);
        let mut ring = Ring::new();
        let base = 1000;
        ring.reserve(base..base, base..base + 900, &mut pool).unwrap();
        assert_eq!(ring.allocated(), 1024);
        ring.write(base, &data(base, 900));
        assert_eq!(joined(&ring, base, 900), data(base, 900));
        ring.reserve(base..base + 900, base + 900..base + 1500, &mut pool).unwrap();
        assert_eq!(ring.allocated(), GROWN_CAPACITY as usize);
        assert_eq!(joined(&ring, base, 900), data(base, 900));
        assert_eq!(joined(&ring, base + 100, 5), data(base + 100, 5));
    }

    #[test]
    fn sixteen_kib_in_packets_take_two_buffers_and_come_out_as_they_went_in() {
        let mut pool = BufferPool::new(1 << 20);
        let mut ring = Ring::new();
        let (base, total) = (77, 16 << 10);
        let mut end = base;
        while end < base + total {
            let len = (base + total - end).min(1430);
            ring.reserve(base..end, end..end + len, &mut pool).unwrap();
            ring.write(end, &data(end, len as usize));
            end += len;
        }
        assert_eq!((ring.allocated(), pool.len()), (16 << 10, 1), "the one grown out of");
        assert_eq!(joined(&ring, base, total as usize), data(base, total as usize));
        ring.release(&mut pool);
        assert_eq!((ring.allocated(), pool.len()), (0, 2));
    }

    #[test]
    fn without_a_stock_of_buffers_growth_is_by_no_more_than_needed() {
        let mut pool = BufferPool::new(0);
        let mut ring = Ring::new();
        ring.reserve(0..0, 0..900, &mut pool).unwrap();
        ring.write(0, &data(0, 900));
        ring.reserve(0..900, 900..2500, &mut pool).unwrap();
        assert_eq!((ring.allocated(), joined(&ring, 0, 900)), (4096, data(0, 900)));
    }

    #[test]
    fn a_kib_takes_a_kib_each_time() {
        let mut pool = BufferPool::new(1 << 20);
        let mut ring = Ring::new();
        for at in [0, 1024, 2048] {
            ring.reserve(at..at, at..at + 1024, &mut pool).unwrap();
            assert_eq!(ring.allocated(), 1024);
            ring.release(&mut pool);
        }
        assert_eq!(pool.len(), 1);
    }

    #[test]
    fn a_long_transfer_moves_through_few_pages() {
        let mut pool = BufferPool::new(1 << 20);
        let mut ring = Ring::new();
        let (mut base, mut end) = (70_000, 70_000);
        for _ in 0..300 {
            ring.reserve(base..end, end..end + 50_000, &mut pool).unwrap();
            ring.write(end, &data(end, 50_000));
            end += 50_000;
            if end - base > 200_000 {
                assert_eq!(joined(&ring, base, 50_000), data(base, 50_000));
                ring.release_before(base, base + 50_000, &mut pool);
                base += 50_000;
            }
            assert!(ring.allocated() <= 6 << PAGE_BITS, "{}", ring.allocated());
        }
        assert!(pool.len() <= 6, "{}", pool.len());
    }

    #[test]
    fn pages_are_only_where_something_was_written() {
        let mut pool = BufferPool::new(0);
        let mut ring = Ring::new();
        let far = 10 * PAGE + 5;
        ring.reserve(3..3, far..far + 2, &mut pool).unwrap();
        ring.write(far, b"ab");
        assert_eq!(ring.allocated(), PAGE as usize);
        ring.reserve(3..far + 2, 3..8, &mut pool).unwrap();
        ring.write(3, b"begin");
        assert_eq!(ring.allocated(), 2 * PAGE as usize);
        assert_eq!((joined(&ring, 3, 5), joined(&ring, far, 2)), (b"begin".into(), b"ab".into()));
        assert_eq!(joined(&ring, PAGE, 5), [], "nothing was written there");
    }

    #[test]
    fn an_emptied_ring_takes_at_once_what_it_needed_the_last_time() {
        let mut pool = BufferPool::new(1 << 20);
        let mut ring = Ring::new();
        ring.reserve(0..0, 0..1000, &mut pool).unwrap();
        ring.reserve(0..1000, 1000..25_000, &mut pool).unwrap();
        ring.release(&mut pool);
        ring.reserve(25_000..25_000, 25_000..25_010, &mut pool).unwrap();
        assert_eq!(ring.allocated(), 32_768);
        ring.release(&mut pool);
        ring.reserve(25_010..25_010, 25_010..25_020, &mut pool).unwrap();
        assert_eq!(ring.allocated(), MIN_CAPACITY as usize, "but no more than that");
    }

    #[test]
    fn random_windows_hold_what_was_written() {
        let mut rng = XorShift::new(5);
        for _ in 0..30 {
            let (mut pool, mut ring) = (BufferPool::new(1 << 18), Ring::new());
            let most = 1 << (8 + rng.below(11));
            let mut base = rng.below(1 << 20);
            let mut end = base;
            for _ in 0..60 {
                let more = rng.below(most).min(most - (end - base).min(most));
                ring.reserve(base..end, end..end + more, &mut pool).unwrap();
                ring.write(end, &data(end, more as usize));
                end += more;
                let held = (end - base) as usize;
                assert_eq!(joined(&ring, base, held), data(base, held));
                let less = rng.below(end - base + 1);
                ring.release_before(base, base + less, &mut pool);
                base += less;
                if base == end && rng.chance(50) {
                    ring.release(&mut pool);
                }
            }
        }
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
        assert_eq!(joined(&ring, 77, 10), [0; 0]);
        ring.write(77, b"lost");
        assert_eq!(ring.reserve(0..0, 0..u64::MAX, &mut pool), Err(OutOfMemory));
        ring.release(&mut pool);
        assert_eq!(ring.allocated(), 0);
    }
}
