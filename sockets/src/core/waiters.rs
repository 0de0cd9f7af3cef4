//! Who waits for what on one connection.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use quicket_engine::{Connection, Lent};
use quicket_wire::{Dir, StreamId};

use super::bell::Ring;
use super::deferred::Calls;
use super::parker::{CurrentThread, Parker};
use super::waiter_id::WaiterId;

/// A map of a connection's streams, or of what is waited for on it. It is looked into several times for each stream. As many streams
/// as are open at once can be found to have the same hash by who guesses the seed, which a library that is made for this keeps
/// to itself.
pub(crate) type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// What can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Interest {
    /// The handshake is over, for better or worse.
    Established,
    /// There is a connection to accept.
    Incoming,
    /// The endpoint's last connection ended.
    Idle,
    /// The peer opened a stream.
    Accept(Dir),
    /// The peer allows another stream.
    Open(Dir),
    /// Data, the end or a reset came.
    Readable(StreamId),
    /// There is room to write.
    Writable(StreamId),
    /// All was acknowledged, or the peer wants no more.
    SendDone(StreamId),
    /// A datagram came.
    ReceiveDatagram,
    /// There is room for a datagram.
    SendDatagram,
    /// The connection ended.
    Closed,
    /// Any news for a message socket.
    Message,
}

/// A party that will wait if it has to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter<'a> {
    pub(crate) id: WaiterId,
    who: Who<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Who<'a> {
    /// A thread in a call of ours.
    Thread(&'a Arc<Parker>),
    /// Whoever runs futures. What waking does is not ours to know.
    Task(&'a Waker),
}

impl<'a> Waiter<'a> {
    /// A thread.
    pub(crate) fn thread(thread: &'a CurrentThread) -> Self {
        Self { id: thread.id(), who: Who::Thread(thread.parker()) }
    }

    /// A task.
    pub(crate) const fn task(id: WaiterId, waker: &'a Waker) -> Self {
        Self { id, who: Who::Task(waker) }
    }
}

/// How a party is woken.
#[derive(Clone, Debug)]
enum Alarm {
    Thread(Arc<Parker>),
    Task(Waker),
}

impl Alarm {
    fn of(waiter: Waiter<'_>) -> Self {
        match waiter.who {
            Who::Thread(parker) => Self::Thread(Arc::clone(parker)),
            Who::Task(waker) => Self::Task(waker.clone()),
        }
    }

    fn renew(&mut self, waiter: Waiter<'_>) {
        match (&mut *self, waiter.who) {
            (Self::Task(known), Who::Task(waker)) => known.clone_from(waker),
            _ => *self = Self::of(waiter),
        }
    }
}

/// Lists of parties by interest. Most lists have one entry, which needs no allocation.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    lists: Map<Interest, List>,
}

#[derive(Debug)]
enum List {
    One(WaiterId, Alarm),
    Many(Vec<(WaiterId, Alarm)>),
}

impl Waiters {
    /// Adds `waiter` to a list, or renews its waker there.
    pub(crate) fn register(&mut self, interest: Interest, waiter: Waiter<'_>) {
        match self.lists.entry(interest) {
            Entry::Vacant(entry) => {
                entry.insert(List::One(waiter.id, Alarm::of(waiter)));
            }
            Entry::Occupied(mut entry) => entry.get_mut().add(waiter),
        }
    }

    /// Gives back memory beyond that of the lists.
    pub(crate) fn trim(&mut self) {
        self.lists.shrink_to_fit();
    }

    /// Takes a party off a list.
    pub(crate) fn unregister(&mut self, interest: Interest, id: WaiterId) {
        if let Entry::Occupied(mut entry) = self.lists.entry(interest) {
            let empty = match entry.get_mut() {
                List::One(one, _) => *one == id,
                List::Many(many) => {
                    many.retain(|(each, _)| *each != id);
                    many.is_empty()
                }
            };
            if empty {
                entry.remove();
            }
        }
    }

    /// Forgets who waits for something that will not come. What this returns is to be dropped once nothing is locked: a
    /// waker is somebody else's.
    #[must_use]
    pub(crate) fn forget(&mut self, interest: Interest) -> impl Sized + use<> {
        // Nearly always nobody waits, and a look-up costs more than this.
        if self.lists.is_empty() { None } else { self.lists.remove(&interest) }
    }

