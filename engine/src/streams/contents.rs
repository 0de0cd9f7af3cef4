//! The bytes that a stream has to send, by offset: copies, and what the application lends.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::ops::Range;

use super::lent::Lent;
use super::pool::{BufferPool, OutOfMemory};
use super::ring::Ring;

/// How many pieces a stream has at most, lent ones and the copies between them. More are lent once some are let go of.
const MAX_PIECES: usize = 1024;

/// Which offsets hold anything is for the owner to know, as with a [`Ring`].
#[derive(Debug)]
pub(super) struct Contents {
    ring: Ring,
    /// None as long as all are copies: then each lies in the ring at its own offset.
    mixed: Option<Box<Mixed>>,
}

/// Copies and lent bytes in turn.
#[derive(Debug)]
struct Mixed {
    /// In order, each up to where the next one starts. The last one ends where the owner says.
    pieces: VecDeque<Piece>,
    /// What of the ring holds something. Copies lie there without gaps between them.
    copied: Range<u64>,
}

#[derive(Debug)]
struct Piece {
    start: u64,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// From this offset of the ring on.
    Ring(u64),
    Lent(Lent),
}

impl Contents {
    pub(super) const fn new() -> Self {
        Self { ring: Ring::new(), mixed: None }
    }

    /// How many bytes of memory of its own there are.
    #[cfg(test)]
    pub(super) fn allocated(&self) -> usize {
        self.ring.allocated()
    }

    /// The first offset that takes memory, if all before `base` has been let go of: a lent piece does as a whole.
    pub(super) fn kept_from(&self, base: u64) -> u64 {
        let first = self.mixed.as_ref().and_then(|mixed| mixed.pieces.front());
        match first {
            Some(Piece { start, place: Place::Lent(_) }) => base.min(*start),
            _ => base,
        }
    }

    /// True if no further piece may be lent until some are let go of.
    pub(super) fn is_full(&self) -> bool {
        self.mixed.as_ref().is_some_and(|mixed| mixed.pieces.len() >= MAX_PIECES)
    }

    /// True if [`Self::slices`] may end where there is more.
    pub(super) const fn is_mixed(&self) -> bool {
        self.mixed.is_some()
    }

    /// Copies `data` in behind `held`.
    pub(super) fn write(
        &mut self,
        held: Range<u64>,
        data: &[u8],
        pool: &mut BufferPool,
    ) -> Result<(), OutOfMemory> {
        let (kept, at) = match &mut self.mixed {
            None => (held.clone(), held.end),
            Some(mixed) => (mixed.copied.clone(), mixed.copied.end),
        };
        let end = at.checked_add(data.len() as u64).ok_or(OutOfMemory)?;
        self.ring.reserve(kept, at..end, pool)?;
        if let Some(mixed) = &mut self.mixed {
            if !matches!(mixed.pieces.back(), Some(Piece { place: Place::Ring(_), .. })) {
                mixed.reserve_one()?;
                mixed.pieces.push_back(Piece { start: held.end, place: Place::Ring(at) });
            }
            mixed.copied.end = end;
        }
        self.ring.write(at, data);
        Ok(())
    }

    /// Takes `data` in behind `held`, to be given back by the pool.
    pub(super) fn lend(
        &mut self,
        held: Range<u64>,
        data: Lent,
        pool: &mut BufferPool,
    ) -> Result<(), (OutOfMemory, Lent)> {
        if pool.begin_loan(data.len()).is_err() {
            return Err((OutOfMemory, data));
        }
        if data.is_empty() {
            pool.end_loan(data);
            return Ok(());
        }
        match self.mixed(&held).and_then(|mixed| mixed.reserve_one().map(|()| mixed)) {
            Ok(mixed) => {
                mixed.pieces.push_back(Piece { start: held.end, place: Place::Lent(data) })
            }
            Err(OutOfMemory) => {
                pool.cancel_loan(data.len());
                return Err((OutOfMemory, data));
            }
        }
        Ok(())
    }

    fn mixed(&mut self, held: &Range<u64>) -> Result<&mut Mixed, OutOfMemory> {
        let mixed = match self.mixed.take() {
            Some(mixed) => mixed,
            None => Box::new(Mixed::new(held)?),
        };
        Ok(self.mixed.insert(mixed))
    }

    /// The bytes of `range`, or as many as lie in two pieces.
    pub(super) fn slices(&self, range: Range<u64>) -> (&[u8], &[u8]) {
        match &self.mixed {
            None => self.ring.slices(range.start, length(&range)),
            Some(mixed) => mixed.slices(&self.ring, range),
        }
    }

