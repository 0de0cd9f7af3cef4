//! How callers and the stack's thread take turns at the port: the code of the stack, with threads whose interleavings a scheduler
//! chooses. A wake-up that is lost, or frames that nobody takes, are a deadlock there, which it reports.
//!
//! There are no segments: each frame is mail for one of the callers, or a connection for whoever accepts it. Time passes only while
//! the thread naps.

// What is not needed here is needed in the stack.
#![allow(dead_code, missing_docs, unreachable_pub)]

mod accepting;
mod bed;
#[path = "../../src/driving.rs"]
mod driving;
mod event;
#[path = "../../../sockets/tests/common/interleavings.rs"]
mod interleavings;
#[path = "../../src/listening.rs"]
mod listening;
#[path = "../../src/seat.rs"]
mod seat;
mod state;
#[path = "../../src/watch.rs"]
mod watch;

mod sync {
    pub(crate) use shuttle::sync::atomic::{AtomicBool, Ordering};
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::sync::{Arc, PoisonError};
}

mod connections {
    pub(crate) use crate::state::{Id, Wake};
}

use std::io::{self, ErrorKind};
use std::task::Poll;
use std::time::Duration;

use driving::Driving;
use interleavings::search;
use shuttle::thread;
use state::{Core, Fault, Ring};
use sync::Arc;

/// How many interleavings of each case are tried.
const INTERLEAVINGS: usize = 10_000;
/// How many, where a fault is made on purpose.
const INTERLEAVINGS_OF_FAULTS: usize = 100_000;
/// The same interleavings in each run: what fails once fails again.
const SEED: u64 = 9293;

fn check(case: fn()) {
    search(SEED, INTERLEAVINGS, case);
}

/// Like `check`, where the case is wrong.
fn find(case: fn()) {
    search(SEED, INTERLEAVINGS_OF_FAULTS, case);
}

/// A stack and its thread.
struct World {
    driving: Arc<Driving>,
    ring: Arc<Ring>,
    thread: thread::JoinHandle<()>,
}

impl World {
    fn begin(callers: usize, fault: Option<Fault>) -> Self {
        let ring = Arc::new(Ring::default());
        let core = Core::new(Arc::clone(&ring), callers, fault);
        let driving = Arc::new(Driving::new(core, state::Bell(Arc::clone(&ring))).unwrap());
        let driven = Arc::clone(&driving);
        let thread = thread::spawn(move || driven.drive(|| {}));
        Self { driving, ring, thread }
    }

    /// A caller that waits for so many pieces of mail.
    fn caller(&self, number: usize, mails: usize) -> thread::JoinHandle<io::Result<()>> {
        let driving = Arc::clone(&self.driving);
        thread::spawn(move || (0..mails).try_for_each(|_| receive(&driving, number, None)))
    }

    /// Nobody has the stack any more.
    fn end(self) {
        self.driving.act(|core| core.is_abandoned = true);
        self.driving.rouse();
        self.thread.join().unwrap();
    }
}

/// Takes a piece of mail, and waits for it.
fn receive(driving: &Driving, number: usize, time: Option<Duration>) -> io::Result<()> {
    driving.block(
        time,
        |core| match core.take(number) {
            true => Poll::Ready(Ok(())),
            false if core.is_over => Poll::Ready(Err(ErrorKind::ConnectionReset.into())),
            false => Poll::Pending,
        },
        |core, step| Ok(core.step(number, step)),
    )
}

/// Each of some callers gets its mail, in whatever order it comes.
fn run(callers: usize, mails: usize, fault: Option<Fault>) {
    let world = World::begin(callers, fault);
    let waiting: Vec<_> = (0..callers).map(|number| world.caller(number, mails)).collect();
    for n in 0..callers * mails {
        world.ring.send(n % callers);
    }
    waiting.into_iter().for_each(|caller| caller.join().unwrap().unwrap());
    world.end();
}

#[test]
fn one_caller_takes_what_comes_for_it() {
    check(|| run(1, 3, None));
}

#[test]
fn callers_take_turns_and_each_gets_its_own() {
    check(|| run(2, 2, None));
    check(|| run(3, 2, None));
}

/// A caller has what it waited for, and never comes again: the thread sees to the others.
#[test]
fn the_thread_takes_over_from_a_caller_that_stays_away() {
    check(|| {
        let world = World::begin(2, None);
        let (first, second) = (world.caller(0, 1), world.caller(1, 2));
        world.ring.send(0);
        first.join().unwrap().unwrap();
        world.ring.send(1);
        world.ring.send(1);
        second.join().unwrap().unwrap();
        world.end();
    });
}

/// What a caller waits for that has the seat may be another thread's doing.
#[test]
fn who_sleeps_at_the_bell_hears_what_other_threads_do() {
    check(|| {
        let world = World::begin(2, None);
        let (first, second) = (world.caller(0, 1), world.caller(1, 1));
        world.driving.act(|core| core.bring(0));
        first.join().unwrap().unwrap();
        world.driving.act(|core| core.bring(1));
        second.join().unwrap().unwrap();
        world.end();
    });
}

#[test]
fn who_does_not_wait_or_gives_up_leaves_nothing_behind() {
    check(|| {
        let world = World::begin(2, None);
        let waiting = world.caller(0, 2);
        let driving = Arc::clone(&world.driving);
        let looking = thread::spawn(move || {
            let looks = (0..3).map(|_| receive(&driving, 1, Some(Duration::ZERO)));
            looks.filter(Result::is_ok).count()
        });
        for to in [0, 1, 0] {
            world.ring.send(to);
        }
        waiting.join().unwrap().unwrap();
        let found = looking.join().unwrap();
        let left = world.driving.lock().left(1) + world.ring.left();
        assert_eq!(found + left, 1);
        world.end();
    });
}

#[test]
fn all_hear_that_the_switch_has_gone() {
    check(|| {
        let world = World::begin(2, None);
        let waiting = [world.caller(0, 2), world.caller(1, 1)];
        world.ring.send(0);
        world.ring.close();
        for caller in waiting {
            assert!(caller.join().unwrap().is_err());
        }
        world.end();
    });
}

/// That is what these tests find: a caller that leaves the seat while the thread sleeps without end.
#[test]
#[should_panic(expected = "deadlock")]
fn a_thread_that_is_not_roused_is_found() {
    find(|| run(2, 2, Some(Fault::RousesNobody)));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_caller_at_the_bell_that_is_not_interrupted_is_found() {
    find(|| {
        let world = World::begin(1, Some(Fault::InterruptsNobody));
        let caller = world.caller(0, 1);
        world.driving.act(|core| core.bring(0));
        caller.join().unwrap().unwrap();
        world.end();
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_vacant_seat_that_the_thread_does_not_take_is_found() {
    find(|| run(2, 2, Some(Fault::NeverTakesOver)));
}
