//! The packet numbers received in one packet number space.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use quicket_wire::{EcnCodepoint, EcnCounts};

use crate::time::Time;

/// The most ranges that are remembered; the oldest is forgotten for a newer one
/// (RFC 9000, Section 13.2.3).
const MAX_RANGES: usize = 64;
/// Ranges that a space begins with room for.
const INITIAL_CAPACITY: usize = 4;
/// This many ranges call for an ack-eliciting packet, so that an acknowledged ACK lets us forget
/// some (RFC 9000, Section 13.2.4).
const PING_RANGES: usize = MAX_RANGES / 2;
/// Packets between two such calls, so that two receivers never PING each other without end
/// (RFC 9000, Section 13.2.4).
const PING_INTERVAL: u32 = 128;

/// A range of received packet numbers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PacketRange {
    first: u64,
    last: u64,
}

/// The set of received packet numbers of one packet number space, with what an ACK frame needs.
///
/// Numbers below a floor are neither acknowledged nor accepted any more: the floor rises as ranges
/// are forgotten, which keeps the set bounded and never accepts a packet twice
/// (RFC 9000, Sections 12.3 and 13.2.3).
#[derive(Debug)]
pub(crate) struct ReceivedPackets {
    /// Ascending and separated by gaps; the newest is last, where packets in order append.
    ranges: Vec<PacketRange>,
    /// The lowest number that is still accepted.
    floor: u64,
    largest_time: Time,
    ecn: EcnCounts,
    since_ping: u32,
}

impl Default for ReceivedPackets {
    fn default() -> Self {
        Self::new()
    }
}

impl ReceivedPackets {
    pub(crate) fn new() -> Self {
        Self {
            ranges: Vec::with_capacity(INITIAL_CAPACITY),
            floor: 0,
            largest_time: Time::ZERO,
            ecn: EcnCounts::default(),
            since_ping: PING_INTERVAL,
        }
    }

    /// True if a packet of this number must be discarded: it was received before, or is too old to
    /// tell (RFC 9000, Section 12.3).
    #[inline]
    pub(crate) fn is_duplicate(&self, pn: u64) -> bool {
        match self.ranges.last() {
            Some(newest) if pn > newest.last => false,
            Some(newest) if pn >= newest.first => true,
            _ => pn < self.floor || self.find(pn).is_ok(),
        }
    }

    /// Records a packet that was authenticated and processed. Returns false if it is a duplicate,
    /// which changes nothing.
    ///
    /// Duplicates do not count for ECN (RFC 9000, Section 13.4.1).
    #[inline]
    pub(crate) fn record(&mut self, pn: u64, now: Time, ecn: EcnCodepoint) -> bool {
        match self.ranges.last_mut() {
            Some(newest) if newest.last.checked_add(1) == Some(pn) => {
                newest.last = pn;
                self.largest_time = now;
            }
            _ => {
                if !self.record_out_of_order(pn, now) {
                    return false;
                }
            }
        }
        self.since_ping = self.since_ping.saturating_add(1);
        self.ecn.count(ecn);
        true
    }

    /// Records packets in order of which the first is the [expected](Self::expected) one.
    pub(crate) fn record_run(&mut self, run: RangeInclusive<u64>, now: Time, ecn: EcnCodepoint) {
        let (first, last) = (*run.start(), *run.end());
        self.record(first, now, ecn);
        if let Some(newest) = self.ranges.last_mut().filter(|newest| newest.last == first) {
            newest.last = last;
            let more = last.saturating_sub(first);
            self.since_ping =
                self.since_ping.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
            self.ecn.count_many(ecn, more);
        }
    }

    fn record_out_of_order(&mut self, pn: u64, now: Time) -> bool {
        if pn < self.floor {
            return false;
        }
        let Err(index) = self.find(pn) else { return false };
        if index == self.ranges.len() {
            self.largest_time = now;
        }
        let joins_previous = index
            .checked_sub(1)
            .and_then(|i| self.ranges.get(i))
            .is_some_and(|r| r.last.checked_add(1) == Some(pn));
        let next_first = self.ranges.get(index).map(|r| r.first);
        let joins_next = next_first.is_some() && next_first == pn.checked_add(1);
        match (joins_previous, joins_next) {
            (true, true) => {
                let next = self.ranges.remove(index);
                if let Some(previous) = self.ranges.get_mut(index.saturating_sub(1)) {
                    previous.last = next.last;
                }
            }
            (true, false) => {
                if let Some(previous) = self.ranges.get_mut(index.saturating_sub(1)) {
                    previous.last = pn;
                }
            }
            (false, true) => {
                if let Some(next) = self.ranges.get_mut(index) {
                    next.first = pn;
                }
            }
            (false, false) => return self.insert(index, pn),
        }
        true
    }

