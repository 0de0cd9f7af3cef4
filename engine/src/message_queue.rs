//! A bounded queue of messages in one piece of memory.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The smallest buffer, in bytes.
const MIN_CAPACITY: usize = 4096;

/// The largest buffer that an empty queue keeps, in bytes.
const KEEP_CAPACITY: usize = 64 << 10;

/// A message did not fit, for the bound or for want of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushError {
    Full,
    OutOfMemory,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: u64,
    start: usize,
    len: usize,
}

/// Messages, first in first out, each contiguous in a common ring.
///
/// What a message costs is its length and [`MessageQueue::OVERHEAD`], so that empty messages too
/// are bounded. Nothing is allocated per message.
#[derive(Debug)]
pub(crate) struct MessageQueue {
    buffer: Vec<u8>,
    entries: VecDeque<Entry>,
    cost: usize,
    max_cost: usize,
}

impl MessageQueue {
    /// What each message costs beyond its length, in bytes.
    pub(crate) const OVERHEAD: usize = size_of::<Entry>();

    /// An empty queue for messages that cost at most `max_cost` bytes together.
    pub(crate) const fn new(max_cost: usize) -> Self {
        Self { buffer: Vec::new(), entries: VecDeque::new(), cost: 0, max_cost }
    }

    /// Takes another bound on what messages cost together. What waits stays.
    pub(crate) fn set_max_cost(&mut self, max_cost: usize) {
        self.max_cost = max_cost;
    }

    /// How many bytes of memory it takes.
    pub(crate) fn memory(&self) -> usize {
        let entries = self.entries.capacity().saturating_mul(Self::OVERHEAD);
        self.buffer.capacity().saturating_add(entries)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many bytes wait, without what keeping them costs.
    pub(crate) fn bytes(&self) -> usize {
        self.cost.saturating_sub(self.entries.len().saturating_mul(Self::OVERHEAD))
    }

    /// How many messages wait.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if a message of `len` bytes fits now.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        Self::cost_of(len) <= self.max_cost.saturating_sub(self.cost)
    }

    /// The longest message that the empty queue can hold; `None` if it holds nothing.
    pub(crate) const fn max_len(&self) -> Option<usize> {
        self.max_cost.checked_sub(Self::OVERHEAD)
    }

    /// True if at least half of the room is free.
    pub(crate) const fn is_half_empty(&self) -> bool {
        self.cost <= self.max_cost / 2
    }

    /// Appends a message.
    pub(crate) fn push(&mut self, id: u64, data: &[u8]) -> Result<(), PushError> {
        if !self.has_room(data.len()) {
            return Err(PushError::Full);
        }
        self.entries.try_reserve(1).map_err(|_| PushError::OutOfMemory)?;
        let start = match self.place(data.len()) {
            Some(start) => start,
            None => self.grow(data.len())?,
        };
        if let Some(target) = self.buffer.get_mut(start..start.saturating_add(data.len())) {
            target.copy_from_slice(data);
        }
        self.entries.push_back(Entry { id, start, len: data.len() });
        self.cost = self.cost.saturating_add(Self::cost_of(data.len()));
        Ok(())
    }

    /// The oldest message and its ID.
    pub(crate) fn front(&self) -> Option<(u64, &[u8])> {
        let front = self.entries.front()?;
        let data = self.buffer.get(front.start..front.start.saturating_add(front.len))?;
        Some((front.id, data))
    }

    /// Drops the oldest message; returns its ID.
    pub(crate) fn pop(&mut self) -> Option<u64> {
        let front = self.entries.pop_front()?;
        self.cost = self.cost.saturating_sub(Self::cost_of(front.len));
        if self.entries.is_empty() && self.buffer.len() > KEEP_CAPACITY {
            self.buffer = Vec::new();
        }
        Some(front.id)
    }

    /// Gives the memory back if the queue is empty.
    pub(crate) fn trim(&mut self) {
        if self.entries.is_empty() {
            self.buffer = Vec::new();
            self.entries = VecDeque::new();
        }
    }

