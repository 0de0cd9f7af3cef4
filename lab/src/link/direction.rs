//! One direction: datagrams that wait until the scenario lets them go.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use quicket_engine::time::Time;
use quicket_sim::link::{Channel, Fate, LinkStats, PacketMut};
use quicket_wire::EcnCodepoint;

use super::delay_error::{DelayError, Histogram};

/// Room that is made at once for a datagram: the most that Ethernet carries.
const COMMON: usize = 1500;
/// The most segments, and the most bytes of a burst: what Linux takes in one call.
pub(crate) const MAX_SEGMENTS: usize = 64;
const MAX_BURST: usize = 65_000;

/// Datagrams on their way in one direction, each with a `Route`: where it goes.
///
/// Buffers are used again and again: once there are as many as there were ever datagrams on their
/// way, nothing is allocated.
#[derive(Debug)]
pub(crate) struct Direction<Route> {
    channel: Channel,
    /// Bytes of IP and UDP header.
    overhead: usize,
    /// When each leaves, by number for those that leave together, and its slot.
    queue: BinaryHeap<Reverse<(Time, u64, usize)>>,
    number: u64,
    slots: Vec<Slot<Route>>,
    free: Vec<usize>,
    held: usize,
    memory: usize,
    latest: Time,
    overruns: u64,
    refused: u64,
    delay_error: Histogram,
}

#[derive(Debug)]
struct Slot<Route> {
    route: Route,
    ecn: EcnCodepoint,
    payload: Vec<u8>,
}

/// Datagrams that leave together: equally long but the last, which may be shorter, with one mark
/// and one route.
#[derive(Debug)]
pub(crate) struct Burst<Route> {
    pub(crate) route: Option<Route>,
    pub(crate) ecn: EcnCodepoint,
    pub(crate) segment: usize,
    pub(crate) bytes: Vec<u8>,
    /// When each should have left.
    due: Vec<Time>,
}

impl<Route> Burst<Route> {
    pub(crate) fn new() -> Self {
        Self {
            route: None,
            ecn: EcnCodepoint::NotEct,
            segment: 0,
            bytes: Vec::with_capacity(MAX_BURST),
            due: Vec::with_capacity(MAX_SEGMENTS),
        }
    }

    /// How many datagrams it has.
    pub(crate) fn len(&self) -> u64 {
        self.due.len() as u64
    }
}

/// What a direction did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally<'a> {
    pub(crate) link: &'a LinkStats,
    /// Datagrams for which there was no memory.
    pub(crate) overruns: u64,
    /// Datagrams that the system refused to send.
    pub(crate) refused: u64,
    pub(crate) delay_error: DelayError,
}

impl<Route: Copy + PartialEq> Direction<Route> {
    /// A direction whose IP and UDP headers have `overhead` bytes, and which holds `memory` bytes
    /// of datagrams at most.
    pub(crate) fn new(channel: Channel, overhead: usize, memory: usize) -> Self {
        Self {
            channel,
            overhead,
            queue: BinaryHeap::new(),
            number: 0,
            slots: Vec::new(),
            free: Vec::new(),
            held: 0,
            memory,
            latest: Time::ZERO,
            overruns: 0,
            refused: 0,
            delay_error: Histogram::default(),
        }
    }

    /// Takes in a datagram that arrived at `at`; one that the scenario corrupts is changed in
    /// place.
    pub(crate) fn offer(
        &mut self,
        at: Time,
        route: Route,
        mut ecn: EcnCodepoint,
        payload: &mut [u8],
    ) {
        // Stamps of several sockets are not in order; the scenario's time must not go back.
        self.latest = self.latest.max(at);
        let ip_len = payload.len() + self.overhead;
        let packet = PacketMut { ip_len, ecn: &mut ecn, payload };
        let verdict = self.channel.offer(self.latest, packet);
        if let Some(copy) = verdict.copy {
            self.keep(copy, route, ecn, payload);
        }
        if let Fate::Passed(treatment) = verdict.fate {
            self.keep(treatment.arrives, route, ecn, payload);
        }
    }

