use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use super::super::sent::MAX_TRACKED_PACKETS;
use super::*;

const MS: Duration = Duration::from_millis(1);
const SIZE: u16 = 1200;

fn at(ms: u64) -> Time {
    Time::ZERO + MS.times(ms)
}

/// 100 ms, measured at the origin of time: packets count as lost after 112.5 ms.
fn rtt() -> RttEstimator {
    let mut rtt = RttEstimator::new(MS.times(333));
    rtt.update(Time::ZERO, MS.times(100), Duration::ZERO, None);
    rtt
}

/// Records what it is told.
#[derive(Debug, Default, PartialEq)]
struct Log {
    packets: Vec<u64>,
    spurious: Vec<u64>,
    frames: Vec<u64>,
}

fn mark(frame: &SentFrame) -> u64 {
    match frame {
        SentFrame::MaxData { maximum } => *maximum,
        other => panic!("{other:?} was never sent"),
    }
}

impl AckSink for Log {
    fn acked_packet(&mut self, number: u64, _packet: &SentPacket) {
        self.packets.push(number);
    }
    fn spurious_packet(&mut self, number: u64, _packet: &SentPacket) {
        self.spurious.push(number);
    }
    fn acked_frame(&mut self, frame: &SentFrame) {
        self.frames.push(mark(frame));
    }
}

impl LossSink for Log {
    fn lost_packet(&mut self, number: u64, _packet: &SentPacket) {
        self.packets.push(number);
    }
    fn lost_frame(&mut self, frame: &SentFrame) {
        self.frames.push(mark(frame));
    }
}

fn info(time_sent: Time) -> SentInfo {
    SentInfo {
        time_sent,
        size: SIZE,
        path: PathKey(0),
        ack_eliciting: true,
        in_flight: true,
        mtu_probe: false,
        ecn_ect: false,
        rate: Default::default(),
    }
}

/// Sends an ack-eliciting packet with one frame that carries its number.
fn send(space: &mut RecoverySpace, now: Time) -> u64 {
    assert!(space.reserve());
    let number = space.next_packet_number();
    space.push_frame(SentFrame::MaxData { maximum: number });
    assert_eq!(space.on_sent(&info(now)), number);
    number
}

fn sent(count: u64) -> RecoverySpace {
    let mut space = RecoverySpace::new();
    for n in 0..count {
        send(&mut space, at(n));
    }
    space
}

fn ack(
    space: &mut RecoverySpace,
    now: Time,
    ranges: &[RangeInclusive<u64>],
) -> (Result<AckOutcome, TransportError>, Log) {
    let mut log = Log::default();
    let ranges = ranges.iter().cloned();
    let largest = *ranges.clone().next().unwrap().end();
    (space.on_ack_ranges(now, largest, ranges, &mut log), log)
}

fn lose(space: &mut RecoverySpace, now: Time) -> (LossOutcome, Log) {
    let mut log = Log::default();
    (space.detect_lost(now, &rtt(), MS.times(25), &mut log), log)
}

#[test]
fn an_ack_frame_settles_its_packets_and_frames() {
    let mut space = sent(5);
    let frame = Ack {
        largest: 2,
        delay: 0,
        ranges: quicket_wire::frame::AckRanges::single(1..=2).unwrap(),
        ecn: None,
    };
    let mut log = Log::default();
    let outcome = space.on_ack(at(52), &frame, &mut log).unwrap();
    assert_eq!(log, Log { packets: vec![1, 2], spurious: vec![], frames: vec![1, 2] });
    assert_eq!(outcome.newly_acked, 2);
    assert_eq!(outcome.newly_acked_bytes, 2 * u64::from(SIZE));
    assert!(outcome.largest_advanced && outcome.includes_ack_eliciting);
    assert_eq!(outcome.rtt_sample, Some(MS.times(50)));
    assert_eq!(space.largest_acked(), Some(2));
    assert!(space.packet(2).is_some());
}

#[test]
fn a_repeated_ack_brings_nothing() {
    // RFC 9002, Section 5.1: no sample unless the largest is newly acknowledged.
    let mut space = sent(3);
    ack(&mut space, at(50), &[0..=2]).0.unwrap();
    let (outcome, log) = ack(&mut space, at(60), &[0..=2]);
    assert_eq!(outcome.unwrap(), AckOutcome::default());
    assert_eq!(log, Log::default());
}

