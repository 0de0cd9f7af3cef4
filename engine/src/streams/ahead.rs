//! What a stream may hold that cannot leave yet (`TransportConfig::send_ahead`).

/// Bursts are taken as if no fewer bytes might wait.
const LEAST: usize = 16 << 10;

/// Bounds what waits at each stream for the peer's credit (RFC 9000, Section 4.1), and for the congestion window.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Bytes of a stream that may wait for credit; [`usize::MAX`] bounds nothing.
    bytes: usize,
    /// Bytes of a stream that may be in flight or wait for the congestion window.
    reach: usize,
}

impl Ahead {
    /// So many bytes may wait at each stream.
    pub(super) const fn new(bytes: usize) -> Self {
        let mut ahead = Self { bytes, reach: 0 };
        ahead.set_window(0);
        ahead
    }

    /// True if anything is bounded here.
    pub(super) const fn is_bounded(&self) -> bool {
        self.bytes < usize::MAX
    }

    /// Says how much may be in flight. A stream holds twice that, which is what fills a path without a pause, and some for
    /// bursts: more would only wait here.
    pub(super) const fn set_window(&mut self, congestion_window: usize) {
        let bursts = if self.bytes > LEAST { self.bytes } else { LEAST }.saturating_mul(8);
        self.reach = congestion_window.saturating_mul(2).saturating_add(bursts);
    }

    /// How much a stream may hold of `most`, sent or not.
    pub(super) fn limit(&self, most: usize) -> usize {
        most.min(self.reach)
    }

    /// How much more a stream may take that has `unsent` bytes and may send `credit`.
    pub(super) fn room(&self, credit: u64, unsent: u64) -> usize {
        let soon = credit.saturating_add(self.bytes as u64).saturating_sub(unsent);
        if self.is_bounded() { usize::try_from(soon).unwrap_or(usize::MAX) } else { usize::MAX }
    }

    /// How much room is worth telling a writer of, which credit made.
    pub(super) const fn worth(&self) -> usize {
        self.bytes / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_bound_all_is_taken() {
        let ahead = Ahead::new(usize::MAX);
        assert!(!ahead.is_bounded());
        assert_eq!(ahead.limit(5000), 5000);
        assert_eq!(ahead.room(0, u64::MAX), usize::MAX);
    }

    #[test]
    fn credit_and_a_little_is_taken() {
        let ahead = Ahead::new(100);
        assert!(ahead.is_bounded());
        assert_eq!(ahead.room(0, 0), 100);
        assert_eq!(ahead.room(50, 0), 150);
        assert_eq!(ahead.room(50, 149), 1);
        assert_eq!(ahead.room(50, 150), 0);
        assert_eq!(ahead.room(0, u64::MAX), 0);
    }

    #[test]
    fn the_limit_follows_the_congestion_window() {
        let mut ahead = Ahead::new(LEAST + 1);
        let most = 1 << 20;
        assert_eq!(ahead.limit(most), 8 * LEAST + 8);
        ahead.set_window(1000);
        assert_eq!(ahead.limit(most), 8 * LEAST + 2008);
        ahead.set_window(usize::MAX);
        assert_eq!(ahead.limit(most), most);
        assert_eq!(Ahead::new(0).limit(most), 8 * LEAST);
    }
}