    /// Lets go of what is before `end`; `start` is where the last call ended.
    pub(super) fn release_before(&mut self, start: u64, end: u64, pool: &mut BufferPool) {
        match &mut self.mixed {
            None => self.ring.release_before(start, end, pool),
            Some(mixed) => {
                let before = mixed.copied.start;
                mixed.release_before(end, pool);
                self.ring.release_before(before, mixed.copied.start, pool);
            }
        }
    }

    /// Lets go of everything.
    pub(super) fn release(&mut self, pool: &mut BufferPool) {
        if let Some(mixed) = self.mixed.take() {
            mixed.pieces.into_iter().for_each(|piece| piece.release(pool));
        }
        self.ring.release(pool);
    }
}

impl Mixed {
    /// `held` are copies at their own offsets.
    fn new(held: &Range<u64>) -> Result<Self, OutOfMemory> {
        let mut mixed = Self { pieces: VecDeque::new(), copied: held.clone() };
        if !held.is_empty() {
            mixed.reserve_one()?;
            mixed.pieces.push_back(Piece { start: held.start, place: Place::Ring(held.start) });
        }
        Ok(mixed)
    }

    fn reserve_one(&mut self) -> Result<(), OutOfMemory> {
        self.pieces.try_reserve(1).map_err(|_| OutOfMemory)
    }

    fn slices<'a>(&'a self, ring: &'a Ring, range: Range<u64>) -> (&'a [u8], &'a [u8]) {
        let behind = self.pieces.partition_point(|piece| piece.start <= range.start);
        let at = behind.saturating_sub(1);
        let first = self.of_piece(ring, at, range.clone());
        let start = range.start.saturating_add(first.0.len() as u64);
        match self.pieces.get(behind) {
            Some(next) if first.1.is_empty() && next.start == start && start < range.end => {
                (first.0, self.of_piece(ring, behind, start..range.end).0)
            }
            _ => first,
        }
    }

    /// What of `range`, which starts within a piece, the piece has.
    fn of_piece<'a>(
        &'a self,
        ring: &'a Ring,
        at: usize,
        range: Range<u64>,
    ) -> (&'a [u8], &'a [u8]) {
        let next = self.pieces.get(at.saturating_add(1));
        let range = range.start..next.map_or(range.end, |next| range.end.min(next.start));
        let Some(piece) = self.pieces.get(at) else { return (&[], &[]) };
        let from = range.start.saturating_sub(piece.start);
        match &piece.place {
            Place::Ring(place) => ring.slices(place.saturating_add(from), length(&range)),
            Place::Lent(lent) => {
                let from = usize::try_from(from).unwrap_or(usize::MAX);
                let end = from.saturating_add(length(&range)).min(lent.len());
                (lent.get(from.min(end)..end), &[])
            }
        }
    }

    fn release_before(&mut self, end: u64, pool: &mut BufferPool) {
        while self.pieces.get(1).is_some_and(|next| next.start <= end) {
            if let Some(piece) = self.pieces.pop_front() {
                piece.release(pool);
            }
        }
        if self.copied.is_empty() {
            return;
        }
        let first_copy = self.pieces.iter().find_map(|piece| match piece.place {
            Place::Ring(place) => Some(place.saturating_add(end.saturating_sub(piece.start))),
            Place::Lent(_) => None,
        });
        self.copied.start = first_copy.unwrap_or(self.copied.end).min(self.copied.end);
    }
}

impl Piece {
    fn release(self, pool: &mut BufferPool) {
        if let Place::Lent(lent) = self.place {
            pool.end_loan(lent);
        }
    }
}