#[test]
fn older_packets_acknowledged_late_make_no_sample() {
    // RFC 9002, Section 5.1
    let mut space = sent(3);
    ack(&mut space, at(50), &[2..=2]).0.unwrap();
    let (outcome, log) = ack(&mut space, at(60), &[0..=2]);
    let outcome = outcome.unwrap();
    assert_eq!(log.packets, [0, 1]);
    assert_eq!((outcome.rtt_sample, outcome.largest_advanced), (None, false));
}

#[test]
fn packets_that_elicit_no_ack_make_no_sample() {
    // RFC 9002, Section 5.1
    let mut space = RecoverySpace::new();
    space.reserve();
    space.on_sent(&SentInfo { ack_eliciting: false, in_flight: false, ..info(at(0)) });
    let (outcome, _) = ack(&mut space, at(50), &[0..=0]);
    let outcome = outcome.unwrap();
    assert_eq!((outcome.rtt_sample, outcome.newly_acked_bytes), (None, 0));
    assert_eq!(outcome.newly_acked, 1);
    assert_eq!(space.pto_base(), None);
}

#[test]
fn newly_acknowledged_ect_packets_are_counted() {
    // RFC 9000, Section 13.4.2.1
    let mut space = sent(1);
    space.on_sent(&SentInfo { ecn_ect: true, ..info(at(1)) });
    assert_eq!(ack(&mut space, at(50), &[0..=1]).0.unwrap().newly_acked_ect, 1);
}

#[test]
fn acknowledging_what_was_never_sent_is_a_violation() {
    // RFC 9000, Section 13.1
    let mut space = sent(3);
    let error = ack(&mut space, at(50), &[0..=3]).0.unwrap_err();
    assert_eq!(error.code, TransportErrorCode::PROTOCOL_VIOLATION);
    let mut empty = RecoverySpace::new();
    assert!(ack(&mut empty, at(0), &[0..=0]).0.is_err());
}

/// RFC 9002, Section 6.1.1: what counts is how many packets were sent later.
#[test]
fn skipped_numbers_are_no_packets_of_the_threshold() {
    let mut space = sent(1);
    (0..4).for_each(|_| space.skip_packet_number());
    (5..8).for_each(|number| assert_eq!(send(&mut space, at(1)), number));
    for largest in [5, 6] {
        ack(&mut space, at(50), &[5..=largest]).0.unwrap();
        let (outcome, _) = lose(&mut space, at(50));
        assert_eq!(outcome.lost_packets, 0, "{largest}");
        assert!(space.loss_time().is_some());
    }
    ack(&mut space, at(50), &[5..=7]).0.unwrap();
    assert_eq!(lose(&mut space, at(50)).1.packets, [0]);
}

#[test]
fn acknowledging_a_skipped_number_is_a_violation_even_long_after() {
    // RFC 9000, Section 21.4
    for later in [1u64, 500] {
        let mut space = sent(2);
        space.skip_packet_number();
        for n in 0..later {
            send(&mut space, at(3 + n));
        }
        ack(&mut space, at(600), &[3..=2 + later, 0..=1]).0.unwrap();
        space.sent.release(at(0));
        let error = ack(&mut space, at(601), &[0..=2 + later]).0.unwrap_err();
        assert_eq!(error.code, TransportErrorCode::PROTOCOL_VIOLATION, "{later} later");
    }
}

#[test]
fn three_later_packets_make_a_packet_lost() {
    // RFC 9002, Section 6.1.1
    let mut space = sent(6);
    ack(&mut space, at(50), &[4..=4]).0.unwrap();
    let (outcome, log) = lose(&mut space, at(50));
    assert_eq!(log, Log { packets: vec![0, 1], spurious: vec![], frames: vec![0, 1] });
    assert_eq!((outcome.lost_packets, outcome.lost_bytes), (2, 2 * u64::from(SIZE)));
    // Packet 2 is next, when 9/8 of the round trip time have passed since it was sent.
    assert_eq!(space.loss_time(), Some(at(2) + MS.times(225).over(2)));
}

