//! Where what is in the memory of a port.

/// Octets of a cache line.
pub(crate) const LINE: usize = 64;
/// Between words that different sides write: processors fetch lines in pairs.
pub(crate) const APART: usize = 2 * LINE;
/// Words before the positions of a ring.
pub(crate) const WORDS: usize = 4;
const PAGE: usize = 4096;

/// The fewest positions of a ring.
pub const MIN_ENTRIES: u32 = 16;
/// The most positions of a ring.
pub const MAX_ENTRIES: u32 = 4096;
/// The shortest slot, in octets.
pub const MIN_SLOT: u32 = 128;
/// The longest slot, in octets.
pub const MAX_SLOT: u32 = 16384;

/// One of the two rings of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Frames of the program.
    Send,
    /// Frames for the program.
    Receive,
}

/// How many slots of which length the memory of a port has: one for each position of both rings.
///
/// Both sides compute it for themselves; nothing of it is read from shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    send: u32,
    receive: u32,
    slot: u32,
}

impl Layout {
    /// Rings of `send` and `receive` positions, powers of two from [`MIN_ENTRIES`] to [`MAX_ENTRIES`], and
    /// slots of as many octets, a multiple of 64 from [`MIN_SLOT`] to [`MAX_SLOT`]. None for other numbers.
    #[must_use]
    pub const fn new(send: u32, receive: u32, slot: u32) -> Option<Self> {
        if !is_entries(send) || !is_entries(receive) {
            return None;
        }
        if slot < MIN_SLOT || slot > MAX_SLOT || !slot.is_multiple_of(LINE as u32) {
            return None;
        }
        Some(Self { send, receive, slot })
    }

    /// Positions of a ring.
    #[must_use]
    pub const fn entries(&self, way: Way) -> u32 {
        match way {
            Way::Send => self.send,
            Way::Receive => self.receive,
        }
    }

    /// Octets of a slot.
    #[must_use]
    pub const fn slot_len(&self) -> u32 {
        self.slot
    }

    /// Slots of both rings: those of sending come first.
    #[must_use]
    pub const fn slots(&self) -> u32 {
        self.send + self.receive
    }

    /// The slot that stands at the first position of a ring in the beginning; the others follow.
    #[must_use]
    pub const fn first_slot(&self, way: Way) -> u32 {
        match way {
            Way::Send => 0,
            Way::Receive => self.send,
        }
    }

    /// Where a ring begins.
    #[cfg(feature = "std")]
    pub(crate) const fn ring_at(&self, way: Way) -> usize {
        match way {
            Way::Send => 0,
            Way::Receive => ring_len(self.send),
        }
    }

    /// Octets from slot to slot: an odd number of lines, so that the beginnings of slots, which
    /// are all there is to short frames, do not share a few sets of the cache.
    pub(crate) const fn stride(&self) -> usize {
        let lines = self.slot as usize / LINE;
        (lines | 1) * LINE
    }

    /// Where the slots begin.
    pub(crate) const fn slots_at(&self) -> usize {
        (ring_len(self.send) + ring_len(self.receive)).next_multiple_of(PAGE)
    }

    /// Octets of all of it: whole pages.
    #[must_use]
    pub const fn memory(&self) -> usize {
        (self.slots_at() + self.slots() as usize * self.stride()).next_multiple_of(PAGE)
    }
}

const fn is_entries(entries: u32) -> bool {
    entries.is_power_of_two() && entries >= MIN_ENTRIES && entries <= MAX_ENTRIES
}

/// Octets of a ring: its words apart from each other, and its positions.
const fn ring_len(entries: u32) -> usize {
    WORDS * APART + (entries as usize * size_of::<u64>()).next_multiple_of(APART)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rings_that_work_have_a_layout() {
        assert!(Layout::new(512, 512, 2048).is_some());
        for (send, receive, slot) in
            [(0, 512, 2048), (512, 500, 2048), (512, 8192, 2048), (512, 512, 2000), (512, 512, 64)]
        {
            assert_eq!(Layout::new(send, receive, slot), None, "{send} {receive} {slot}");
        }
        assert_eq!(Layout::new(16, 16, 32768), None);
    }

    #[test]
    fn parts_do_not_overlap() {
        let layout = Layout::new(16, 4096, 128).unwrap();
        assert_eq!(layout.ring_at(Way::Receive), 512 + 128);
        assert!(layout.slots_at() >= layout.ring_at(Way::Receive) + 512 + 4096 * 8);
        assert_eq!(layout.stride(), 192);
        assert!(layout.memory() >= layout.slots_at() + 4112 * 192);
        assert_eq!(layout.first_slot(Way::Receive), 16);
    }
}
