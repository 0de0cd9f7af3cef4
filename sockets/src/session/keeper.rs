//! The thread that gives stores what is to be kept.
//!
//! A store is the application's, and may write files or wait for a network. So connections only
//! put what they got into a queue. Whoever takes from a store sees what was queued for it before;
//! whoever lets go of an endpoint waits for a moment until all is kept, as the process may end
//! then.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::SessionStore;
use crate::core::spawn_quietly;

/// How many sessions and tokens wait for slow stores; the oldest is lost when there are more.
const WAITING: usize = 256;
/// How long the end of an endpoint waits for stores at most.
const AT_THE_END: Duration = Duration::from_secs(1);
/// How long the thread waits for more before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// Something to keep.
pub(super) struct Errand {
    pub(super) store: Arc<dyn SessionStore>,
    pub(super) server: Arc<str>,
    pub(super) item: Item,
}

/// What a server gave.
pub(super) enum Item {
    Session(Vec<u8>),
    Token(Vec<u8>),
}

impl Errand {
    pub(super) fn run(self) {
        let Self { store, server, item } = self;
        let kept = catch_unwind(AssertUnwindSafe(|| match item {
            Item::Session(session) => store.save_session(&server, &session),
            Item::Token(token) => store.save_token(&server, &token),
        }));
        if kept.is_err() {
            log::warn!(
                "a session store panicked; what {server} gave for the next connection is lost"
            );
        }
    }

    fn is_for(&self, store: &Arc<dyn SessionStore>) -> bool {
        Arc::ptr_eq(&self.store, store)
    }
}

/// What waits, and who sees to it.
struct Keeper {
    queue: Mutex<Queue>,
    /// Something was queued, or is done.
    changed: Condvar,
}

struct Queue {
    errands: VecDeque<Errand>,
    /// The store that the thread has called.
    busy: Option<Arc<dyn SessionStore>>,
    has_thread: bool,
}

static KEEPER: Keeper = Keeper {
    queue: Mutex::new(Queue { errands: VecDeque::new(), busy: None, has_thread: false }),
    changed: Condvar::new(),
};

impl Keeper {
    /// Held for a look or a change; no store is called under it.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, queue: MutexGuard<'a, Queue>, time: Duration) -> MutexGuard<'a, Queue> {
        self.changed.wait_timeout(queue, time).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Runs errands until there were none for a while.
    fn run(&self) {
        let mut queue = self.lock();
        let mut idle_since = Instant::now();
        loop {
            if let Some(errand) = queue.errands.pop_front() {
                queue.busy = Some(Arc::clone(&errand.store));
                drop(queue);
                errand.run();
                queue = self.lock();
                let done = queue.busy.take();
                self.changed.notify_all();
                drop(queue);
                // Perhaps the last hold on it.
                drop(done);
                queue = self.lock();
                idle_since = Instant::now();
            } else if idle_since.elapsed() >= IDLE {
                queue.has_thread = false;
                return;
            } else {
                queue = self.wait(queue, IDLE);
            }
        }
    }
}

/// Has something kept, soon.
pub(super) fn keep(errand: Errand) {
    let mut queue = KEEPER.lock();
    let lost = if queue.errands.len() >= WAITING { queue.errands.pop_front() } else { None };
    queue.errands.push_back(errand);
    let start = !std::mem::replace(&mut queue.has_thread, true);
    drop(queue);
    KEEPER.changed.notify_all();
    if let Some(lost) = lost {
        log::warn!("session stores are too slow; what {} gave is lost", lost.server);
    }
    if start && let Err(error) = spawn_quietly("quicket sessions", || KEEPER.run()) {
        KEEPER.lock().has_thread = false;
        log::warn!("no thread for session stores: {error}; what servers gave waits for the next");
    }
}

/// Sees to it that a store has all that was to be kept in it: by this thread, which is about to
/// call it anyway.
pub(crate) fn settle(store: &Arc<dyn SessionStore>) {
    let start = Instant::now();
    loop {
        let mut queue = KEEPER.lock();
        if let Some(place) = queue.errands.iter().position(|errand| errand.is_for(store)) {
            let errand = queue.errands.remove(place);
            drop(queue);
            errand.into_iter().for_each(Errand::run);
            continue;
        }
        let is_busy = queue.busy.as_ref().is_some_and(|busy| Arc::ptr_eq(busy, store));
        let Some(left) = AT_THE_END.checked_sub(start.elapsed()).filter(|_| is_busy) else {
            return;
        };
        drop(KEEPER.wait(queue, left));
    }
}

/// Waits until all is kept, but not for long.
pub(crate) fn flush() {
    let start = Instant::now();
    let mut queue = KEEPER.lock();
    while !queue.errands.is_empty() || queue.busy.is_some() {
        let Some(left) = AT_THE_END.checked_sub(start.elapsed()) else { return };
        queue = KEEPER.wait(queue, left);
    }
}
