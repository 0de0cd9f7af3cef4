//! Single-producer single-consumer rings.
//!
//! Both sides count positions, modulo 2^32, and each has its own count in memory of its own: what
//! stands in shared memory is only ever read to learn of the other side. That is read once, and checked: it may
//! not be further away than the ring is long. A side that lies is found out ([`Lie`]) or has wrong
//! descriptors; neither reaches memory beside the ring.

use crate::descriptor::Descriptor;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The other side has written an index that no ring of this length can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lie;

impl core::fmt::Display for Lie {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("an index of the ring is further away than the ring is long")
    }
}

impl core::error::Error for Lie {}

/// The words of a ring in shared memory. Each stands in a cache line that only one side writes often.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a> {
    tail: &'a AtomicU32,
    head: &'a AtomicU32,
    asleep: &'a AtomicU32,
    waits: &'a AtomicU32,
    entries: &'a [AtomicU64],
    mask: u32,
}

impl<'a> Lines<'a> {
    /// Puts the words together: the producer's count, the consumer's, whether the consumer sleeps, whether
    /// the producer waits for room, and the positions.
    ///
    /// None unless there are 2 to 2^16 positions, and a power of two.
    #[inline]
    #[must_use]
    pub fn new(words: [&'a AtomicU32; 4], entries: &'a [AtomicU64]) -> Option<Self> {
        let len = entries.len();
        if !len.is_power_of_two() || !(2..=1 << 16).contains(&len) {
            return None;
        }
        let [tail, head, asleep, waits] = words;
        Some(Self { tail, head, asleep, waits, entries, mask: len as u32 - 1 })
    }

    /// How many positions there are.
    #[inline]
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.mask + 1
    }

    /// The number of a position.
    #[inline]
    #[must_use]
    pub const fn place(&self, count: u32) -> u32 {
        count & self.mask
    }

    #[inline]
    fn get(&self, count: u32) -> Descriptor {
        let entry = self.entries.get(self.place(count) as usize);
        Descriptor::from_bits(entry.map_or(0, |entry| entry.load(Ordering::Relaxed)))
    }

    #[inline]
    fn put(&self, count: u32, descriptor: Descriptor) {
        if let Some(entry) = self.entries.get(self.place(count) as usize) {
            entry.store(descriptor.to_bits(), Ordering::Relaxed);
        }
    }

    /// How far `from` is ahead of `to`, if that can be.
    #[inline]
    fn distance(&self, from: u32, to: u32) -> Result<u32, Lie> {
        let distance = from.wrapping_sub(to);
        if distance <= self.capacity() { Ok(distance) } else { Err(Lie) }
    }
}

/// The side that fills positions.
#[derive(Debug, Default)]
pub struct Producer {
    tail: u32,
    /// The consumer's count when it was read last.
    head: u32,
}

impl Producer {
    /// Of a ring that nobody has used.
    #[must_use]
    pub const fn new() -> Self {
        Self { tail: 0, head: 0 }
    }

    /// How many positions have been published.
    #[inline]
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.tail
    }

    /// How many positions are free. The consumer's count is only read if fewer than `wanted` were free
    /// when it was read last.
    ///
    /// # Errors
    ///
    /// When the consumer's count cannot be.
    #[inline]
    pub fn room(&mut self, lines: Lines<'_>, wanted: u32) -> Result<u32, Lie> {
        let room = lines.capacity() - lines.distance(self.tail, self.head)?;
        if room >= wanted { Ok(room) } else { self.look(lines) }
    }

    #[inline]
    fn look(&mut self, lines: Lines<'_>) -> Result<u32, Lie> {
        // What the consumer has done with the slots happened before.
        let head = lines.head.load(Ordering::Acquire);
        let used = lines.distance(self.tail, head)?;
        self.head = head;
        Ok(lines.capacity() - used)
    }

    /// What the consumer has left at the `n`th free position.
    #[inline]
    #[must_use]
    pub fn get(&self, lines: Lines<'_>, n: u32) -> Descriptor {
        lines.get(self.tail.wrapping_add(n))
    }

    /// Fills the `n`th free position, which the consumer sees when it is published.
    #[inline]
    pub fn put(&self, lines: Lines<'_>, n: u32, descriptor: Descriptor) {
        lines.put(self.tail.wrapping_add(n), descriptor);
    }

    /// Publishes the next `n` positions at once. Returns whether the consumer sleeps, and is to be woken:
    /// one of many that publish is told so.
    #[inline]
    #[must_use]
    pub fn publish(&mut self, lines: Lines<'_>, n: u32) -> bool {
        self.tail = self.tail.wrapping_add(n);
        lines.tail.store(self.tail, Ordering::Release);
        // Either the consumer sees the new count before it sleeps, or its word is seen here.
        fence(Ordering::SeqCst);
        is_raised(lines.asleep)
    }

    /// Says that this side waits for room. Returns whether it may: false if there is room by now.
    ///
    /// # Errors
    ///
    /// When the consumer's count cannot be.
    pub fn wait(&mut self, lines: Lines<'_>) -> Result<bool, Lie> {
        lines.waits.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let room = self.look(lines);
        if room == Ok(0) {
            return Ok(true);
        }
        self.wake(lines);
        room.map(|_| false)
    }

    /// Says that this side does not wait any more.
    pub fn wake(&self, lines: Lines<'_>) {
        lines.waits.store(0, Ordering::Relaxed);
    }
}

