//! Threads that may wait, and jobs that wait for one of them. Both are bounded.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread without a job stays.
const IDLE: Duration = Duration::from_secs(10);

/// What a thread does.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    /// Until when the job of this thread is to be done.
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Until when the job of this thread is to be done, if it has one.
pub(crate) fn deadline() -> Option<Instant> {
    DEADLINE.get()
}

/// Threads, which end with it once they have done what they do.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: usize,
    queue: usize,
    patience: Duration,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<(Instant, Job)>,
    threads: usize,
    idle: usize,
    ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// Up to `threads` threads, and `queue` jobs that wait for them. Those that are not begun after `patience` are
    /// dropped.
    pub(crate) fn new(threads: usize, queue: usize, patience: Duration) -> Self {
        Self { shared: Arc::default(), threads, queue, patience }
    }

    /// Has a thread do a job.
    ///
    /// # Errors
    ///
    /// If too many wait already, or no thread can be started; the job is dropped.
    pub(crate) fn run(&self, job: Job) -> Result<(), String> {
        let mut state = self.shared.lock();
        if state.jobs.len() >= self.queue {
            drop(state);
            return Err(format!("{} handshakes wait for a signature already", self.queue));
        }
        state.jobs.push_back((Instant::now() + self.patience, job));
        if state.jobs.len() > state.idle && state.threads < self.threads {
            state.threads += 1;
            let shared = Arc::clone(&self.shared);
            let started =
                thread::Builder::new().name("quicket-sign".to_owned()).spawn(move || work(&shared));
            if let Err(error) = started {
                state.threads -= 1;
                if state.threads == 0 {
                    let job = state.jobs.pop_back();
                    drop(state);
                    drop(job);
                    return Err(format!("no thread can be started: {error}"));
                }
            }
        }
        drop(state);
        self.shared.woken.notify_one();
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.ended = true;
        let left = std::mem::take(&mut state.jobs);
        drop(state);
        self.shared.woken.notify_all();
        drop(left);
    }
}

fn work(shared: &Shared) {
    let mut state = shared.lock();
    loop {
        if let Some((deadline, job)) = state.jobs.pop_front() {
            drop(state);
            if deadline > Instant::now() {
                DEADLINE.set(Some(deadline));
                // The thread serves others, too; its hook has told of a panic.
                let _ = catch_unwind(AssertUnwindSafe(job));
                DEADLINE.set(None);
            } else {
                // Whoever waits for it hears of that.
                drop(job);
            }
            state = shared.lock();
            continue;
        }
        if state.ended {
            break;
        }
        state.idle += 1;
        let (woken, timeout) = shared
            .woken
            .wait_timeout_while(state, IDLE, |state| state.jobs.is_empty() && !state.ended)
            .unwrap_or_else(PoisonError::into_inner);
        state = woken;
        state.idle -= 1;
        if timeout.timed_out() && state.jobs.is_empty() {
            break;
        }
    }
    state.threads -= 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn what_is_too_much_is_refused_and_what_is_late_dropped() {
        let pool = Pool::new(1, 2, Duration::from_millis(50));
        let (enter, entered) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let first = move || {
            assert!(deadline().is_some());
            enter.send(()).unwrap();
            gone.recv().unwrap();
        };
        pool.run(Box::new(first)).unwrap();
        entered.recv().unwrap();
        let (done, dropped) = mpsc::channel();
        for _ in 0..2 {
            let done = done.clone();
            pool.run(Box::new(move || done.send(()).unwrap())).unwrap();
        }
        assert!(pool.run(Box::new(|| panic!("it was refused"))).unwrap_err().contains('2'));
        drop(done);
        thread::sleep(Duration::from_millis(60));
        go.send(()).unwrap();
        assert!(dropped.recv().is_err(), "both were too late, and were dropped");
        let pool = Pool::new(1, 2, Duration::from_secs(60));
        let (done, heard) = mpsc::channel();
        pool.run(Box::new(|| panic!("a thread outlives this"))).unwrap();
        pool.run(Box::new(move || done.send(()).unwrap())).unwrap();
        heard.recv_timeout(Duration::from_secs(30)).unwrap();
    }
}
