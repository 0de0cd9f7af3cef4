//! What acknowledgements tell of one side's packets: round-trip times, bytes in flight, and what was lost.
//!
//! The sender's own state is not on the wire. This one is kept by the rules of RFC 9002, Sections 5.1 and 6.1, at the
//! moments at which acknowledgements were seen; timers that the sender may have had are not guessed.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Packets of a space that are awaited at once; the oldest is forgotten for the next.
const MAX_AWAITED: usize = 1 << 16;
/// Packets of a space that were lost and may yet be acknowledged; the oldest is forgotten for the next.
const MAX_LOST: usize = 4096;
/// RFC 9002, Section 6.1.1.
const PACKET_THRESHOLD: u64 = 3;
/// RFC 9002, Section 6.1.2.
const TIME_THRESHOLD: f64 = 9.0 / 8.0;
/// The granularity of timers, in milliseconds (RFC 9002, Section 6.1.2).
const GRANULARITY: f64 = 1.0;

/// Packet number spaces (RFC 9000, Section 12.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Initial,
    Handshake,
    Application,
}

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    /// When it was sent, in milliseconds.
    at: f64,
    /// Bytes that count as in flight; 0 for packets of acknowledgements alone.
    len: u64,
    is_eliciting: bool,
}

#[derive(Clone, Debug, Default)]
struct Awaiting {
    packets: BTreeMap<u64, Awaited>,
    /// What was taken for lost.
    lost: BTreeMap<u64, Awaited>,
    largest_acked: Option<u64>,
    /// Nothing of it is awaited any more.
    is_discarded: bool,
}

/// What an acknowledgement has told.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Told {
    /// A round-trip time, in milliseconds.
    pub(super) rtt: Option<f64>,
    /// Packets that were lost.
    pub(super) lost: u64,
    /// Packets that were taken for lost, and were not.
    pub(super) found: u64,
}

/// One side's packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Recovery {
    spaces: [Awaiting; 3],
    in_flight: u64,
    latest_rtt: Option<f64>,
    /// RFC 9002, Section 5.3, without what the peer says of its delays.
    smoothed_rtt: Option<f64>,
    pub(super) min_rtt: Option<f64>,
}

impl Recovery {
    /// Bytes that were sent, and neither acknowledged nor lost.
    pub(super) const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// A packet was sent. Packets that hold acknowledgements alone are not in flight (RFC 9002, Section 2).
    pub(super) fn on_sent(
        &mut self,
        space: Space,
        number: u64,
        at: f64,
        len: u64,
        eliciting: bool,
    ) {
        let len = if eliciting { len } else { 0 };
        let awaiting = &mut self.spaces[space as usize];
        if awaiting.is_discarded {
            return;
        }
        if awaiting.packets.len() >= MAX_AWAITED
            && let Some((_, oldest)) = awaiting.packets.pop_first()
        {
            self.in_flight -= oldest.len;
        }
        let awaited = Awaited { at, len, is_eliciting: eliciting };
        let before = awaiting.packets.insert(number, awaited);
        // A file may have it twice.
        self.in_flight = self.in_flight - before.map_or(0, |before| before.len) + len;
    }

    /// Packets were acknowledged.
    pub(super) fn on_ack(
        &mut self,
        space: Space,
        largest: u64,
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        at: f64,
    ) -> Told {
        let awaiting = &mut self.spaces[space as usize];
        let (mut largest_sent_at, mut is_eliciting, mut found) = (None, false, 0);
        for range in ranges {
            while let Some((&number, _)) = awaiting.packets.range(range.clone()).next() {
                let Some(acked) = awaiting.packets.remove(&number) else { break };
                self.in_flight -= acked.len;
                is_eliciting |= acked.is_eliciting;
                if number == largest {
                    largest_sent_at = Some(acked.at);
                }
            }
            while let Some((&number, _)) = awaiting.lost.range(range.clone()).next() {
                let Some(acked) = awaiting.lost.remove(&number) else { break };
                is_eliciting = true;
                found += 1;
                if number == largest {
                    largest_sent_at = Some(acked.at);
                }
            }
        }
        awaiting.largest_acked = awaiting.largest_acked.max(Some(largest));
        // RFC 9002, Section 5.1.
        let rtt = largest_sent_at.filter(|_| is_eliciting).map(|sent| (at - sent).max(0.0));
        if let Some(rtt) = rtt {
            self.latest_rtt = Some(rtt);
            self.smoothed_rtt =
                Some(self.smoothed_rtt.map_or(rtt, |mean| (7.0 * mean + rtt) / 8.0));
            self.min_rtt = Some(self.min_rtt.map_or(rtt, |least| least.min(rtt)));
        }
        Told { rtt, lost: self.find_lost(space, at), found }
    }

