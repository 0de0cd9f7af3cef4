//! Storage with stable places, and queues that run through it.

use alloc::vec::Vec;

use super::pool::OutOfMemory;

/// The memory for so many values stays when the last one goes, until [`Slab::trim`]: a burst of
/// as many needs it again.
const KEPT: usize = 1024;

/// A place in a [`Slab`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u32);

impl Slot {
    const NONE: u32 = u32::MAX;

    #[cfg(test)]
    pub(crate) const fn from_index(index: u32) -> Self {
        Self(index)
    }

    const fn from_raw(raw: u32) -> Option<Self> {
        if raw == Self::NONE { None } else { Some(Self(raw)) }
    }

    const fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
enum Entry<T> {
    /// Free; the next free place, or [`Slot::NONE`].
    Vacant(u32),
    Live(T),
}

/// Values in places that do not change while they live; freed places are used again.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    vacant: u32,
    live: usize,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), vacant: Slot::NONE, live: 0 }
    }

    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// How many values the memory is for.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> Option<&T> {
        match self.entries.get(slot.index()) {
            Some(Entry::Live(value)) => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        match self.entries.get_mut(slot.index()) {
            Some(Entry::Live(value)) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn insert(&mut self, value: T) -> Result<Slot, OutOfMemory> {
        let slot = match Slot::from_raw(self.vacant) {
            Some(slot) => slot,
            None => Slot(self.extend()?),
        };
        let Some(entry) = self.entries.get_mut(slot.index()) else { return Err(OutOfMemory) };
        if let Entry::Vacant(next) = *entry {
            self.vacant = next;
        }
        *entry = Entry::Live(value);
        self.live = self.live.saturating_add(1);
        Ok(slot)
    }

    /// Drops a value where it is; false if there is none. The last one's removal gives the memory
    /// back if it is much.
    pub(crate) fn remove(&mut self, slot: Slot) -> bool {
        let vacant = self.vacant;
        match self.entries.get_mut(slot.index()) {
            Some(entry @ Entry::Live(_)) => *entry = Entry::Vacant(vacant),
            Some(Entry::Vacant(_)) | None => return false,
        }
        self.vacant = slot.0;
        self.live = self.live.saturating_sub(1);
        if self.entries.len() > KEPT {
            self.trim();
        }
        true
    }

    /// Gives the memory back if there are no values.
    pub(crate) fn trim(&mut self) {
        if self.live == 0 {
            self.entries = Vec::new();
            self.vacant = Slot::NONE;
        }
    }

    /// Gives back the memory behind the last value.
    pub(crate) fn shrink(&mut self) {
        while let Some(Entry::Vacant(_)) = self.entries.last() {
            self.entries.pop();
        }
        // Vacant places that are gone are in the list of those that are there.
        let mut vacant = Slot::NONE;
        for (index, entry) in (0..).zip(&mut self.entries) {
            if let Entry::Vacant(next) = entry {
                *next = vacant;
                vacant = index;
            }
        }
        self.vacant = vacant;
        self.entries.shrink_to_fit();
    }

    /// All places that may hold a value.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> + use<T> {
        (0..self.entries.len() as u32).map(Slot)
    }

    /// Adds a vacant place at the end.
    fn extend(&mut self) -> Result<u32, OutOfMemory> {
        let index = u32::try_from(self.entries.len()).map_err(|_| OutOfMemory)?;
        if index >= UNQUEUED {
            return Err(OutOfMemory);
        }
        self.entries.try_reserve(1).map_err(|_| OutOfMemory)?;
        self.entries.push(Entry::Vacant(Slot::NONE));
        Ok(index)
    }
}

/// What a value in no queue has in front of it: no place has this number, and in front of the first value of a queue is
/// [`Slot::NONE`].
const UNQUEUED: u32 = Slot::NONE - 1;

/// A value's place in one queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    prev: u32,
    next: u32,
}

impl Link {
    pub(crate) const fn new() -> Self {
        Self { prev: UNQUEUED, next: Slot::NONE }
    }

    /// True if the value is in the queue.
    pub(crate) const fn is_queued(&self) -> bool {
        self.prev != UNQUEUED
    }
}

/// A value that can be in queues of kind `K`, in one of each kind at a time.
pub(crate) trait Linked<K> {
    fn link(&mut self, kind: K) -> &mut Link;
}

/// A first-in, first-out queue of values in a slab. Nothing is allocated, and a value can leave
/// from any place in O(1).
#[derive(Debug)]
pub(crate) struct Queue<K> {
    kind: K,
    head: u32,
    tail: u32,
}

impl<K: Copy> Queue<K> {
    pub(crate) const fn new(kind: K) -> Self {
        Self { kind, head: Slot::NONE, tail: Slot::NONE }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head == Slot::NONE
    }

    pub(crate) fn front(&self) -> Option<Slot> {
        Slot::from_raw(self.head)
    }

    /// True if exactly one value is queued.
    pub(crate) fn has_one(&self) -> bool {
        self.head != Slot::NONE && self.head == self.tail
    }

    /// Appends a value; one that is queued already stays where it is.
    pub(crate) fn push_back<T: Linked<K>>(&mut self, slab: &mut Slab<T>, slot: Slot) {
        let Some(link) = slab.get_mut(slot).map(|value| value.link(self.kind)) else { return };
        if link.is_queued() {
            return;
        }
        *link = Link { prev: self.tail, next: Slot::NONE };
        self.set_next(slab, self.tail, slot.0);
        self.tail = slot.0;
    }

