use super::*;
use crate::recovery::RttEstimator;

const MTU: u64 = 1250;

fn rtt() -> RttEstimator {
    let mut rtt = RttEstimator::new(Duration::from_millis(333));
    rtt.update(Time::ZERO, Duration::from_millis(50), Duration::ZERO, None);
    rtt
}

fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

fn acked(cubic: &mut Cubic, now: Time, bytes: u64, growth_bytes: u64) {
    let rtt = rtt();
    cubic.on_ack(&AckEvent {
        now,
        bytes,
        growth_bytes,
        in_flight: cubic.window(),
        peak_in_flight: cubic.window(),
        latest_time_sent: now - Duration::from_millis(50),
        rtt_sample: Some(Duration::from_millis(50)),
        rtt: &rtt,
        rate: None,
        in_recovery: false,
    });
}

fn congestion(cubic: &mut Cubic, now: Time, is_ecn_ce: bool) {
    let prior_in_flight = cubic.window();
    cubic.on_congestion(&CongestionEvent { now, prior_in_flight, is_ecn_ce });
}

/// A controller in congestion avoidance that had `packets` in its window when it lost one.
fn after_loss(packets: u64) -> Cubic {
    let mut cubic = Cubic::new(MTU as u16, CongestionParameters::default());
    cubic.state.window = packets * MTU;
    congestion(&mut cubic, at(0), false);
    cubic
}

/// Acknowledges a window every 50 ms, in ten pieces, from `from` to `to`.
fn run(cubic: &mut Cubic, from: u64, to: u64) {
    for ms in (from..to).step_by(5) {
        let bytes = cubic.window() / 10;
        acked(cubic, at(ms), bytes, bytes);
    }
}

#[test]
fn cube_roots_are_exact() {
    for n in [0u128, 1, 2, 3, 10, 999, 1 << 20, (1 << 40) - 1] {
        assert_eq!(u128::from(cube_root(n * n * n)), n);
        if n > 0 {
            assert_eq!(u128::from(cube_root(n * n * n - 1)), n - 1);
            assert_eq!(u128::from(cube_root(n * n * n + 1)), n);
        }
    }
}

#[test]
fn a_loss_takes_three_tenths() {
    // RFC 9438, Section 4.6
    let cubic = after_loss(1000);
    assert_eq!(cubic.window(), 700 * MTU);
    assert_eq!(cubic.ssthresh(), 700 * MTU);
    assert_eq!(cubic.state.w_max, 1000 * MTU);
}

#[test]
fn the_window_returns_to_w_max_after_k() {
    // RFC 9438, Section 4.2: K = cbrt(300 / 0.4) = 9.086 s.
    let k = time_to_reach(300 * MTU, MTU);
    assert!(k.abs_diff(9086 * 1024 / 1000) <= 10, "{k} ticks");
    let mut cubic = after_loss(1000);
    run(&mut cubic, 0, 9000);
    let window = cubic.window() / MTU;
    assert!((990..=1005).contains(&window), "{window} packets after K");
    run(&mut cubic, 9000, 14_000);
    let window = cubic.window() / MTU;
    // 0.4 * 4.914^3 = 47 packets beyond.
    assert!((1035..=1060).contains(&window), "{window} packets five seconds later");
}

#[test]
fn growth_is_concave_then_convex() {
    // RFC 9438, Sections 4.4 and 4.5
    let mut cubic = after_loss(1000);
    let mut gains = [0; 4];
    for (n, gain) in gains.iter_mut().enumerate() {
        let before = cubic.window();
        run(&mut cubic, n as u64 * 4500, (n as u64 + 1) * 4500);
        *gain = cubic.window() - before;
    }
    assert!(gains[0] > 3 * gains[1], "{gains:?}");
    assert!(gains[3] > 3 * gains[2], "{gains:?}");
}

#[test]
fn small_windows_grow_as_reno_would() {
    // RFC 9438, Section 4.3: alpha_cubic = 0.53 packets a round trip, 1 beyond the old window.
    let mut cubic = after_loss(20);
    run(&mut cubic, 0, 500);
    let window = cubic.window() / MTU;
    assert!((18..=20).contains(&window), "{window} packets after ten round trips from 14");
}

#[test]
fn a_second_loss_below_w_max_releases_bandwidth() {
    // RFC 9438, Section 4.7
    let mut cubic = after_loss(1000);
    congestion(&mut cubic, at(100), false);
    assert_eq!(cubic.state.w_max, 595 * MTU);
}

