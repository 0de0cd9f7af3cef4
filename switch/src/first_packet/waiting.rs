//! First packets that wait until it is known who gets them: who of a family accepts them, who comes to serve, or
//! whether a program that has had the door has their client.

use std::collections::VecDeque;

use quicket_engine::time::{Duration, Time};

use super::HeldDatagram;

/// How many datagrams wait at an address.
pub const MAX_PARKED: usize = 1024;
/// ... and how many bytes.
pub const MAX_PARKED_BYTES: usize = 2 << 20;
/// How long each waits. A client sends it again after one second, and again after three and seven (RFC 9002,
/// Section 6.2).
pub const PARK_TIME: Duration = Duration::from_secs(5);

/// Datagrams that wait at an address, in the order in which they came.
#[derive(Debug, Default)]
pub struct Waiting {
    queue: VecDeque<(Time, HeldDatagram)>,
    bytes: usize,
}

impl Waiting {
    /// Adds one that waits `since` then, after those that wait longer. Where there is no room, those go that have waited longest.
    pub fn add(&mut self, since: Time, datagram: HeldDatagram) {
        self.bytes += datagram.bytes.len();
        self.queue.push_back((since, datagram));
        // Whoever waits longest has sent the same again, or has given up.
        while self.queue.len() > MAX_PARKED || self.bytes > MAX_PARKED_BYTES {
            self.lose_first();
        }
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Gives up what has waited for too long.
    pub fn expire(&mut self, now: Time) {
        while self.queue.front().is_some_and(|(since, _)| now.since(*since) > PARK_TIME) {
            self.lose_first();
        }
    }

    /// Takes those out that have not waited for too long, with when each has begun to.
    pub fn take(&mut self, now: Time) -> Vec<(Time, HeldDatagram)> {
        self.expire(now);
        self.bytes = 0;
        std::mem::take(&mut self.queue).into()
    }

    fn lose_first(&mut self) {
        if let Some((_, datagram)) = self.queue.pop_front() {
            self.bytes -= datagram.bytes.len();
        }
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
    fn what_goes_on_waiting_waits_no_longer_than_other_datagrams() {
        let mut waiting = Waiting::default();
        let mut now = Time::ZERO;
        waiting.add(now, datagram(1200));
        for _ in 0..5 {
            now += Duration::from_secs(1);
            for (since, datagram) in waiting.take(now) {
                waiting.add(since, datagram);
            }
        }
        assert!(!waiting.is_empty());
        assert_eq!(waiting.take(now + Duration::from_nanos(1)), []);
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
