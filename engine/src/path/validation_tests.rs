use alloc::vec::Vec;

use super::*;
use crate::cid::test_support::TestRandom;

const MS: Duration = Duration::from_millis(1);
const PTO: Duration = Duration::from_millis(100);
const START: Time = Time::from_nanos(7_000_000_000);

fn started() -> (PathValidation, TestRandom) {
    let mut validation = PathValidation::unvalidated();
    validation.start(START, PTO);
    (validation, TestRandom::new(4))
}

#[test]
fn nothing_is_sent_before_validation_starts_or_after_it_is_done() {
    for validation in [PathValidation::unvalidated(), PathValidation::validated()] {
        assert!(!validation.is_challenge_due(START) && validation.timeout().is_none());
        assert!(!validation.is_validating());
    }
    assert!(PathValidation::validated().is_validated());
    assert!(!PathValidation::unvalidated().is_validated());
}

/// RFC 9000, Section 8.2.3.
#[test]
fn the_right_response_validates_the_path() {
    let (mut validation, mut random) = started();
    assert!(validation.is_challenge_due(START));
    let data = validation.challenge(START, true, &mut random);
    assert!(!validation.is_challenge_due(START) && validation.is_validating());
    let mut wrong = data;
    wrong[7] ^= 1;
    assert_eq!(validation.on_response(START + MS, wrong, PTO), ResponseOutcome::NotOurs);
    assert_eq!(validation.on_response(START + MS, data, PTO), ResponseOutcome::Validated);
    assert!(validation.is_validated() && !validation.is_validating());
    assert_eq!(validation.on_response(START + MS, data, PTO), ResponseOutcome::NotOurs);
    assert_eq!(validation.timeout(), None);
}

/// RFC 9000, Section 8.2.1: every PATH_CHALLENGE has new data.
#[test]
fn challenges_are_repeated_with_new_data_and_growing_pauses() {
    let (mut validation, mut random) = started();
    let mut sent = Vec::new();
    for ms in 0..300u64 {
        let now = START + MS.times(ms);
        assert_eq!(validation.on_timeout(now), ValidationTimeout::None);
        if validation.is_challenge_due(now) {
            sent.push((ms, validation.challenge(now, true, &mut random)));
        }
    }
    let times: Vec<u64> = sent.iter().map(|s| s.0).collect();
    assert_eq!(times, [0, 34, 101, 235]);
    assert_ne!(sent[0].1, sent[1].1);
    let late = START + MS.times(299);
    assert_eq!(validation.on_response(late, sent[0].1, PTO), ResponseOutcome::Validated);
}

/// RFC 9000, Section 8.2.4: three times the PTO.
#[test]
fn validation_is_given_up_after_three_ptos() {
    let (mut validation, mut random) = started();
    let data = validation.challenge(START, true, &mut random);
    let end = START + PTO.times(3);
    assert_eq!(validation.on_timeout(end - Duration::from_nanos(1)), ValidationTimeout::None);
    assert_eq!(validation.on_timeout(end), ValidationTimeout::Failed);
    assert_eq!(validation.on_timeout(end), ValidationTimeout::None, "reported once");
    assert_eq!(validation.state, State::Failed);
    assert!(!validation.is_validated());
    assert_eq!(validation.on_response(end, data, PTO), ResponseOutcome::NotOurs);
    assert!(!validation.is_challenge_due(end) && validation.timeout().is_none());
}

/// RFC 9000, Section 8.2.1: a second challenge must show that 1200 bytes get through.
#[test]
fn a_challenge_that_could_not_be_expanded_validates_the_address_alone() {
    let (mut validation, mut random) = started();
    let small = validation.challenge(START, false, &mut random);
    let now = START + MS.times(20);
    assert_eq!(validation.on_response(now, small, PTO), ResponseOutcome::AddressOnly);
    assert!(validation.is_validated() && validation.is_challenge_due(now));
    let full = validation.challenge(now, true, &mut random);
    assert_eq!(validation.on_response(now, full, PTO), ResponseOutcome::Validated);
    assert!(!validation.is_validating());
}

#[test]
fn a_lost_challenge_is_followed_by_another_at_once() {
    let (mut validation, mut random) = started();
    let data = validation.challenge(START, true, &mut random);
    let now = START + MS.times(10);
    validation.on_challenge_lost([0; 8]);
    assert!(!validation.is_challenge_due(now), "not ours");
    validation.on_challenge_lost(data);
    assert!(validation.is_challenge_due(now));
}

/// RFC 9000, Section 8.2.1: no more often than Initial packets.
#[test]
fn challenges_into_the_void_keep_to_their_interval() {
    let (mut validation, mut random) = started();
    for _ in 0..MAX_HURRIED {
        let data = validation.challenge(START, true, &mut random);
        validation.on_challenge_lost(data);
        assert!(validation.is_challenge_due(START));
    }
    let data = validation.challenge(START, true, &mut random);
    validation.on_challenge_lost(data);
    assert!(!validation.is_challenge_due(START + MS.times(50)));
    assert!(validation.timeout() > Some(START), "a later one is due by time");
}

/// A challenge may be held back by the anti-amplification limit for as long as it takes.
#[test]
fn a_challenge_that_cannot_be_sent_leaves_only_the_deadline_as_timer() {
    let (mut validation, mut random) = started();
    assert_eq!(validation.timeout(), Some(START + PTO.times(3)));
    validation.challenge(START, true, &mut random);
    let next = START + PTO.over(3);
    assert_eq!(validation.timeout(), Some(next));
    validation.on_timeout(next);
    assert!(validation.is_challenge_due(next));
    assert_eq!(validation.timeout(), Some(START + PTO.times(3)));
}

#[test]
fn outstanding_challenges_are_bounded_and_the_newest_count() {
    let (mut validation, mut random) = started();
    let all: Vec<_> = (0..20).map(|_| validation.challenge(START, true, &mut random)).collect();
    assert_eq!(validation.on_response(START, all[15], PTO), ResponseOutcome::NotOurs);
    assert_eq!(validation.on_response(START, all[16], PTO), ResponseOutcome::Validated);
}