    /// Moves a list's wakers to `wakes`.
    pub(crate) fn wake(&mut self, interest: Interest, wakes: &mut Wakes) {
        if self.lists.is_empty() {
            return;
        }
        if let Some(list) = self.lists.remove(&interest) {
            list.drain_into(wakes);
        }
    }

    /// Moves one waker of a list to `wakes`: that of `preferred` if it waits, else of whoever came
    /// last, whose cache is warmest. Whoever is woken so and wants the thing no more must see to
    /// it that another is.
    pub(crate) fn wake_one(
        &mut self,
        interest: Interest,
        preferred: Option<WaiterId>,
        wakes: &mut Wakes,
    ) {
        let Entry::Occupied(mut entry) = self.lists.entry(interest) else { return };
        if let List::Many(many) = entry.get_mut()
            && many.len() > 1
        {
            let place = many.iter().position(|(id, _)| Some(*id) == preferred);
            let (_, alarm) = many.swap_remove(place.unwrap_or(many.len() - 1));
            wakes.push(alarm);
        } else {
            entry.remove().drain_into(wakes);
        }
    }

    /// Moves all wakers to `wakes`.
    pub(crate) fn wake_all(&mut self, wakes: &mut Wakes) {
        for (_, list) in self.lists.drain() {
            list.drain_into(wakes);
        }
    }
}

impl List {
    fn add(&mut self, waiter: Waiter<'_>) {
        match self {
            Self::One(id, alarm) if *id == waiter.id => alarm.renew(waiter),
            Self::One(id, alarm) => {
                let first = (*id, alarm.clone());
                *self = Self::Many(vec![first, (waiter.id, Alarm::of(waiter))]);
            }
            Self::Many(many) => match many.iter_mut().find(|(id, _)| *id == waiter.id) {
                Some((_, alarm)) => alarm.renew(waiter),
                None => many.push((waiter.id, Alarm::of(waiter))),
            },
        }
    }

    fn drain_into(self, wakes: &mut Wakes) {
        match self {
            Self::One(_, alarm) => wakes.push(alarm),
            Self::Many(many) => many.into_iter().for_each(|(_, alarm)| wakes.push(alarm)),
        }
    }
}

/// Who is to be woken once no lock is held.
#[derive(Default)]
pub(crate) struct Wakes {
    threads: Vec<Arc<Parker>>,
    ring: Ring,
    tasks: Vec<Waker>,
    calls: Vec<Calls>,
    /// What the application has lent. To drop it may run its code.
    returned: Vec<Lent>,
    /// Other threads were woken, which may have had no processor since.
    woke_others: bool,
}

impl Wakes {
    fn push(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Thread(parker) => self.threads.push(parker),
            Alarm::Task(waker) => self.tasks.push(waker),
        }
    }

    /// Has the application called before tasks are woken.
    pub(super) fn defer(&mut self, calls: Calls) {
        self.calls.push(calls);
    }

    /// Takes what a connection needs no more, to be dropped before tasks are woken.
    pub(super) fn take_back(&mut self, engine: &mut Connection) {
        while let Some(lent) = engine.take_back() {
            self.returned.push(lent);
        }
    }

    /// Makes all calls, and wakes everybody.
    pub(crate) fn fire(&mut self) {
        if self.fire_threads() && self.has_tasks() {
            self.take_tasks().fire();
        }
    }

    /// Wakes threads, as may be done in the leader's seat too. True if there is anybody to wake.
    pub(crate) fn fire_threads(&mut self) -> bool {
        // Mostly there is nobody.
        if self.threads.is_empty() {
            return self.has_tasks();
        }
        for parker in self.threads.drain(..) {
            self.woke_others |= parker.wake(&mut self.ring);
        }
        self.ring.wake();
        true
    }

    /// True if other threads were woken since this was last asked.
    pub(crate) const fn take_woke_others(&mut self) -> bool {
        std::mem::replace(&mut self.woke_others, false)
    }

    /// True if there are tasks to wake, calls to make, or something to drop.
    pub(crate) const fn has_tasks(&self) -> bool {
        !self.tasks.is_empty() || !self.calls.is_empty() || !self.returned.is_empty()
    }

    /// The tasks, and the calls, to be seen to when the seat is left as well: a waker is somebody else's code.
    pub(crate) fn take_tasks(&mut self) -> Tasks {
        let wakers = std::mem::take(&mut self.tasks);
        let (calls, returned) =
            (std::mem::take(&mut self.calls), std::mem::take(&mut self.returned));
        Tasks { wakers, calls, returned }
    }
}

