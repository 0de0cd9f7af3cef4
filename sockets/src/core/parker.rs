//! Threads that wait: parked, or in poll(2) as the endpoint's leader.

use std::cell::OnceCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;

use super::waiters::{Waiter, WaiterId};

/// The longest sleep; so that no time is too long for the kernel.
const LONGEST: Duration = Duration::from_secs(3600);

/// Interrupts a thread that polls an endpoint's socket.
#[derive(Debug)]
pub(crate) struct Kick {
    fd: EventFd,
}

impl Kick {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Self { fd })
    }

    /// The poll in progress, or the next one, returns at once.
    pub(crate) fn kick(&self) {
        // Fails only when 2^64 - 2 kicks are outstanding: it is readable then anyway.
        let _ = self.fd.write(1);
    }

    /// Takes back all kicks.
    pub(crate) fn clear(&self) {
        // Fails only when there is none.
        let _ = self.fd.read();
    }

    /// Sleeps until kicked or for as long as is said; true if a signal ended it.
    fn sleep(&self, time: Option<Duration>) -> bool {
        let mut fds = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        let time = TimeSpec::from(time.unwrap_or(LONGEST).min(LONGEST));
        ppoll(&mut fds, Some(time), None) == Err(Errno::EINTR)
    }
}

impl AsFd for Kick {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// One per thread; the [`Waker`] of blocking calls.
#[derive(Debug)]
pub(crate) struct Parker {
    id: WaiterId,
    thread: Thread,
    woken: AtomicBool,
    /// Set while the thread leads: what gets it out of poll(2).
    leading: Mutex<Option<Arc<Kick>>>,
    /// What it sleeps on where signals should be noticed; made when first needed.
    bed: OnceLock<Arc<Kick>>,
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.woken.swap(true, Ordering::AcqRel) || thread::current().id() == self.thread.id() {
            return;
        }
        self.thread.unpark();
        if let Some(kick) = &*self.leading.lock().unwrap_or_else(PoisonError::into_inner) {
            kick.kick();
        }
    }
}

/// A thread's parker and the waker that leads to it.
#[derive(Clone, Debug)]
pub(crate) struct CurrentThread {
    parker: Arc<Parker>,
    waker: Waker,
}

impl CurrentThread {
    /// The calling thread.
    pub(crate) fn get() -> Self {
        thread_local! {
            static CURRENT: OnceCell<CurrentThread> = const { OnceCell::new() };
        }
        CURRENT.try_with(|cell| cell.get_or_init(Self::new).clone()).unwrap_or_else(|_| Self::new())
    }

    fn new() -> Self {
        let parker = Arc::new(Parker {
            id: WaiterId::unique(),
            thread: thread::current(),
            woken: AtomicBool::new(false),
            leading: Mutex::new(None),
            bed: OnceLock::new(),
        });
        Self { waker: Waker::from(Arc::clone(&parker)), parker }
    }

    /// The thread as one that will wait if it has to.
    pub(crate) fn waiter(&self) -> Waiter<'_> {
        Waiter { id: self.parker.id, waker: &self.waker }
    }

    /// Forgets wake-ups of the past; call before looking whether there is reason to wait.
    pub(crate) fn reset(&self) {
        self.parker.woken.store(false, Ordering::Release);
    }

    /// True if the thread was woken since the last [`CurrentThread::reset`].
    pub(crate) fn is_woken(&self) -> bool {
        self.parker.woken.load(Ordering::Acquire)
    }

    /// Sleeps until woken or until `deadline`.
    pub(crate) fn park(&self, deadline: Option<Instant>) {
        while !self.is_woken() {
            match deadline {
                None => thread::park(),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return;
                    }
                    thread::park_timeout(left);
                }
            }
        }
    }

    /// Sleeps until woken, until `deadline`, or until the thread has handled a signal: true.
    pub(crate) fn park_unless_interrupted(&self, deadline: Option<Instant>) -> bool {
        let Some(kick) = self.bed() else {
            // Without descriptors signals go unnoticed.
            self.park(deadline);
            return false;
        };
        self.set_leading(Some(Arc::clone(&kick)));
        let mut interrupted = false;
        while !self.is_woken() && !interrupted {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            interrupted = kick.sleep(left);
        }
        self.set_leading(None);
        kick.clear();
        interrupted
    }

    fn bed(&self) -> Option<Arc<Kick>> {
        let bed = &self.parker.bed;
        if bed.get().is_none() {
            // Only this thread makes it.
            let _ = bed.set(Arc::new(Kick::new().ok()?));
        }
        bed.get().cloned()
    }

    /// From now on a wake-up also kicks `kick`; `None` ends that.
    pub(crate) fn set_leading(&self, kick: Option<Arc<Kick>>) {
        *self.parker.leading.lock().unwrap_or_else(PoisonError::into_inner) = kick;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_before_parking_is_not_lost() {
        let current = CurrentThread::get();
        current.reset();
        let waker = current.waiter().waker.clone();
        thread::spawn(move || waker.wake()).join().unwrap();
        current.park(None);
        assert!(current.is_woken());
    }

    #[test]
    fn parking_ends_at_the_deadline() {
        let current = CurrentThread::get();
        current.reset();
        let start = Instant::now();
        current.park(Some(start + Duration::from_millis(5)));
        assert!(!current.is_woken() && start.elapsed() >= Duration::from_millis(5));
    }

    #[test]
    fn a_sleep_that_signals_end_is_ended_by_wakes_and_time_as_well() {
        let current = CurrentThread::get();
        current.reset();
        let waker = current.waiter().waker.clone();
        thread::spawn(move || waker.wake()).join().unwrap();
        assert!(!current.park_unless_interrupted(None));
        current.reset();
        let start = Instant::now();
        assert!(!current.park_unless_interrupted(Some(start + Duration::from_millis(5))));
        assert!(!current.is_woken() && start.elapsed() >= Duration::from_millis(5));
    }

    #[test]
    fn a_leader_is_kicked_out_of_its_poll() {
        let kick = Arc::new(Kick::new().unwrap());
        let current = CurrentThread::get();
        current.reset();
        current.set_leading(Some(Arc::clone(&kick)));
        let waker = current.waiter().waker.clone();
        thread::spawn(move || waker.wake()).join().unwrap();
        let mut fds = [nix::poll::PollFd::new(kick.as_fd(), nix::poll::PollFlags::POLLIN)];
        assert_eq!(nix::poll::poll(&mut fds, nix::poll::PollTimeout::ZERO).unwrap(), 1);
        kick.clear();
        assert_eq!(nix::poll::poll(&mut fds, nix::poll::PollTimeout::ZERO).unwrap(), 0);
        current.set_leading(None);
    }
}
