//! How threads take turns at receiving: the code of the core, with threads whose interleavings a
//! scheduler chooses. A wake-up that is lost, or a seat that nobody gets, is a deadlock there,
//! which it reports; two that receive at once would have two tokens, and there is one.
//!
//! Time does not pass here: no deadline and no handover helps anybody.

// What is not needed here is needed in the core.
#![allow(dead_code, unused_imports, unreachable_pub, missing_docs)]

mod answers;
mod bell;
#[path = "../common/interleavings.rs"]
mod interleavings;
mod kick;
mod world;

#[path = "../../src/core/handover.rs"]
mod handover;
#[path = "../../src/core/lead/mod.rs"]
mod lead;
#[path = "../../src/core/mailbox.rs"]
mod mailbox;
#[path = "../../src/core/parker.rs"]
mod parker;
#[path = "../../src/core/waiter_id.rs"]
mod waiter_id;

mod sync {
    pub(super) use shuttle::sync::atomic::{AtomicBool, Ordering};
    pub(super) use shuttle::sync::{Mutex, MutexGuard};
    pub(super) use shuttle::thread::{self, Thread, ThreadId};
    pub(super) use std::sync::{Arc, PoisonError};

    pub(super) fn this_thread() -> ThreadId {
        thread::current().id()
    }
}

use interleavings::search;
use lead::Rank;
use sync::{Arc, thread};
use world::{Driven, World};

/// How many interleavings of each case are tried.
const INTERLEAVINGS: usize = 20_000;
/// How many, where a fault is made on purpose: some show in few of them.
const INTERLEAVINGS_OF_FAULTS: usize = 200_000;
/// The same interleavings in each run: what fails once fails again.
const SEED: u64 = 9000;

fn check(case: fn()) {
    search(SEED, INTERLEAVINGS, case);
}

/// Like `check`, where the case is wrong.
fn find(case: fn()) {
    search(SEED, INTERLEAVINGS_OF_FAULTS, case);
}

/// Callers of these ranks each wait for `mails` pieces of mail, one after the other.
fn callers(world: &Arc<World>, ranks: &[Rank], mails: usize) -> Vec<thread::JoinHandle<()>> {
    let caller = |(number, rank): (usize, &Rank)| {
        let (world, rank) = (Arc::clone(world), *rank);
        thread::spawn(move || (0..mails).for_each(|_| world.receive(number, rank, false)))
    };
    ranks.iter().enumerate().map(caller).collect()
}

fn run(driven: Driven, ranks: &[Rank], mails: usize) {
    let world = World::new(ranks.len(), driven);
    let background = world.start_background();
    let callers = callers(&world, ranks, mails);
    for _ in 0..mails {
        (0..ranks.len()).for_each(|number| world.send(number));
    }
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    world.end();
    background.into_iter().for_each(|background| background.join().unwrap());
}

/// Nobody helps: who leaves the seat must see to it that somebody follows.
#[test]
fn callers_alone_get_all_that_comes() {
    check(|| run(Driven::Nobody, &[Rank::Eager; 3], 2));
}

#[test]
fn callers_of_several_ranks_and_a_thread_in_the_background_get_all_that_comes() {
    check(|| run(Driven::Thread, &[Rank::Eager, Rank::Patient, Rank::Eager], 2));
}

#[test]
fn callers_beside_a_task_get_all_that_comes() {
    check(|| run(Driven::Task, &[Rank::Eager, Rank::Patient], 2));
}

/// Another thread has done what one waits for, before or after that one was promoted.
#[test]
fn who_is_woken_by_another_thread_passes_the_seat_on() {
    check(|| {
        let world = World::new(3, Driven::Nobody);
        let callers = callers(&world, &[Rank::Eager; 3], 1);
        world.send(0);
        world.bring(1);
        world.send(2);
        callers.into_iter().for_each(|caller| caller.join().unwrap());
    });
}

