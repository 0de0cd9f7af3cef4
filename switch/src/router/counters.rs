//! How often what happened.

use crate::first_packet::Unread;

/// How it was found whose a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// The connection ID names the owner.
    Owner,
    /// A pin does: the client's first connection ID, or a reset token.
    Pin,
    /// Nothing does, and an endpoint is there that had the address to itself before.
    Remainder,
    /// It comes ahead of a first packet (early data, an unknown version), and there is one program only.
    Ahead,
    /// It is a first packet, and the name in it, or the only program there, decides.
    FirstPacket,
}

/// Why a datagram is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// Shorter than any packet of its kind.
    TooShort,
    /// A header that is not whole.
    Malformed,
    /// Nobody is registered at the address.
    UnknownAddress,
    /// A packet of a connection, whose connection ID leads to nobody.
    Unroutable,
    /// A packet of a connection whose owner is dead, and no reset answers it: it is of the handshake, or
    /// too short.
    Dead,
    /// A first packet that nobody could open, or whose content is none.
    Unreadable,
    /// A ClientHello beyond the bounds.
    TooLarge,
    /// It is held already.
    Duplicate,
    /// More first packets in this second than may be.
    Rate,
    /// More answers in this second than may be.
    Answers,
    /// No program takes first packets at the address; or none that is back already, of a switch that
    /// died.
    NotServed,
}

impl DropReason {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::TooShort,
        Self::Malformed,
        Self::UnknownAddress,
        Self::Unroutable,
        Self::Dead,
        Self::Unreadable,
        Self::TooLarge,
        Self::Duplicate,
        Self::Rate,
        Self::Answers,
        Self::NotServed,
    ];

    /// In words with underscores, for statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooShort => "too_short",
            Self::Malformed => "malformed",
            Self::UnknownAddress => "unknown_address",
            Self::Unroutable => "unroutable",
            Self::Dead => "dead",
            Self::Unreadable => "unreadable",
            Self::TooLarge => "too_large",
            Self::Duplicate => "duplicate",
            Self::Rate => "rate",
            Self::Answers => "answers",
            Self::NotServed => "not_served",
        }
    }
}

impl From<Unread> for DropReason {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Undecryptable | Unread::Malformed | Unread::NoClientHello => Self::Unreadable,
            Unread::TooLarge => Self::TooLarge,
            Unread::Duplicate => Self::Duplicate,
            Unread::Rate => Self::Rate,
        }
    }
}

/// What became of the datagrams of an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Delivered by their connection ID.
    pub by_owner: u64,
    /// Delivered by a pin.
    pub by_pin: u64,
    /// Delivered to an endpoint that had the address to itself before, as nobody else's.
    pub remainder: u64,
    /// Delivered ahead of first packets: early data and unknown versions, where there is one program only.
    pub ahead: u64,
    /// Delivered as first packets.
    pub first_packets: u64,
    /// Held until the ClientHello is whole; each is counted as delivered too, if it is released.
    pub held: u64,
    /// Waited until somebody of a family accepts; each is counted as delivered too, once somebody does.
    pub waited: u64,
    /// Answered with a stateless reset.
    pub resets: u64,
    /// Answered with Version Negotiation.
    pub version_negotiations: u64,
    /// Answered with a close: nobody serves what the client asks for.
    pub refusals: u64,
    drops: [u64; DropReason::ALL.len()],
}

impl Counters {
    /// How many were dropped for this reason.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops.get(reason as usize).copied().unwrap_or_default()
    }

    pub(super) fn drop(&mut self, reason: DropReason, datagrams: u64) {
        if let Some(count) = self.drops.get_mut(reason as usize) {
            *count += datagrams;
        }
    }

    pub(super) fn deliver(&mut self, way: Way, datagrams: u64) {
        match way {
            Way::Owner => self.by_owner += datagrams,
            Way::Pin => self.by_pin += datagrams,
            Way::Remainder => self.remainder += datagrams,
            Way::Ahead => self.ahead += datagrams,
            Way::FirstPacket => self.first_packets += datagrams,
        }
    }
}
