//! First packets for a listener that was passed on over fork(2) and that nobody accepts from yet: they wait here
//! as clients do in the queue of a socket that processes share.

use std::collections::{BTreeMap, VecDeque};

use quicket_engine::time::{Duration, Time};

use super::Daemon;
use super::route::Outbox;
use crate::first_packet::HeldDatagram;
use crate::registry::AddressId;
use crate::router::Train;

/// How many datagrams wait at an address.
pub const MAX_PARKED: usize = 1024;
/// ... and how many bytes.
pub const MAX_PARKED_BYTES: usize = 2 << 20;
/// How long each waits. A client sends it again after one second, and again after three and seven (RFC 9002,
/// Section 6.2).
pub const PARK_TIME: Duration = Duration::from_secs(5);

/// Datagrams that wait, of each address in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Parked(BTreeMap<AddressId, Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    queue: VecDeque<(Time, HeldDatagram)>,
    bytes: usize,
}

impl Waiting {
    fn add(&mut self, now: Time, datagram: HeldDatagram) {
        self.bytes += datagram.bytes.len();
        self.queue.push_back((now, datagram));
        // Whoever waits longest has sent the same again, or has given up.
        while self.queue.len() > MAX_PARKED || self.bytes > MAX_PARKED_BYTES {
            self.lose_first();
        }
    }

    fn lose_first(&mut self) {
        if let Some((_, datagram)) = self.queue.pop_front() {
            self.bytes -= datagram.bytes.len();
        }
    }

    fn expire(&mut self, now: Time) {
        while self.queue.front().is_some_and(|(since, _)| now.since(*since) > PARK_TIME) {
            self.lose_first();
        }
    }
}

impl Parked {
    /// Gives up what has waited for too long.
    pub(super) fn expire(&mut self, now: Time) {
        self.0.values_mut().for_each(|waiting| waiting.expire(now));
        self.0.retain(|_, waiting| !waiting.queue.is_empty());
    }
}

impl Daemon {
    /// Has a datagram wait until somebody accepts.
    pub(super) fn park(&mut self, now: Time, id: AddressId, datagram: HeldDatagram) {
        self.parked.0.entry(id).or_default().add(now, datagram);
    }

    /// It may have changed who accepts at an address: what waits there is decided about anew.
    pub(super) fn unpark(&mut self, id: AddressId) {
        let now = self.now();
        let Some(mut waiting) = self.parked.0.remove(&id) else { return };
        waiting.expire(now);
        let mut outbox = Outbox::default();
        for (_, HeldDatagram { remote, local, ecn, bytes }) in &waiting.queue {
            let (remote, local, ecn) = (*remote, *local, *ecn);
            let train = Train { address: id, remote, local, ecn, segment_size: bytes.len(), bytes };
            self.sort(now, &train, &mut outbox);
        }
        self.hand_over(id, outbox);
    }
}

#[cfg(test)]
mod tests {
    use quicket_wire::EcnCodepoint;

    use super::*;

    fn datagram(len: usize) -> HeldDatagram {
        let remote = "192.0.2.1:9".parse().unwrap();
        HeldDatagram { remote, local: None, ecn: EcnCodepoint::NotEct, bytes: vec![0; len] }
    }

    #[test]
    fn what_waits_is_bounded_in_number_bytes_and_time() {
        let mut waiting = Waiting::default();
        for _ in 0..=MAX_PARKED {
            waiting.add(Time::ZERO, datagram(1200));
        }
        assert_eq!((waiting.queue.len(), waiting.bytes), (MAX_PARKED, MAX_PARKED * 1200));
        for _ in 0..100 {
            waiting.add(Time::ZERO, datagram(65_000));
        }
        assert!(waiting.bytes <= MAX_PARKED_BYTES, "{}", waiting.bytes);
        waiting.expire(Time::ZERO + PARK_TIME);
        assert!(!waiting.queue.is_empty());
        waiting.expire(Time::ZERO + PARK_TIME + Duration::from_nanos(1));
        assert_eq!((waiting.queue.len(), waiting.bytes), (0, 0));
    }
}