    const fn cost_of(len: usize) -> usize {
        len.saturating_add(Self::OVERHEAD)
    }

    /// Where `len` bytes fit contiguously without moving anything.
    fn place(&self, len: usize) -> Option<usize> {
        let (Some(front), Some(back)) = (self.entries.front(), self.entries.back()) else {
            return (len <= self.buffer.len()).then_some(0);
        };
        let tail = back.start.saturating_add(back.len);
        let wrapped = back.start < front.start;
        let end = if wrapped { front.start } else { self.buffer.len() };
        if len <= end.saturating_sub(tail) {
            Some(tail)
        } else if !wrapped && len <= front.start && front.start > 0 {
            Some(0)
        } else {
            None
        }
    }

    /// Moves all messages to the start of a buffer of at least twice the size; returns where
    /// they end.
    fn grow(&mut self, len: usize) -> Result<usize, PushError> {
        let needed = self.cost.saturating_add(len).max(MIN_CAPACITY);
        let size = needed.max(self.buffer.len().saturating_mul(2)).checked_next_power_of_two();
        let size = size.ok_or(PushError::OutOfMemory)?;
        let mut grown = Vec::new();
        grown.try_reserve_exact(size).map_err(|_| PushError::OutOfMemory)?;
        for entry in &mut self.entries {
            let data = self.buffer.get(entry.start..entry.start.saturating_add(entry.len));
            entry.start = grown.len();
            grown.extend_from_slice(data.unwrap_or_default());
        }
        let end = grown.len();
        grown.resize(size, 0);
        self.buffer = grown;
        Ok(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::XorShift;

    #[test]
    fn behaves_as_a_plain_queue_under_random_use() {
        let mut rng = XorShift::new(17);
        let mut queue = MessageQueue::new(40_000);
        let mut model: VecDeque<(u64, Vec<u8>)> = VecDeque::new();
        for id in 0..50_000 {
            let filling = (id / 300) % 2 == 0;
            if rng.chance(if filling { 70 } else { 30 }) {
                let len = if rng.chance(20) { 0 } else { rng.below(1500) as usize };
                let data: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
                let cost: usize = model.iter().map(|(_, d)| d.len() + MessageQueue::OVERHEAD).sum();
                let fits = cost + len + MessageQueue::OVERHEAD <= 40_000;
                assert_eq!(queue.push(id, &data), if fits { Ok(()) } else { Err(PushError::Full) });
                if fits {
                    model.push_back((id, data));
                }
            } else {
                assert_eq!(queue.pop(), model.pop_front().map(|(id, _)| id));
            }
            assert_eq!(queue.len(), model.len());
            let front = model.front().map(|(id, data)| (*id, data.as_slice()));
            assert_eq!(queue.front(), front);
        }
        assert!(queue.buffer.len() <= 4 * 40_000, "{}", queue.buffer.len());
    }

    #[test]
    fn empty_messages_are_bounded_too() {
        let mut queue = MessageQueue::new(10 * MessageQueue::OVERHEAD);
        for id in 0..10 {
            queue.push(id, b"").unwrap();
        }
        assert_eq!(queue.push(10, b""), Err(PushError::Full));
    }

    #[test]
    fn an_empty_queue_gives_a_large_buffer_back() {
        let mut queue = MessageQueue::new(1 << 20);
        queue.push(0, &[0; 100_000]).unwrap();
        queue.pop();
        assert_eq!(queue.buffer.capacity(), 0);
    }

    #[test]
    fn trimming_frees_an_empty_queue_and_leaves_another_alone() {
        let mut queue = MessageQueue::new(1 << 20);
        queue.push(7, b"stays").unwrap();
        queue.trim();
        assert_eq!(queue.front(), Some((7, &b"stays"[..])));
        queue.pop();
        assert_ne!(queue.buffer.capacity(), 0);
        queue.trim();
        assert_eq!((queue.buffer.capacity(), queue.entries.capacity()), (0, 0));
        queue.push(8, b"anew").unwrap();
        assert_eq!(queue.front(), Some((8, &b"anew"[..])));
    }
}
