use super::*;
use crate::congestion::initial_window;
use crate::recovery::RttEstimator;
use crate::time::Duration;

const MTU: u16 = 1250;
const RTT_MS: u64 = 50;
/// 100 Mbit/s
const RATE: u64 = 12_500_000;
const BDP: u64 = RATE * RTT_MS / 1000;
const ACKS_PER_ROUND: u64 = 10;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// What a path answers to the controller in one round trip.
#[derive(Clone, Copy)]
struct Answer {
    rate: u64,
    rtt: u64,
    in_flight: u64,
    app_limited: bool,
    /// Bytes lost while the packets were on the way.
    lost: u64,
    in_recovery: bool,
}

const STEADY: Answer = Answer {
    rate: RATE,
    rtt: RTT_MS,
    in_flight: BDP,
    app_limited: false,
    lost: 0,
    in_recovery: false,
};

/// Feeds ACKs to a controller.
struct Bench {
    bbr: Bbr,
    now: Time,
    /// Bytes delivered one, two, ... ACKs ago.
    delivered: [u64; ACKS_PER_ROUND as usize + 1],
    next_number: u64,
}

impl Bench {
    fn new() -> Self {
        let mut bbr = Bbr::new(MTU, 7, CongestionParameters::default());
        let now = Time::ZERO + Duration::from_secs(1_000_000);
        bbr.on_sent(now, u64::from(MTU), u64::from(MTU), false);
        Self { bbr, now, delivered: [0; ACKS_PER_ROUND as usize + 1], next_number: 0 }
    }

    fn ack(&mut self, answer: Answer) {
        self.now += ms(answer.rtt).over(ACKS_PER_ROUND);
        let bytes = answer.rate * answer.rtt / 1000 / ACKS_PER_ROUND;
        self.delivered.rotate_right(1);
        self.delivered[0] = self.delivered[1] + bytes;
        let (total, prior) = (self.delivered[0], self.delivered[ACKS_PER_ROUND as usize]);
        let mut rtt = RttEstimator::new(ms(333));
        rtt.update(self.now, ms(answer.rtt), Duration::ZERO, None);
        self.bbr.on_ack(&AckEvent {
            now: self.now,
            bytes,
            growth_bytes: bytes,
            in_flight: answer.in_flight,
            peak_in_flight: answer.in_flight,
            latest_time_sent: self.now - ms(answer.rtt),
            rtt_sample: Some(ms(answer.rtt)),
            rtt: &rtt,
            rate: Some(RateSample {
                delivered: total - prior,
                prior_delivered: prior,
                total_delivered: total,
                rate: Some(answer.rate),
                tx_in_flight: answer.in_flight,
                lost: answer.lost,
                app_limited: answer.app_limited,
            }),
            in_recovery: answer.in_recovery,
        });
    }

    fn rounds(&mut self, rounds: u64, answer: Answer) {
        (0..rounds * ACKS_PER_ROUND).for_each(|_| self.ack(answer));
    }

    /// Loses `count` packets that were sent with `tx_in_flight` bytes in flight, none next to
    /// another; `before` bytes were lost since they were sent.
    fn lose(&mut self, count: u64, tx_in_flight: u64, before: u64) {
        for n in 1..=count {
            self.next_number += 2;
            let packet = LostPacket {
                number: self.next_number,
                bytes: u64::from(MTU),
                tx_in_flight,
                lost_since_sent: before + n * u64::from(MTU),
                total_delivered: self.delivered[0],
                app_limited: false,
            };
            self.bbr.on_packet_lost(self.now, &packet);
        }
        if !self.bbr.in_recovery {
            let (now, prior_in_flight) = (self.now, tx_in_flight);
            self.bbr.on_congestion(&CongestionEvent { now, prior_in_flight, is_ecn_ce: false });
        }
    }

    /// ACKs until `state`, for at most `rounds`.
    fn until(&mut self, state: State, rounds: u64, answer: Answer) {
        for _ in 0..rounds * ACKS_PER_ROUND {
            if self.bbr.state == state {
                return;
            }
            self.ack(answer);
        }
        panic!("{:?} instead of {state:?} after {rounds} rounds", self.bbr.state);
    }

