//! What became of frames.

/// Why a frame was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The descriptor leads to no slot, or out of it.
    Descriptor,
    /// The frame is neither IPv4 nor IPv6: ARP has nobody to answer in memory.
    NotIp,
    /// It belongs to a VLAN that this host is not in, or that its destination is not in: that is where its address is.
    Vlan,
    /// Its lengths contradict each other, or it is cut off.
    Length,
    /// It is a fragment, which does not say whose it is.
    Fragment,
    /// Its chain of headers is too long, out of order, or has one that leads elsewhere: source routes.
    Headers,
    /// An address of IPv4 in the form of IPv6.
    Address,
    /// A protocol whose ports are not understood: SCTP, DCCP, UDP-Lite.
    Protocol,
    /// A checksum is wrong, or missing where there has to be one.
    Checksum,
    /// The source is not a tuple of the port that sent it.
    Source,
    /// Nobody has the destination, and no device is attached.
    Destination,
    /// Nobody has the destination, and no device that is attached leads there.
    Route,
    /// The device that leads there has a neighbour whose address of Ethernet is not known, or not yet.
    Neighbour,
    /// It is longer than packets on the way there may be.
    Mtu,
    /// The ring of the port that it was for was full.
    Full,
    /// It is longer than the slots of the port that it was for, or that port has left a wrong slot.
    Slot,
    /// An error of ICMP that quotes a packet of the port, beyond those of one device that are copied to it in a second; of a device,
    /// beyond those that are copied from it to all ports.
    Icmp,
}

/// All reasons, in the order in which they are counted.
pub const REASONS: [Reason; 17] = [
    Reason::Descriptor,
    Reason::NotIp,
    Reason::Vlan,
    Reason::Length,
    Reason::Fragment,
    Reason::Headers,
    Reason::Address,
    Reason::Protocol,
    Reason::Checksum,
    Reason::Source,
    Reason::Destination,
    Reason::Route,
    Reason::Neighbour,
    Reason::Mtu,
    Reason::Full,
    Reason::Slot,
    Reason::Icmp,
];

impl Reason {
    /// What it is called in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Descriptor => "descriptor",
            Self::NotIp => "not_ip",
            Self::Vlan => "vlan",
            Self::Length => "length",
            Self::Fragment => "fragment",
            Self::Headers => "headers",
            Self::Address => "address",
            Self::Protocol => "protocol",
            Self::Checksum => "checksum",
            Self::Source => "source",
            Self::Destination => "destination",
            Self::Route => "route",
            Self::Neighbour => "neighbour",
            Self::Mtu => "mtu",
            Self::Full => "full",
            Self::Slot => "slot",
            Self::Icmp => "icmp",
        }
    }
}

/// What became of the frames of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that it has sent and that were delivered, or have left by a network device.
    pub sent: u64,
    /// Frames that were delivered to it.
    pub received: u64,
    dropped: [u64; REASONS.len()],
}

impl Counters {
    /// How many were dropped for a reason: of those that the port has sent, or that have come by the device; with
    /// [`Reason::Full`], [`Reason::Slot`] and [`Reason::Icmp`], of those that were for the port.
    #[must_use]
    pub fn dropped(&self, reason: Reason) -> u64 {
        self.dropped[reason as usize]
    }

    #[inline]
    pub(crate) fn drop_one(&mut self, reason: Reason) {
        self.drop_many(reason, 1);
    }

    #[inline]
    pub(crate) fn drop_many(&mut self, reason: Reason, n: u64) {
        self.dropped[reason as usize] += n;
    }

    /// As numbers: sent, received, and those of [`REASONS`].
    pub(crate) fn to_numbers(self) -> [u64; 2 + REASONS.len()] {
        let mut numbers = [0; _];
        numbers[0] = self.sent;
        numbers[1] = self.received;
        numbers[2..].copy_from_slice(&self.dropped);
        numbers
    }

    pub(crate) fn from_numbers(numbers: [u64; 2 + REASONS.len()]) -> Self {
        let mut counters = Self { sent: numbers[0], received: numbers[1], ..Self::default() };
        counters.dropped.copy_from_slice(&numbers[2..]);
        counters
    }

    /// Adds those of another port.
    pub(crate) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.dropped.iter_mut().zip(other.dropped).for_each(|(ours, theirs)| *ours += theirs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_in_their_order() {
        for (at, reason) in REASONS.into_iter().enumerate() {
            assert_eq!(reason as usize, at, "{}", reason.name());
            let mut counters = Counters { sent: 1, received: 2, ..Counters::default() };
            counters.drop_one(reason);
            assert_eq!(Counters::from_numbers(counters.to_numbers()), counters);
            assert_eq!(counters.dropped(reason), 1);
        }
    }
}
