//! What a link did.

/// Counts of what became of the packets offered to a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets offered.
    pub offered: u64,
    /// Bytes of IP packets offered.
    pub offered_bytes: u64,
    /// Packets handed out at the other end, copies included.
    pub delivered: u64,
    /// Bytes of IP packets handed out.
    pub delivered_bytes: u64,
    /// Lost independently.
    pub lost: u64,
    /// Lost in bursts.
    pub lost_in_bursts: u64,
    /// Dropped because their number was listed.
    pub dropped_by_number: u64,
    /// Dropped because the queue was full.
    pub dropped_by_queue: u64,
    /// Dropped because they were longer than the MTU.
    pub dropped_by_mtu: u64,
    /// Swallowed by a black hole.
    pub dropped_by_blackhole: u64,
    /// Passed with flipped bits.
    pub corrupted: u64,
    /// Held back so that others overtook them.
    pub reordered: u64,
    /// Passed twice.
    pub duplicated: u64,
    /// Marked CE.
    pub marked: u64,
    /// Passed with another ECN field, marking apart.
    pub ecn_rewritten: u64,
    /// Longest queue, in packets.
    pub longest_queue_packets: u64,
    /// Longest queue, in bytes.
    pub longest_queue_bytes: u64,
}

impl LinkStats {
    /// Packets that did not arrive, for whatever reason.
    pub fn dropped(&self) -> u64 {
        self.lost
            + self.lost_in_bursts
            + self.dropped_by_number
            + self.dropped_by_queue
            + self.dropped_by_mtu
            + self.dropped_by_blackhole
    }
}

/// Why a link dropped a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// Independent loss.
    Loss,
    /// Loss in a burst.
    BurstLoss,
    /// Its number was listed.
    Listed,
    /// The queue was full.
    Queue,
    /// It was longer than the MTU.
    Mtu,
    /// A black hole was open.
    Blackhole,
}

/// What was done to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It will arrive.
    Passed(Treatment),
    /// It will not.
    Dropped(DropReason),
}

/// What was done to a packet that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Treatment {
    /// When it arrives.
    pub arrives: quicket_engine::time::Time,
    /// Bits were flipped.
    pub corrupted: bool,
    /// It was held back.
    pub reordered: bool,
    /// A copy arrives too.
    pub duplicated: bool,
    /// It was marked CE.
    pub marked: bool,
}