    /// In ProbeBW, with the path's bandwidth known.
    fn probing() -> Self {
        let mut bench = Self::new();
        bench.until(State::ProbeBwCruise, 10, STEADY);
        bench
    }
}

#[test]
fn startup_goes_on_while_the_rate_grows_and_ends_at_a_plateau() {
    // draft-ietf-ccwg-bbr, Section 10.1
    let mut bench = Bench::new();
    for n in 0..6 {
        bench.rounds(1, Answer { rate: RATE >> (6 - n), ..STEADY });
        assert_eq!(bench.bbr.state, State::Startup, "round {n}");
    }
    let full = Answer { in_flight: 2 * BDP, ..STEADY };
    bench.rounds(3, full);
    assert_eq!(bench.bbr.state, State::Startup, "one round of growth and two without");
    bench.rounds(1, full);
    assert_eq!(bench.bbr.state, State::Drain);
    assert!(bench.bbr.full_bw.reached);
}

#[test]
fn an_application_that_sends_little_never_ends_startup() {
    // Section 10.7
    let mut bench = Bench::new();
    bench.rounds(40, Answer { app_limited: true, ..STEADY });
    assert_eq!(bench.bbr.state, State::Startup);
}

#[test]
fn drain_ends_when_the_queue_is_gone_or_after_three_rounds() {
    // Sections 10.3 and 10.4
    let full = Answer { in_flight: 2 * BDP, ..STEADY };
    let mut bench = Bench::new();
    bench.until(State::Drain, 10, full);
    bench.ack(STEADY);
    assert_eq!(bench.bbr.state, State::ProbeBwCruise, "without a queue, DOWN has nothing to do");
    let mut bench = Bench::new();
    bench.until(State::Drain, 10, full);
    bench.rounds(3, full);
    assert_eq!(bench.bbr.state, State::Drain);
    bench.until(State::ProbeBwDown, 2, full);
}

fn startup_with_losses(ranges: u64, lost: u64) -> Bench {
    let mut bench = Bench::new();
    bench.rounds(1, Answer { rate: RATE / 2, ..STEADY });
    bench.lose(ranges, BDP, 0);
    bench.rounds(2, Answer { lost, in_recovery: true, in_flight: 2 * BDP, ..STEADY });
    bench
}

#[test]
fn a_round_of_heavy_losses_ends_startup() {
    // Section 5.3.1.3: more than 2 % of six ranges at least.
    let bench = startup_with_losses(6, BDP / 10);
    assert_eq!(bench.bbr.state, State::Drain);
    assert!(bench.bbr.inflight_longterm < INFINITE);
    assert_eq!(startup_with_losses(5, BDP / 10).bbr.state, State::Startup, "few ranges");
    assert_eq!(startup_with_losses(6, BDP / 100).bbr.state, State::Startup, "little loss");
}

#[test]
fn losses_that_prove_spurious_return_to_startup() {
    // Section 10.18
    let mut bench = startup_with_losses(6, BDP / 10);
    bench.bbr.on_spurious_loss(bench.now);
    assert_eq!(bench.bbr.state, State::Startup);
    assert_eq!(bench.bbr.inflight_longterm, INFINITE);
}

#[test]
fn probe_bw_cycles_through_its_four_states() {
    // Section 5.3.3
    let mut bench = Bench::probing();
    bench.until(State::ProbeBwCruise, 1, STEADY);
    let cruise = bench.now;
    bench.until(State::ProbeBwRefill, 70, STEADY);
    let waited = bench.now - cruise;
    assert!((ms(1900)..=ms(3100)).contains(&waited), "{waited:?} between probes");
    bench.until(State::ProbeBwUp, 2, STEADY);
    assert_eq!(bench.bbr.pacing_rate, RATE / 100 * 125 / 100 * 99);
    // The rate does not grow: the path is full.
    let probing = Answer { in_flight: BDP * 5 / 4, ..STEADY };
    bench.until(State::ProbeBwDown, 5, probing);
    assert_eq!(bench.bbr.inflight_longterm, INFINITE, "nothing was lost");
    assert_eq!(bench.bbr.pacing_rate, RATE / 100 * 90 / 100 * 99);
}

