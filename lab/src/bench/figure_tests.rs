use super::*;
use quicket_workload::bench::Link;

fn measurement(result: Outcome) -> Measurement {
    Measurement {
        result,
        client_cpu_ns: 500_000_000,
        server_cpu_ns: 250_000_000,
        link: Link::default(),
    }
}

fn values(figures: &[Figure], result: Outcome) -> Vec<f64> {
    let measurement = measurement(result);
    figures.iter().map(|figure| figure.of(&measurement).unwrap()).collect()
}

const SUMMARY: Summary = Summary {
    count: 1000,
    per_second: 500.0,
    p50_us: 100.0,
    p90_us: 1000.0,
    p95_us: 2000.0,
    p99_us: 2500.0,
    max_us: 9000.0,
};

#[test]
fn bulk_is_told_in_bits_and_processor_time_by_the_gibibyte() {
    let result = Outcome::Bulk { bytes: 1 << 30, nanoseconds: 1_000_000_000 };
    assert_eq!(values(BULK, result), [8.589934592, 0.5, 0.25]);
}

#[test]
fn files_are_told_by_the_gibibyte_and_small_ones_in_milliseconds() {
    let result = Outcome::Files { bytes: 1 << 29, nanoseconds: 1_000_000_000, small: SUMMARY };
    assert_eq!(values(FILES, result), [2.0, 1.0, 0.5, 0.1]);
}

#[test]
fn operations_have_a_rate_and_percentiles() {
    assert_eq!(values(OPERATIONS, Outcome::Operations(SUMMARY)), [500.0, 100.0, 2500.0]);
}

#[test]
fn transfers_have_a_goodput_and_a_cost_each() {
    let result = Outcome::Transfers { summary: SUMMARY, bytes: 1_000_000 };
    assert_eq!(values(TRANSFERS, result), [4.0, 750.0, 2.5]);
}

#[test]
fn shares_leave_out_the_first_third() {
    let own = Flow { intervals: vec![9_000_000, 300_000, 300_000] };
    let rival = Flow { intervals: vec![0, 100_000, 100_000] };
    let result = Outcome::Shared { own, rival };
    assert_eq!(values(SHARED, result), [75.0, 0.8, 32.0]);
    let nothing = Outcome::Shared { own: Flow::default(), rival: Flow::default() };
    assert_eq!(SHARED[0].of(&measurement(nothing)), None);
}

#[test]
fn forwarding_is_told_by_the_processor_time_and_not_by_the_clock() {
    let result =
        Outcome::Forwarded { packets: 1_000_000, nanoseconds: 9, cpu_ns: 500_000_000, calls: 4000 };
    assert_eq!(values(FORWARDING, result), [2000.0, 500.0, 0.4]);
}

#[test]
fn gateways_are_told_by_their_processor_time_and_each_load_has_its_figures() {
    let of = |result| {
        let measurement = measurement(result);
        GATEWAY.iter().filter_map(|figure| figure.of(&measurement)).collect::<Vec<_>>()
    };
    assert_eq!(of(Outcome::Operations(SUMMARY)), [4000.0, 500.0, 0.1, 2.5]);
    let bulk = Outcome::Bulk { bytes: 1 << 30, nanoseconds: 1_000_000_000 };
    assert_eq!(of(bulk), [4.0, 8.589934592]);
    let idle = Outcome::Idle { connections: 10, server_bytes: 70, client_bytes: 1 };
    assert_eq!(of(idle), [7.0]);
}

#[test]
fn tunnels_have_figures_of_their_load_and_no_others() {
    let tunnelled = |load| {
        measurement(Outcome::Tunnelled { load: Box::new(load), tunnel_cpu_ns: 1_000_000_000 })
    };
    let of = |measurement: &Measurement| {
        TUNNEL.iter().map(|figure| figure.of(measurement)).collect::<Vec<_>>()
    };
    let intervals = [vec![0], vec![1 << 28; 4]].concat();
    let bulk = of(&tunnelled(Outcome::Flow(Flow { intervals })));
    assert_eq!(bulk[..2], [Some(21.47483648), Some(1.0)]);
    assert!(bulk[2..].iter().all(Option::is_none));
    let streams = of(&tunnelled(Outcome::Transfers { summary: SUMMARY, bytes: 1 }));
    let expected = [None, None, Some(500.0), Some(1000.0), Some(1.0), Some(2.0), Some(2.5)];
    assert_eq!(streams, expected);
}

#[test]
fn a_ratio_above_one_is_good_whichever_values_are() {
    assert_eq!(BULK[0].ratio(20.0, 10.0), Some(2.0));
    assert_eq!(BULK[1].ratio(0.25, 0.5), Some(2.0));
    assert_eq!(BULK[1].ratio(0.25, 0.0), None);
    assert_eq!(SHARED[0].ratio(60.0, 50.0), None);
}

#[test]
fn a_figure_of_another_kind_of_measurement_is_none() {
    let bulk = measurement(Outcome::Bulk { bytes: 1, nanoseconds: 1 });
    let others = [OPERATIONS, TRANSFERS, FLOW, SHARED, IDLE, FILES, FORWARDING, TUNNEL];
    for figure in others.into_iter().flatten() {
        assert_eq!(figure.of(&bulk), None, "{}", figure.name);
    }
}