fn length(range: &Range<u64>) -> usize {
    usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use alloc::vec;
    use alloc::vec::Vec;
    use core::sync::atomic::AtomicUsize;
    use core::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::testing::XorShift;

    fn bytes(offset: u64, len: usize) -> Vec<u8> {
        (offset..).take(len).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect()
    }

    fn read(contents: &Contents, range: Range<u64>) -> Vec<u8> {
        let mut out = Vec::new();
        while out.len() < length(&range) {
            let (a, b) = contents.slices(range.start + out.len() as u64..range.end);
            assert!(!a.is_empty(), "at {} of {range:?}", out.len());
            out.extend([a, b].concat());
        }
        out
    }

    #[test]
    fn copies_around_what_is_lent_lie_beside_each_other() {
        let mut pool = BufferPool::new(1 << 20);
        let mut contents = Contents::new();
        let mut end = 5000;
        let base = end;
        for _ in 0..20 {
            contents.write(base..end, &bytes(end, 5), &mut pool).unwrap();
            end += 5;
            contents.lend(base..end, Lent::new(bytes(end, 100_000)), &mut pool).unwrap();
            end += 100_000;
        }
        assert_eq!(contents.allocated(), 1024, "a hundred bytes in one page");
        assert_eq!(read(&contents, base..end), bytes(base, (end - base) as usize));
        assert_eq!(pool.footprint(), 20 * 100_000 + 1024);
        contents.release_before(base, base + 100_004, &mut pool);
        assert!(pool.take_back().is_none(), "a byte of it is left");
        contents.release_before(base + 100_004, base + 200_010, &mut pool);
        let returned: Vec<_> = core::iter::from_fn(|| pool.take_back()).collect();
        assert_eq!(returned.len(), 2);
        contents.release(&mut pool);
        assert_eq!(core::iter::from_fn(|| pool.take_back()).count(), 18);
        assert_eq!(pool.footprint(), 1024, "which the pool keeps");
        assert!(!contents.is_mixed());
    }

    #[test]
    fn zeros_are_sent_where_an_owner_shows_less_than_at_first() {
        struct Fickle(Arc<AtomicUsize>);
        impl AsRef<[u8]> for Fickle {
            fn as_ref(&self) -> &[u8] {
                &[7; 5000][..self.0.load(Relaxed)]
            }
        }
        let len = Arc::new(AtomicUsize::new(5000));
        let mut pool = BufferPool::new(0);
        let mut contents = Contents::new();
        contents.lend(0..0, Lent::new(Fickle(Arc::clone(&len))), &mut pool).unwrap();
        contents.write(0..5000, &[9; 10], &mut pool).unwrap();
        assert_eq!(read(&contents, 4990..5010), [[7; 10], [9; 10]].concat());
        len.store(20, Relaxed);
        let expected = [vec![7; 10], vec![0; 4980], vec![9; 10]].concat();
        assert_eq!([read(&contents, 10..20), read(&contents, 20..5010)].concat(), expected);
        contents.release(&mut pool);
        assert!(pool.take_back().is_some());
    }

    #[test]
    fn a_lent_piece_is_kept_as_a_whole() {
        let mut pool = BufferPool::new(0);
        let mut contents = Contents::new();
        contents.write(0..0, &[1; 10], &mut pool).unwrap();
        contents.lend(0..10, Lent::new(vec![2; 5000]), &mut pool).unwrap();
        contents.write(0..5010, &[3; 10], &mut pool).unwrap();
        let mut at = 0;
        for (base, kept) in [(5, 5), (10, 10), (11, 10), (5009, 10), (5010, 5010), (5015, 5015)] {
            contents.release_before(at, base, &mut pool);
            assert_eq!(contents.kept_from(base), kept, "{base}");
            assert_eq!(pool.take_back().is_some(), base == 5010);
            at = base;
        }
    }

    #[test]
    fn random_turns_of_both_hold_what_was_put_in() {
        let mut rng = XorShift::new(7);
        for _ in 0..60 {
            let (mut pool, mut contents) = (BufferPool::new(1 << 18), Contents::new());
            let most = 1 << (4 + rng.below(13));
            let mut base = rng.below(1 << 20);
            let mut end = base;
            let (mut lent, mut back) = (0, 0);
            for _ in 0..80 {
                let len = rng.below(most) as usize;
                if rng.chance(40) {
                    lent += 1;
                    contents.lend(base..end, Lent::new(bytes(end, len)), &mut pool).unwrap();
                } else {
                    contents.write(base..end, &bytes(end, len), &mut pool).unwrap();
                }
                end += len as u64;
                let from = base + rng.below(end - base + 1);
                let to = from + rng.below(end - from + 1);
                assert_eq!(read(&contents, from..to), bytes(from, (to - from) as usize));
                let less = rng.below(end - base + 1);
                if rng.chance(60) {
                    contents.release_before(base, base + less, &mut pool);
                    base += less;
                }
                if base == end {
                    contents.release(&mut pool);
                }
                back += core::iter::from_fn(|| pool.take_back()).count();
            }
            contents.release(&mut pool);
            back += core::iter::from_fn(|| pool.take_back()).count();
            assert_eq!(back, lent, "each is given back once");
        }
    }
}