#[test]
fn more_bandwidth_is_found_in_up() {
    // Section 10.15
    let mut bench = Bench::probing();
    bench.until(State::ProbeBwUp, 70, STEADY);
    for n in 1..=10 {
        bench.rounds(1, Answer { rate: RATE + RATE * 3 / 10 * n, ..STEADY });
    }
    assert_eq!(bench.bbr.bandwidth, 4 * RATE);
}

#[test]
fn losses_in_up_bound_the_flight_and_go_down() {
    // Section 5.5.10.2
    let mut bench = Bench::probing();
    bench.until(State::ProbeBwUp, 70, STEADY);
    bench.lose(1, BDP, 0);
    assert_eq!(bench.bbr.state, State::ProbeBwUp, "one packet is below the threshold");
    bench.lose(1, BDP, BDP / 25);
    assert_eq!(bench.bbr.state, State::ProbeBwDown);
    let bound = bench.bbr.inflight_longterm;
    assert!((BDP * 7 / 10..=BDP).contains(&bound), "{bound}");
    bench.ack(Answer { lost: BDP / 20, in_recovery: true, ..STEADY });
    assert!(bench.bbr.window <= bound);
    // Section 10.18: and back, when it was a mistake.
    bench.bbr.on_spurious_loss(bench.now);
    assert_eq!(bench.bbr.state, State::ProbeBwRefill);
    assert_eq!(bench.bbr.inflight_longterm, INFINITE);
}

#[test]
fn cruise_leaves_headroom_below_a_known_bound() {
    // Section 5.6.4.7
    let mut bench = Bench::probing();
    bench.bbr.inflight_longterm = BDP;
    bench.until(State::ProbeBwCruise, 2, Answer { in_flight: BDP / 2, ..STEADY });
    bench.ack(Answer { in_flight: BDP / 2, ..STEADY });
    assert_eq!(bench.bbr.window, BDP - BDP * 15 / 100);
}

#[test]
fn losses_in_cruise_lower_the_short_term_bounds_until_the_next_probe() {
    // Section 5.5.10.3
    let mut bench = Bench::probing();
    bench.until(State::ProbeBwCruise, 1, STEADY);
    let slow = Answer { rate: RATE * 8 / 10, in_recovery: true, ..STEADY };
    bench.rounds(2, slow);
    bench.lose(3, BDP, 0);
    bench.rounds(2, slow);
    assert_eq!(bench.bbr.bandwidth, RATE * 8 / 10, "what was delivered, not less");
    for _ in 0..3 {
        bench.lose(3, BDP, 0);
        bench.rounds(2, Answer { rate: RATE / 10, ..slow });
    }
    let floor = RATE * 8 / 10 * 343 / 1000;
    assert!(bench.bbr.bandwidth >= floor - 3, "at most three tenths each time");
    assert!(bench.bbr.bandwidth < RATE / 2);
    bench.until(State::ProbeBwRefill, 70, STEADY);
    bench.ack(STEADY);
    assert_eq!(bench.bbr.bandwidth, RATE);
}

#[test]
fn probe_rtt_empties_the_queue_after_five_seconds_and_then_cruises() {
    // Section 10.10
    let mut bench = Bench::probing();
    let queued = Answer { rtt: RTT_MS + 1, ..STEADY };
    let start = bench.now;
    bench.until(State::ProbeRtt, 120, queued);
    let waited = bench.now - start;
    assert!(waited <= ms(5100), "{waited:?}");
    assert!(bench.bbr.limits_itself());
    let before = bench.bbr.prior_window;
    bench.ack(queued);
    assert!(bench.bbr.window <= BDP * 52 / 100, "{}", bench.bbr.window);
    let entered = bench.now;
    let drained = Answer { in_flight: BDP / 4, ..STEADY };
    bench.until(State::ProbeBwCruise, 10, drained);
    assert!(bench.now - entered >= ms(200));
    bench.ack(drained);
    assert!(bench.bbr.window >= before.min(2 * BDP), "the window is restored");
}