#[test]
fn time_makes_a_packet_lost() {
    // RFC 9002, Section 6.1.2
    let mut space = sent(3);
    ack(&mut space, at(100), &[1..=1]).0.unwrap();
    assert_eq!(lose(&mut space, at(100)).0.lost_packets, 0);
    let due = space.loss_time().unwrap();
    let (_, log) = lose(&mut space, due);
    assert_eq!(log.packets, [0]);
    assert_eq!(space.loss_time(), None, "packet 2 is later than all that is acknowledged");
}

#[test]
fn nothing_is_lost_before_an_ack() {
    // RFC 9002, Section 6.1: only packets sent before an acknowledged one.
    let mut space = sent(10);
    assert_eq!(lose(&mut space, at(100_000)).0, LossOutcome::default());
    assert_eq!(space.loss_time(), None);
}

#[test]
fn a_late_ack_of_a_lost_packet_is_spurious_and_raises_the_thresholds() {
    let mut space = sent(12);
    ack(&mut space, at(50), &[6..=6]).0.unwrap();
    assert_eq!(lose(&mut space, at(50)).1.packets, [0, 1, 2, 3]);
    let (outcome, log) = ack(&mut space, at(52), &[0..=6]);
    let outcome = outcome.unwrap();
    assert_eq!((log.spurious, log.packets), (vec![0, 1, 2, 3], vec![4, 5]));
    assert_eq!(log.frames, [0, 1, 2, 3, 4, 5]);
    assert_eq!((outcome.spurious, outcome.newly_acked), (4, 2));
    assert_eq!(space.packet_threshold, 7);
    assert!(ack(&mut space, at(53), &[0..=6]).1.spurious.is_empty(), "only once");
    // Packet 7 would have been lost by the old threshold.
    ack(&mut space, at(60), &[11..=11]).0.unwrap();
    assert_eq!(lose(&mut space, at(60)).0.lost_packets, 0);
}

#[test]
fn the_packet_threshold_does_not_grow_without_bound() {
    let mut space = RecoverySpace::new();
    for _ in 0..2000 {
        send(&mut space, at(0));
    }
    ack(&mut space, at(90), &[1999..=1999]).0.unwrap();
    lose(&mut space, at(90));
    ack(&mut space, at(91), &[1999..=1999, 0..=0]).0.unwrap();
    assert_eq!(space.packet_threshold, MAX_PACKET_THRESHOLD);
}

fn persistent(times: &[u64], acked_between: Option<usize>) -> Option<PathKey> {
    let mut space = RecoverySpace::new();
    for &time in times {
        send(&mut space, at(time));
    }
    for _ in 0..3 {
        send(&mut space, at(times.last().unwrap() + 150));
    }
    let last = space.next_packet_number() - 1;
    let ranges = [Some(last..=last), acked_between.map(|n| n as u64..=n as u64)];
    let ranges: Vec<_> = ranges.into_iter().flatten().collect();
    let now = at(times.last().unwrap() + 200);
    ack(&mut space, now, &ranges).0.unwrap();
    lose(&mut space, now).0.persistent_congestion
}

#[test]
fn losing_everything_for_three_probe_timeouts_is_persistent_congestion() {
    // RFC 9002, Section 7.6: 3 * (100 ms + 4 * 50 ms + 25 ms) = 975 ms.
    assert_eq!(persistent(&[1, 300, 977], None), Some(PathKey(0)));
    assert_eq!(persistent(&[1, 300, 976], None), None, "not longer than the duration");
    assert_eq!(persistent(&[1, 300, 2000], Some(1)), None, "one between got through");
    assert_eq!(persistent(&[0, 300, 976], None), None, "sent before the first sample");
}

#[test]
fn the_probe_timer_runs_from_the_last_ack_eliciting_packet() {
    let mut space = sent(2);
    space.on_sent(&SentInfo { ack_eliciting: false, in_flight: false, ..info(at(9)) });
    assert_eq!(space.pto_base(), Some(at(1)));
    ack(&mut space, at(50), &[0..=1]).0.unwrap();
    assert_eq!(space.pto_base(), None);
    assert_eq!(space.last_ack_eliciting, Some(at(1)));
}

