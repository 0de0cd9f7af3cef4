//! The thread that keeps descriptors in step with their sockets while programs poll.
//!
//! It starts with the first socket that is polled. Programs that only wait in calls never have it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use crate::entry::Entry;
use crate::inside::Inside;
use crate::native;

/// Enough to look at a socket.
const STACK: usize = 128 << 10;

#[derive(Default)]
struct Keeper {
    queue: Mutex<Vec<Weak<Entry>>>,
    bell: Condvar,
}

static KEEPER: Mutex<Option<Arc<Keeper>>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks for a look at a socket. False if there is nobody to look.
pub(crate) fn ring(entry: &Weak<Entry>) -> bool {
    let keeper = {
        let mut keeper = lock(&KEEPER);
        if keeper.is_none() {
            *keeper = start();
        }
        keeper.clone()
    };
    let Some(keeper) = keeper else { return false };
    lock(&keeper.queue).push(Weak::clone(entry));
    keeper.bell.notify_one();
    true
}

fn start() -> Option<Arc<Keeper>> {
    let keeper = Arc::new(Keeper::default());
    let its = Arc::clone(&keeper);
    let _inside = Inside::enter();
    let thread = std::thread::Builder::new().name("quicket-poll".to_owned()).stack_size(STACK);
    let started = native::without_signals(|| thread.spawn(move || its.run()));
    match started {
        Ok(_) => Some(keeper),
        Err(error) => {
            log::error!("no thread can be started, polling will miss news: {error}");
            None
        }
    }
}

impl Keeper {
    fn run(&self) {
        let mut rung = Vec::new();
        loop {
            let mut queue = lock(&self.queue);
            while queue.is_empty() {
                queue = self.bell.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            std::mem::swap(&mut *queue, &mut rung);
            drop(queue);
            for entry in rung.drain(..) {
                if let Some(entry) = entry.upgrade() {
                    // A fault that one socket shows is not to end polling of the others.
                    let _ = catch_unwind(AssertUnwindSafe(|| entry.on_bell()));
                }
            }
        }
    }
}

/// Keeps the thread from being asked for anything while the process forks.
pub(crate) struct Hold(MutexGuard<'static, Option<Arc<Keeper>>>);

impl Hold {
    pub(crate) fn acquire() -> Self {
        Self(lock(&KEEPER))
    }

    /// In the child, where the thread is not.
    pub(crate) fn forget(mut self) {
        std::mem::forget(self.0.take());
    }
}
