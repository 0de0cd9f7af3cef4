//! What a stream has to send, from the application's write to the peer's acknowledgment.

use core::ops::Range;

use super::contents::Contents;
use super::lent::Lent;
use super::pool::{BufferPool, OutOfMemory};
use crate::range_set::RangeSet;

/// How many separate ranges of acknowledged and of lost data are followed. Beyond it precision
/// goes, never data: some bytes are sent once more than needed.
const MAX_RANGES: usize = 1024;

/// The unacknowledged and unsent bytes of a stream.
///
/// Offsets fall into `0 .. base` (acknowledged without gaps and forgotten), `base .. next`
/// (sent; some of it acknowledged, some lost) and `next .. end` (not sent yet).
#[derive(Debug)]
pub(crate) struct SendBuffer {
    contents: Contents,
    base: u64,
    /// Up to where it has been said that bytes are no longer held: before `base` where a lent piece is kept as a whole.
    kept: u64,
    next: u64,
    end: u64,
    acked: RangeSet,
    lost: RangeSet,
}

impl SendBuffer {
    pub(crate) const fn new() -> Self {
        Self {
            contents: Contents::new(),
            base: 0,
            kept: 0,
            next: 0,
            end: 0,
            acked: RangeSet::new(MAX_RANGES),
            lost: RangeSet::new(MAX_RANGES),
        }
    }

    /// Gives back memory of data that was lost, or acknowledged out of order.
    pub(crate) fn trim(&mut self) {
        self.acked.trim();
        self.lost.trim();
    }

    /// How many bytes are held: written and not yet acknowledged from the start on, and the rest of a lent piece.
    pub(crate) fn held(&self) -> usize {
        usize::try_from(self.end.saturating_sub(self.kept)).unwrap_or(usize::MAX)
    }

    /// How many bytes are written and not yet acknowledged from the start on.
    pub(crate) fn unacked(&self) -> usize {
        usize::try_from(self.end.saturating_sub(self.base)).unwrap_or(usize::MAX)
    }

    /// The first offset that was never sent.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The offset behind the last written byte.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// True once every written byte is acknowledged.
    pub(crate) fn is_all_acked(&self) -> bool {
        self.base == self.end
    }

