//! A single bottleneck in virtual time, and flows that send over it with the real loss recovery.

use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::RangeInclusive;

use crate::SentFrame;
use crate::congestion::delivery::{time_for, volume};
use crate::congestion::{CongestionAlgorithm, PathCongestion};
use crate::recovery::{
    AckSink, LossSink, PathKey, RecoverySpace, RttEstimator, SentInfo, SentPacket,
};
use crate::time::{Duration, Time};

pub(super) const MTU: u16 = 1400;
const MAX_ACK_DELAY: Duration = Duration::from_millis(25);

pub(super) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(super) fn at_millis(n: u64) -> Time {
    Time::ZERO + millis(n)
}

/// A drop-tail queue in front of a line of `rate` bytes per second.
pub(super) struct Link {
    pub(super) rate: u64,
    /// One way.
    pub(super) delay: Duration,
    /// Bytes that may wait.
    pub(super) buffer: u64,
    /// Of a million packets, so many are lost at random.
    pub(super) loss_per_million: u64,
    /// Of a million packets, so many are held back for `hold`.
    pub(super) reorder_per_million: u64,
    pub(super) hold: Duration,
    free_at: Time,
    random: u64,
    pub(super) overflows: u64,
    /// Sum and number of the waiting times seen by packets.
    waited: (u64, u64),
}

impl Link {
    pub(super) fn new(mbit: u64, rtt_ms: u64, buffer: u64) -> Self {
        Self {
            rate: mbit * 125_000,
            delay: millis(rtt_ms).over(2),
            buffer,
            loss_per_million: 0,
            reorder_per_million: 0,
            hold: Duration::ZERO,
            free_at: Time::ZERO,
            random: 0x9e37_79b9_7f4a_7c15,
            overflows: 0,
            waited: (0, 0),
        }
    }

    fn chance(&mut self, per_million: u64) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 1_000_000 < per_million
    }

    /// When a packet arrives at the other end, if it does.
    fn carry(&mut self, now: Time, bytes: u64) -> Option<Time> {
        let wait = self.free_at.since(now);
        if volume(self.rate, wait) + bytes > self.buffer {
            self.overflows += 1;
            return None;
        }
        self.waited = (self.waited.0 + wait.as_micros(), self.waited.1 + 1);
        self.free_at = self.free_at.max(now) + time_for(bytes, self.rate);
        if self.chance(self.loss_per_million) {
            return None;
        }
        let held = self.chance(self.reorder_per_million);
        let hold = if held { self.hold } else { Duration::ZERO };
        Some(self.free_at + self.delay + hold)
    }

    /// The mean waiting time since the last call.
    pub(super) fn take_mean_wait(&mut self) -> Duration {
        let (sum, count) = core::mem::take(&mut self.waited);
        Duration::from_micros(sum / count.max(1))
    }
}

enum Event {
    Arrival(u64),
    Ack(Box<[RangeInclusive<u64>]>),
    Wake,
}

/// How many ranges a receiver remembers.
const MAX_RANGES: usize = 32;

/// What the receiver of a flow has, largest first.
#[derive(Default)]
struct Receiver {
    ranges: Vec<RangeInclusive<u64>>,
    unacked: u32,
}

impl Receiver {
    /// The ranges of an ACK, if one is due: after every second packet, or out of order.
    fn receive(&mut self, number: u64) -> Option<Box<[RangeInclusive<u64>]>> {
        let in_order = self.ranges.first().is_none_or(|range| number == range.end() + 1);
        self.insert(number);
        self.unacked += 1;
        if in_order && self.unacked < 2 {
            return None;
        }
        self.unacked = 0;
        Some(self.ranges.clone().into_boxed_slice())
    }

    fn insert(&mut self, number: u64) {
        let at = self.ranges.iter().position(|range| *range.start() <= number + 1);
        let at = at.unwrap_or(self.ranges.len());
        let joins = |range: &RangeInclusive<u64>| number == range.end() + 1;
        if self.ranges.get(at).is_some_and(joins) {
            self.ranges[at] = *self.ranges[at].start()..=number;
        } else if self.ranges.get(at).is_some_and(|range| *range.start() == number + 1) {
            self.ranges[at] = number..=*self.ranges[at].end();
        } else {
            self.ranges.insert(at, number..=number);
        }
        // The packet may have closed the gap to the next smaller or larger range.
        for upper in [at + 1, at] {
            if upper > 0
                && let (Some(above), Some(below)) =
                    (self.ranges.get(upper - 1), self.ranges.get(upper))
                && *above.start() == below.end() + 1
            {
                self.ranges[upper - 1] = *below.start()..=*above.end();
                self.ranges.remove(upper);
            }
        }
        self.ranges.truncate(MAX_RANGES);
    }
}

