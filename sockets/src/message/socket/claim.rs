//! How a listener that a process has inherited becomes its own: on a thread of its own, since that takes as long as the
//! switch and the parent do, and calls that do not wait may ask for it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::inherit::Inherited;
use super::{Patience, Phase, Socket};
use crate::core::{Interest, Waiter, Waiters, Wakes, spawn_prepared};
use crate::message::attendance::Attendance;
use crate::message::errno::Errno;

/// How far an inherited listener is from being the process's own.
#[derive(Debug, Default)]
pub(super) struct Claim {
    progress: Mutex<Progress>,
    /// Rings for threads in `accept` when it is no longer under way.
    over: Condvar,
}

#[derive(Debug, Default)]
struct Progress {
    stage: Stage,
    /// The program polls it.
    polled: bool,
    /// Who polls meanwhile.
    waiters: Waiters,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Nobody has asked, or who did has heard the answer.
    #[default]
    Idle,
    UnderWay,
    /// Whoever accepts next hears it.
    Failed(Errno),
}

impl Claim {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if `accept` has something to say; `waiter` hears when it has.
    pub(super) fn is_readable(&self, waiter: Option<Waiter<'_>>) -> bool {
        let mut progress = self.progress();
        if progress.stage != Stage::UnderWay {
            return true;
        }
        if let Some(waiter) = waiter {
            progress.waiters.register(Interest::Message, waiter);
        }
        false
    }

    /// True if it is the caller's to begin, which has heard what went wrong before.
    fn begin(&self) -> Result<bool, Errno> {
        let mut progress = self.progress();
        match std::mem::take(&mut progress.stage) {
            Stage::Failed(errno) => Err(errno),
            stage => {
                progress.stage = Stage::UnderWay;
                Ok(stage == Stage::Idle)
            }
        }
    }

    /// The same for who polls: what went wrong is left to `accept`.
    fn begin_for_poll(&self) -> bool {
        let mut progress = self.progress();
        progress.polled = true;
        if progress.stage != Stage::Idle {
            return false;
        }
        progress.stage = Stage::UnderWay;
        true
    }

    /// True if the program polls the listener.
    fn end(&self, result: Result<(), Errno>) -> bool {
        let mut wakes = Wakes::default();
        let mut progress = self.progress();
        progress.stage = result.map_or_else(Stage::Failed, |()| Stage::Idle);
        progress.waiters.wake(Interest::Message, &mut wakes);
        let polled = progress.polled;
        drop(progress);
        self.over.notify_all();
        wakes.fire();
        polled
    }

    /// Waits until it is not under way; EAGAIN if that takes too long.
    fn wait(&self, patience: Patience) -> Result<(), Errno> {
        let mut progress = self.progress();
        while progress.stage == Stage::UnderWay {
            progress = match patience {
                Patience::None => return Err(Errno::EAGAIN),
                Patience::Until(None) => {
                    self.over.wait(progress).unwrap_or_else(PoisonError::into_inner)
                }
                Patience::Until(Some(deadline)) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(Errno::EAGAIN);
                    }
                    let waited = self.over.wait_timeout(progress, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        match std::mem::take(&mut progress.stage) {
            Stage::Failed(errno) => Err(errno),
            Stage::Idle | Stage::UnderWay => Ok(()),
        }
    }
}

/// A claim that ends with its thread, also where that panics.
struct Unfinished<'a>(&'a Claim);

impl Unfinished<'_> {
    fn end(self, result: Result<(), Errno>) -> bool {
        let claim = self.0;
        std::mem::forget(self);
        claim.end(result)
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.end(Err(Errno::EIO));
    }
}

impl Socket {
    fn inherited(&self) -> Option<Arc<Inherited>> {
        match &self.control().phase {
            Phase::Inherited(inherited) => Some(Arc::clone(inherited)),
            Phase::Idle | Phase::Listening(_) | Phase::Connection(_) => None,
        }
    }

