//! What has seldom anything to say is polled when it has, and not whenever the task runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Polls something only once it has woken, whatever else has the task run. A connection's control streams say little
/// after its beginning, and each look at one of them locks the connection.
pub(crate) struct Seldom {
    signal: Arc<Signal>,
    /// Sets the signal.
    waker: Waker,
}

struct Signal {
    /// There may be something.
    is_due: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Seldom {
    /// Something that was never polled.
    pub(crate) fn new() -> Self {
        let signal = Signal { is_due: AtomicBool::new(true), task: Mutex::new(None) };
        let signal = Arc::new(signal);
        Self { waker: Arc::clone(&signal).into(), signal }
    }

    /// Polls it if it has woken since it had nothing, or was never polled.
    pub(crate) fn poll<T>(
        &self,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        // The order matters: who wakes sets the mark before it looks for the task.
        self.signal.register(cx.waker());
        if !self.signal.is_due.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        let polled = poll(&mut Context::from_waker(&self.waker));
        if polled.is_ready() {
            // There may be more.
            self.signal.is_due.store(true, Ordering::Release);
        }
        polled
    }
}

impl Signal {
    fn register(&self, waker: &Waker) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *task {
            Some(task) => task.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_due.store(true, Ordering::Release);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use quicket_testing::WakeCount;

    use super::*;

    #[test]
    fn it_is_polled_until_it_has_nothing_and_then_once_it_has_woken() {
        let seldom = Seldom::new();
        let count = Arc::new(WakeCount::default());
        let task = Waker::from(Arc::clone(&count));
        let cx = Context::from_waker(&task);
        let mut kept = None;
        let mut poll = |answer: Poll<()>| {
            let mut polled = false;
            let given = seldom.poll(&cx, |cx| {
                polled = true;
                kept = Some(cx.waker().clone());
                answer
            });
            (polled, given)
        };
        assert_eq!(poll(Poll::Ready(())), (true, Poll::Ready(())));
        assert_eq!(poll(Poll::Pending), (true, Poll::Pending));
        assert_eq!(poll(Poll::Ready(())), (false, Poll::Pending));
        kept.take().unwrap().wake();
        assert_eq!(count.get(), 1, "the task runs");
        let mut polled = false;
        let given = seldom.poll(&cx, |_| {
            polled = true;
            Poll::<()>::Pending
        });
        assert_eq!((polled, given), (true, Poll::Pending));
    }

    #[test]
    fn the_task_that_polled_last_is_woken() {
        let seldom = Seldom::new();
        let tasks = [(); 2].map(|()| Arc::new(WakeCount::default()));
        let mut kept = None;
        for task in &tasks {
            let waker = Waker::from(Arc::clone(task));
            let _ = seldom.poll(&Context::from_waker(&waker), |cx| {
                kept = Some(cx.waker().clone());
                Poll::<()>::Pending
            });
        }
        kept.unwrap().wake();
        assert_eq!(tasks.map(|task| task.get()), [0, 1]);
    }
}