    /// When the next datagram leaves.
    pub(crate) fn next_time(&self) -> Option<Time> {
        self.queue.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Fills `burst` with what must have left by `now`; false if that is nothing.
    pub(crate) fn take(&mut self, now: Time, burst: &mut Burst<Route>) -> bool {
        burst.bytes.clear();
        burst.due.clear();
        while let Some(&Reverse((at, _, index))) = self.queue.peek()
            && at <= now
            && let Some(slot) = self.slots.get_mut(index)
        {
            let len = slot.payload.len();
            if burst.due.is_empty() {
                (burst.route, burst.ecn, burst.segment) = (Some(slot.route), slot.ecn, len);
            } else if !burst.takes(slot) {
                break;
            }
            burst.bytes.extend_from_slice(&slot.payload);
            burst.due.push(at);
            slot.payload.clear();
            self.held -= len;
            self.queue.pop();
            self.free.push(index);
            self.channel.count_delivery(len + self.overhead);
            // Nothing may follow a shorter datagram.
            if len < burst.segment || len == 0 {
                break;
            }
        }
        !burst.due.is_empty()
    }

    /// Notes that `burst` has left at `now`.
    pub(crate) fn has_left(&mut self, now: Time, burst: &Burst<Route>) {
        for &due in &burst.due {
            self.delay_error.record((now - due).as_nanos());
        }
    }

    /// Notes that the system refused to send `count` datagrams.
    pub(crate) fn count_refused(&mut self, count: u64) {
        self.refused += count;
    }

    pub(crate) fn tally(&self) -> Tally<'_> {
        Tally {
            link: self.channel.stats(),
            overruns: self.overruns,
            refused: self.refused,
            delay_error: self.delay_error.summary(),
        }
    }

    fn keep(&mut self, at: Time, route: Route, ecn: EcnCodepoint, payload: &[u8]) {
        if self.held + payload.len() > self.memory {
            self.overruns += 1;
            return;
        }
        self.held += payload.len();
        let index = self.free.pop().unwrap_or_else(|| {
            let payload = Vec::with_capacity(COMMON);
            self.slots.push(Slot { route, ecn, payload });
            self.slots.len() - 1
        });
        if let Some(slot) = self.slots.get_mut(index) {
            (slot.route, slot.ecn) = (route, ecn);
            slot.payload.extend_from_slice(payload);
        }
        self.queue.push(Reverse((at, self.number, index)));
        self.number += 1;
    }
}

impl<Route: PartialEq> Burst<Route> {
    fn takes(&self, slot: &Slot<Route>) -> bool {
        let len = slot.payload.len();
        self.route.as_ref() == Some(&slot.route)
            && self.ecn == slot.ecn
            && (1..=self.segment).contains(&len)
            && self.due.len() < MAX_SEGMENTS
            && self.bytes.len() + len <= MAX_BURST
    }
}

#[cfg(test)]
mod tests {
    use quicket_engine::time::Duration;
    use quicket_sim::rng::SimRng;
    use quicket_sim::scenario::Scenario;

    use super::*;

    const NOT_ECT: EcnCodepoint = EcnCodepoint::NotEct;

