use alloc::vec::Vec;

use super::*;
use crate::cid::test_support::TestRandom;
use crate::random::Random;

const SECOND: Duration = Duration::from_secs(1);
const START: Time = Time::from_nanos(3_000_000_000);

fn settings(upper_bound: u16) -> MtuSettings {
    MtuSettings {
        initial: 1200,
        upper_bound,
        peer_limit: MAX_UDP_PAYLOAD,
        interval: SECOND.times(600),
    }
}

/// Searches on a path that carries `carries` bytes; returns the sizes probed.
fn search(mtu: &mut PathMtu, now: Time, carries: u16) -> Vec<u16> {
    let mut probed = Vec::new();
    while let Some(size) = mtu.poll_probe(now) {
        mtu.on_probe_sent();
        assert_eq!(mtu.poll_probe(now), None, "one probe at a time");
        probed.push(size);
        assert!(probed.len() < 100, "the search ends");
        if size <= carries {
            assert!(mtu.on_probe_acked(size));
        } else {
            mtu.on_probe_lost(size);
        }
    }
    probed
}

fn found(upper_bound: u16, carries: u16) -> u16 {
    let mut mtu = PathMtu::new(&settings(upper_bound));
    search(&mut mtu, START, carries);
    mtu.current()
}

/// RFC 9000, Section 14.
#[test]
fn a_path_begins_with_1200_bytes_or_what_it_is_trusted_to_carry() {
    assert_eq!(PathMtu::new(&settings(1452)).current(), 1200);
    let trusted = MtuSettings { initial: 1400, ..settings(1200) };
    assert_eq!(PathMtu::new(&trusted).current(), 1400);
    let limited = MtuSettings { initial: 9000, peer_limit: 1350, ..settings(9000) };
    assert_eq!(PathMtu::new(&limited).current(), 1350);
    let silly = MtuSettings { initial: 0, peer_limit: 0, ..settings(0) };
    assert_eq!(PathMtu::new(&silly).current(), 1200);
}

#[test]
fn a_bound_at_the_initial_size_turns_the_search_off() {
    let mut mtu = PathMtu::new(&settings(1200));
    assert_eq!(mtu.poll_probe(START), None);
    assert_eq!(mtu.timeout(), None);
}

#[test]
fn common_paths_are_found_exactly() {
    for (carries, expected) in [
        (1200, 1200),
        (1232, 1232),
        (1252, 1252),
        (1372, 1372),
        (1432, 1432),
        (1452, 1452),
        (1472, 1472),
        (8952, 8952),
        (8972, 8972),
        (65_507, 65_507),
        (65_527, 65_527),
    ] {
        assert_eq!(found(MAX_UDP_PAYLOAD, carries), expected, "path of {carries}");
    }
    assert_eq!(found(1400, 65_527), 1400, "the bound itself is tried");
}

#[test]
fn whatever_the_path_carries_most_of_it_is_found_and_never_more() {
    let mut random = TestRandom::new(1);
    for _ in 0..2000 {
        let carries = 1200 + random.below(64_328) as u16;
        let bound = 1200 + random.below(64_328) as u16;
        let found = found(bound, carries);
        let best = carries.min(bound);
        assert!(found <= best, "found {found} of {best}");
        assert!(found >= best - best / 10, "found {found} of {best}");
    }
}

/// The first probe on the internet is the most likely one, and few are wasted.
#[test]
fn an_ethernet_path_costs_few_probes() {
    let mut mtu = PathMtu::new(&settings(MAX_UDP_PAYLOAD));
    let probed = search(&mut mtu, START, 1472);
    assert_eq!(probed[..2], [1452, 1472]);
    assert!(probed.len() <= 8, "{probed:?}");
    let mut mtu = PathMtu::new(&settings(1452));
    assert_eq!(search(&mut mtu, START, 1472), [1452]);
}

/// RFC 8899, Section 5.1.2: MAX_PROBES.
#[test]
fn a_size_is_given_up_after_three_lost_probes() {
    let mut mtu = PathMtu::new(&settings(1452));
    let probed = search(&mut mtu, START, 1200);
    assert_eq!(probed[..3], [1452; 3]);
    let mut counted = probed.clone();
    counted.dedup();
    assert_eq!(probed.len(), counted.len() * 3);
    let mut mtu = PathMtu::new(&settings(1452));
    for _ in 0..2 {
        assert_eq!(mtu.poll_probe(START), Some(1452));
        mtu.on_probe_sent();
        mtu.on_probe_lost(1452);
    }
    mtu.poll_probe(START);
    mtu.on_probe_sent();
    assert!(mtu.on_probe_acked(1452), "the third gets through");
}