#[test]
fn probes_of_other_paths_do_not_postpone_the_probe_timer() {
    let mut space = sent(2);
    space.on_sent_elsewhere(&info(at(9)));
    assert_eq!(space.pto_base(), Some(at(1)));
    ack(&mut space, at(50), &[0..=2]).0.unwrap();
    space.on_sent_elsewhere(&info(at(60)));
    assert_eq!(space.pto_base(), Some(at(60)), "nothing else is in flight");
}

#[test]
fn probes_repeat_the_oldest_packets_which_stay_outstanding() {
    // RFC 9002, Section 6.2.4
    let mut space = sent(4);
    ack(&mut space, at(50), &[1..=1]).0.unwrap();
    let mut frames = Vec::new();
    assert!(space.frames_for_probe(2, |frame| frames.push(mark(frame))));
    assert_eq!(frames, [0, 2]);
    assert_eq!(ack(&mut space, at(60), &[0..=3]).1.packets, [0, 2, 3]);
    assert!(!space.frames_for_probe(2, |_| {}));
}

#[test]
fn rejected_early_data_is_lost_without_being_remembered() {
    // RFC 9001, Section 4.6.2
    let mut space = sent(5);
    let mut log = Log::default();
    space.declare_lost(1..4, &mut log);
    assert_eq!(log, Log { packets: vec![1, 2, 3], spurious: vec![], frames: vec![1, 2, 3] });
    let (outcome, log) = ack(&mut space, at(50), &[0..=4]);
    assert_eq!(log.packets, [0, 4]);
    assert_eq!(outcome.unwrap().spurious, 0);
    assert!(!space.has_ack_eliciting_in_flight());
}

#[test]
fn discarded_keys_take_the_flight_along() {
    // RFC 9002, Section 6.4
    let mut space = sent(4);
    space.on_sent(&SentInfo { ack_eliciting: false, in_flight: false, ..info(at(9)) });
    ack(&mut space, at(50), &[0..=0]).0.unwrap();
    let mut bytes = 0;
    space.discard(|packet| bytes += u64::from(packet.size));
    assert_eq!(bytes, 3 * u64::from(SIZE));
    assert_eq!((space.pto_base(), space.loss_time()), (None, None));
}

#[test]
fn a_quiet_space_forgets_what_elicits_no_ack_and_goes_on_counting() {
    let mut space = sent(70);
    ack(&mut space, at(100), &[0..=68]).0.unwrap();
    assert!(!space.trim(), "packet 69 is in flight");
    assert_eq!(ack(&mut space, at(100), &[0..=69]).1.packets, [69]);
    space.on_sent(&SentInfo { ack_eliciting: false, in_flight: false, ..info(at(101)) });
    space.skip_packet_number();
    assert!(space.trim());
    assert_eq!(space.sent.memory(), (0, 0));
    assert_eq!((space.next_packet_number(), space.largest_acked()), (72, Some(69)));
    // RFC 9000, Section 21.4: the skipped number is still known.
    assert!(ack(&mut space, at(102), &[71..=71]).0.is_err());
    for n in 72..300 {
        assert_eq!(send(&mut space, at(n)), n);
        let (outcome, log) = ack(&mut space, at(n + 1), &[n..=n]);
        assert_eq!((outcome.unwrap().newly_acked, log.packets, log.frames), (1, vec![n], vec![n]));
        lose(&mut space, at(n + 1));
    }
    assert!(space.sent.memory().0 < 64, "blocks are released as before");
}

#[test]
fn an_abandoned_packet_leaves_no_frames() {
    let mut space = sent(1);
    space.push_frame(SentFrame::MaxData { maximum: 99 });
    assert_eq!(space.sent.pending_frames(), 1);
    space.discard_pending_frames();
    assert_eq!(space.sent.pending_frames(), 0);
    send(&mut space, at(1));
    assert_eq!(ack(&mut space, at(50), &[0..=1]).1.frames, [0, 1]);
}

#[test]
fn packets_without_acks_are_forgotten_when_they_elicit_none() {
    let mut space = RecoverySpace::new();
    for n in 0..100_000 {
        assert!(space.reserve());
        space.push_frame(SentFrame::MaxData { maximum: n });
        space.on_sent(&SentInfo { ack_eliciting: false, in_flight: false, ..info(at(n)) });
    }
    let (packets, frames) = space.sent.memory();
    assert!(packets <= 1024 && frames <= 1024, "{packets} packets, {frames} frames");
}

