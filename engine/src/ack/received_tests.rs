use alloc::collections::BTreeSet;

use super::*;
use crate::cid::test_support::TestRandom;
use crate::random::Random;
use crate::time::Duration;

const NOW: Time = Time::from_nanos(1_000);

fn record(received: &mut ReceivedPackets, pn: u64) -> bool {
    received.record(pn, NOW, EcnCodepoint::NotEct)
}

fn of(numbers: impl IntoIterator<Item = u64>) -> ReceivedPackets {
    let mut received = ReceivedPackets::new();
    numbers.into_iter().for_each(|pn| assert!(record(&mut received, pn)));
    received
}

fn ranges(received: &ReceivedPackets) -> Vec<(u64, u64)> {
    received.ranges_descending().map(RangeInclusive::into_inner).collect()
}

#[test]
fn packets_in_order_are_one_range() {
    let received = of(0..1000);
    assert_eq!(ranges(&received), [(0, 999)]);
    assert_eq!((received.largest(), received.expected()), (Some(999), 1000));
    assert_eq!(received.ranges.len(), 1);
}

#[test]
fn ranges_are_listed_newest_first_and_merge_when_holes_fill() {
    let mut received = of([0, 1, 5, 9, 3]);
    assert_eq!(ranges(&received), [(9, 9), (5, 5), (3, 3), (0, 1)]);
    assert!(record(&mut received, 4), "joins both neighbours");
    assert_eq!(ranges(&received), [(9, 9), (3, 5), (0, 1)]);
    assert!(record(&mut received, 8), "joins the next");
    assert!(record(&mut received, 6), "joins the previous");
    assert_eq!(ranges(&received), [(8, 9), (3, 6), (0, 1)]);
}

/// RFC 9000, Section 12.3.
#[test]
fn duplicates_are_recognised_everywhere() {
    let mut received = of([0, 1, 2, 7, 8, 20]);
    for pn in [0, 1, 2, 7, 8, 20] {
        assert!(received.is_duplicate(pn) && !record(&mut received, pn), "{pn}");
    }
    for pn in [3, 6, 9, 19, 21, u64::MAX >> 2] {
        assert!(!received.is_duplicate(pn), "{pn}");
    }
    assert!(!ReceivedPackets::new().is_duplicate(0));
}

/// RFC 9000, Section 13.2.3.
#[test]
fn ranges_are_bounded_and_what_is_forgotten_counts_as_duplicate() {
    let mut received = ReceivedPackets::new();
    for n in 0..10_000u64 {
        assert!(record(&mut received, n * 2));
        assert!(received.ranges.len() <= MAX_RANGES);
    }
    assert_eq!(received.ranges.len(), MAX_RANGES);
    let (oldest, _) = *ranges(&received).last().unwrap();
    for pn in [0, 1, 2, 3, oldest - 2, oldest - 1] {
        assert!(received.is_duplicate(pn), "{pn}");
        assert!(!record(&mut received, pn), "{pn}");
    }
    assert!(!received.is_duplicate(oldest + 1));
}

/// RFC 9000, Section 13.2.4.
#[test]
fn an_acknowledged_ack_prunes_what_it_covered_but_never_everything() {
    let mut received = of([0, 1, 2, 5, 6, 10, 11, 12]);
    received.on_ack_of_ack(6);
    assert_eq!(ranges(&received), [(10, 12)]);
    for pn in 0..=6 {
        assert!(received.is_duplicate(pn), "{pn}");
    }
    assert!(!received.is_duplicate(7));
    received.on_ack_of_ack(11);
    assert_eq!(ranges(&received), [(12, 12)]);
    received.on_ack_of_ack(3);
    received.on_ack_of_ack(12);
    received.on_ack_of_ack(u64::MAX);
    assert_eq!(ranges(&received), [(12, 12)]);
    assert!(received.is_duplicate(12) && received.is_duplicate(11));
    assert!(record(&mut received, 13));
    assert_eq!(ranges(&received), [(12, 13)]);
}

