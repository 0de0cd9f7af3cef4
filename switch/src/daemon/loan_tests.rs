//! When an address's socket is lent, and for how long.

use super::*;
use crate::registry::ListenerId;

fn place(worker: u16) -> Place {
    Place { listener: ListenerId::for_test(0), worker }
}

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

/// Nothing wrong, and something else that waits each time.
fn seen(now: Time) -> Seen {
    let mut first = [0; BEGINNING];
    first[..8].copy_from_slice(&now.as_nanos().to_be_bytes());
    Seen { now, first: Some(first), dropped: 0, others: true, declined: false }
}

fn lent(now: Time) -> Lending {
    let mut lending = Lending::default();
    lending.begin(now, place(0), 0);
    lending
}

#[test]
fn it_is_lent_after_a_run_for_one_worker_within_a_moment() {
    let mut lending = Lending::default();
    for train in 1..=RUN {
        let now = Time::ZERO + Duration::from_micros(train.into());
        assert_eq!(lending.on_trains(now, Some(place(0)), 1), train == RUN, "{train}");
    }
    // Something for another one in between.
    let mut lending = Lending::default();
    for train in 0..10 * RUN {
        let to = (train % (RUN - 1) > 0).then(|| place(0));
        assert!(!lending.on_trains(at(0), to, 1), "{train}");
    }
    let mut lending = Lending::default();
    for train in 0..10 * RUN {
        let to = place(u16::from(train % RUN == 0));
        assert!(!lending.on_trains(at(0), Some(to), 1), "{train}");
    }
    // Too slowly.
    let mut lending = Lending::default();
    for train in 0..10 * RUN {
        assert!(!lending.on_trains(at(u64::from(train)), Some(place(0)), 1), "{train}");
    }
}

#[test]
fn who_reads_keeps_it_as_long_as_something_comes() {
    let mut lending = lent(at(0));
    for look in 1..1000_u64 {
        assert_eq!(lending.look(seen(at(5 * look))), Look::Stay, "{look}");
    }
    for idle in 1..=MOST_IDLE {
        let now = at(5000 + 5 * u64::from(idle));
        let look = lending.look(Seen { first: None, ..seen(now) });
        assert_eq!(look, if idle < MOST_IDLE { Look::Stay } else { Look::End }, "{idle}");
    }
    lending.end(at(6000), false);
    assert_eq!(lending.to(), None);
    assert!(lending.on_trains(at(6000), Some(place(0)), RUN), "it is lent again at once");
}

#[test]
fn who_stands_still_loses_it_within_a_moment() {
    let mut lending = lent(at(0));
    let (same, mut now) = (seen(at(5)), at(5));
    while lending.look(Seen { now, ..same }) == Look::Stay {
        now += LOOK;
    }
    assert_eq!(now.since(at(5)), PATIENCE);
    // One that has read it before that.
    for between in [Seen { first: None, ..same }, seen(at(6))] {
        let mut lending = lent(at(0));
        assert_eq!(lending.look(same), Look::Stay);
        assert_eq!(lending.look(Seen { now: at(20), ..between }), Look::Stay);
        assert_eq!(lending.look(Seen { now: at(25), ..same }), Look::Stay);
    }
}

#[test]
fn who_declines_or_has_too_much_for_others_or_loses_theirs_loses_it() {
    let fails = |lending: &mut Lending, seen| matches!(lending.look(seen), Look::Fail(_));
    assert!(fails(&mut lent(at(0)), Seen { declined: true, ..seen(at(5)) }));
    let mut lending = lent(at(0));
    lending.on_strays(at(1), place(1), 10 * MOST_STRAYS);
    lending.on_strays(at(1), place(0), MOST_STRAYS);
    assert_eq!(lending.look(seen(at(5))), Look::Stay);
    lending.on_strays(at(6), place(0), MOST_STRAYS + 1);
    assert_eq!(lending.loan.as_ref().unwrap().look_at, at(6), "at once");
    assert!(fails(&mut lending, seen(at(6))));
    let mut lending = lent(at(0));
    assert_eq!(lending.look(Seen { dropped: 3, others: false, ..seen(at(5)) }), Look::Stay);
    assert!(!fails(&mut lending, Seen { dropped: 3, ..seen(at(10)) }), "they are not new");
    assert!(fails(&mut lending, Seen { dropped: 4, ..seen(at(15)) }));
}

#[test]
fn what_fails_is_not_tried_again_at_once() {
    let mut lending = Lending::default();
    let mut now = at(0);
    let mut pause = PAUSE;
    for _ in 0..10 {
        assert!(lending.on_trains(now, Some(place(0)), RUN), "{now:?}");
        lending.begin(now, place(0), 0);
        now += LOOK;
        lending.end(now, true);
        let before = now + Duration::from_nanos(pause.as_nanos() - 1);
        assert!(!lending.on_trains(before, Some(place(0)), RUN));
        now += pause;
        pause = pause.times(2).min(LONGEST_PAUSE);
    }
    // One that was worth it for a while forgives all that.
    lending.begin(now, place(0), 0);
    now += WORTH;
    lending.end(now, true);
    assert!(lending.on_trains(now + PAUSE, Some(place(0)), RUN));
}
