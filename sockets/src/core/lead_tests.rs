//! The seat among real threads; all their interleavings are tried in `tests/leading`.

use std::sync::mpsc;
use std::task::Waker;
use std::thread;
use std::time::Instant;

use quicket_engine::time::{Duration, Time};

use super::kick::Kick;
use super::lead::{Background, Entrance, HANDOVER, Leadership, Look, Rank, Shift, Token};
use super::parker::{CurrentThread, Roused};

/// Nothing to work with.
struct Bare;

impl Token for Bare {
    type Rest = ();

    fn has_rest(&self) -> bool {
        false
    }

    fn take_rest(&mut self) {}

    fn finish((): ()) {}
}

fn leadership() -> Leadership<Bare> {
    Leadership::new(Bare, Kick::new().unwrap())
}

const NOW: Time = Time::from_nanos(5_000_000);

#[test]
fn only_one_leads_and_equals_do_not_displace_each_other() {
    let leadership = leadership();
    let thread = CurrentThread::new();
    let seat = leadership.try_enter(Rank::Eager, NOW).unwrap();
    assert!(leadership.try_enter(Rank::Eager, NOW).is_none());
    for rank in [Rank::Patient, Rank::Eager] {
        let Entrance::Queue(place) = leadership.enter(rank, NOW, &thread) else { panic!() };
        assert!(!seat.is_wanted());
        drop(place);
    }
    drop(seat);
    assert!(leadership.try_enter(Rank::Background, NOW).is_some());
}

#[test]
fn a_higher_rank_displaces_a_lower_one() {
    let leadership = leadership();
    let seat = leadership.try_enter(Rank::Background, NOW).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let thread = CurrentThread::get();
            match leadership.enter(Rank::Eager, NOW, &thread) {
                Entrance::Seat(_) => false,
                Entrance::Queue(place) => place.wait(None, false).is_ok(),
            }
        });
        while !seat.is_wanted() {
            thread::yield_now();
        }
        drop(seat);
        assert!(waits.join().unwrap());
    });
    assert!(leadership.try_enter(Rank::Background, NOW).is_some(), "it has left since");
}

/// A caller that gives up waiting for the seat does so in time, whoever has it.
#[test]
fn waiting_for_the_seat_ends_at_the_deadline() {
    let leadership = leadership();
    let _seat = leadership.try_enter(Rank::Background, NOW).unwrap();
    let thread = CurrentThread::new();
    let Entrance::Queue(place) = leadership.enter(Rank::Eager, NOW, &thread) else { panic!() };
    let deadline = Instant::now() + std::time::Duration::from_millis(5);
    assert_eq!(place.wait(Some(deadline), false).err(), Some(Roused::Late));
    assert!(Instant::now() >= deadline);
}

#[test]
fn a_leader_that_leaves_promotes_a_caller_that_sleeps_at_once() {
    let leadership = leadership();
    let seat = leadership.try_enter(Rank::Eager, NOW).unwrap();
    thread::scope(|scope| {
        let (tell, queued) = mpsc::channel();
        let leadership = &leadership;
        let callers: Vec<_> = (0..3)
            .map(|_| {
                let tell = tell.clone();
                scope.spawn(move || {
                    let thread = CurrentThread::get();
                    let entrance = leadership.enter(Rank::Eager, NOW, &thread);
                    tell.send(()).unwrap();
                    // Neither the background nor anybody else helps.
                    match entrance {
                        Entrance::Seat(_) => false,
                        Entrance::Queue(place) => place.wait(None, false).is_ok(),
                    }
                })
            })
            .collect();
        (0..3).for_each(|_| queued.recv().unwrap());
        drop(seat);
        assert!(callers.into_iter().all(|caller| caller.join().unwrap()));
    });
}

/// Who was woken for what it waits for looks by itself; the seat goes to one that sleeps.
#[test]
fn who_is_awake_is_not_promoted_and_who_gives_up_passes_the_seat_on() {
    let leadership = leadership();
    let seat = leadership.try_enter(Rank::Eager, NOW).unwrap();
    let [awake, gives_up, sleeps] = [(); 3].map(|()| CurrentThread::new());
    let enter = |thread| match leadership.enter(Rank::Eager, NOW, thread) {
        Entrance::Queue(place) => place,
        Entrance::Seat(_) => panic!("somebody leads"),
    };
    let places = (enter(&sleeps), enter(&gives_up), enter(&awake));
    awake.parker().wake_now();
    drop(seat);
    // Promoted, and woken for its own reasons since.
    gives_up.parker().wake_now();
    assert_eq!(places.1.wait(None, false).err(), Some(Roused::Woken));
    assert!(places.0.wait(None, false).is_ok(), "the one that sleeps");
    drop(places.2);
    assert!(leadership.try_enter(Rank::Background, NOW).is_some());
}

