//! In place of futex(2).

use crate::sync::{AtomicBool, Ordering, Thread, thread};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Bed {
    thread: Thread,
    taken: AtomicBool,
}

impl Bed {
    pub(crate) fn new() -> Self {
        Self { thread: thread::current(), taken: AtomicBool::new(false) }
    }

    pub(crate) fn sleep(&self, _: Option<Duration>, is_awake: impl Fn() -> bool) {
        self.taken.store(true, Ordering::SeqCst);
        if !is_awake() {
            thread::park();
        }
        self.taken.store(false, Ordering::SeqCst);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ring(Vec<Thread>);

impl Ring {
    pub(crate) fn add(&mut self, bed: &Bed) {
        if bed.taken.load(Ordering::SeqCst) {
            self.0.push(bed.thread.clone());
        }
    }

    pub(crate) fn wake(&mut self) {
        self.0.drain(..).for_each(|thread| thread.unpark());
    }
}