    fn direction(scenario: &str, memory: usize) -> Direction<u8> {
        let scenario: Scenario = scenario.parse().unwrap();
        let (up, _) = scenario.channels(Time::ZERO, &SimRng::new(1));
        Direction::new(up, 28, memory)
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    /// Route, mark, segment size and bytes of everything that is due.
    fn bursts(direction: &mut Direction<u8>, now: Time) -> Vec<(u8, EcnCodepoint, usize, Vec<u8>)> {
        let mut burst = Burst::new();
        let mut all = Vec::new();
        while direction.take(now, &mut burst) {
            direction.has_left(now, &burst);
            let route = burst.route.unwrap();
            all.push((route, burst.ecn, burst.segment, burst.bytes.clone()));
        }
        all
    }

    #[test]
    fn datagrams_leave_when_the_scenario_says_and_not_before() {
        let mut direction = direction("delay=10ms", 1000);
        direction.offer(at(1), 0, NOT_ECT, &mut [7]);
        assert_eq!(direction.next_time(), Some(at(11)));
        assert_eq!(bursts(&mut direction, at(10)), []);
        assert_eq!(bursts(&mut direction, at(13)), [(0, NOT_ECT, 1, vec![7])]);
        assert_eq!(direction.next_time(), None);
        let DelayError { count, max_us, .. } = direction.tally().delay_error;
        assert_eq!((count, max_us), (1, 2000.0));
    }

    #[test]
    fn what_is_alike_leaves_in_one_burst() {
        let mut direction = direction("", 10_000);
        let ect = EcnCodepoint::Ect0;
        for (route, ecn, len) in [
            (1, ect, 5),
            (1, ect, 5),
            (1, ect, 3),
            (1, ect, 3),
            (1, ect, 4),
            (1, NOT_ECT, 4),
            (2, NOT_ECT, 4),
            (2, NOT_ECT, 0),
            (2, NOT_ECT, 0),
        ] {
            direction.offer(at(1), route, ecn, &mut vec![len as u8; len]);
        }
        let shapes: Vec<_> = bursts(&mut direction, at(1))
            .into_iter()
            .map(|(route, ecn, segment, bytes)| (route, ecn, segment, bytes.len()))
            .collect();
        assert_eq!(
            shapes,
            [
                (1, ect, 5, 13),
                (1, ect, 3, 3),
                (1, ect, 4, 4),
                (1, NOT_ECT, 4, 4),
                (2, NOT_ECT, 4, 4),
                (2, NOT_ECT, 0, 0),
                (2, NOT_ECT, 0, 0),
            ]
        );
    }

    #[test]
    fn bursts_are_no_longer_than_the_system_takes() {
        let mut direction = direction("", 1 << 20);
        for _ in 0..100 {
            direction.offer(at(1), 0, NOT_ECT, &mut [1; 1472]);
        }
        let lengths: Vec<_> =
            bursts(&mut direction, at(1)).into_iter().map(|(.., bytes)| bytes.len()).collect();
        assert_eq!(lengths, [44 * 1472, 44 * 1472, 12 * 1472]);
    }

    #[test]
    fn copies_and_corruption_are_those_of_the_channel() {
        let mut direction = direction("duplicate=100% corrupt=100% mark=100%", 1000);
        direction.offer(at(0), 0, EcnCodepoint::Ect0, &mut [0; 10]);
        let all = bursts(&mut direction, at(0));
        assert_eq!(all.len(), 1);
        let (_, ecn, segment, bytes) = &all[0];
        assert_eq!((*ecn, *segment, bytes.len()), (EcnCodepoint::Ce, 10, 20));
        assert_ne!(bytes[..10], [0; 10]);
        assert_eq!(bytes[..10], bytes[10..]);
        assert_eq!(direction.tally().link.delivered, 2);
    }

    #[test]
    fn memory_ends_and_comes_back_and_buffers_are_used_again() {
        let mut direction = direction("delay=1ms", 25);
        for round in 0..10 {
            for _ in 0..3 {
                direction.offer(at(10 * round), 0, NOT_ECT, &mut [0; 10]);
            }
            assert_eq!(bursts(&mut direction, at(10 * round + 1)).len(), 1);
        }
        let tally = direction.tally();
        assert_eq!((tally.overruns, tally.link.delivered), (10, 20));
        assert_eq!(direction.slots.len(), 2);
    }

    #[test]
    fn time_does_not_go_back() {
        let mut direction = direction("rate=8mbit", 10_000);
        direction.offer(at(5), 0, NOT_ECT, &mut [0; 972]);
        direction.offer(at(4), 0, NOT_ECT, &mut [0; 972]);
        assert_eq!(bursts(&mut direction, at(6)).len(), 1);
        assert_eq!(direction.next_time(), Some(at(7)));
    }
}
