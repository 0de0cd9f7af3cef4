//! The code of the rings, with threads whose interleavings are all tried, and atomics that give every value
//! which their orderings allow. A wake-up that is lost is a deadlock there, and a slot that both sides have is a race:
//! loom reports both.
//!
//! Time does not pass here: no deadline helps anybody.

// What is not needed here is needed in the crate.
#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(unsafe_code, reason = "slots are cells whose owner is what is tried here")]

#[path = "../../src/descriptor.rs"]
mod descriptor;
#[path = "../../src/queue.rs"]
mod queue;

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

use descriptor::Descriptor;
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use queue::{Consumer, Lines, Producer};
use sync::{AtomicU32, AtomicU64};

/// How often the scheduler takes the processor from a thread that could go on.
const PREEMPTIONS: usize = 3;

/// A bell, as it is between processes: who waits goes on when it has been rung since it was hushed.
struct Bell {
    rung: Mutex<u32>,
    changed: Condvar,
}

impl Bell {
    fn new() -> Self {
        Self { rung: Mutex::new(0), changed: Condvar::new() }
    }

    fn ring(&self) {
        *self.rung.lock().unwrap() += 1;
        self.changed.notify_one();
    }

    /// Waits as poll does: rings stay where they are.
    fn poll(&self) {
        let mut rung = self.rung.lock().unwrap();
        while *rung == 0 {
            rung = self.changed.wait(rung).unwrap();
        }
    }

    fn rung(&self) -> u32 {
        *self.rung.lock().unwrap()
    }

    fn take(&self, rings: u32) {
        *self.rung.lock().unwrap() -= rings;
    }

    /// Waits, and hushes it.
    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while *rung == 0 {
            rung = self.changed.wait(rung).unwrap();
        }
        *rung = 0;
    }
}

/// A port of one way, with two positions.
struct Port {
    words: [AtomicU32; 4],
    entries: [AtomicU64; 2],
    slots: [UnsafeCell<u32>; 2],
    /// Of the consumer, and of the producer.
    bells: [Bell; 2],
}

impl Port {
    fn new() -> Self {
        Self {
            words: [0; 4].map(AtomicU32::new),
            entries: [0, 1].map(|slot| AtomicU64::new(Descriptor { slot, len: 0 }.to_bits())),
            slots: [0; 2].map(UnsafeCell::new),
            bells: [Bell::new(), Bell::new()],
        }
    }

    fn lines(&self) -> Lines<'_> {
        let [tail, head, asleep, waits] = &self.words;
        Lines::new([tail, head, asleep, waits], &self.entries).unwrap()
    }

    /// Sends frames with the numbers from `first` to `end`, in batches of at most `batch`.
    fn produce(&self, frames: u32, batch: u32) {
        let mut ring = Producer::new();
        let mut next = 0;
        while next < frames {
            let room = ring.room(self.lines(), 1).unwrap();
            if room == 0 {
                if ring.wait(self.lines()).unwrap() {
                    self.bells[1].wait();
                }
                continue;
            }
            let n = room.min(batch).min(frames - next);
            for at in 0..n {
                let slot = ring.get(self.lines(), at).slot;
                // SAFETY: loom sees whether anybody else has the slot.
                self.slots[slot as usize].with_mut(|place| unsafe { *place = next });
                ring.put(self.lines(), at, Descriptor { slot, len: next as u16 });
                next += 1;
            }
            if ring.publish(self.lines(), n) {
                self.bells[0].ring();
            }
        }
    }

    /// Takes frames, which have to have come once each and in their order.
    fn consume(&self, frames: u32, batch: u32, heed: bool) {
        let mut ring = Consumer::new();
        let mut next = 0;
        while next < frames {
            let ready = ring.ready(self.lines()).unwrap();
            if ready == 0 {
                if ring.sleep(self.lines()).unwrap() || !heed {
                    self.bells[0].wait();
                }
                continue;
            }
            let n = ready.min(batch);
            for at in 0..n {
                let Descriptor { slot, len } = ring.get(self.lines(), at);
                // SAFETY: as above.
                let number = self.slots[slot as usize].with(|place| unsafe { *place });
                assert_eq!((number, u32::from(len)), (next, next), "lost, doubled or mixed up");
                next += 1;
            }
            if ring.release(self.lines(), n) {
                self.bells[1].ring();
            }
        }
    }
}