    /// Takes a value out, which must be in this queue or in none of its kind.
    pub(crate) fn remove<T: Linked<K>>(&mut self, slab: &mut Slab<T>, slot: Slot) {
        let Some(link) = slab.get_mut(slot).map(|value| value.link(self.kind)) else { return };
        if !link.is_queued() {
            return;
        }
        let Link { prev, next } = core::mem::replace(link, Link::new());
        self.set_next(slab, prev, next);
        match Slot::from_raw(next).and_then(|next| slab.get_mut(next)) {
            Some(value) => value.link(self.kind).prev = prev,
            None => self.tail = prev,
        }
    }

    pub(crate) fn pop_front<T: Linked<K>>(&mut self, slab: &mut Slab<T>) -> Option<Slot> {
        let front = self.front()?;
        self.remove(slab, front);
        Some(front)
    }

    /// Makes `next` follow `slot`, or the queue begin with it if `slot` is none.
    fn set_next<T: Linked<K>>(&mut self, slab: &mut Slab<T>, slot: u32, next: u32) {
        match Slot::from_raw(slot).and_then(|slot| slab.get_mut(slot)) {
            Some(value) => value.link(self.kind).next = next,
            None => self.head = next,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;

    use super::*;
    use crate::testing::XorShift;

    struct Value {
        name: u32,
        link: Link,
    }

    impl Linked<()> for Value {
        fn link(&mut self, (): ()) -> &mut Link {
            &mut self.link
        }
    }

    fn value(name: u32) -> Value {
        Value { name, link: Link::new() }
    }

    #[test]
    fn places_are_used_again_and_much_memory_goes_with_the_last_value() {
        let mut slab = Slab::new();
        let many = KEPT as u32 + 1;
        let slots: Vec<Slot> = (0..many).map(|n| slab.insert(value(n)).unwrap()).collect();
        assert_eq!(slab.get(slots[3]).unwrap().name, 3);
        assert!(slab.remove(slots[3]));
        assert!(slab.get(slots[3]).is_none() && !slab.remove(slots[3]));
        assert_eq!(slab.insert(value(7)).unwrap(), slots[3]);
        for slot in &slots {
            assert!(slab.remove(*slot));
        }
        assert_eq!((slab.len(), slab.entries.capacity()), (0, 0));
        assert_eq!(slab.insert(value(1)).unwrap(), Slot(0));
    }

    #[test]
    fn the_memory_of_a_burst_stays_until_it_is_trimmed() {
        let mut slab = Slab::new();
        let slots: Vec<Slot> = (0..KEPT as u32).map(|n| slab.insert(value(n)).unwrap()).collect();
        slab.trim();
        assert_eq!(slab.len(), KEPT, "what lives stays");
        slots.iter().for_each(|slot| assert!(slab.remove(*slot)));
        assert!(slab.entries.capacity() >= KEPT);
        let slots: Vec<Slot> = (0..KEPT as u32).map(|n| slab.insert(value(n)).unwrap()).collect();
        assert_eq!(slab.entries.len(), KEPT, "places are used again");
        slots.iter().for_each(|slot| assert!(slab.remove(*slot)));
        slab.trim();
        assert_eq!((slab.len(), slab.entries.capacity()), (0, 0));
    }

    #[test]
    fn what_is_shrunk_has_its_values_where_they_were_and_takes_more() {
        let mut slab = Slab::new();
        let slots: Vec<Slot> = (0..9).map(|n| slab.insert(value(n)).unwrap()).collect();
        for gone in [1, 8, 3, 7] {
            assert!(slab.remove(slots[gone]));
        }
        slab.shrink();
        assert_eq!((slab.len(), slab.entries.len(), slab.entries.capacity()), (5, 7, 7));
        for stays in [0, 2, 4, 5, 6] {
            assert_eq!(slab.get(slots[stays]).unwrap().name, stays as u32);
        }
        let mut again: Vec<u32> = (0..4).map(|n| slab.insert(value(n)).unwrap().0).collect();
        again.sort_unstable();
        assert_eq!(again, [1, 3, 7, 8]);
        (0..9).for_each(|at| assert!(slab.remove(Slot(at))));
        slab.shrink();
        assert_eq!((slab.entries.capacity(), slab.vacant), (0, Slot::NONE));
    }

    #[test]
    fn a_queue_behaves_as_a_plain_one_under_random_changes() {
        let mut rng = XorShift::new(5);
        let mut slab = Slab::new();
        let slots: Vec<Slot> = (0..20).map(|n| slab.insert(value(n)).unwrap()).collect();
        let (mut queue, mut model) = (Queue::new(()), VecDeque::new());
        for _ in 0..20_000 {
            let slot = slots[rng.below(20) as usize];
            match rng.below(3) {
                0 => {
                    queue.push_back(&mut slab, slot);
                    if !model.contains(&slot) {
                        model.push_back(slot);
                    }
                }
                1 => {
                    queue.remove(&mut slab, slot);
                    model.retain(|known| *known != slot);
                }
                _ => assert_eq!(queue.pop_front(&mut slab), model.pop_front()),
            }
            assert_eq!(
                (queue.front(), queue.is_empty()),
                (model.front().copied(), model.is_empty())
            );
        }
        while let Some(slot) = model.pop_front() {
            assert_eq!(queue.pop_front(&mut slab), Some(slot));
        }
        assert!(queue.is_empty());
    }
}
