//! Connections that come are handed to those who accept: each to one of them, and none is lost.

use std::io::{self, ErrorKind};
use std::task::Poll;
use std::time::Duration;

use shuttle::thread;

use crate::driving::Driving;
use crate::state::{CONNECTION, Fault};
use crate::sync::Arc;
use crate::watch::Watch;
use crate::{World, check, find};

/// Accepts a connection, and waits for it (`TcpListener::accept`).
fn accept(driving: &Driving, time: Option<Duration>) -> io::Result<usize> {
    driving.block(
        time,
        |core| match core.listening.accept() {
            _ if core.is_over => Poll::Ready(Err(ErrorKind::ConnectionReset.into())),
            Some(id) => Poll::Ready(Ok(id)),
            None => Poll::Pending,
        },
        |core, step| Ok(core.step_of_listener(step)),
    )
}

impl World {
    /// A caller that accepts so many connections.
    fn acceptor(&self, connections: usize) -> thread::JoinHandle<io::Result<Vec<usize>>> {
        let driving = Arc::clone(&self.driving);
        thread::spawn(move || (0..connections).map(|_| accept(&driving, None)).collect())
    }

    /// One that looks so often, and does not wait.
    fn glancer(&self, looks: usize) -> thread::JoinHandle<Vec<usize>> {
        let driving = Arc::clone(&self.driving);
        thread::spawn(move || {
            let looks = (0..looks).map(|_| accept(&driving, Some(Duration::ZERO)));
            looks.filter_map(Result::ok).collect()
        })
    }

    fn connect(&self, connections: usize) {
        (0..connections).for_each(|_| self.ring.send(CONNECTION));
    }

    /// Connections that nobody has accepted.
    fn left(&self) -> Vec<usize> {
        let mut core = self.driving.lock();
        while core.turn() {}
        std::iter::from_fn(|| core.listening.accept()).collect()
    }
}

/// All of them were handed over, each once.
fn all_are_there(mut handed: Vec<usize>, connections: usize) {
    handed.sort_unstable();
    assert_eq!(handed, (0..connections).collect::<Vec<_>>());
}

/// Each of some callers accepts some connections.
fn run(acceptors: usize, each: usize, fault: Option<Fault>) {
    let world = World::begin(0, fault);
    let waiting: Vec<_> = (0..acceptors).map(|_| world.acceptor(each)).collect();
    world.connect(acceptors * each);
    let handed = waiting.into_iter().flat_map(|acceptor| acceptor.join().unwrap().unwrap());
    all_are_there(handed.collect(), acceptors * each);
    world.end();
}

#[test]
fn each_connection_is_handed_to_one_of_those_who_wait() {
    check(|| run(2, 2, None));
    check(|| run(3, 1, None));
}

/// The one that has the seat goes, with what it waited for, and others sleep.
#[test]
fn acceptors_beside_callers_that_wait_for_something_else_get_theirs() {
    check(|| {
        let world = World::begin(1, None);
        let acceptors = [world.acceptor(1), world.acceptor(1)];
        let caller = world.caller(0, 2);
        world.ring.send(0);
        world.connect(1);
        world.ring.send(0);
        world.connect(1);
        let handed = acceptors.into_iter().flat_map(|one| one.join().unwrap().unwrap());
        all_are_there(handed.collect(), 2);
        caller.join().unwrap().unwrap();
        world.end();
    });
}

/// Who gives up may have been called, or have taken the frames that others wait for.
#[test]
fn who_gives_up_takes_none_along() {
    check(|| {
        let world = World::begin(0, None);
        let glancer = world.glancer(3);
        let acceptor = world.acceptor(1);
        // One for each, and one more, as the other one may take two or three.
        world.connect(4);
        let mut handed = acceptor.join().unwrap().unwrap();
        handed.extend(glancer.join().unwrap());
        handed.extend(world.left());
        all_are_there(handed, 4);
        world.end();
    });
}

/// As a lender does: it waits for a watch, and then takes all that there are.
#[test]
fn who_watches_a_listener_gets_all_that_come() {
    check(|| watch(0));
    check(|| watch(1));
}

fn watch(acceptors: usize) {
    let world = World::begin(0, None);
    let waiting: Vec<_> = (0..acceptors).map(|_| world.acceptor(1)).collect();
    let watch = Watch::new().unwrap();
    world.driving.act(|core| core.watch_listener(watch.watched(7)));
    let driving = Arc::clone(&world.driving);
    let watcher = thread::spawn(move || {
        let (mut handed, mut tokens) = (Vec::new(), Vec::new());
        while handed.len() < 3 {
            watch.event().wait();
            watch.take(&mut tokens);
            while tokens.pop().is_some() {
                // The others are of those who wait.
                let left = (3 - handed.len()).min(3);
                let next = std::iter::from_fn(|| accept(&driving, Some(Duration::ZERO)).ok());
                handed.extend(next.take(left));
            }
        }
        handed
    });
    world.connect(3 + acceptors);
    let mut handed = watcher.join().unwrap();
    handed.extend(waiting.into_iter().flat_map(|one| one.join().unwrap().unwrap()));
    all_are_there(handed, 3 + acceptors);
    world.end();
}

#[test]
fn all_who_accept_hear_that_the_switch_has_gone() {
    check(|| {
        let world = World::begin(0, None);
        let waiting = [world.acceptor(2), world.acceptor(2)];
        world.connect(1);
        world.ring.close();
        for acceptor in waiting {
            assert!(acceptor.join().unwrap().is_err());
        }
        world.end();
    });
}

/// That is what these tests find: nobody is woken for a connection.
#[test]
#[should_panic(expected = "deadlock")]
fn a_connection_that_nobody_is_called_for_is_found() {
    find(|| run(2, 2, Some(Fault::CallsNobody)));
}

/// Who accepts one has the calls for all others taken back.
#[test]
#[should_panic(expected = "deadlock")]
fn calls_that_are_taken_back_without_need_are_found() {
    find(|| run(3, 1, Some(Fault::CallsOffAll)));
}