#[test]
fn a_leader_that_is_relied_on_sleeps_no_longer_than_a_handover() {
    let leadership = leadership();
    assert_eq!(leadership.next_look(NOW), Look::ByNext, "nobody leads: whoever comes looks first");
    let _seat = leadership.try_enter(Rank::Eager, NOW).unwrap();
    assert_eq!(leadership.plan_look(NOW), None);
    assert_eq!(leadership.next_look(NOW), Look::TooLate, "it may sleep for long");
    leadership.has_woken();
    assert_eq!(leadership.next_look(NOW), Look::Soon, "it looks before it sleeps");
    assert_eq!(leadership.plan_look(NOW), Some(NOW + HANDOVER));
    assert_eq!(leadership.next_look(NOW + Duration::from_micros(10)), Look::Soon);
    leadership.has_woken();
    assert_eq!(leadership.plan_look(NOW), Some(NOW + HANDOVER));
    leadership.has_woken();
    assert_eq!(leadership.plan_look(NOW), None, "nobody has relied on it since");
}

#[test]
fn the_background_keeps_away_while_callers_lead_and_for_a_while_after() {
    let leadership = leadership();
    let nap = |now| match leadership.drive(now) {
        Shift::Nap(time) => Some(time),
        Shift::Seated(_) | Shift::Sleep => None,
    };
    assert!(matches!(leadership.drive(NOW), Shift::Seated(_)));
    let mut seat = leadership.try_enter(Rank::Eager, NOW).unwrap();
    assert!(matches!(leadership.drive(NOW), Shift::Sleep));
    seat.now = NOW + Duration::from_micros(10);
    drop(seat);
    let after = NOW + Duration::from_micros(310);
    assert_eq!(nap(after), Some(Duration::from_micros(700)));
    let seat = leadership.try_enter(Rank::Eager, after).unwrap();
    drop(seat);
    let _seat = leadership.try_enter(Rank::Eager, after).unwrap();
    assert_eq!(nap(after), Some(HANDOVER), "callers come and go");
    assert!(matches!(leadership.drive(after), Shift::Sleep), "one has stayed since");
}

#[test]
fn the_background_leaves_its_work_to_callers_that_come_often() {
    let leadership = leadership();
    let Shift::Seated(mut seat) = leadership.drive(NOW) else { panic!("nobody leads") };
    assert!(leadership.visit(NOW).is_none() && !seat.is_wanted(), "the first");
    let later = NOW + HANDOVER;
    assert!(leadership.visit(later).is_none() && !seat.is_wanted(), "now and then");
    let soon = later + Duration::from_micros(40);
    assert!(leadership.visit(soon).is_none() && seat.is_wanted(), "often");
    seat.now = soon;
    drop(seat);
    let nap = |now| match leadership.drive(now) {
        Shift::Nap(time) => Some(time),
        Shift::Seated(_) | Shift::Sleep => None,
    };
    assert_eq!(nap(soon), Some(HANDOVER), "it keeps away");
    let last = soon + Duration::from_micros(900);
    drop(leadership.visit(last).expect("the seat is vacant"));
    assert_eq!(nap(last), Some(HANDOVER), "as long as they come");
    assert!(matches!(leadership.drive(last + HANDOVER), Shift::Seated(_)));
}

/// One that waits for the next connection leaves its work to them, too, and has the seat again when they are done.
#[test]
fn a_patient_caller_leaves_its_work_to_callers_that_come_often() {
    let leadership = leadership();
    let thread = CurrentThread::new();
    let enter = |rank, now| match leadership.enter(rank, now, &thread) {
        Entrance::Seat(seat) => Ok(seat),
        Entrance::Queue(place) => Err(place),
    };
    let mut seat = enter(Rank::Patient, NOW).ok().expect("the seat is vacant");
    let soon = NOW + Duration::from_micros(40);
    assert!(leadership.visit(NOW).is_none() && !seat.is_wanted(), "the first");
    assert!(leadership.visit(soon).is_none() && seat.is_wanted(), "often");
    seat.now = soon;
    drop(seat);
    assert!(enter(Rank::Patient, soon).is_err(), "it waits");
    drop(enter(Rank::Eager, soon).ok().expect("who waits for data does not"));
    let last = soon + Duration::from_micros(900);
    drop(leadership.visit(last).expect("the seat is vacant"));
    let place = enter(Rank::Patient, soon + HANDOVER).err().expect("as long as they come");
    assert!(matches!(leadership.drive(last), Shift::Nap(_)));
    let Shift::Seated(background) = leadership.drive(last + HANDOVER) else { panic!("it looks") };
    assert!(background.is_wanted());
    drop(background);
    assert!(place.wait(None, false).is_ok(), "it was promoted");
}

#[test]
fn who_waits_for_data_and_tasks_are_not_displaced_by_who_does_not_wait() {
    let leadership = leadership();
    let visits = |count: usize| (0..count).all(|_| leadership.visit(NOW).is_none());
    let seat = leadership.try_enter(Rank::Eager, NOW).unwrap();
    assert!(visits(3) && !seat.is_wanted());
    drop(seat);
    leadership.set_background(Some(Background::Task(Waker::noop().clone())));
    let seat = leadership.try_enter(Rank::Background, NOW).unwrap();
    assert!(visits(3) && !seat.is_wanted(), "nothing would wake a task that leaves");
}