/// One sender and its receiver.
pub(super) struct Flow {
    pub(super) congestion: PathCongestion,
    space: RecoverySpace,
    rtt: RttEstimator,
    receiver: Receiver,
    /// When it starts to send.
    pub(super) start: Time,
    /// When it stops.
    pub(super) stop: Time,
    /// Bytes per second that the application has to send; `None` for as much as it can.
    pub(super) app_rate: Option<u64>,
    sent: u64,
    pub(super) delivered: u64,
    pub(super) peak_window: u64,
    wake: Option<Time>,
    pto_count: u32,
    last_probe: Time,
}

impl Flow {
    pub(super) fn new(algorithm: CongestionAlgorithm, start: Time, seed: u64) -> Self {
        let rtt = RttEstimator::new(millis(333));
        Self {
            congestion: PathCongestion::new(algorithm.into(), MTU, &rtt, true, seed),
            space: RecoverySpace::new(),
            rtt,
            receiver: Receiver::default(),
            start,
            stop: Time::from_nanos(u64::MAX),
            app_rate: None,
            sent: 0,
            delivered: 0,
            peak_window: 0,
            wake: None,
            pto_count: 0,
            last_probe: start,
        }
    }

    fn on_ack(&mut self, now: Time, ranges: &[RangeInclusive<u64>]) {
        let (largest, ranges) = (*ranges[0].end(), ranges.iter().cloned());
        let mut sink = Sink { now, congestion: &mut self.congestion };
        let ack = self.space.on_ack_ranges(now, largest, ranges, &mut sink).unwrap();
        self.delivered += ack.newly_acked_bytes;
        if let Some(sample) = ack.rtt_sample {
            self.rtt.update(now, sample, Duration::ZERO, Some(MAX_ACK_DELAY));
        }
        if ack.newly_acked > 0 {
            self.pto_count = 0;
        }
        self.detect_lost(now, ack.rtt_sample);
    }

    fn detect_lost(&mut self, now: Time, sample: Option<Duration>) {
        let mut sink = Sink { now, congestion: &mut self.congestion };
        let lost = self.space.detect_lost(now, &self.rtt, MAX_ACK_DELAY, &mut sink);
        let persistent = lost.persistent_congestion.is_some();
        self.congestion.process(now, &self.rtt, sample, persistent);
        self.peak_window = self.peak_window.max(self.congestion.window());
    }

    fn timer(&self) -> Option<Time> {
        let pto = || {
            let since = self.space.pto_base()?.max(self.last_probe);
            Some(since + self.rtt.pto(MAX_ACK_DELAY).backoff(self.pto_count))
        };
        self.space.loss_time().or_else(pto)
    }

    fn has_data(&self, now: Time) -> bool {
        let offered = |rate| volume(rate, now.since(self.start));
        now < self.stop && self.app_rate.is_none_or(|rate| self.sent < offered(rate))
    }

    fn send(&mut self, now: Time, link: &mut Link) -> Option<(u64, Time)> {
        assert!(self.space.reserve());
        self.space.push_frame(SentFrame::Ping);
        let rate = self.congestion.on_sent(now, MTU);
        self.sent += u64::from(MTU);
        let number = self.space.on_sent(&SentInfo {
            time_sent: now,
            size: MTU,
            path: PathKey(0),
            ack_eliciting: true,
            in_flight: true,
            mtu_probe: false,
            ecn_ect: false,
            rate,
        });
        Some((number, link.carry(now, u64::from(MTU))?))
    }
}

struct Sink<'a> {
    now: Time,
    congestion: &'a mut PathCongestion,
}