/// How a program that waits by poll before each look says that it rests.
#[derive(Clone, Copy, PartialEq)]
enum Rest {
    /// As `packets/src/queue.rs` does.
    Right,
    /// It takes all rings that have come by then, and so the one for what has come since it looked.
    TakesAll,
}

impl Port {
    /// Takes one frame each time that the bell is readable, and holds the last one while it waits for the next.
    fn consume_by_poll(&self, frames: u32, rest: Rest) {
        let mut ring = Consumer::new();
        let mut held = 0;
        for next in 0..frames {
            loop {
                self.bells[0].poll();
                assert!(!ring.release(self.lines(), held), "nobody waits for room");
                held = 0;
                if ring.ready(self.lines()).unwrap() > 0 {
                    break;
                }
                self.rest(&ring, held, rest);
            }
            let slot = ring.get(self.lines(), 0).slot;
            // SAFETY: as above.
            let number = self.slots[slot as usize].with(|place| unsafe { *place });
            assert_eq!(number, next, "lost, doubled or mixed up");
            held = 1;
            if ring.ready(self.lines()).unwrap() == held {
                self.rest(&ring, held, rest);
            }
        }
    }

    fn rest(&self, ring: &Consumer, held: u32, rest: Rest) {
        let stale = self.bells[0].rung();
        if ring.rest(self.lines(), held).unwrap() {
            let all = self.bells[0].rung();
            self.bells[0].take(if rest == Rest::Right { stale } else { all });
        }
    }
}

fn poll(frames: u32, rest: Rest) {
    check(move || {
        // Not one of loom's: they end the process where a model ends with a deadlock.
        #[allow(clippy::arc_with_non_send_sync, reason = "loom's threads take turns")]
        let port = std::sync::Arc::new(Port::new());
        // As memory of ports begins.
        assert!(Consumer::new().sleep(port.lines()).unwrap());
        let producer = thread::spawn({
            let port = std::sync::Arc::clone(&port);
            move || {
                let mut ring = Producer::new();
                for next in 0..frames {
                    let slot = ring.get(port.lines(), 0).slot;
                    // SAFETY: as above; there are as many slots as frames.
                    port.slots[slot as usize].with_mut(|place| unsafe { *place = next });
                    ring.put(port.lines(), 0, Descriptor { slot, len: next as u16 });
                    if ring.publish(port.lines(), 1) {
                        port.bells[0].ring();
                    }
                }
            }
        });
        port.consume_by_poll(frames, rest);
        producer.join().unwrap();
    });
}

fn check(case: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(case);
}

fn run(frames: u32, batches: [u32; 2], heed: bool) {
    check(move || {
        let port = Arc::new(Port::new());
        let producer = thread::spawn({
            let port = Arc::clone(&port);
            move || port.produce(frames, batches[0])
        });
        port.consume(frames, batches[1], heed);
        producer.join().unwrap();
    });
}

#[test]
fn one_by_one_all_come_once_and_nobody_sleeps_for_ever() {
    run(3, [1, 1], true);
}

#[test]
fn in_batches_all_come_once_and_nobody_sleeps_for_ever() {
    run(4, [2, 2], true);
}

#[test]
fn batches_of_different_lengths_go_together() {
    run(4, [2, 1], true);
    run(4, [1, 2], true);
}

/// The model finds what it is for: a consumer that sleeps although something has come since it looked.
#[test]
#[should_panic(expected = "deadlock")]
fn a_wake_up_that_is_lost_is_found() {
    run(1, [1, 1], false);
}

/// With [`Rest::Right`], the bell is readable whenever a frame waits: a poll that comes first, or after some of the frames, ends.
#[test]
fn who_polls_before_each_look_is_always_woken() {
    poll(1, Rest::Right);
    poll(2, Rest::Right);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_ring_that_is_taken_too_early_is_found() {
    poll(2, Rest::TakesAll);
}
