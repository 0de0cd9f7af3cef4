use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::congestion::CongestionAlgorithm;
use crate::recovery::{RecoverySpace, SentInfo};

const MTU: u16 = 1200;
const MS: Duration = Duration::from_millis(1);

fn at(ms: u64) -> Time {
    Time::ZERO + MS.times(ms)
}

fn rtt() -> RttEstimator {
    let mut rtt = RttEstimator::new(MS.times(333));
    rtt.update(Time::ZERO, MS.times(100), Duration::ZERO, None);
    rtt
}

/// What a controller was told, countable from outside.
#[derive(Debug, Default)]
struct Told {
    acked: AtomicU64,
    growth: AtomicU64,
    lost_packets: AtomicU64,
    events: AtomicU64,
    ecn: AtomicU64,
    persistent: AtomicU64,
    spurious: AtomicU64,
}

#[derive(Debug)]
struct Spy(Arc<Told>);

impl CongestionController for Spy {
    fn on_ack(&mut self, ack: &AckEvent<'_>) {
        self.0.acked.fetch_add(ack.bytes, Ordering::Relaxed);
        self.0.growth.fetch_add(ack.growth_bytes, Ordering::Relaxed);
    }
    fn on_packet_lost(&mut self, _now: Time, _packet: &LostPacket) {
        self.0.lost_packets.fetch_add(1, Ordering::Relaxed);
    }
    fn on_congestion(&mut self, event: &CongestionEvent) {
        let count = if event.is_ecn_ce { &self.0.ecn } else { &self.0.events };
        count.fetch_add(1, Ordering::Relaxed);
    }
    fn on_persistent_congestion(&mut self, _now: Time) {
        self.0.persistent.fetch_add(1, Ordering::Relaxed);
    }
    fn on_spurious_loss(&mut self, _now: Time) {
        self.0.spurious.fetch_add(1, Ordering::Relaxed);
    }
    fn on_mtu_changed(&mut self, _mtu: u16) {}
    fn window(&self) -> u64 {
        12_000
    }
    fn in_slow_start(&self) -> bool {
        false
    }
    fn ssthresh(&self) -> u64 {
        u64::MAX
    }
    fn name(&self) -> &'static str {
        "spy"
    }
}

/// A path with a spying controller, and the packets sent on it.
struct Bench {
    path: PathCongestion,
    told: Arc<Told>,
    space: RecoverySpace,
}

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Bench {
    fn new() -> Self {
        let told = Arc::new(Told::default());
        let spy = Box::new(Spy(told.clone()));
        let path = PathCongestion::with_controller(spy, MTU, &rtt(), true);
        Self { path, told, space: RecoverySpace::new() }
    }

    fn send_as(&mut self, now: Time, in_flight: bool, mtu_probe: bool) -> SentPacket {
        let rate = if in_flight { self.path.on_sent(now, MTU) } else { RateSnapshot::default() };
        let number = self.space.on_sent(&SentInfo {
            time_sent: now,
            size: MTU,
            path: crate::recovery::PathKey(0),
            ack_eliciting: in_flight,
            in_flight,
            mtu_probe,
            ecn_ect: true,
            rate,
        });
        *self.space.packet(number).unwrap()
    }

    fn send(&mut self, now: Time, packets: usize) -> Vec<SentPacket> {
        (0..packets).map(|_| self.send_as(now, true, false)).collect()
    }

    fn ack(&mut self, now: Time, packets: &[SentPacket]) {
        for (number, packet) in packets.iter().enumerate() {
            self.path.on_packet_acked(now, number as u64, packet);
        }
        self.path.process(now, &rtt(), None, false);
    }

    fn lose(&mut self, now: Time, packets: &[SentPacket]) {
        for (number, packet) in packets.iter().enumerate() {
            self.path.on_packet_lost(now, number as u64, packet);
        }
        self.path.process(now, &rtt(), None, false);
    }
}

#[test]
fn bytes_in_flight_follow_packets_and_bound_sending() {
    // RFC 9002, Section 7: MUST NOT send beyond the congestion window.
    let mut bench = Bench::new();
    let packets = bench.send(at(0), 9);
    assert!(bench.path.can_send(u64::from(MTU)));
    let more = bench.send(at(0), 1);
    assert!(!bench.path.can_send(1));
    bench.ack(at(100), &packets[..4]);
    bench.lose(at(100), &packets[4..6]);
    assert_eq!(bench.path.in_flight(), 4 * u64::from(MTU));
    bench.path.remove_in_flight(u64::from(more[0].size));
    assert_eq!(bench.path.in_flight(), 3 * u64::from(MTU));
}

#[test]
fn packets_that_are_not_in_flight_do_not_count() {
    // RFC 9002, Section 7
    let mut bench = Bench::new();
    let packet = bench.send_as(at(0), false, false);
    bench.ack(at(10), &[packet]);
    bench.lose(at(10), &[packet]);
    assert_eq!(bench.path.in_flight(), 0);
    assert_eq!(count(&bench.told.acked) + count(&bench.told.events), 0);
}

#[test]
fn one_round_trip_of_losses_is_one_congestion_event() {
    // RFC 9002, Section 7.3.2
    let mut bench = Bench::new();
    let packets = bench.send(at(0), 8);
    bench.lose(at(100), &packets[..2]);
    bench.lose(at(110), &packets[2..4]);
    assert_eq!(count(&bench.told.events), 1);
    assert_eq!(count(&bench.told.lost_packets), 4);
    let later = bench.send(at(120), 2);
    bench.lose(at(220), &later);
    assert_eq!(count(&bench.told.events), 2);
    assert_eq!(bench.path.stats().congestion_events, 2);
}

