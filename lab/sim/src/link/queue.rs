//! The bottleneck: a rate with a drop-tail queue before it.

use std::collections::VecDeque;

use quicket_engine::time::{Duration, Time};

use crate::units::QueueLength;

/// A transmitter that serves packets one by one, and those that wait for it.
///
/// A packet keeps the time at which it was promised to leave when it came: a later change of the
/// rate holds for packets that come later.
#[derive(Clone, Debug, Default)]
pub(super) struct Bottleneck {
    /// When transmission of each waiting packet starts, and its length.
    waiting: VecDeque<(Time, u64)>,
    waiting_bytes: u64,
    /// When all accepted so far has been transmitted.
    free_at: Time,
}

/// What the bottleneck promises a packet that it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Passage {
    /// When its last bit is on the wire.
    pub(super) departs: Time,
    /// Packets that wait, itself included if it must.
    pub(super) queued_packets: u64,
    /// Their bytes.
    pub(super) queued_bytes: u64,
}

impl Passage {
    /// True if the queue that the packet found and joined is longer than `length`.
    pub(super) fn is_above(&self, length: QueueLength) -> bool {
        match length {
            QueueLength::Packets(packets) => self.queued_packets > packets,
            QueueLength::Bytes(bytes) => self.queued_bytes > bytes,
        }
    }
}

impl Bottleneck {
    /// Accepts a packet of `len` bytes, or drops it (`None`) because the queue is full. The packet
    /// in transmission is not in the queue.
    pub(super) fn offer(
        &mut self,
        now: Time,
        len: u64,
        rate: Option<u64>,
        limit: Option<QueueLength>,
    ) -> Option<Passage> {
        self.expire(now);
        let start = self.free_at.max(now);
        if start > now {
            let joined = Passage {
                departs: start,
                queued_packets: self.waiting.len() as u64 + 1,
                queued_bytes: self.waiting_bytes + len,
            };
            if limit.is_some_and(|limit| joined.is_above(limit)) {
                return None;
            }
            self.waiting.push_back((start, len));
            self.waiting_bytes += len;
        }
        let service = rate.map_or(Duration::ZERO, |rate| transmission(len, rate));
        self.free_at = start + service;
        Some(Passage {
            departs: self.free_at,
            queued_packets: self.waiting.len() as u64,
            queued_bytes: self.waiting_bytes,
        })
    }

    fn expire(&mut self, now: Time) {
        while let Some((start, len)) = self.waiting.front().copied()
            && start <= now
        {
            self.waiting.pop_front();
            self.waiting_bytes -= len;
        }
    }
}

/// How long `len` bytes take at `rate` bits per second.
fn transmission(len: u64, rate: u64) -> Duration {
    Duration::from_secs(1).scale(len.saturating_mul(8), rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBIT: Option<u64> = Some(1_000_000);

    #[test]
    fn packets_leave_at_the_rate() {
        let mut b = Bottleneck::default();
        let departs: Vec<u64> = (0..3)
            .map(|_| b.offer(Time::ZERO, 1_250, MBIT, None).unwrap().departs.as_nanos())
            .collect();
        assert_eq!(departs, [10_000_000, 20_000_000, 30_000_000]);
        let later = Time::from_nanos(100_000_000);
        let passage = b.offer(later, 1_250, MBIT, None).unwrap();
        assert_eq!(passage.departs - later, Duration::from_millis(10));
        assert_eq!(passage.queued_packets, 0);
    }

    #[test]
    fn tail_is_dropped_when_the_queue_is_full() {
        let limit = Some(QueueLength::Packets(2));
        let mut b = Bottleneck::default();
        let accepted: Vec<bool> =
            (0..5).map(|_| b.offer(Time::ZERO, 1_250, MBIT, limit).is_some()).collect();
        assert_eq!(accepted, [true, true, true, false, false], "one in service and two waiting");
        let next = Time::from_nanos(10_000_000);
        assert!(b.offer(next, 1_250, MBIT, limit).is_some(), "one has begun to leave");
        assert!(b.offer(next, 1_250, MBIT, limit).is_none());
    }

    #[test]
    fn queue_can_be_counted_in_bytes() {
        let limit = Some(QueueLength::Bytes(2_000));
        let mut b = Bottleneck::default();
        assert!(b.offer(Time::ZERO, 1_500, MBIT, limit).is_some());
        assert!(b.offer(Time::ZERO, 1_500, MBIT, limit).is_some());
        assert!(b.offer(Time::ZERO, 1_500, MBIT, limit).is_none());
        let small = b.offer(Time::ZERO, 500, MBIT, limit).unwrap();
        assert_eq!((small.queued_packets, small.queued_bytes), (2, 2_000));
        assert!(small.is_above(QueueLength::Packets(1)));
        assert!(!small.is_above(QueueLength::Bytes(2_000)));
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut b = Bottleneck::default();
        for _ in 0..10 {
            let passage = b.offer(Time::ZERO, 1_500, None, Some(QueueLength::Packets(0))).unwrap();
            assert_eq!(passage.departs, Time::ZERO);
        }
    }
}