/// RFC 8899, Section 5.1.1: PMTU_RAISE_TIMER.
#[test]
fn a_larger_mtu_is_searched_again_when_the_interval_has_passed() {
    let mut mtu = PathMtu::new(&settings(1472));
    search(&mut mtu, START, 1372);
    assert_eq!(mtu.current(), 1372);
    let again = START + SECOND.times(600);
    assert_eq!(mtu.timeout(), Some(again));
    assert_eq!(mtu.poll_probe(again - SECOND), None);
    search(&mut mtu, again, 1472);
    assert_eq!((mtu.current(), mtu.timeout()), (1472, None), "nothing more to find");
}

/// RFC 9000, Section 18.2: max_udp_payload_size.
#[test]
fn the_peers_limit_is_never_exceeded() {
    let mut mtu = PathMtu::new(&settings(MAX_UDP_PAYLOAD));
    mtu.set_peer_limit(1300);
    search(&mut mtu, START, MAX_UDP_PAYLOAD);
    assert_eq!(mtu.current(), 1300);
    mtu.set_peer_limit(1250);
    assert_eq!(mtu.current(), 1250);
    mtu.set_peer_limit(u64::MAX);
    search(&mut mtu, START, MAX_UDP_PAYLOAD);
    assert_eq!(mtu.current(), MAX_UDP_PAYLOAD);
}

fn at(n: u64) -> Time {
    START + SECOND.times(n)
}

/// RFC 8899, Section 4.3.
#[test]
fn repeated_loss_of_large_packets_alone_reveals_a_black_hole() {
    let mut mtu = PathMtu::new(&settings(1452));
    search(&mut mtu, START, 1452);
    assert!(!mtu.on_packet_lost(at(1), 1452));
    mtu.on_packet_acked(1200);
    assert!(!mtu.on_packet_lost(at(2), 1452));
    mtu.on_packet_acked(60);
    assert!(mtu.on_packet_lost(at(3), 1452));
    assert_eq!(mtu.current(), 1200);
    search(&mut mtu, at(4), 1392);
    assert_eq!(mtu.current(), 1392, "the new bottleneck");
    assert!(mtu.timeout().is_some(), "and more again later");
}

#[test]
fn congestion_is_no_black_hole() {
    let mut mtu = PathMtu::new(&settings(1452));
    search(&mut mtu, START, 1452);
    for n in 0..100 {
        for _ in 0..50 {
            assert!(!mtu.on_packet_lost(at(n), 1452), "many at a moment count once");
        }
        mtu.on_packet_acked(1452);
    }
    assert!((0..100).all(|n| !mtu.on_packet_lost(at(200 + n), 1200)), "small ones say nothing");
    assert_eq!(mtu.current(), 1452);
}

#[test]
fn probe_timeouts_in_a_row_make_packets_small() {
    let mut mtu = PathMtu::new(&settings(1452));
    assert!(!mtu.on_pto(5), "small already");
    search(&mut mtu, START, 1452);
    assert!(!mtu.on_pto(1) && !mtu.on_pto(2));
    assert!(mtu.on_pto(3));
    assert_eq!(mtu.current(), 1200);
}

#[test]
fn a_size_that_the_socket_refuses_is_not_tried_again() {
    let mut mtu = PathMtu::new(&settings(1472));
    assert_eq!(mtu.poll_probe(START), Some(1452));
    assert!(!mtu.on_send_refused(1452));
    assert!(search(&mut mtu, START, 1472).iter().all(|s| *s < 1452));
    assert_eq!(mtu.current(), 1444);
    assert!(mtu.on_send_refused(1440), "an interface of smaller MTU came up");
    assert_eq!(mtu.current(), 1200);
    assert!(search(&mut mtu, START, 1472).iter().all(|s| *s < 1440));
}

#[test]
fn fates_of_probes_nobody_waits_for_change_nothing() {
    let mut mtu = PathMtu::new(&settings(1472));
    mtu.on_probe_lost(1452);
    mtu.poll_probe(START);
    mtu.on_probe_lost(1452);
    assert_eq!(mtu.probe.unwrap().losses, 0, "not sent yet");
    mtu.on_probe_sent();
    mtu.on_probe_lost(1300);
    assert_eq!(mtu.probe.unwrap().losses, 0);
    search(&mut mtu, START, 1472);
    mtu.fall_back();
    let before = mtu.state;
    mtu.on_probe_lost(1472);
    assert_eq!(mtu.state, before);
    assert!(mtu.on_probe_acked(1472), "a late ACK is still an ACK");
    assert!(!mtu.on_probe_acked(1300));
    assert_eq!(mtu.current(), 1472);
}