#[test]
fn a_peer_that_never_acknowledges_meets_a_bound() {
    let mut space = RecoverySpace::new();
    let mut count = 0;
    while space.reserve() {
        space.on_sent(&info(at(0)));
        count += 1;
        assert!(count <= MAX_TRACKED_PACKETS);
    }
    assert_eq!(count, MAX_TRACKED_PACKETS);
    assert!(space.is_full(), "no timer can help");
}

/// One packet that asks for an ACK must not keep all later ones from being forgotten.
#[test]
fn a_peer_that_sends_and_never_acknowledges_clogs_the_ring_until_all_is_given_up() {
    let mut space = RecoverySpace::new();
    send(&mut space, at(0));
    let mut acknowledgments = 0;
    while !space.is_clogged() {
        assert!(space.reserve());
        space.on_sent(&SentInfo { ack_eliciting: false, in_flight: false, ..info(at(1)) });
        acknowledgments += 1;
        assert!(acknowledgments < MAX_TRACKED_PACKETS, "it is never clogged");
    }
    let mut log = Log::default();
    space.declare_lost(0..space.next_packet_number(), &mut log);
    assert!(log.frames == [0] && !space.is_clogged());
    assert!(space.reserve());
    assert_eq!(space.sent.memory().0, 0);
}

/// A peer whose ACKs are late on purpose has lost packets remembered for minutes, and may make us
/// send ACKs without end meanwhile. That says nothing about what is in flight.
#[test]
fn a_lost_packet_is_remembered_as_long_as_not_too_many_others_wait_behind_it() {
    let mut space = sent(4);
    ack(&mut space, at(50), &[1..=3]).0.unwrap();
    assert_eq!(lose(&mut space, at(50)).1.packets, [0]);
    let mut most = 0;
    for n in 0..40_000 {
        assert!(!space.is_clogged(), "after {n} packets");
        assert!(space.reserve());
        space.on_sent(&SentInfo { ack_eliciting: false, in_flight: false, ..info(at(51)) });
        most = most.max(space.sent.memory().0);
    }
    assert!((10_000..20_000).contains(&most), "{most} packets");
}

/// A large window that the peer is slow to acknowledge is no silence.
#[test]
fn packets_in_flight_do_not_clog_the_ring() {
    let mut space = RecoverySpace::new();
    for n in 0..100_000 {
        send(&mut space, at(n));
        assert!(!space.is_clogged());
    }
}

#[test]
fn memory_is_released_as_packets_are_settled() {
    let mut space = RecoverySpace::new();
    for n in 0..200_000u64 {
        send(&mut space, at(n));
        // Every 50th packet is lost for good.
        if n >= 100 && (n - 100) % 50 != 0 {
            ack(&mut space, at(n), &[n - 100..=n - 100]).0.unwrap();
            lose(&mut space, at(n));
        }
    }
    let (packets, frames) = space.sent.memory();
    assert!(packets <= 2048 && frames <= 2048, "{packets} packets, {frames} frames");
}

/// What the randomised test knows of a packet.
struct Known {
    time: Time,
    frames: Vec<u64>,
    ack_eliciting: bool,
    state: Fate,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Outstanding,
    Acked,
    Lost(Time),
}

/// The plainest implementation of the same, checked against the real one step by step.
struct Model {
    space: RecoverySpace,
    known: BTreeMap<u64, Known>,
    skipped: BTreeSet<u64>,
    now: Time,
    random: u64,
    frame: u64,
}

impl Model {
    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    fn send(&mut self) {
        assert!(self.space.reserve());
        if self.below(20) == 0 {
            self.skipped.insert(self.space.next_packet_number());
            self.space.skip_packet_number();
        }
        let mut frames = Vec::new();
        for _ in 0..self.below(4) {
            self.frame += 1;
            self.space.push_frame(SentFrame::MaxData { maximum: self.frame });
            frames.push(self.frame);
        }
        let ack_eliciting = self.below(4) != 0;
        let sent = SentInfo { ack_eliciting, in_flight: ack_eliciting, ..info(self.now) };
        let number = self.space.on_sent(&sent);
        let (time, state) = (self.now, Fate::Outstanding);
        self.known.insert(number, Known { time, frames, ack_eliciting, state });
    }