#[test]
fn idle_time_does_not_let_the_window_leap() {
    // RFC 9438, Section 5.8
    let mut cubic = after_loss(1000);
    run(&mut cubic, 0, 5000);
    let before = cubic.window();
    acked(&mut cubic, at(5005), MTU, 0);
    acked(&mut cubic, at(65_000), MTU, 0);
    run(&mut cubic, 65_005, 65_055);
    assert!(cubic.window() <= before + 10 * MTU, "{} then {}", before, cubic.window());
}

#[test]
fn a_spurious_loss_is_undone_and_a_mark_is_not() {
    // RFC 9438, Section 4.9
    let mut cubic = after_loss(1000);
    cubic.on_spurious_loss(at(10));
    assert_eq!((cubic.window(), cubic.ssthresh()), (1000 * MTU, u64::MAX));
    cubic.on_spurious_loss(at(11));
    assert_eq!(cubic.window(), 1000 * MTU, "only once");
    congestion(&mut cubic, at(20), true);
    cubic.on_spurious_loss(at(30));
    assert_eq!(cubic.window(), 700 * MTU);
}

#[test]
fn persistent_congestion_leaves_the_minimum_window() {
    // RFC 9002, Section 7.6.2
    let mut cubic = after_loss(1000);
    cubic.on_persistent_congestion(at(10));
    assert_eq!(cubic.window(), 2 * MTU);
    assert!(cubic.in_slow_start());
    cubic.on_spurious_loss(at(11));
    assert_eq!(cubic.window(), 2 * MTU, "nothing to undo");
}

#[test]
fn the_window_never_falls_below_two_datagrams() {
    // RFC 9002, Section 7.2
    let mut cubic = Cubic::new(MTU as u16, CongestionParameters::default());
    for n in 0..50 {
        congestion(&mut cubic, at(n), false);
    }
    assert_eq!(cubic.window(), 2 * MTU);
    cubic.on_mtu_changed(9000);
    assert_eq!(cubic.window(), 18_000);
}

#[test]
fn absurd_inputs_saturate() {
    let mut cubic = Cubic::new(u16::MAX, CongestionParameters::default());
    cubic.state.window = u64::MAX;
    congestion(&mut cubic, at(0), false);
    acked(&mut cubic, Time::from_nanos(u64::MAX), u64::MAX, u64::MAX);
    acked(&mut cubic, Time::from_nanos(u64::MAX), u64::MAX, u64::MAX);
    assert!(cubic.window() >= minimum_window(u16::MAX));
}

/// RFC 9438, Sections 4.3, 4.6 and 4.7.
#[test]
fn beta_and_fast_convergence_are_as_chosen() {
    let reduced = |parameters| {
        let mut cubic = Cubic::new(MTU as u16, parameters);
        cubic.state.window = 1000 * MTU;
        congestion(&mut cubic, at(0), false);
        let first = cubic.window();
        congestion(&mut cubic, at(100), false);
        (first / MTU, cubic.state.w_max / MTU)
    };
    let usual = CongestionParameters::DEFAULT;
    assert_eq!(reduced(usual), (700, 595));
    assert_eq!(reduced(CongestionParameters { cubic_beta: 85, ..usual }), (850, 786));
    let greedy = CongestionParameters { cubic_fast_convergence: false, ..usual };
    assert_eq!(reduced(greedy), (700, 700));
    assert_eq!(Factors::new(usual).inverse_alpha, (170, 90));
    assert_eq!(Factors::new(CongestionParameters { cubic_beta: 0, ..usual }).beta, (50, 100));
}

/// A smaller reduction has the estimate of a Reno flow grow more slowly (RFC 9438, Section 4.3).
#[test]
fn the_growth_of_the_estimate_follows_beta() {
    let grown = |cubic_beta| {
        let parameters = CongestionParameters { cubic_beta, ..CongestionParameters::DEFAULT };
        let mut cubic = Cubic::new(MTU as u16, parameters);
        cubic.state.window = 100 * MTU;
        congestion(&mut cubic, at(0), false);
        let before = cubic.window();
        run(&mut cubic, 100, 600);
        cubic.state.epoch.map_or(0, |epoch| epoch.w_est - before)
    };
    assert!(
        grown(50) > grown(70) && grown(70) > grown(90),
        "{} {} {}",
        grown(50),
        grown(70),
        grown(90)
    );
}
