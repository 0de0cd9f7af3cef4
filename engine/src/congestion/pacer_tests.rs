use super::*;

const MTU: u16 = 1250;
const FAR: Duration = Duration::from_millis(20);

fn at_micros(n: u64) -> Time {
    Time::from_nanos(n * 1000)
}

/// Sends as much as the pacer allows at `now`.
fn drain(pacer: &mut Pacer, now: Time, packet: u64) -> u64 {
    let mut sent = 0;
    while pacer.delay(now).is_none() {
        pacer.on_sent(now, packet);
        sent += packet;
        assert!(sent < 1 << 30, "pacing has no effect");
    }
    sent
}

/// Sends for `millis` whenever the pacer's timer fires, `late` after it; returns the bytes sent
/// and how often the timer fired.
fn run(pacer: &mut Pacer, millis: u64, late: Duration) -> (u64, u64) {
    let (mut now, mut sent, mut wakes) = (Time::ZERO, 0, 0);
    let end = now + Duration::from_millis(millis);
    while now < end {
        sent += drain(pacer, now, u64::from(MTU));
        now = pacer.delay(now).unwrap() + late;
        wakes += 1;
    }
    (sent, wakes)
}

fn paced(rate: u64) -> Pacer {
    let mut pacer = Pacer::new();
    pacer.set_rate(Time::ZERO, rate, MTU, FAR);
    pacer
}

#[test]
fn without_a_rate_nothing_is_held_back() {
    let mut pacer = Pacer::new();
    for _ in 0..1000 {
        pacer.on_sent(Time::ZERO, 65_000);
        assert_eq!(pacer.delay(Time::ZERO), None);
    }
}

#[test]
fn the_rate_is_kept_over_time_at_any_speed() {
    // 1 Mbit/s, 100 Mbit/s, 10 Gbit/s, 100 Gbit/s
    for rate in [125_000, 12_500_000, 1_250_000_000, 12_500_000_000] {
        let (sent, _) = run(&mut paced(rate), 1000, Duration::ZERO);
        let burst = 11 * u64::from(MTU) + rate / 400;
        assert!(sent.abs_diff(rate) <= burst, "{sent} bytes at {rate}/s");
    }
}

#[test]
fn timers_need_be_no_finer_than_a_millisecond() {
    for rate in [12_500_000, 1_250_000_000] {
        let (_, wakes) = run(&mut paced(rate), 1000, Duration::ZERO);
        assert!(wakes <= 1001, "{wakes} wakes at {rate}/s");
    }
}

#[test]
fn timers_that_are_a_millisecond_late_cost_no_throughput() {
    let rate = 125_000_000;
    let (sent, _) = run(&mut paced(rate), 1000, Duration::from_micros(900));
    assert!(sent >= rate - rate / 100, "{sent} bytes at {rate}/s");
}

#[test]
fn ten_packets_leave_together_on_a_slow_path() {
    // RFC 9002, Section 7.7: bursts up to the initial window.
    let mut pacer = paced(10_000);
    let sent = drain(&mut pacer, Time::ZERO, u64::from(MTU));
    assert!((10..=11).contains(&(sent / u64::from(MTU))), "{sent}");
}

#[test]
fn a_whole_offload_burst_leaves_at_once_on_a_fast_path() {
    let mut pacer = paced(125_000_000);
    drain(&mut pacer, Time::ZERO, 64 << 10);
    let now = pacer.delay(Time::ZERO).unwrap();
    assert!(drain(&mut pacer, now, u64::from(MTU)) >= 64 << 10);
}

#[test]
fn idle_time_gathers_no_more_than_a_burst() {
    let mut pacer = paced(12_500_000);
    drain(&mut pacer, Time::ZERO, u64::from(MTU));
    let sent = drain(&mut pacer, at_micros(10_000_000), u64::from(MTU));
    assert!(sent <= 25_000 + 2 * u64::from(MTU), "{sent} bytes after ten seconds");
}

#[test]
fn a_new_rate_applies_to_what_was_sent_ahead() {
    let mut pacer = paced(1_250_000);
    drain(&mut pacer, Time::ZERO, u64::from(MTU));
    let slow = pacer.delay(Time::ZERO).unwrap();
    pacer.set_rate(Time::ZERO, 125_000_000, MTU, FAR);
    assert!(pacer.delay(Time::ZERO).is_none_or(|at| at < slow));
    assert_eq!(pacer.rate(), 125_000_000);
}

#[test]
fn the_send_quantum_is_a_millisecond_within_bounds() {
    // draft-ietf-ccwg-bbr, Section 5.6.3
    assert_eq!(paced(12_500).send_quantum(MTU), u64::from(2 * MTU));
    assert_eq!(paced(12_500_000).send_quantum(MTU), 12_500);
    assert_eq!(paced(1_250_000_000).send_quantum(MTU), 64 << 10);
    assert_eq!(Pacer::new().send_quantum(MTU), 64 << 10);
}

#[test]
fn a_burst_is_as_long_as_packets_one_by_one_would_be() {
    for rate in [125_000, 12_500_000, 1_250_000_000] {
        let (mut burst, mut single) = (paced(rate), paced(rate));
        for micros in [0, 10, 400, 2_000, 2_500, 9_000] {
            let now = at_micros(micros);
            let packets = burst.packets(now, u64::from(MTU));
            burst.on_sent(now, packets * u64::from(MTU));
            // What comes behind the burst asks as ever.
            let _ = burst.delay(now);
            let sent = drain(&mut single, now, u64::from(MTU)) / u64::from(MTU);
            assert!(
                packets.abs_diff(sent) <= 1,
                "{rate} bytes/s at {micros} us: {packets}, {sent}"
            );
            assert_eq!(Pacer::new().packets(now, 1), u64::MAX);
        }
    }
}

#[test]
fn on_a_short_path_a_whole_send_leaves_together() {
    let mut pacer = paced(10_000_000);
    assert!(pacer.send_quantum(MTU) < MAX_SEND_QUANTUM);
    pacer.set_rate(Time::ZERO, 10_000_000, MTU, Duration::from_micros(100));
    assert_eq!(pacer.send_quantum(MTU), MAX_SEND_QUANTUM);
    let sent = drain(&mut pacer, Time::ZERO, u64::from(MTU));
    assert!((MAX_SEND_QUANTUM..=MAX_SEND_QUANTUM + u64::from(MTU)).contains(&sent), "{sent}");
    // ... and the rate is kept all the same.
    let (sent, _) = run(&mut pacer, 1000, Duration::ZERO);
    assert!(sent.abs_diff(10_000_000) <= 2 * MAX_SEND_QUANTUM, "{sent}");
}
