//! Who listens: connections on their way to being accepted, and their bounds.

use std::collections::{BTreeMap, VecDeque};

use crate::connections::{Id, Wake};
use crate::driving::Step;
use crate::sync::{Arc, Condvar};
use crate::watch::Watched;

/// Connections of a listener whose handshake is not complete. Beyond that, the oldest makes room: so a flood of SYNs from
/// nobody keeps a client out only if it is faster than that client's answer.
pub const MAX_HALF_OPEN: usize = 256;

/// The state of a listener.
#[derive(Debug)]
pub(crate) struct Listening {
    /// Connections that wait to be accepted at most.
    backlog: usize,
    /// By their turns.
    half_open: BTreeMap<u64, Id>,
    queue: VecDeque<Id>,
    turns: u64,
    pub(crate) changed: Arc<Condvar>,
    /// Threads that sleep on that.
    waiters: u32,
    /// Those of them that have been called, and have not come yet.
    called: u32,
    /// Who is told that one can be accepted.
    pub(crate) watched: Option<Watched>,
}

impl Listening {
    pub(crate) fn new(backlog: usize) -> Self {
        Self {
            backlog,
            half_open: BTreeMap::new(),
            queue: VecDeque::new(),
            turns: 0,
            changed: Arc::default(),
            waiters: 0,
            called: 0,
            watched: None,
        }
    }

    /// Whether another connection may begin.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.len() < self.backlog
    }

    /// The connection that has to make room for another one, if one has to.
    pub(crate) fn in_the_way(&self) -> Option<Id> {
        let is_full = self.half_open.len() >= MAX_HALF_OPEN;
        self.half_open.first_key_value().filter(|_| is_full).map(|(_, id)| *id)
    }

    /// The turn of the next connection.
    pub(crate) const fn turn(&self) -> u64 {
        self.turns
    }

    pub(crate) fn begin(&mut self, id: Id) {
        self.half_open.insert(self.turns, id);
        self.turns += 1;
    }

    pub(crate) fn forget(&mut self, turn: u64) {
        self.half_open.remove(&turn);
    }

    /// The handshake is complete: adds those who are to be woken for that.
    pub(crate) fn establish(&mut self, turn: u64, woken: &mut Vec<Wake>) {
        self.queue.extend(self.half_open.remove(&turn));
        woken.extend(self.call());
        woken.extend(self.watched.iter().filter_map(Watched::note));
    }

    /// Says who is to be woken for another connection, if one sleeps that has not been called.
    fn call(&mut self) -> Option<Wake> {
        let calls = self.called < self.waiters;
        self.called += u32::from(calls);
        calls.then(|| Wake::One(Arc::clone(&self.changed)))
    }

    /// More have been called than there is to accept.
    fn has_called_too_many(&self) -> bool {
        self.called as usize > self.queue.len()
    }

    /// Who is awake has accepted one: another one need not be woken for it, unless more have come.
    fn call_off(&mut self, woken: &mut Vec<Wake>) {
        if !self.has_called_too_many() {
            return;
        }
        let is_its =
            |wake: &Wake| matches!(wake, Wake::One(other) if Arc::ptr_eq(other, &self.changed));
        if let Some(at) = woken.iter().position(is_its) {
            woken.remove(at);
            self.called = self.called.saturating_sub(1);
        }
    }

    /// Hears what a caller does that waits for a connection, and says what it sleeps on. `woken` are those who are to be woken.
    pub(crate) fn step(&mut self, step: Step, woken: &mut Vec<Wake>) -> Arc<Condvar> {
        match step {
            Step::Sleeps => self.waiters += 1,
            Step::Wakes => {
                self.waiters = self.waiters.saturating_sub(1);
                // It has come, whether it was called or not.
                self.called = self.called.saturating_sub(1);
            }
            Step::Serves => self.call_off(woken),
            // Whoever sleeps at the bell takes all connections there.
            Step::Leads | Step::Follows => {}
        }
        Arc::clone(&self.changed)
    }

    pub(crate) fn accept(&mut self) -> Option<Id> {
        self.queue.pop_front()
    }

    /// All that are its.
    pub(crate) fn into_connections(self) -> impl Iterator<Item = Id> {
        self.half_open.into_values().chain(self.queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room_and_established_ones_wait_in_their_order() {
        let (mut listening, mut woken) = (Listening::new(2), Vec::new());
        for id in 0..MAX_HALF_OPEN {
            assert_eq!((listening.in_the_way(), listening.turn()), (None, id as u64));
            listening.begin(id);
        }
        assert_eq!(listening.in_the_way(), Some(0));
        listening.forget(0);
        assert_eq!(listening.in_the_way(), None);
        listening.establish(7, &mut woken);
        assert!(listening.has_room());
        listening.establish(3, &mut woken);
        // One that has gone meanwhile.
        listening.establish(0, &mut woken);
        assert!(!listening.has_room());
        assert_eq!(
            [listening.accept(), listening.accept(), listening.accept()],
            [Some(7), Some(3), None]
        );
        assert_eq!(listening.into_connections().count(), MAX_HALF_OPEN - 3);
    }

    #[test]
    fn as_many_are_called_as_come_beyond_those_that_are_taken_at_once() {
        let (mut listening, mut woken) = (Listening::new(8), Vec::new());
        for _ in 0..2 {
            listening.step(Step::Sleeps, &mut woken);
        }
        for id in 0..3 {
            listening.begin(id);
            listening.establish(id as u64, &mut woken);
        }
        assert_eq!(woken.len(), 2, "who sleeps is called once");
        // One is taken by who is awake: two are left for the two.
        assert!(listening.accept().is_some());
        listening.step(Step::Serves, &mut woken);
        assert_eq!(woken.len(), 2);
        // And another one: one too many is called.
        assert!(listening.accept().is_some());
        for _ in 0..2 {
            listening.step(Step::Serves, &mut woken);
            assert_eq!(woken.len(), 1);
        }
    }
}