/// A thread that never leads has done what one waits for that was just promoted, and looks for what
/// came in, as one that sends much does. It finds the seat taken, or leaves it to somebody else.
#[test]
fn who_was_promoted_and_is_woken_by_a_thread_that_cannot_lead_passes_the_seat_on() {
    check(|| {
        let world = World::new(3, Driven::Nobody);
        let callers = callers(&world, &[Rank::Eager; 3], 1);
        let brings = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.bring(1);
                world.glance();
                world.bring(2);
                world.glance();
            })
        };
        world.send(0);
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        brings.join().unwrap();
    });
}

/// A thread that sends much receives what is there again and again, has the background keep away by that, and ends. Nothing
/// that it leaves is lost.
#[test]
fn who_does_the_work_of_the_background_leaves_it_the_rest() {
    check(|| {
        let world = World::new(2, Driven::Thread);
        let background = world.start_background();
        let woken = world.register_task(1);
        let glances = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                (0..2).for_each(|_| world.glance());
                world.send(1);
                world.glance();
            })
        };
        let callers = callers(&world, &[Rank::Patient], 1);
        world.send(0);
        woken.wait();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        glances.join().unwrap();
        world.end();
        background.into_iter().for_each(|background| background.join().unwrap());
    });
}

/// A signal ends the waiting of one, before or after it was promoted; the other gets its mail.
#[test]
fn who_gives_up_passes_the_seat_on() {
    check(|| {
        let world = World::new(3, Driven::Nobody);
        let gives_up = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.try_receive(2, Rank::Eager))
        };
        let callers = callers(&world, &[Rank::Eager; 2], 1);
        // One of those that lead needs a reason to leave.
        (0..3).for_each(|number| world.send(number));
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        gives_up.join().unwrap();
    });
}

fn handed_over(driven: Driven, ranks: &[Rank], forgetful: bool) {
    let world = World::new(ranks.len(), driven);
    if forgetful {
        world.forget_mailbox();
    }
    let background = world.start_background();
    let callers = callers(&world, ranks, 2);
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let (world, parties) = (Arc::clone(&world), ranks.len());
            thread::spawn(move || (0..parties).for_each(|number| world.hand_over(number)))
        })
        .collect();
    callers.into_iter().chain(workers).for_each(|thread| thread.join().unwrap());
    world.end();
    background.into_iter().for_each(|background| background.join().unwrap());
}

/// Two other workers leave mail, and nothing comes to the socket.
#[test]
fn what_other_workers_hand_over_reaches_callers() {
    check(|| handed_over(Driven::Nobody, &[Rank::Eager; 2], false));
}

#[test]
fn what_other_workers_hand_over_reaches_callers_beside_a_thread() {
    check(|| handed_over(Driven::Thread, &[Rank::Eager, Rank::Patient], false));
}

#[test]
fn what_other_workers_hand_over_reaches_callers_beside_a_task() {
    check(|| handed_over(Driven::Task, &[Rank::Eager, Rank::Patient], false));
}

/// That is what these tests find: a leader that sleeps without a look into the mailbox.
#[test]
#[should_panic(expected = "deadlock")]
fn a_leader_that_does_not_say_that_it_sleeps_is_found() {
    find(|| handed_over(Driven::Nobody, &[Rank::Eager; 2], true));
}

/// Tasks are woken when the seat is left, by somebody who may take it and every lock.
#[test]
fn wakers_run_outside_of_the_seat() {
    check(|| {
        let world = World::new(2, Driven::Thread);
        let background = world.start_background();
        let callers = callers(&world, &[Rank::Eager], 1);
        let woken = world.register_task(1);
        world.send(1);
        world.send(0);
        woken.wait();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        world.end();
        background.into_iter().for_each(|background| background.join().unwrap());
    });
}

/// That is what this test finds: a promotion that nobody takes or passes on.
#[test]
#[should_panic(expected = "deadlock")]
fn a_place_that_is_not_given_up_is_found() {
    find(|| {
        let world = World::new(3, Driven::Nobody);
        world.forget_places();
        let gives_up = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.try_receive(2, Rank::Eager))
        };
        let callers = callers(&world, &[Rank::Eager; 2], 1);
        (0..3).for_each(|number| world.send(number));
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        gives_up.join().unwrap();
    });
}
