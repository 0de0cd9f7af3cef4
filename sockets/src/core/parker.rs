//! Threads that wait: parked, or in poll(2) as the endpoint's leader.

use std::cell::OnceCell;
use std::time::{Duration, Instant};

use super::bell::{Bed, Ring};
use super::kick::Kick;
use super::sync::{Arc, AtomicBool, Mutex, Ordering, PoisonError, ThreadId, this_thread};
use super::waiter_id::WaiterId;

/// One per thread: how others reach it while it waits.
#[derive(Debug)]
pub(crate) struct Parker {
    id: WaiterId,
    thread: ThreadId,
    /// What it sleeps on if signals need not wake it.
    bed: Bed,
    /// What it waits for may be there.
    woken: AtomicBool,
    /// The leader's seat is kept for it.
    summoned: AtomicBool,
    /// Set while the thread sleeps in poll(2): what gets it out.
    polling: Mutex<Option<Arc<Kick>>>,
}

/// Why a thread sleeps no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Roused {
    /// What it waits for may be there.
    Woken,
    /// The leader's seat may be kept for it.
    Summoned,
    /// The time is up.
    Late,
    /// It has handled a signal.
    Interrupted,
}

impl Parker {
    /// What the thread waits for may be there. True if it is another one, which did not know; if it
    /// sleeps, it wakes with `ring`.
    pub(super) fn wake(&self, ring: &mut Ring) -> bool {
        self.rouse(&self.woken, ring)
    }

    /// The same for one alone.
    #[cfg(test)]
    pub(crate) fn wake_now(&self) {
        let mut ring = Ring::default();
        self.wake(&mut ring);
        ring.wake();
    }

    /// The leader's seat is kept for the thread.
    pub(super) fn summon(&self) {
        let mut ring = Ring::default();
        self.rouse(&self.summoned, &mut ring);
        ring.wake();
    }

    /// True if the thread was woken since it last looked, so that it will look again.
    pub(super) fn is_woken(&self) -> bool {
        self.woken.load(Ordering::SeqCst)
    }

    fn is_roused(&self) -> bool {
        self.is_woken() || self.summoned.load(Ordering::SeqCst)
    }

    fn rouse(&self, reason: &AtomicBool, ring: &mut Ring) -> bool {
        if reason.swap(true, Ordering::SeqCst) || this_thread() == self.thread {
            return false;
        }
        ring.add(&self.bed);
        let kick = self.polling.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(kick) = kick {
            kick.kick();
        }
        true
    }
}

/// The calling thread's parker.
#[derive(Clone, Debug)]
pub(crate) struct CurrentThread {
    parker: Arc<Parker>,
}

impl CurrentThread {
    /// The calling thread.
    pub(crate) fn get() -> Self {
        thread_local! {
            static CURRENT: OnceCell<CurrentThread> = const { OnceCell::new() };
        }
        CURRENT.try_with(|cell| cell.get_or_init(Self::new).clone()).unwrap_or_else(|_| Self::new())
    }

    /// The calling thread, as if it had not waited before.
    pub(super) fn new() -> Self {
        Self {
            parker: Arc::new(Parker {
                id: WaiterId::unique(),
                thread: this_thread(),
                bed: Bed::new(),
                woken: AtomicBool::new(false),
                summoned: AtomicBool::new(false),
                polling: Mutex::new(None),
            }),
        }
    }

    pub(crate) fn id(&self) -> WaiterId {
        self.parker.id
    }

    /// How others reach the thread.
    pub(crate) const fn parker(&self) -> &Arc<Parker> {
        &self.parker
    }

    /// Forgets wake-ups of the past; call before looking whether there is reason to wait.
    pub(crate) fn reset(&self) {
        self.parker.woken.store(false, Ordering::SeqCst);
    }

    /// Forgets a summons; call before looking whether the seat is kept.
    pub(super) fn reset_summons(&self) {
        self.parker.summoned.store(false, Ordering::SeqCst);
    }

    /// True if the thread was woken since the last [`CurrentThread::reset`].
    pub(crate) fn is_woken(&self) -> bool {
        self.parker.is_woken()
    }

    /// Sleeps until woken or summoned, or until `deadline`; with something to sleep `on`, until the
    /// thread has handled a signal.
    pub(crate) fn park(&self, deadline: Option<Instant>, on: Option<&Arc<Kick>>) -> Roused {
        match on {
            Some(bed) => {
                self.set_polling(Some(Arc::clone(bed)));
                let roused = self.sleep(deadline, |left| bed.sleep(left));
                self.set_polling(None);
                bed.clear();
                roused
            }
            None => self.sleep(deadline, |left| {
                self.parker.bed.sleep(left, || self.parker.is_roused());
                false
            }),
        }
    }

    /// Calls `rest`, which says whether a signal ended it, until there is a reason to stop.
    fn sleep(&self, deadline: Option<Instant>, rest: impl Fn(Option<Duration>) -> bool) -> Roused {
        let mut interrupted = false;
        loop {
            if self.is_woken() {
                return Roused::Woken;
            }
            if self.parker.summoned.load(Ordering::SeqCst) {
                return Roused::Summoned;
            }
            if interrupted {
                return Roused::Interrupted;
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Roused::Late;
            }
            interrupted = rest(left);
        }
    }

    /// From now on a wake-up also kicks `kick`; `None` ends that.
    pub(crate) fn set_polling(&self, kick: Option<Arc<Kick>>) {
        *self.parker.polling.lock().unwrap_or_else(PoisonError::into_inner) = kick;
    }
}