/// The side that empties positions, in their order.
#[derive(Debug, Default)]
pub struct Consumer {
    head: u32,
}

impl Consumer {
    /// Of a ring that nobody has used.
    #[must_use]
    pub const fn new() -> Self {
        Self { head: 0 }
    }

    /// How many positions have been released.
    #[inline]
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.head
    }

    /// How many positions have been published and not released.
    ///
    /// # Errors
    ///
    /// When the producer's count cannot be.
    #[inline]
    pub fn ready(&self, lines: Lines<'_>) -> Result<u32, Lie> {
        // What the producer has done to the slots happened before.
        lines.distance(lines.tail.load(Ordering::Acquire), self.head)
    }

    /// What is published at the `n`th position.
    #[inline]
    #[must_use]
    pub fn get(&self, lines: Lines<'_>, n: u32) -> Descriptor {
        lines.get(self.head.wrapping_add(n))
    }

    /// Leaves another slot at the `n`th position, which the producer finds there when it is released.
    #[inline]
    pub fn put(&self, lines: Lines<'_>, n: u32, descriptor: Descriptor) {
        lines.put(self.head.wrapping_add(n), descriptor);
    }

    /// Gives the next `n` positions back at once. Returns whether the producer waits for that, and is to be
    /// woken.
    #[inline]
    #[must_use]
    pub fn release(&mut self, lines: Lines<'_>, n: u32) -> bool {
        self.head = self.head.wrapping_add(n);
        lines.head.store(self.head, Ordering::Release);
        // As in `Producer::publish`.
        fence(Ordering::SeqCst);
        is_raised(lines.waits)
    }

    /// Says that this side sleeps. Returns whether it may: false if something is published by now.
    ///
    /// # Errors
    ///
    /// When the producer's count cannot be.
    #[inline]
    pub fn sleep(&self, lines: Lines<'_>) -> Result<bool, Lie> {
        lines.asleep.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let ready = self.ready(lines);
        if ready == Ok(0) {
            return Ok(true);
        }
        self.wake(lines);
        ready.map(|_| false)
    }

    /// Says that this side sleeps, unless it still stands there, and never takes that back: only the producer does, which then
    /// rings. Returns whether no more than `held` positions are published.
    ///
    /// # Errors
    ///
    /// When the producer's count cannot be.
    #[inline]
    pub fn rest(&self, lines: Lines<'_>, held: u32) -> Result<bool, Lie> {
        if lines.asleep.load(Ordering::Relaxed) == 0 {
            lines.asleep.store(1, Ordering::Relaxed);
        }
        // As in `Producer::publish`.
        fence(Ordering::SeqCst);
        Ok(self.ready(lines)? <= held)
    }

    /// Says that this side does not sleep any more.
    #[inline]
    pub fn wake(&self, lines: Lines<'_>) {
        lines.asleep.store(0, Ordering::Relaxed);
    }
}

/// Takes a word back that the other side has raised. The look before spares the line as long as it is not.
#[inline]
fn is_raised(word: &AtomicU32) -> bool {
    word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::Relaxed) != 0
}