impl AckSink for Sink<'_> {
    fn acked_packet(&mut self, number: u64, packet: &SentPacket) {
        self.congestion.on_packet_acked(self.now, number, packet);
    }
    fn spurious_packet(&mut self, _number: u64, packet: &SentPacket) {
        self.congestion.on_spurious_loss(self.now, packet);
    }
    fn acked_frame(&mut self, _frame: &SentFrame) {}
}

impl LossSink for Sink<'_> {
    fn lost_packet(&mut self, number: u64, packet: &SentPacket) {
        self.congestion.on_packet_lost(self.now, number, packet);
    }
    fn lost_frame(&mut self, _frame: &SentFrame) {}
}

/// The link and all flows on it.
pub(super) struct World {
    pub(super) link: Link,
    pub(super) flows: Vec<Flow>,
    events: BinaryHeap<Reverse<(Time, u64, usize)>>,
    payloads: Vec<Option<Event>>,
    now: Time,
}

impl World {
    pub(super) fn new(link: Link, flows: Vec<Flow>) -> Self {
        let (events, payloads) = (BinaryHeap::new(), Vec::new());
        let mut world = Self { link, flows, events, payloads, now: Time::ZERO };
        for flow in 0..world.flows.len() {
            world.schedule(world.flows[flow].start, flow, Event::Wake);
        }
        world
    }

    fn schedule(&mut self, at: Time, flow: usize, event: Event) {
        let id = self.payloads.len() as u64;
        self.payloads.push(Some(event));
        self.events.push(Reverse((at, id, flow)));
    }

    /// Runs until `end`, and returns what each flow delivered meanwhile.
    pub(super) fn run_until(&mut self, end: Time) -> Vec<u64> {
        let before: Vec<u64> = self.flows.iter().map(|flow| flow.delivered).collect();
        while let Some(&Reverse((at, id, flow))) = self.events.peek() {
            if at > end {
                break;
            }
            self.events.pop();
            self.now = at;
            let event = self.payloads[id as usize].take().unwrap();
            self.handle(flow, event);
        }
        self.now = end;
        self.flows.iter().zip(before).map(|(flow, before)| flow.delivered - before).collect()
    }

    fn handle(&mut self, index: usize, event: Event) {
        let now = self.now;
        match event {
            Event::Arrival(number) => {
                if let Some(ranges) = self.flows[index].receiver.receive(number) {
                    let at = now + self.link.delay;
                    self.schedule(at, index, Event::Ack(ranges));
                }
                return;
            }
            Event::Ack(ranges) => self.flows[index].on_ack(now, &ranges),
            Event::Wake => self.on_wake(index),
        }
        self.send_all(index);
        self.set_timer(index);
    }

    fn on_wake(&mut self, index: usize) {
        let (now, flow) = (self.now, &mut self.flows[index]);
        if flow.wake == Some(now) {
            flow.wake = None;
        }
        if flow.timer().is_none_or(|at| at > now) {
            return;
        }
        if flow.space.loss_time().is_some() {
            flow.detect_lost(now, None);
            return;
        }
        flow.pto_count += 1;
        flow.last_probe = now;
        if let Some((number, at)) = flow.send(now, &mut self.link) {
            self.schedule(at, index, Event::Arrival(number));
        }
    }

    fn send_all(&mut self, index: usize) {
        let now = self.now;
        loop {
            let flow = &mut self.flows[index];
            if !flow.has_data(now) {
                flow.congestion.set_app_limited();
                if flow.app_rate.is_some() && now < flow.stop {
                    self.wake_at(index, now + millis(1));
                }
                return;
            }
            if !flow.congestion.can_send(u64::from(MTU)) {
                return;
            }
            if let Some(at) = flow.congestion.pacing_delay(now) {
                self.wake_at(index, at);
                return;
            }
            if let Some((number, at)) = flow.send(now, &mut self.link) {
                self.schedule(at, index, Event::Arrival(number));
            }
        }
    }

    fn set_timer(&mut self, index: usize) {
        if let Some(at) = self.flows[index].timer() {
            self.wake_at(index, at.max(self.now + Duration::from_micros(1)));
        }
    }

    fn wake_at(&mut self, index: usize, at: Time) {
        let flow = &mut self.flows[index];
        if flow.wake.is_none_or(|wake| at < wake || wake <= self.now) {
            flow.wake = Some(at);
            self.schedule(at, index, Event::Wake);
        }
    }
}
