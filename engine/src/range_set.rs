//! A set of numbers, kept as sorted ranges.

use alloc::collections::VecDeque;
use core::ops::Range;

/// A change was refused because it needs one more range than the set may hold, or memory that
/// could not be had. The set is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyRanges;

/// A set of `u64` as half-open ranges: sorted, disjoint, never touching, never empty.
///
/// Appending to the last range and taking from the first are O(1); all else is a binary search
/// and at worst a move of the ranges on the shorter side. A set that was never used owns no memory.
#[derive(Clone, Debug)]
pub(crate) struct RangeSet {
    ranges: VecDeque<Range<u64>>,
    limit: usize,
}

impl RangeSet {
    /// An empty set that holds at most `limit` ranges (at least one).
    pub(crate) const fn new(limit: usize) -> Self {
        Self { ranges: VecDeque::new(), limit: if limit == 0 { 1 } else { limit } }
    }

    /// The number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Empties the set and gives its memory back.
    pub(crate) fn clear(&mut self) {
        self.ranges = VecDeque::new();
    }

    /// Gives back memory beyond that of the ranges.
    pub(crate) fn trim(&mut self) {
        self.ranges.shrink_to_fit();
    }

    /// The ranges in ascending order.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.ranges.iter().cloned()
    }

    /// The lowest range.
    pub(crate) fn first(&self) -> Option<Range<u64>> {
        self.ranges.front().cloned()
    }

    /// The smallest number.
    #[cfg(test)]
    pub(crate) fn min(&self) -> Option<u64> {
        self.ranges.front().map(|range| range.start)
    }

    /// The largest number.
    pub(crate) fn max(&self) -> Option<u64> {
        self.ranges.back().map(|range| range.end.saturating_sub(1))
    }

    /// Takes the lowest range out.
    pub(crate) fn pop_first(&mut self) -> Option<Range<u64>> {
        self.ranges.pop_front()
    }

    pub(crate) fn contains(&self, value: u64) -> bool {
        let at = self.ranges.partition_point(|range| range.end <= value);
        self.ranges.get(at).is_some_and(|range| range.start <= value)
    }

    /// Makes sure that the next new range needs no memory.
    pub(crate) fn reserve_one(&mut self) -> Result<(), TooManyRanges> {
        // Most sets never have more than one, and each stream that is open has a set.
        match self.ranges.capacity() {
            0 => self.ranges.try_reserve_exact(1),
            _ => self.ranges.try_reserve(1),
        }
        .map_err(|_| TooManyRanges)
    }

    /// Adds all numbers of `range`.
    pub(crate) fn insert(&mut self, range: Range<u64>) -> Result<(), TooManyRanges> {
        if range.is_empty() {
            return Ok(());
        }
        match self.ranges.back_mut() {
            None => return self.place(0, range),
            Some(last) if range.start > last.end => return self.place(self.ranges.len(), range),
            Some(last) if range.start >= last.start => {
                last.end = last.end.max(range.end);
                return Ok(());
            }
            Some(_) => {}
        }
        let from = self.ranges.partition_point(|known| known.end < range.start);
        let to = self.ranges.partition_point(|known| known.start <= range.end);
        if from == to {
            return self.place(from, range);
        }
        let end = self.ranges.get(to.saturating_sub(1)).map_or(range.end, |last| last.end);
        if let Some(first) = self.ranges.get_mut(from) {
            first.start = first.start.min(range.start);
            first.end = end.max(range.end);
        }
        let swallowed = from.saturating_add(1);
        if to > swallowed {
            self.ranges.drain(swallowed..to);
        }
        Ok(())
    }

    /// Adds all numbers of `range`, and where there is no place for one more range, also the
    /// numbers between it and its nearest neighbour. Fails only for an empty set without memory.
    pub(crate) fn insert_widening(&mut self, range: Range<u64>) -> Result<(), TooManyRanges> {
        let Err(full) = self.insert(range.clone()) else { return Ok(()) };
        let after = self.ranges.partition_point(|known| known.end < range.start);
        let gap_after = self.ranges.get(after).map(|next| next.start.saturating_sub(range.end));
        let before = after.checked_sub(1);
        let gap_before =
            before.and_then(|at| self.ranges.get(at)).map(|p| range.start.saturating_sub(p.end));
        let to_the_left = match (gap_before, gap_after) {
            (Some(left), Some(right)) => left <= right,
            (left, _) => left.is_some(),
        };
        let at = if to_the_left { before.unwrap_or(after) } else { after };
        let neighbour = self.ranges.get_mut(at).ok_or(full)?;
        neighbour.start = neighbour.start.min(range.start);
        neighbour.end = neighbour.end.max(range.end);
        Ok(())
    }

    /// Removes all numbers of `range`. Removing from the middle of a range makes two of it.
    pub(crate) fn remove(&mut self, range: Range<u64>) -> Result<(), TooManyRanges> {
        if range.is_empty() {
            return Ok(());
        }
        let mut from = self.ranges.partition_point(|known| known.end <= range.start);
        let Some(first) = self.ranges.get(from).cloned() else { return Ok(()) };
        if first.start < range.start {
            if first.end > range.end {
                self.place(from.saturating_add(1), range.end..first.end)?;
            }
            if let Some(first) = self.ranges.get_mut(from) {
                first.end = range.start;
            }
            from = from.saturating_add(1);
        }
        let to = self.ranges.partition_point(|known| known.end <= range.end);
        if let Some(last) = self.ranges.get_mut(to) {
            last.start = last.start.max(range.end);
        }
        if from == 0 && to == 1 {
            self.ranges.pop_front();
        } else if from < to {
            self.ranges.drain(from..to);
        }
        Ok(())
    }

    /// The parts of `range` that are not in the set, in ascending order.
    pub(crate) fn gaps_in(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let at = self.ranges.partition_point(|known| known.end <= range.start);
        let end = range.end;
        let known = self.ranges.iter().skip(at).cloned().chain(core::iter::once(end..end));
        known
            .scan(range.start, move |next, known| {
                if *next >= end {
                    return None;
                }
                let gap = *next..known.start.min(end);
                *next = known.end;
                Some(gap)
            })
            .filter(|gap| !gap.is_empty())
    }

    /// Puts a range that touches no other at index `at`.
    fn place(&mut self, at: usize, range: Range<u64>) -> Result<(), TooManyRanges> {
        if self.ranges.len() >= self.limit {
            return Err(TooManyRanges);
        }
        self.reserve_one()?;
        self.ranges.insert(at, range);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    use super::*;
    use crate::testing::XorShift;

    fn set(ranges: &[Range<u64>]) -> RangeSet {
        let mut set = RangeSet::new(64);
        for range in ranges {
            set.insert(range.clone()).unwrap();
        }
        set
    }

    fn list(set: &RangeSet) -> Vec<Range<u64>> {
        set.iter().collect()
    }

    #[test]
    fn touching_ranges_become_one() {
        for parts in [&[0..5, 5..9][..], &[5..9, 0..5], &[0..2, 4..6, 8..9, 2..8]] {
            let whole = set(parts);
            assert_eq!((whole.len(), whole.first()), (1, Some(0..9)));
        }
        assert_eq!(list(&set(&[4..6, 8..9, 1..2, 3..3])), [1..2, 4..6, 8..9]);
    }

    #[test]
    fn removing_from_the_middle_splits() {
        let mut set = set(&[0..10, 20..30]);
        set.remove(3..4).unwrap();
        set.remove(8..25).unwrap();
        assert_eq!(list(&set), [0..3, 4..8, 25..30]);
        set.remove(0..100).unwrap();
        assert!(set.is_empty());
    }

    #[test]
    fn one_range_too_many_is_refused_and_changes_nothing() {
        let mut set = RangeSet::new(2);
        set.insert(0..2).unwrap();
        set.insert(10..12).unwrap();
        assert_eq!(set.insert(5..6), Err(TooManyRanges));
        assert_eq!(set.insert(20..21), Err(TooManyRanges));
        assert_eq!(set.remove(10..11), Ok(()));
        assert_eq!(set.remove(0..1), Ok(()));
        assert_eq!(list(&set), [1..2, 11..12]);
        set.insert(2..11).unwrap();
        set.remove(5..6).unwrap();
        assert_eq!(set.remove(3..4), Err(TooManyRanges));
        assert_eq!(list(&set), [1..5, 6..12]);
    }

    #[test]
    fn widening_closes_the_smaller_gap_when_full() {
        let mut set = RangeSet::new(2);
        set.insert_widening(10..12).unwrap();
        set.insert_widening(20..22).unwrap();
        set.insert_widening(14..15).unwrap();
        assert_eq!(list(&set), [10..15, 20..22]);
        set.insert_widening(18..19).unwrap();
        assert_eq!(list(&set), [10..15, 18..22]);
        set.insert_widening(0..1).unwrap();
        set.insert_widening(30..31).unwrap();
        assert_eq!(list(&set), [0..15, 18..31]);
    }

    #[test]
    fn behaves_as_a_plain_set_under_random_changes() {
        let mut rng = XorShift::new(7);
        for _ in 0..200 {
            let mut set = RangeSet::new(1000);
            let mut model = BTreeSet::new();
            for _ in 0..60 {
                let start = rng.below(80);
                let range = start..start + rng.below(12);
                if rng.below(3) == 0 {
                    set.remove(range.clone()).unwrap();
                    model.retain(|value| !range.contains(value));
                } else {
                    set.insert(range.clone()).unwrap();
                    model.extend(range);
                }
                check(&set, &model, &mut rng);
            }
        }
    }

    fn check(set: &RangeSet, model: &BTreeSet<u64>, rng: &mut XorShift) {
        let values: Vec<u64> = set.iter().flatten().collect();
        assert_eq!(values, model.iter().copied().collect::<Vec<_>>());
        assert_eq!((set.min(), set.max()), (model.first().copied(), model.last().copied()));
        let ranges = list(set);
        assert!(ranges.iter().all(|r| !r.is_empty()));
        assert!(ranges.windows(2).all(|w| w[0].end < w[1].start), "{ranges:?}");
        let probe = rng.below(100);
        assert_eq!(set.contains(probe), model.contains(&probe));
        let gaps: Vec<u64> = set.gaps_in(probe..90).flatten().collect();
        let expected: Vec<u64> = (probe..90).filter(|v| !model.contains(v)).collect();
        assert_eq!(gaps, expected);
    }
}