#[test]
fn the_window_does_not_grow_for_packets_sent_before_the_event() {
    // RFC 9002, Section 7.3.2
    let mut bench = Bench::new();
    let packets = bench.send(at(0), 8);
    bench.lose(at(100), &packets[..1]);
    bench.ack(at(101), &packets[1..3]);
    assert_eq!((count(&bench.told.acked), count(&bench.told.growth)), (2400, 0));
    let later = bench.send(at(110), 1);
    bench.ack(at(210), &later);
    assert_eq!((count(&bench.told.acked), count(&bench.told.growth)), (3600, 1200));
}

#[test]
fn an_unused_window_does_not_grow() {
    // RFC 9002, Section 7.8
    let mut bench = Bench::new();
    let packets = bench.send(at(0), 3);
    bench.path.set_app_limited();
    bench.ack(at(100), &packets);
    assert_eq!((count(&bench.told.acked), count(&bench.told.growth)), (3600, 0));
    // Full again, although the application paused in between.
    let packets = bench.send(at(200), 10);
    bench.path.set_app_limited();
    bench.ack(at(300), &packets);
    assert_eq!(count(&bench.told.growth), 12_000);
}

#[test]
fn a_lost_mtu_probe_is_no_congestion() {
    // RFC 9000, Section 14.4
    let mut bench = Bench::new();
    let probe = bench.send_as(at(0), true, true);
    bench.lose(at(100), &[probe]);
    assert_eq!(bench.path.in_flight(), 0);
    assert_eq!(count(&bench.told.events) + count(&bench.told.lost_packets), 0);
    assert_eq!(bench.path.stats().lost_packets, 0);
}

#[test]
fn a_mark_is_a_congestion_event_once_per_round_trip() {
    // RFC 9002, Section 7.1
    let mut bench = Bench::new();
    bench.send(at(0), 4);
    bench.path.on_ecn_ce(at(100), at(0));
    bench.path.on_ecn_ce(at(101), at(0));
    assert_eq!(count(&bench.told.ecn), 1);
    bench.path.on_ecn_ce(at(210), at(150));
    assert_eq!(count(&bench.told.ecn), 2);
}

#[test]
fn an_event_is_undone_once_all_its_losses_prove_spurious() {
    let mut bench = Bench::new();
    let packets = bench.send(at(0), 8);
    bench.lose(at(100), &packets[..2]);
    bench.lose(at(105), &packets[2..3]);
    bench.path.on_spurious_loss(at(106), &packets[0]);
    bench.path.on_spurious_loss(at(106), &packets[1]);
    assert_eq!(count(&bench.told.spurious), 0, "one loss is still real");
    bench.path.on_spurious_loss(at(107), &packets[2]);
    assert_eq!(count(&bench.told.spurious), 1);
    assert_eq!(bench.path.stats().spurious_losses, 3);
    // The period is over: packets sent in it may grow the window again.
    bench.ack(at(108), &packets[3..4]);
    assert_eq!(count(&bench.told.growth), 1200);
}

#[test]
fn a_mark_is_never_undone() {
    let mut bench = Bench::new();
    let packets = bench.send(at(0), 8);
    bench.path.on_ecn_ce(at(100), at(0));
    bench.lose(at(101), &packets[..1]);
    bench.path.on_spurious_loss(at(102), &packets[0]);
    assert_eq!(count(&bench.told.spurious), 0);
}

#[test]
fn persistent_congestion_ends_the_recovery_period() {
    // RFC 9002, Section B.8
    let mut bench = Bench::new();
    let packets = bench.send(at(0), 8);
    for (number, packet) in packets[..4].iter().enumerate() {
        bench.path.on_packet_lost(at(3000), number as u64, packet);
    }
    bench.path.process(at(3000), &rtt(), None, true);
    assert_eq!(count(&bench.told.persistent), 1);
    bench.ack(at(3001), &packets[4..5]);
    assert_eq!(count(&bench.told.growth), 1200);
}

#[test]
fn the_delivery_rate_is_measured() {
    // draft-ietf-ccwg-bbr, Section 4.1
    let mut bench = Bench::new();
    let mut waiting = Vec::new();
    // 10 packets in every 100 ms.
    for n in 0..50 {
        waiting.extend(bench.send(at(10 * n), 1));
        if n >= 10 {
            let packet = waiting.remove(0);
            bench.ack(at(10 * n + 5), &[packet]);
        }
    }
    let rate = bench.path.stats().delivery_rate;
    assert!((114_000..=126_000).contains(&rate), "{rate} bytes/s");
}

#[test]
fn without_pacing_only_controllers_that_need_it_are_paced() {
    let path = |algorithm: CongestionAlgorithm| {
        PathCongestion::new(algorithm.into(), MTU, &rtt(), false, 1)
    };
    assert_eq!(path(CongestionAlgorithm::Cubic).stats().pacing_rate, 0);
    assert!(path(CongestionAlgorithm::Bbr).stats().pacing_rate > 0);
}

#[test]
fn the_window_is_spread_over_the_round_trip() {
    // RFC 9002, Section 7.7: N = 1.25
    assert_eq!(Bench::new().path.stats().pacing_rate, 12_000 * 10 * 5 / 4);
}