    /// Counts what is lost by now (RFC 9002, Section 6.1).
    fn find_lost(&mut self, space: Space, at: f64) -> u64 {
        let awaiting = &mut self.spaces[space as usize];
        let Some(largest) = awaiting.largest_acked else { return 0 };
        let rtt = self.latest_rtt.map(|rtt| self.smoothed_rtt.map_or(rtt, |mean| mean.max(rtt)));
        let patience = rtt.map(|rtt| (TIME_THRESHOLD * rtt).max(GRANULARITY));
        let mut lost = 0;
        while let Some(oldest) = awaiting.packets.first_entry()
            && *oldest.key() < largest
        {
            let is_overtaken = largest - *oldest.key() >= PACKET_THRESHOLD;
            let is_late = patience.is_some_and(|patience| at - oldest.get().at > patience);
            if !is_overtaken && !is_late {
                break;
            }
            let (number, packet) = oldest.remove_entry();
            self.in_flight -= packet.len;
            // What nobody acknowledges by itself is not missed.
            if packet.is_eliciting {
                lost += 1;
                if awaiting.lost.len() >= MAX_LOST {
                    awaiting.lost.pop_first();
                }
                awaiting.lost.insert(number, packet);
            }
        }
        lost
    }

    /// The keys of a space are discarded, and nothing of it is awaited any more (RFC 9002, Section 6.4).
    pub(super) fn discard(&mut self, space: Space) {
        let discarded = Awaiting { is_discarded: true, ..Awaiting::default() };
        let gone = std::mem::replace(&mut self.spaces[space as usize], discarded);
        self.in_flight -= gone.packets.values().map(|packet| packet.len).sum::<u64>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Space::Application;

    fn ack(recovery: &mut Recovery, ranges: &[RangeInclusive<u64>], at: f64) -> Told {
        let largest = *ranges[0].end();
        recovery.on_ack(Application, largest, ranges.iter().cloned(), at)
    }

    #[test]
    fn acknowledgements_tell_times_and_what_is_in_flight() {
        let mut recovery = Recovery::default();
        for number in 0..4 {
            recovery.on_sent(Application, number, number as f64, 1000, true);
        }
        assert_eq!(recovery.in_flight(), 4000);
        assert_eq!(ack(&mut recovery, &[0..=1], 11.0), Told { rtt: Some(10.0), ..Told::default() });
        assert_eq!(recovery.in_flight(), 2000);
        // Of the largest that is new only.
        assert_eq!(ack(&mut recovery, &[0..=1], 50.0), Told::default());
        recovery.on_sent(Application, 4, 60.0, 40, false);
        assert_eq!(recovery.in_flight(), 2000);
        assert_eq!(ack(&mut recovery, &[4..=4], 61.0).rtt, None);
        recovery.discard(Application);
        assert_eq!(recovery.in_flight(), 0);
        // One that goes nevertheless is not awaited.
        recovery.on_sent(Application, 5, 70.0, 1000, true);
        assert_eq!(recovery.in_flight(), 0);
    }

    #[test]
    fn what_is_overtaken_or_late_is_lost() {
        let mut recovery = Recovery::default();
        for number in 0..10 {
            recovery.on_sent(Application, number, 0.0, 1000, true);
        }
        let told = ack(&mut recovery, &[5..=9, 1..=1], 10.0);
        assert_eq!(told, Told { rtt: Some(10.0), lost: 4, found: 0 });
        assert_eq!(recovery.in_flight(), 0);
        recovery.on_sent(Application, 10, 20.0, 1000, true);
        recovery.on_sent(Application, 11, 40.0, 1000, true);
        let told = ack(&mut recovery, &[11..=11], 50.0);
        assert_eq!(told, Told { rtt: Some(10.0), lost: 1, found: 0 });
        // It came after all, with one of the four.
        let told = ack(&mut recovery, &[10..=11, 4..=4], 60.0);
        assert_eq!(told, Told { rtt: None, lost: 0, found: 2 });
        assert_eq!(ack(&mut recovery, &[10..=11, 4..=4], 61.0), Told::default());
        assert_eq!(recovery.in_flight(), 0);
    }

    #[test]
    fn a_round_trip_that_was_short_makes_nobody_hasty() {
        let mut recovery = Recovery::default();
        recovery.on_sent(Application, 0, 0.0, 1000, true);
        ack(&mut recovery, &[0..=0], 100.0);
        recovery.on_sent(Application, 1, 150.0, 1000, true);
        recovery.on_sent(Application, 2, 190.0, 1000, true);
        // The mean is 88.75 ms: 1 has waited for 50 ms.
        let told = ack(&mut recovery, &[2..=2], 200.0);
        assert_eq!(told, Told { rtt: Some(10.0), lost: 0, found: 0 });
    }

    #[test]
    fn ranges_and_packets_without_end_cost_what_is_there() {
        let mut recovery = Recovery::default();
        for number in 0..2 * MAX_AWAITED as u64 {
            recovery.on_sent(Application, number, 0.0, 1, true);
        }
        assert_eq!(recovery.in_flight(), MAX_AWAITED as u64);
        ack(&mut recovery, &[0..=(1 << 62) - 1], 1.0);
        assert_eq!(recovery.in_flight(), 0);
    }
}
