//! Who waits for what on one connection.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use quicket_wire::{Dir, StreamId};

/// What can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Interest {
    /// The handshake is over, for better or worse.
    Established,
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

/// Names one waiting party, so that it is registered once and can take itself off the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaiterId(u64);

impl WaiterId {
    /// A name that nobody else has.
    pub(crate) fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A party that will wait if it has to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter<'a> {
    pub(crate) id: WaiterId,
    pub(crate) waker: &'a Waker,
}

/// Lists of parties by interest. Most lists have one entry, which needs no allocation.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    lists: HashMap<Interest, List>,
}

#[derive(Debug)]
enum List {
    One(WaiterId, Waker),
    Many(Vec<(WaiterId, Waker)>),
}

impl Waiters {
    /// Adds `waiter` to a list, or renews its waker there.
    pub(crate) fn register(&mut self, interest: Interest, waiter: Waiter<'_>) {
        match self.lists.entry(interest) {
            Entry::Vacant(entry) => {
                entry.insert(List::One(waiter.id, waiter.waker.clone()));
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
            let (_, waker) = many.swap_remove(place.unwrap_or(many.len() - 1));
            wakes.wakers.push(waker);
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
            Self::One(id, waker) if *id == waiter.id => waker.clone_from(waiter.waker),
            Self::One(id, waker) => {
                let first = (*id, waker.clone());
                *self = Self::Many(vec![first, (waiter.id, waiter.waker.clone())]);
            }
            Self::Many(many) => match many.iter_mut().find(|(id, _)| *id == waiter.id) {
                Some((_, waker)) => waker.clone_from(waiter.waker),
                None => many.push((waiter.id, waiter.waker.clone())),
            },
        }
    }

    fn drain_into(self, wakes: &mut Wakes) {
        match self {
            Self::One(_, waker) => wakes.wakers.push(waker),
            Self::Many(many) => wakes.wakers.extend(many.into_iter().map(|(_, waker)| waker)),
        }
    }
}

/// What is to be done once no lock is held: wakers to call, and the application's own code.
#[derive(Default)]
pub(crate) struct Wakes {
    wakers: Vec<Waker>,
    deferred: Vec<Box<dyn FnOnce() + Send>>,
}

impl Wakes {
    /// Adds something to do.
    pub(crate) fn defer(&mut self, action: impl FnOnce() + Send + 'static) {
        self.deferred.push(Box::new(action));
    }

    /// Does it all; true if anybody was woken.
    pub(crate) fn fire(&mut self) -> bool {
        let any = !self.wakers.is_empty();
        for action in self.deferred.drain(..) {
            action();
        }
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counter() -> (Arc<Count>, Waker, WaiterId) {
        let count = Arc::new(Count::default());
        (Arc::clone(&count), Waker::from(count), WaiterId::unique())
    }

    #[test]
    fn all_parties_of_one_interest_are_woken_once() {
        let (a, waker_a, id_a) = counter();
        let (b, waker_b, id_b) = counter();
        let mut waiters = Waiters::default();
        for _ in 0..3 {
            waiters.register(Interest::Closed, Waiter { id: id_a, waker: &waker_a });
            waiters.register(Interest::Closed, Waiter { id: id_b, waker: &waker_b });
        }
        let mut wakes = Wakes::default();
        waiters.wake(Interest::Established, &mut wakes);
        wakes.fire();
        assert_eq!(a.0.load(Ordering::Relaxed), 0);
        waiters.wake(Interest::Closed, &mut wakes);
        waiters.wake(Interest::Closed, &mut wakes);
        wakes.fire();
        assert_eq!((a.0.load(Ordering::Relaxed), b.0.load(Ordering::Relaxed)), (1, 1));
    }

    #[test]
    fn one_party_is_woken_for_one_thing_and_preferably_the_one_named() {
        let parties: Vec<_> = (0..4).map(|_| counter()).collect();
        let mut waiters = Waiters::default();
        for (_, waker, id) in &parties {
            waiters.register(Interest::Closed, Waiter { id: *id, waker });
        }
        let mut woken = Vec::new();
        for preferred in [Some(parties[1].2), None, Some(parties[1].2), None, None] {
            let mut wakes = Wakes::default();
            waiters.wake_one(Interest::Closed, preferred, &mut wakes);
            wakes.fire();
            woken.push(parties.iter().map(|p| p.0.0.load(Ordering::Relaxed)).sum::<usize>());
            assert_eq!(parties[1].0.0.load(Ordering::Relaxed), 1);
        }
        assert_eq!(woken, [1, 2, 3, 4, 4], "each once");
        assert!(waiters.lists.is_empty());
    }

    #[test]
    fn who_left_is_not_woken_and_leaves_nothing_behind() {
        let mut waiters = Waiters::default();
        for _ in 0..100 {
            let (_, waker, id) = counter();
            waiters.register(Interest::Closed, Waiter { id, waker: &waker });
            waiters.unregister(Interest::Closed, id);
        }
        assert!(waiters.lists.is_empty());
        let (kept, waker, id) = counter();
        let (left, waker_left, id_left) = counter();
        waiters.register(Interest::Closed, Waiter { id, waker: &waker });
        waiters.register(Interest::Closed, Waiter { id: id_left, waker: &waker_left });
        waiters.unregister(Interest::Closed, id_left);
        let mut wakes = Wakes::default();
        waiters.wake_all(&mut wakes);
        wakes.fire();
        assert_eq!((kept.0.load(Ordering::Relaxed), left.0.load(Ordering::Relaxed)), (1, 0));
    }
}