/// What runs code of others once neither a lock nor the leader's seat is held: tasks to be woken,
/// calls, and what was lent, to be dropped.
pub(crate) struct Tasks {
    wakers: Vec<Waker>,
    calls: Vec<Calls>,
    returned: Vec<Lent>,
}

impl Tasks {
    /// Does all of it.
    pub(crate) fn fire(self) {
        // The thread serves others too, and whoever lent it is not here.
        for lent in self.returned {
            if catch_unwind(AssertUnwindSafe(|| drop(lent))).is_err() {
                log::error!("the owner of data that was lent has panicked");
            }
        }
        self.calls.into_iter().for_each(Calls::make);
        self.wakers.into_iter().for_each(wake);
    }
}

/// Wakes a task. A panic ends here: others wait for the thread, and are to be woken, too.
fn wake(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        log::error!("a waker has panicked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Wake;

    use quicket_testing::WakeCount;

    fn counter() -> (Arc<WakeCount>, Waker, WaiterId) {
        let count = Arc::new(WakeCount::default());
        (Arc::clone(&count), Waker::from(count), WaiterId::unique())
    }

    #[test]
    fn all_parties_of_one_interest_are_woken_once() {
        let (a, waker_a, id_a) = counter();
        let (b, waker_b, id_b) = counter();
        let mut waiters = Waiters::default();
        for _ in 0..3 {
            waiters.register(Interest::Closed, Waiter::task(id_a, &waker_a));
            waiters.register(Interest::Closed, Waiter::task(id_b, &waker_b));
        }
        let mut wakes = Wakes::default();
        waiters.wake(Interest::Established, &mut wakes);
        wakes.fire();
        assert_eq!(a.get(), 0);
        waiters.wake(Interest::Closed, &mut wakes);
        waiters.wake(Interest::Closed, &mut wakes);
        wakes.fire();
        assert_eq!((a.get(), b.get()), (1, 1));
    }

    struct Explosive;

    impl Wake for Explosive {
        fn wake(self: Arc<Self>) {
            panic!("this waker panics");
        }
    }

    #[test]
    fn a_waker_that_panics_keeps_nobody_from_being_woken() {
        let mut waiters = Waiters::default();
        let (count, waker, id) = counter();
        let bad = Waker::from(Arc::new(Explosive));
        for (id, waker) in [(WaiterId::unique(), &bad), (id, &waker), (WaiterId::unique(), &bad)] {
            waiters.register(Interest::Closed, Waiter::task(id, waker));
        }
        let mut wakes = Wakes::default();
        waiters.wake_all(&mut wakes);
        wakes.fire();
        assert_eq!(count.get(), 1);
    }

    #[test]
    fn one_party_is_woken_for_one_thing_and_preferably_the_one_named() {
        let parties: Vec<_> = (0..4).map(|_| counter()).collect();
        let mut waiters = Waiters::default();
        for (_, waker, id) in &parties {
            waiters.register(Interest::Closed, Waiter::task(*id, waker));
        }
        let mut woken = Vec::new();
        for preferred in [Some(parties[1].2), None, Some(parties[1].2), None, None] {
            let mut wakes = Wakes::default();
            waiters.wake_one(Interest::Closed, preferred, &mut wakes);
            wakes.fire();
            woken.push(parties.iter().map(|p| p.0.get()).sum::<usize>());
            assert_eq!(parties[1].0.get(), 1);
        }
        assert_eq!(woken, [1, 2, 3, 4, 4], "each once");
        assert!(waiters.lists.is_empty());
    }

    #[test]
    fn who_left_is_not_woken_and_leaves_nothing_behind() {
        let mut waiters = Waiters::default();
        for _ in 0..100 {
            let (_, waker, id) = counter();
            waiters.register(Interest::Closed, Waiter::task(id, &waker));
            waiters.unregister(Interest::Closed, id);
        }
        assert!(waiters.lists.is_empty());
        let (kept, waker, id) = counter();
        let (left, waker_left, id_left) = counter();
        waiters.register(Interest::Closed, Waiter::task(id, &waker));
        waiters.register(Interest::Closed, Waiter::task(id_left, &waker_left));
        waiters.unregister(Interest::Closed, id_left);
        let mut wakes = Wakes::default();
        waiters.wake_all(&mut wakes);
        wakes.fire();
        assert_eq!((kept.get(), left.get()), (1, 0));
    }
}
