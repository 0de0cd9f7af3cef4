//! How far the streams of one direction have come.

use std::collections::HashMap;

/// Streams beyond this many of a direction are counted as if nothing of them were sent twice.
const MAX_STREAMS: usize = 1 << 16;

/// The streams that one side sends on.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    /// How far each has come.
    ends: HashMap<u64, u64>,
    /// Bytes of all of them, each once.
    total: u64,
    /// Frames with bytes that came before, or were overtaken by what came before.
    again_frames: u64,
    again_bytes: u64,
}

impl Streams {
    /// A STREAM frame. If the file has not seen the connection `begun`, a stream counts from where it is first
    /// seen. Returns whether some of it lies below what was seen.
    pub(super) fn on_frame(&mut self, id: u64, (offset, len): (u64, u64), begun: bool) -> bool {
        let end = offset.saturating_add(len);
        if !self.ends.contains_key(&id) && self.ends.len() >= MAX_STREAMS {
            self.total = self.total.saturating_add(len);
            return false;
        }
        let seen = self.ends.entry(id).or_insert(if begun { 0 } else { offset });
        let again = end.min(*seen).saturating_sub(offset);
        self.total = self.total.saturating_add(end.saturating_sub(*seen));
        *seen = end.max(*seen);
        if again > 0 {
            self.again_frames += 1;
            self.again_bytes = self.again_bytes.saturating_add(again);
        }
        again > 0
    }

    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.ends.len() >= MAX_STREAMS
    }

    /// Frames and bytes that were not new.
    pub(super) const fn again(&self) -> (u64, u64) {
        (self.again_frames, self.again_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_once_and_what_is_repeated_is_told() {
        let mut streams = Streams::default();
        assert!(!streams.on_frame(0, (0, 1000), true));
        assert!(!streams.on_frame(4, (0, 10), true));
        assert!(streams.on_frame(0, (500, 1000), true));
        assert!(streams.on_frame(0, (0, 100), true));
        assert_eq!((streams.total(), streams.again(), streams.count()), (1510, (2, 600), 2));
    }

    #[test]
    fn a_file_that_begins_late_counts_from_where_it_begins() {
        let mut streams = Streams::default();
        streams.on_frame(0, (5_000_000, 1000), false);
        streams.on_frame(0, (5_001_000, 1000), false);
        assert_eq!(streams.total(), 2000);
    }

    #[test]
    fn streams_without_number_cost_bounded_memory() {
        let mut streams = Streams::default();
        for id in 0..100_000 {
            streams.on_frame(id, (u64::MAX - 5, u64::MAX), true);
        }
        assert!(streams.is_full());
        assert_eq!((streams.count(), streams.total()), (MAX_STREAMS, u64::MAX));
    }
}
