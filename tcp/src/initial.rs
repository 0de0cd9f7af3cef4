//! The window that a connection begins with (RFC 6928).

/// The most octets of the first segments (RFC 6928, Section 2), unless two segments have more.
const OCTETS: u32 = 14_600;
/// The most segments.
const SEGMENTS: u32 = 10;

/// What of the initial window is left.
///
/// smoltcp's own is 2,048 octets, and it has no call for another one. So its congestion control begins when the first segments
/// are on their way: these are limited by what is counted here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InitialWindow {
    octets: u32,
    segments: u32,
}

impl InitialWindow {
    pub(crate) const fn new() -> Self {
        Self { octets: 0, segments: 0 }
    }

    /// Notes a segment with so many octets.
    pub(crate) const fn sent(&mut self, octets: u32) {
        if octets > 0 {
            self.octets = self.octets.saturating_add(octets);
            self.segments += 1;
        }
    }

    /// What was sent.
    pub(crate) const fn octets(&self) -> u32 {
        self.octets
    }

    /// Whether there is room for another segment of at most `largest` octets.
    pub(crate) const fn has_room(&self, largest: u32) -> bool {
        self.segments < 2
            || self.segments < SEGMENTS && self.octets.saturating_add(largest) <= OCTETS
    }
}

#[cfg(test)]
mod tests {
    use super::InitialWindow;

    /// RFC 6928, Section 2.
    #[test]
    fn it_is_ten_segments_or_14600_octets_or_two_segments() {
        for (largest, segments) in [(536, 10), (1460, 10), (1461, 9), (4000, 3), (8960, 2)] {
            let mut window = InitialWindow::new();
            let mut sent = 0;
            while window.has_room(largest) {
                window.sent(largest);
                // Acknowledgments without data do not count.
                window.sent(0);
                sent += 1;
            }
            assert_eq!(sent, segments, "{largest}");
        }
    }
}