#[test]
fn low_samples_make_probe_rtt_needless() {
    // Section 10.11
    let mut bench = Bench::probing();
    for n in 0..400 {
        bench.rounds(
            1,
            Answer { rtt: if n % 40 == 0 { RTT_MS - 1 - n / 40 } else { 55 }, ..STEADY },
        );
        assert_ne!(bench.bbr.state, State::ProbeRtt, "round {n}");
    }
}

#[test]
fn after_idle_the_bandwidth_is_paced_and_probe_rtt_skipped() {
    // Section 5.4.1
    let mut bench = Bench::probing();
    bench.until(State::ProbeBwUp, 70, STEADY);
    bench.now += Duration::from_secs(20);
    bench.bbr.on_sent(bench.now, u64::from(MTU), u64::from(MTU), true);
    assert_eq!(bench.bbr.pacing_rate, RATE / 100 * 99);
    bench.ack(Answer { app_limited: true, ..STEADY });
    assert_ne!(bench.bbr.state, State::ProbeRtt);
}

#[test]
fn ecn_marks_are_congestion() {
    // Section 3.7
    let mark = |bench: &mut Bench| {
        let (now, prior_in_flight) = (bench.now, BDP);
        bench.bbr.on_congestion(&CongestionEvent { now, prior_in_flight, is_ecn_ce: true });
    };
    let mut bench = Bench::new();
    bench.rounds(2, Answer { rate: RATE / 2, ..STEADY });
    mark(&mut bench);
    bench.ack(Answer { in_flight: 2 * BDP, ..STEADY });
    assert_eq!(bench.bbr.state, State::Drain);
    let mut bench = Bench::probing();
    bench.until(State::ProbeBwUp, 70, STEADY);
    mark(&mut bench);
    assert_eq!(bench.bbr.state, State::ProbeBwDown);
    assert!(bench.bbr.inflight_longterm <= BDP);
    let mut bench = Bench::probing();
    let slow = Answer { rate: RATE / 2, ..STEADY };
    bench.rounds(2, slow);
    assert_eq!(bench.bbr.bandwidth, RATE, "a slow round alone says nothing");
    mark(&mut bench);
    bench.rounds(2, slow);
    assert!(bench.bbr.bandwidth < RATE);
}

#[test]
fn the_first_round_trip_sets_the_first_pacing_rate() {
    // Section 5.6.2
    let mut bench = Bench::new();
    bench.ack(Answer { rate: 1000, app_limited: true, ..STEADY });
    let nominal = initial_window(MTU) * 1000 / RTT_MS;
    assert_eq!(bench.bbr.pacing_rate, nominal * 277 / 100);
}

#[test]
fn a_path_of_less_than_a_packet_keeps_four_packets() {
    // Section 10.14
    let mut bench = Bench::new();
    bench.rounds(100, Answer { rate: 20_000, in_flight: 4 * u64::from(MTU), ..STEADY });
    assert!(bench.bbr.window >= 4 * u64::from(MTU));
    assert!(bench.bbr.window <= 8 * u64::from(MTU), "{}", bench.bbr.window);
}

#[test]
fn persistent_congestion_takes_the_window_to_the_minimum_and_it_grows_back() {
    // RFC 9002, Section 7.6.2
    let mut bench = Bench::probing();
    bench.bbr.on_persistent_congestion(bench.now);
    assert_eq!(bench.bbr.window, 2 * u64::from(MTU));
    bench.rounds(4, STEADY);
    assert!(bench.bbr.window >= BDP);
}

#[test]
fn more_than_two_percent_is_too_high() {
    // Section 5.5.10.2
    let bbr = Bbr::new(MTU, 7, CongestionParameters::default());
    assert!(!bbr.is_inflight_too_high(20, 1000));
    assert!(bbr.is_inflight_too_high(21, 1000));
    assert!(!bbr.is_inflight_too_high(0, 0));
    assert!(bbr.is_inflight_too_high(u64::MAX, 1));
}