    /// Bytes that were never sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.end.saturating_sub(self.next)
    }

    /// The first bytes to send again.
    pub(crate) fn first_lost(&self) -> Option<Range<u64>> {
        self.lost.first()
    }

    /// Copies `data` in behind what is there. The caller has checked its limits.
    pub(crate) fn write(&mut self, data: &[u8], pool: &mut BufferPool) -> Result<(), OutOfMemory> {
        let end = self.end.checked_add(data.len() as u64).ok_or(OutOfMemory)?;
        self.lost.reserve_one().map_err(|_| OutOfMemory)?;
        self.contents.write(self.base..self.end, data, pool)?;
        self.end = end;
        Ok(())
    }

    /// Takes `data` in behind what is there, without a copy. The caller has checked its limits.
    pub(crate) fn lend(
        &mut self,
        data: Lent,
        pool: &mut BufferPool,
    ) -> Result<(), (OutOfMemory, Lent)> {
        let Some(end) = self.end.checked_add(data.len() as u64) else {
            return Err((OutOfMemory, data));
        };
        if self.lost.reserve_one().is_err() {
            return Err((OutOfMemory, data));
        }
        self.contents.lend(self.base..self.end, data, pool)?;
        self.end = end;
        Ok(())
    }

    /// The bytes of `range`, which must lie within what is held, or as many as lie in two pieces.
    pub(crate) fn slices(&self, range: Range<u64>) -> (&[u8], &[u8]) {
        self.contents.slices(range)
    }

    /// True if nothing may be lent now.
    pub(crate) fn is_full(&self) -> bool {
        self.contents.is_full()
    }

    /// Lets go of what is lent, and of what lies between: nothing is sent any more.
    pub(crate) fn end_loans(&mut self, pool: &mut BufferPool) {
        if self.contents.is_mixed() {
            self.contents.release(pool);
        }
    }

    /// What of `range` lies in two pieces, where pieces may be short.
    pub(crate) fn within_reach(&self, range: Range<u64>) -> Range<u64> {
        if !self.contents.is_mixed() {
            return range;
        }
        let (first, second) = self.slices(range.clone());
        let len = first.len().saturating_add(second.len());
        range.start..range.start.saturating_add(len as u64)
    }

    /// Notes that `range` is on its way: the start of the lost or of the unsent bytes.
    pub(crate) fn on_sent(&mut self, range: Range<u64>) {
        if range.start == self.next {
            self.next = range.end.min(self.end);
        } else if self.lost.remove(range).is_err() {
            // It stays marked as lost and is sent once more.
        }
    }

    /// Notes that the peer has `range`; returns how many bytes are no longer held.
    pub(crate) fn on_acked(&mut self, range: Range<u64>, pool: &mut BufferPool) -> usize {
        let range = range.start.max(self.base)..range.end.min(self.next);
        if range.is_empty() {
            return 0;
        }
        if !self.lost.is_empty() && self.lost.remove(range.clone()).is_err() {
            // It stays marked as lost and is sent once more.
        }
        if range.start > self.base {
            if self.acked.insert(range.clone()).is_err() {
                // Nobody will report these bytes again unless they are sent again.
                self.mark_lost(range);
            }
            return 0;
        }
        let before = self.base;
        self.base = range.end;
        while let Some(first) = self.acked.first().filter(|first| first.start <= self.base) {
            self.base = self.base.max(first.end);
            self.acked.pop_first();
        }
        if self.is_all_acked() {
            self.contents.release(pool);
        } else {
            self.contents.release_before(before, self.base, pool);
        }
        let kept = core::mem::replace(&mut self.kept, self.contents.kept_from(self.base));
        usize::try_from(self.kept.saturating_sub(kept)).unwrap_or(usize::MAX)
    }

    /// Notes that a packet with `range` is lost: what of it is not acknowledged is sent again.
    pub(crate) fn on_lost(&mut self, range: Range<u64>) {
        let mut at = range.start.max(self.base);
        let end = range.end.min(self.next);
        while at < end {
            let Some(gap) = self.acked.gaps_in(at..end).next() else { return };
            at = gap.end;
            self.mark_lost(gap);
        }
    }

    /// Forgets that anything was sent. Only for data of which nothing was acknowledged.
    pub(crate) fn rewind(&mut self) {
        self.acked.clear();
        // Keeps the memory that `write` has reserved for the first lost range.
        while self.lost.pop_first().is_some() {}
        self.next = self.base;
    }

    /// Throws all data away; returns how many bytes are no longer held.
    pub(crate) fn discard(&mut self, pool: &mut BufferPool) -> usize {
        let held = self.held();
        self.acked.clear();
        self.lost.clear();
        self.base = self.end;
        self.kept = self.end;
        self.next = self.end;
        self.contents.release(pool);
        held
    }

    fn mark_lost(&mut self, range: Range<u64>) {
        // `write` has reserved the memory of one range, so this cannot fail.
        let marked = self.lost.insert_widening(range);
        debug_assert!(marked.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::testing::XorShift;

    fn filled(len: usize, pool: &mut BufferPool) -> SendBuffer {
        let mut buffer = SendBuffer::new();
        let data: Vec<u8> = (0..len).map(|n| n as u8).collect();
        buffer.write(&data, pool).unwrap();
        buffer
    }

    #[test]
    fn the_head_advances_over_data_acknowledged_out_of_order() {
        let mut pool = BufferPool::new(0);
        let mut buffer = filled(300, &mut pool);
        buffer.on_sent(0..300);
        assert_eq!(buffer.on_acked(200..300, &mut pool), 0);
        assert_eq!(buffer.on_acked(100..200, &mut pool), 0);
        assert_eq!(buffer.held(), 300);
        assert_eq!(buffer.on_acked(0..100, &mut pool), 300);
        assert!(buffer.is_all_acked());
        assert_eq!(buffer.contents.allocated(), 0, "nothing held, nothing allocated");
    }

    #[test]
    fn only_what_is_not_acknowledged_is_sent_again() {
        let mut pool = BufferPool::new(0);
        let mut buffer = filled(300, &mut pool);
        buffer.on_sent(0..300);
        buffer.on_acked(100..200, &mut pool);
        buffer.on_lost(0..300);
        assert_eq!(buffer.first_lost(), Some(0..100));
        buffer.on_sent(0..100);
        assert_eq!(buffer.first_lost(), Some(200..300));
        buffer.on_acked(200..300, &mut pool);
        assert_eq!(buffer.first_lost(), None, "a late acknowledgment spares the repetition");
    }

    #[test]
    fn with_too_many_acknowledged_ranges_data_is_repeated_but_never_lost() {
        let mut pool = BufferPool::new(0);
        let total = 4 * MAX_RANGES as u64;
        let mut buffer = filled(total as usize, &mut pool);
        buffer.on_sent(0..total);
        for odd in (1..total).step_by(2) {
            buffer.on_acked(odd..odd + 1, &mut pool);
        }
        assert_eq!(buffer.acked.len(), MAX_RANGES);
        assert!(buffer.lost.len() <= MAX_RANGES);
        for even in (0..total).step_by(2) {
            buffer.on_lost(even..even + 1);
        }
        assert!(buffer.lost.len() <= MAX_RANGES);
        while let Some(range) = buffer.first_lost() {
            buffer.on_sent(range.clone());
            buffer.on_acked(range, &mut pool);
        }
        assert!(buffer.is_all_acked());
    }

    #[test]
    fn a_rewound_buffer_sends_everything_anew() {
        let mut pool = BufferPool::new(0);
        let mut buffer = filled(50, &mut pool);
        buffer.on_sent(0..30);
        buffer.on_lost(0..10);
        buffer.rewind();
        buffer.on_lost(0..30);
        assert_eq!((buffer.first_lost(), buffer.unsent()), (None, 50));
    }

    #[test]
    fn random_fates_of_packets_deliver_every_byte_exactly() {
        let mut rng = XorShift::new(11);
        for _ in 0..60 {
            one_random_transfer(&mut rng);
        }
    }

    /// Writes, sends, loses, repeats and acknowledges at random until all is acknowledged, and
    /// compares with what a receiver got.
    fn one_random_transfer(rng: &mut XorShift) {
        let mut pool = BufferPool::new(1 << 16);
        let mut buffer = SendBuffer::new();
        let data: Vec<u8> = (0..rng.below(20_000)).map(|_| rng.next() as u8).collect();
        let mut got: Vec<Option<u8>> = alloc::vec![None; data.len()];
        let (mut written, mut freed, mut lent) = (0, 0, 0);
        let mut flying: Vec<Range<u64>> = Vec::new();
        while freed < data.len() {
            let n = (rng.below(3000) as usize).min(data.len() - written).min(8192 - buffer.held());
            let piece = &data[written..written + n];
            match rng.chance(40) {
                true => {
                    lent += 1;
                    buffer.lend(Lent::new(piece.to_vec()), &mut pool).unwrap();
                }
                false => buffer.write(piece, &mut pool).unwrap(),
            }
            written += n;
            for _ in 0..rng.below(6) {
                let lost = buffer.first_lost();
                let all = lost.unwrap_or(buffer.next()..buffer.end());
                let len = (all.end - all.start).min(1 + rng.below(1200));
                if len > 0 {
                    let range = buffer.within_reach(all.start..all.start + len);
                    let (a, b) = buffer.slices(range.clone());
                    let bytes = [a, b].concat();
                    assert_eq!(bytes, data[range.start as usize..range.end as usize]);
                    buffer.on_sent(range.clone());
                    flying.push(range);
                }
            }
            while !flying.is_empty() && rng.chance(70) {
                let range = flying.swap_remove(rng.below(flying.len() as u64) as usize);
                let delivered = rng.chance(60);
                if delivered {
                    for at in range.start as usize..range.end as usize {
                        got[at] = Some(data[at]);
                    }
                    freed += buffer.on_acked(range.clone(), &mut pool);
                }
                if !delivered || rng.chance(5) {
                    buffer.on_lost(range);
                }
            }
        }
        assert!(buffer.is_all_acked());
        assert_eq!(core::iter::from_fn(|| pool.take_back()).count(), lent, "each once");
        assert_eq!(got.into_iter().collect::<Option<Vec<u8>>>().unwrap(), data);
    }
}