#[test]
fn an_ack_of_an_ack_means_nothing_before_any_packet_or_at_number_zero() {
    let mut received = ReceivedPackets::new();
    received.on_ack_of_ack(5);
    assert!(received.is_empty() && !received.is_duplicate(0));
    assert!(record(&mut received, 0));
    received.on_ack_of_ack(0);
    assert_eq!(ranges(&received), [(0, 0)]);
}

/// RFC 9000, Sections 13.2.5 and 19.3.
#[test]
fn the_delay_is_that_of_the_largest_packet() {
    let mut received = of([5]);
    let later = NOW + Duration::from_millis(2);
    assert!(received.record(3, later, EcnCodepoint::NotEct));
    assert_eq!(received.largest_time, NOW);
    assert_eq!(received.ack_delay(NOW + Duration::from_micros(800), 3), 100);
    assert_eq!(received.ack_delay(NOW + Duration::from_micros(800), 0), 800);
    assert_eq!(received.ack_delay(NOW, 3), 0);
    assert_eq!(received.ack_delay(later, 64), 0);
    assert!(received.record(9, later, EcnCodepoint::NotEct));
    assert_eq!(received.largest_time, later);
}

/// RFC 9000, Section 13.4.1.
#[test]
fn marks_are_counted_once_per_packet() {
    let mut received = ReceivedPackets::new();
    for (pn, mark) in [EcnCodepoint::Ect0, EcnCodepoint::Ce, EcnCodepoint::Ect1].iter().enumerate()
    {
        assert!(received.record(pn as u64, NOW, *mark));
        assert!(!received.record(pn as u64, NOW, *mark));
    }
    assert_eq!(received.ecn_counts(), EcnCounts { ect0: 1, ect1: 1, ce: 1 });
}

#[test]
fn the_first_missing_number_is_found() {
    let received = of([0, 1, 2, 5, 6, 10]);
    for (from, missing) in [(0, 3), (2, 3), (3, 3), (5, 7), (6, 7), (7, 7), (10, 11), (30, 30)] {
        assert_eq!(received.first_missing(from), missing, "from {from}");
    }
    assert_eq!(ReceivedPackets::new().first_missing(4), 4);
}

/// RFC 9000, Section 13.2.4: such a packet must not answer every packet.
#[test]
fn an_ack_eliciting_packet_is_wished_for_rarely_and_only_with_many_ranges() {
    let mut received = of(0..500);
    assert!(!received.take_ping_wish());
    let wishes = (0..2000u64)
        .filter(|n| {
            record(&mut received, 1000 + n * 2);
            received.take_ping_wish()
        })
        .count();
    assert!((10..=16).contains(&wishes), "{wishes}");
}

#[test]
fn random_arrivals_agree_with_a_plain_set() {
    for seed in 0..200 {
        let mut random = TestRandom::new(seed);
        let mut received = ReceivedPackets::new();
        let mut model = BTreeSet::new();
        let spread = 1 + random.below(300);
        for step in 0..600u64 {
            let pn = (step / 2 + random.below(spread)).saturating_sub(spread / 2);
            let fresh = !received.is_duplicate(pn);
            assert!(!(fresh && model.contains(&pn)), "seed {seed}: {pn} would be accepted twice");
            assert_eq!(record(&mut received, pn), fresh, "seed {seed}: {pn}");
            if fresh {
                model.insert(pn);
            } else {
                assert!(model.contains(&pn) || pn < received.floor, "seed {seed}: {pn}");
            }
            if random.below(50) == 0 {
                received.on_ack_of_ack(random.below(pn + 2));
            }
            check(&received, &model, seed);
        }
    }
}

fn check(received: &ReceivedPackets, model: &BTreeSet<u64>, seed: u64) {
    assert!(received.ranges.len() <= MAX_RANGES, "seed {seed}");
    assert_eq!(received.largest(), model.last().copied(), "seed {seed}");
    let listed: Vec<u64> = received.ranges.iter().flat_map(|r| r.first..=r.last).collect();
    let oldest = received.ranges.first().map_or(0, |r| r.first);
    let expected: Vec<u64> = model.range(oldest..).copied().collect();
    assert_eq!(listed, expected, "seed {seed}");
    assert!(received.ranges.windows(2).all(|w| w[0].last + 1 < w[1].first), "seed {seed}");
}
