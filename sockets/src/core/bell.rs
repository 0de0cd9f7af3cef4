//! What threads sleep on, several of which are woken with one system call.
//!
//! Whoever receives for many threads often has something for several of them. Woken by a call each, each of
//! them may take the processor from the caller at once, and give it back for the next call: two switches
//! of threads for each, where one is enough.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::thread::futex::{Flags, Timespec, wait_bitset, wake_bitset};
use rustix::time::{ClockId, clock_gettime};

/// A futex(2) on which up to 32 threads sleep, each with a bit of its own.
#[derive(Debug, Default)]
struct Bell {
    /// How often it was rung.
    rung: AtomicU32,
}

/// As many threads as there are.
const ALL: u32 = i32::MAX as u32;

/// All bells, with the bits that are free.
static BELLS: Mutex<Vec<(Arc<Bell>, u32)>> = Mutex::new(Vec::new());

/// A thread's place at a bell.
#[derive(Debug)]
pub(super) struct Bed {
    bell: Arc<Bell>,
    bit: NonZeroU32,
    /// It sleeps there, or is about to.
    taken: AtomicBool,
}

impl Bed {
    pub(super) fn new() -> Self {
        let mut bells = BELLS.lock().unwrap_or_else(PoisonError::into_inner);
        let found = bells.iter_mut().find_map(|(bell, free)| {
            let bit = NonZeroU32::new(*free & free.wrapping_neg())?;
            *free &= !bit.get();
            Some((Arc::clone(bell), bit))
        });
        let (bell, bit) = found.unwrap_or_else(|| {
            let bell = Arc::<Bell>::default();
            bells.push((Arc::clone(&bell), !NonZeroU32::MIN.get()));
            (bell, NonZeroU32::MIN)
        });
        Self { bell, bit, taken: AtomicBool::new(false) }
    }

    /// Sleeps until woken, for as long as is said or for a shorter time; not at all once `is_awake`,
    /// which whoever wakes sees to before.
    pub(super) fn sleep(&self, time: Option<Duration>, is_awake: impl Fn() -> bool) {
        self.taken.store(true, Ordering::SeqCst);
        let rung = self.bell.rung.load(Ordering::SeqCst);
        if !is_awake() {
            let until = time.and_then(|time| {
                let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).ok()?;
                Timespec::try_from(now.checked_add(time)?).ok()
            });
            // Interrupted, late, rung meanwhile: the caller looks again.
            let _ = wait_bitset(&self.bell.rung, Flags::PRIVATE, rung, until.as_ref(), self.bit);
        }
        self.taken.store(false, Ordering::SeqCst);
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let mut bells = BELLS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, free)) = bells.iter_mut().find(|(bell, _)| Arc::ptr_eq(bell, &self.bell)) {
            *free |= self.bit.get();
        }
    }
}

/// Threads that are woken together.
#[derive(Debug, Default)]
pub(super) struct Ring(Vec<(Arc<Bell>, u32)>);

impl Ring {
    /// Adds whoever sleeps there.
    pub(super) fn add(&mut self, bed: &Bed) {
        if !bed.taken.load(Ordering::SeqCst) {
            return;
        }
        let bit = bed.bit.get();
        match self.0.iter_mut().find(|(bell, _)| Arc::ptr_eq(bell, &bed.bell)) {
            Some((_, bits)) => *bits |= bit,
            None => self.0.push((Arc::clone(&bed.bell), bit)),
        }
    }

    /// Wakes them.
    pub(super) fn wake(&mut self) {
        for (bell, bits) in self.0.drain(..) {
            bell.rung.fetch_add(1, Ordering::SeqCst);
            if let Some(bits) = NonZeroU32::new(bits) {
                // All of them: the number is signed in the kernel. It cannot fail with such a word and bits.
                let _ = wake_bitset(&bell.rung, Flags::PRIVATE, ALL, bits);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;

    /// Where threads do what they do in each round, all of which have to be woken.
    #[test]
    fn threads_that_are_woken_together_all_wake_and_others_sleep_on() {
        const THREADS: usize = 70;
        let places: Vec<_> = (0..THREADS).map(|_| (Bed::new(), AtomicU32::new(0))).collect();
        let other = Bed::new();
        let seen = AtomicU32::new(0);
        thread::scope(|scope| {
            for (bed, round) in &places {
                let seen = &seen;
                scope.spawn(move || {
                    for expected in 1..=50 {
                        while round.load(Ordering::SeqCst) < expected {
                            bed.sleep(None, || round.load(Ordering::SeqCst) >= expected);
                        }
                        seen.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            for expected in 1..=50 {
                let mut ring = Ring::default();
                for (bed, round) in &places {
                    round.store(expected, Ordering::SeqCst);
                    ring.add(bed);
                }
                ring.wake();
                while seen.load(Ordering::SeqCst) < expected * THREADS as u32 {
                    thread::yield_now();
                }
            }
        });
        let begun = Instant::now();
        other.sleep(Some(Duration::from_millis(5)), || false);
        assert!(begun.elapsed() >= Duration::from_millis(5));
    }

    #[test]
    fn places_are_used_again() {
        let beds: Vec<Bed> = (0..100).map(|_| Bed::new()).collect();
        for (number, bed) in beds.iter().enumerate() {
            let same = |other: &&Bed| Arc::ptr_eq(&other.bell, &bed.bell) && other.bit == bed.bit;
            assert_eq!(beds.iter().position(|other| same(&other)), Some(number), "one for each");
        }
        drop(beds);
        let bells = BELLS.lock().unwrap().len();
        let again: Vec<Bed> = (0..64).map(|_| Bed::new()).collect();
        drop(again);
        // Other tests run meanwhile.
        assert!(BELLS.lock().unwrap().len() <= bells + 4);
    }
}