    /// Up to four ranges among the last 300 packets, none of which covers a skipped number.
    fn random_ranges(&mut self) -> Vec<RangeInclusive<u64>> {
        let end = self.space.next_packet_number();
        let mut chosen = BTreeSet::new();
        for _ in 0..=self.below(3) {
            let start = end.saturating_sub(1 + self.below(300));
            let len = 1 + self.below(100);
            chosen.extend((start..(start + len).min(end)).filter(|n| !self.skipped.contains(n)));
        }
        let mut ranges: Vec<RangeInclusive<u64>> = Vec::new();
        for number in chosen.into_iter().rev() {
            match ranges.last_mut() {
                Some(last) if *last.start() == number + 1 => *last = number..=*last.end(),
                _ => ranges.push(number..=number),
            }
        }
        ranges
    }

    fn ack(&mut self) {
        let ranges = self.random_ranges();
        if ranges.is_empty() {
            return;
        }
        let (outcome, mut log) = ack(&mut self.space, self.now, &ranges);
        outcome.unwrap();
        let mut expected = Log::default();
        for (number, known) in &mut self.known {
            if !ranges.iter().any(|range| range.contains(number)) {
                continue;
            }
            match known.state {
                Fate::Outstanding => expected.packets.push(*number),
                Fate::Lost(_) if log.spurious.contains(number) => expected.spurious.push(*number),
                Fate::Lost(at) => {
                    // Forgetting is allowed, but not at once.
                    assert!(self.now.since(at) > MS.times(100), "{number} was forgotten");
                    continue;
                }
                Fate::Acked => continue,
            }
            known.state = Fate::Acked;
            expected.frames.extend(&known.frames);
        }
        for list in [&mut log.packets, &mut log.spurious, &mut log.frames] {
            list.sort_unstable();
        }
        expected.frames.sort_unstable();
        assert_eq!(log, expected);
    }

    fn lose(&mut self) {
        let (threshold, time_threshold) = (self.space.packet_threshold, self.space.time_threshold);
        let delay = rtt().loss_delay(time_threshold);
        let (_, log) = lose(&mut self.space, self.now);
        let mut expected = Log::default();
        let largest = self.space.largest_acked();
        let older = |number: &u64| largest.is_some_and(|largest| *number < largest);
        let mut loss_time: Option<Time> = None;
        for (number, known) in self.known.iter_mut().filter(|(number, _)| older(number)) {
            if known.state != Fate::Outstanding {
                continue;
            }
            let largest = largest.unwrap();
            let skipped = self.skipped.range(number..&largest).count() as u64;
            let far = largest - number - skipped >= threshold;
            if far || self.now.since(known.time) >= delay {
                known.state = Fate::Lost(self.now);
                expected.packets.push(*number);
                expected.frames.extend(&known.frames);
            } else {
                let at = known.time + delay;
                loss_time = Some(loss_time.map_or(at, |earliest| earliest.min(at)));
            }
        }
        assert_eq!(log, expected);
        assert_eq!(self.space.loss_time(), loss_time);
    }

    fn check(&mut self) {
        let eliciting = |known: &&Known| known.ack_eliciting && known.state == Fate::Outstanding;
        let oldest = self.known.values().find(eliciting);
        assert_eq!(self.space.has_ack_eliciting_in_flight(), oldest.is_some());
        let mut frames = Vec::new();
        self.space.frames_for_probe(1, |frame| frames.push(mark(frame)));
        assert_eq!(frames, oldest.map_or(Vec::new(), |known| known.frames.clone()));
    }
}

#[test]
fn random_sequences_agree_with_a_plain_model() {
    for seed in 1..=40u64 {
        let mut model = Model {
            space: RecoverySpace::new(),
            known: BTreeMap::new(),
            skipped: BTreeSet::new(),
            now: at(1),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            frame: 0,
        };
        for _ in 0..400 {
            let step = Duration::from_micros(model.below(20_000));
            model.now += step;
            match model.below(10) {
                0..=5 => (0..=model.below(12)).for_each(|_| model.send()),
                6..=8 => {
                    model.ack();
                    model.lose();
                }
                _ => model.lose(),
            }
            model.check();
        }
        assert!(model.space.next_packet_number() > 800);
    }
}
