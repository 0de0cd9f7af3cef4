//! Deadlines of connections: a binary heap in which entries can be moved and removed.

use quicket_engine::time::Time;

/// Deadlines by a small dense key, each with a value that is handed back when it is due.
#[derive(Debug)]
pub(crate) struct Timers<T> {
    heap: Vec<Entry<T>>,
    /// Where a key's entry stands in the heap.
    positions: Vec<usize>,
}

#[derive(Debug)]
struct Entry<T> {
    at: Time,
    key: usize,
    value: T,
}

/// Not in the heap.
const ABSENT: usize = usize::MAX;

impl<T> Timers<T> {
    pub(crate) const fn new() -> Self {
        Self { heap: Vec::new(), positions: Vec::new() }
    }

    /// Sets the deadline of `key`, in place of an earlier one.
    pub(crate) fn schedule(&mut self, key: usize, at: Time, value: T) {
        if self.positions.len() <= key {
            self.positions.resize(key + 1, ABSENT);
        }
        let position = self.positions[key];
        if position == ABSENT {
            self.heap.push(Entry { at, key, value });
            self.positions[key] = self.heap.len() - 1;
            self.rise(self.heap.len() - 1);
        } else {
            self.heap[position] = Entry { at, key, value };
            self.settle(position);
        }
    }

    /// Forgets the deadline of `key`.
    pub(crate) fn remove(&mut self, key: usize) {
        if let Some(&position) = self.positions.get(key)
            && position != ABSENT
        {
            self.take(position);
        }
    }

    /// The next deadline.
    pub(crate) fn earliest(&self) -> Option<Time> {
        self.heap.first().map(|entry| entry.at)
    }

    /// Takes out one entry that is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<T> {
        (self.earliest()? <= now).then(|| self.take(0))
    }

    fn take(&mut self, position: usize) -> T {
        let entry = self.heap.swap_remove(position);
        self.positions[entry.key] = ABSENT;
        if position < self.heap.len() {
            self.positions[self.heap[position].key] = position;
            self.settle(position);
        }
        entry.value
    }

    fn settle(&mut self, position: usize) {
        let position = self.rise(position);
        self.sink(position);
    }

    fn rise(&mut self, mut position: usize) -> usize {
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.heap[parent].at <= self.heap[position].at {
                break;
            }
            self.swap(parent, position);
            position = parent;
        }
        position
    }

    fn sink(&mut self, mut position: usize) {
        loop {
            let child = 2 * position + 1;
            let Some(left) = self.heap.get(child) else { return };
            let right_is_less = self.heap.get(child + 1).is_some_and(|right| right.at < left.at);
            let least = child + usize::from(right_is_less);
            if self.heap[position].at <= self.heap[least].at {
                return;
            }
            self.swap(least, position);
            position = least;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.positions[self.heap[a].key] = a;
        self.positions[self.heap[b].key] = b;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn xorshift(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    /// Against a sorted map, over random schedules, moves and removals.
    #[test]
    fn due_entries_come_out_in_order_and_only_once() {
        let mut seed = 0x9e37_79b9_7f4a_7c15;
        let mut timers = Timers::new();
        let mut model: BTreeMap<usize, u64> = BTreeMap::new();
        for _ in 0..20_000 {
            let key = (xorshift(&mut seed) % 50) as usize;
            let at = xorshift(&mut seed) % 1000;
            match xorshift(&mut seed) % 4 {
                0 | 1 => {
                    timers.schedule(key, Time::from_nanos(at), key);
                    model.insert(key, at);
                }
                2 => {
                    timers.remove(key);
                    model.remove(&key);
                }
                _ => {
                    let now = Time::from_nanos(at / 4);
                    while let Some(key) = timers.pop_due(now) {
                        let expected = model.remove(&key).expect("not scheduled");
                        assert!(expected <= at / 4);
                        assert!(model.values().all(|&other| other >= expected));
                    }
                    assert!(model.values().all(|&other| other > at / 4));
                }
            }
            assert_eq!(timers.earliest(), model.values().min().map(|&at| Time::from_nanos(at)));
        }
    }
}