    /// Has a listener that the process has inherited be one of its own, if it is not yet, and waits for it as long as
    /// `patience` says. What has begun goes on after that.
    ///
    /// # Errors
    ///
    /// EAGAIN if it takes longer; what making it has failed with.
    pub(super) fn claim(&self, patience: Patience) -> Result<(), Errno> {
        // Once more for each of several threads that another one's failure has woken.
        while let Some(inherited) = self.inherited() {
            if inherited.claim.begin()? {
                self.begin_claim(&inherited);
            }
            inherited.claim.wait(patience)?;
        }
        Ok(())
    }

    /// The program polls the socket: a listener that the process has inherited becomes its own from now on, and waits for
    /// clients. That it cannot is told by [`Socket::accept`]. Does not wait.
    pub fn attend(&self) {
        let Some(inherited) = self.inherited() else { return self.attend_polled() };
        if inherited.claim.begin_for_poll() {
            self.begin_claim(&inherited);
        }
    }

    fn begin_claim(&self, inherited: &Arc<Inherited>) {
        // Whoever closes the socket meanwhile has closed it.
        let (socket, its) = (Arc::downgrade(&self.shared), Arc::clone(inherited));
        let work = move || {
            let unfinished = Unfinished(&its.claim);
            let summoned = its.summon();
            let socket = socket.upgrade().map(|shared| Self { shared });
            let result =
                socket.as_ref().map_or(Err(Errno::EBADF), |it| it.listen_as_heir(summoned));
            if unfinished.end(result)
                && let Some(socket) = socket
            {
                socket.attend_polled();
            }
        };
        if spawn_prepared("quicket-heir", || {}, work).is_err() {
            // What the system says, EAGAIN, would have programs ask again at once.
            inherited.claim.end(Err(Errno::ENOBUFS));
        }
    }

    fn attend_polled(&self) {
        let control = self.control();
        if let (Phase::Listening(listener), Some(bound)) = (&control.phase, &control.bound) {
            listener.attend(bound, Attendance::poll);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::thread;
    use std::time::Duration;

    use quicket_testing::WakeCount;

    use super::*;
    use crate::core::WaiterId;

    #[test]
    fn one_of_many_begins_and_nobody_who_does_not_wait_waits() {
        let claim = Claim::default();
        assert_eq!(claim.begin(), Ok(true));
        assert_eq!(claim.begin(), Ok(false));
        assert!(!claim.begin_for_poll());
        assert_eq!(claim.wait(Patience::None), Err(Errno::EAGAIN));
        let soon = Instant::now() + Duration::from_millis(5);
        assert_eq!(claim.wait(Patience::Until(Some(soon))), Err(Errno::EAGAIN));
        assert!(claim.end(Ok(())));
        assert_eq!(claim.wait(Patience::None), Ok(()));
    }

    #[test]
    fn who_polls_is_woken_and_leaves_what_went_wrong_to_accept() {
        let (claim, count) = (Claim::default(), Arc::new(WakeCount::default()));
        let waker = Waker::from(Arc::clone(&count));
        let waiter = Waiter::task(WaiterId::unique(), &waker);
        assert!(claim.is_readable(Some(waiter)), "accept would begin it");
        assert!(claim.begin_for_poll());
        assert!(!claim.is_readable(Some(waiter)));
        assert!(claim.end(Err(Errno::EADDRINUSE)));
        assert_eq!(count.get(), 1);
        assert!(claim.is_readable(Some(waiter)));
        assert!(!claim.begin_for_poll());
        assert_eq!(claim.begin(), Err(Errno::EADDRINUSE));
        assert_eq!(claim.begin(), Ok(true), "it is told once");
    }

    #[test]
    fn a_thread_that_waits_hears_how_it_ends() {
        let claim = Claim::default();
        assert_eq!(claim.begin(), Ok(true));
        thread::scope(|scope| {
            let waits = scope.spawn(|| claim.wait(Patience::Until(None)));
            claim.end(Err(Errno::ETIMEDOUT));
            assert_eq!(waits.join().unwrap(), Err(Errno::ETIMEDOUT));
        });
    }

    #[test]
    fn a_thread_that_panics_ends_it() {
        let claim = Claim::default();
        assert_eq!(claim.begin(), Ok(true));
        thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let _unfinished = Unfinished(&claim);
                panic!("on purpose");
            });
            panics.join().unwrap_err();
        });
        assert_eq!(claim.wait(Patience::Until(None)), Err(Errno::EIO));
    }
}