    /// Inserts a range of one number, forgetting the oldest range if there is no room. True: the
    /// number is known from here on, if only because the floor rose above it.
    fn insert(&mut self, mut index: usize, pn: u64) -> bool {
        let full = self.ranges.len() >= MAX_RANGES
            || (self.ranges.len() == self.ranges.capacity() && self.ranges.try_reserve(1).is_err());
        if full {
            if index == 0 {
                // Never acknowledged, as if the network had lost it.
                self.floor = self.floor.max(pn.saturating_add(1));
                return true;
            }
            let oldest = self.ranges.remove(0);
            self.floor = self.floor.max(oldest.last.saturating_add(1));
            index = index.saturating_sub(1);
        }
        self.ranges.insert(index, PacketRange { first: pn, last: pn });
        if self.ranges.len() >= MAX_RANGES
            && let Some(oldest) = self.ranges.first()
        {
            self.floor = self.floor.max(oldest.first);
        }
        true
    }

    /// The index of the range that holds `pn`, or where a range for it would be inserted.
    fn find(&self, pn: u64) -> Result<usize, usize> {
        let index = self.ranges.partition_point(|r| r.last < pn);
        match self.ranges.get(index) {
            Some(range) if range.first <= pn => Ok(index),
            _ => Err(index),
        }
    }

    /// The largest number received.
    #[inline]
    pub(crate) fn largest(&self) -> Option<u64> {
        self.ranges.last().map(|r| r.last)
    }

    /// What the next packet number is decoded against (RFC 9000, Section 17.1): the largest
    /// received plus one.
    #[inline]
    pub(crate) fn expected(&self) -> u64 {
        self.largest().map_or(self.floor, |pn| pn.saturating_add(1))
    }

    /// The ACK Delay field: the time since the largest packet arrived in microseconds, scaled
    /// down by the ack_delay_exponent that we announced (RFC 9000, Section 19.3).
    pub(crate) fn ack_delay(&self, now: Time, ack_delay_exponent: u8) -> u64 {
        let micros = now.since(self.largest_time).as_micros();
        micros.checked_shr(u32::from(ack_delay_exponent)).unwrap_or(0)
    }

    /// Counts of the marks on received packets (RFC 9000, Section 13.4.1).
    #[inline]
    pub(crate) fn ecn_counts(&self) -> EcnCounts {
        self.ecn
    }

    /// True while there is nothing to acknowledge.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges to acknowledge, newest first, as an ACK frame lists them.
    pub(crate) fn ranges_descending(
        &self,
    ) -> impl Iterator<Item = RangeInclusive<u64>> + Clone + '_ {
        self.ranges.iter().rev().map(|r| r.first..=r.last)
    }

    /// The smallest number from `from` on that was not received and would still be accepted.
    #[inline]
    pub(crate) fn first_missing(&self, from: u64) -> u64 {
        let from = from.max(self.floor);
        if let Some(newest) = self.ranges.last()
            && newest.first <= from
        {
            return if from <= newest.last { newest.last.saturating_add(1) } else { from };
        }
        match self.find(from).ok().and_then(|i| self.ranges.get(i)) {
            Some(range) => range.last.saturating_add(1),
            None => from,
        }
    }

    /// The peer has an ACK of ours whose Largest Acknowledged was `largest`: nothing up to it
    /// needs acknowledging again (RFC 9000, Section 13.2.4).
    ///
    /// What is still missing up to `largest` has been missing for a round trip and is taken for
    /// lost by the peer; it is refused from here on, so that the gaps need not be kept.
    pub(crate) fn on_ack_of_ack(&mut self, largest: u64) {
        let Some(newest) = self.largest() else { return };
        // The largest number itself stays known: an ACK must always have something to say.
        let largest = largest.min(newest.saturating_sub(1));
        if largest < self.floor || newest == 0 {
            return;
        }
        self.floor = largest.saturating_add(1);
        let forgotten = self.ranges.partition_point(|r| r.last <= largest);
        if forgotten > 0 {
            self.ranges.drain(..forgotten);
        }
        if let Some(oldest) = self.ranges.first_mut()
            && oldest.first <= largest
        {
            oldest.first = self.floor;
        }
    }

    /// Gives back memory that gaps took.
    pub(crate) fn trim(&mut self) {
        self.ranges.shrink_to(INITIAL_CAPACITY);
    }

    /// True, once in a while, when so many ranges are held that an ack-eliciting packet should go
    /// along with the next ACK (RFC 9000, Section 13.2.4).
    pub(crate) fn take_ping_wish(&mut self) -> bool {
        let wish = self.ranges.len() >= PING_RANGES && self.since_ping >= PING_INTERVAL;
        if wish {
            self.since_ping = 0;
        }
        wish
    }
}

#[cfg(test)]
#[path = "received_tests.rs"]
mod tests;
