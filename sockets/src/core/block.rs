//! Blocking calls: whoever waits drives the endpoint meanwhile, if nobody else does.

use std::ops::ControlFlow;
use std::task::Poll;
use std::time::Instant;

use quicket_handshake::SystemRandom;

use super::Core;
use super::held::assert_none_held;
use super::lead::{Caller, Rank};
use super::parker::CurrentThread;
use super::postpone::Whose;
use super::waiters::{Waiter, Wakes};

/// Why a wait ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// The time is up.
    Late,
    /// The thread has handled a signal.
    Interrupted,
}

/// How a thread waits.
#[derive(Clone, Copy)]
struct Manner {
    rank: Rank,
    /// Watches the socket for a moment first.
    spins: bool,
    /// Signals end it.
    interruptible: bool,
}

impl Core {
    /// Polls until there is an answer or `deadline` has passed (`None`).
    pub(crate) fn block_on<T>(
        &self,
        rank: Rank,
        deadline: Option<Instant>,
        poll: impl FnMut(Waiter<'_>) -> Poll<T>,
    ) -> Option<T> {
        let manner = Manner { rank, spins: false, interruptible: false };
        self.wait_until(manner, deadline, poll).ok()
    }

    /// Like [`Core::block_on`], until a signal is handled by this thread while it sleeps. One
    /// that comes just before is not noticed.
    pub(crate) fn block_on_unless_interrupted<T>(
        &self,
        rank: Rank,
        deadline: Option<Instant>,
        poll: impl FnMut(Waiter<'_>) -> Poll<T>,
    ) -> Result<T, GivenUp> {
        let manner = Manner { rank, spins: false, interruptible: true };
        self.wait_until(manner, deadline, poll)
    }

    /// Like [`Core::block_on`], for something that the peer may answer at once.
    pub(crate) fn block_on_answer<T>(
        &self,
        deadline: Option<Instant>,
        poll: impl FnMut(Waiter<'_>) -> Poll<T>,
    ) -> Option<T> {
        let manner = Manner { rank: Rank::Eager, spins: true, interruptible: false };
        self.wait_until(manner, deadline, poll).ok()
    }

    fn wait_until<T>(
        &self,
        manner: Manner,
        deadline: Option<Instant>,
        mut poll: impl FnMut(Waiter<'_>) -> Poll<T>,
    ) -> Result<T, GivenUp> {
        // Now, and not when this thread must lead: the process may be about to end then.
        SystemRandom::prepare_thread();
        let thread = CurrentThread::get();
        let mut interrupted = false;
        loop {
            thread.reset();
            if let Poll::Ready(answer) = poll(Waiter::thread(&thread)) {
                return Ok(answer);
            }
            if interrupted {
                return Err(GivenUp::Interrupted);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(GivenUp::Late);
            }
            assert_none_held();
            interrupted = self.wait_as(manner, &thread, deadline);
        }
    }

    /// Waits until the thread is woken or the deadline has passed, or until it should not lead any
    /// more; true if a signal ended it.
    fn wait_as(&self, manner: Manner, thread: &CurrentThread, deadline: Option<Instant>) -> bool {
        let limit = deadline.map(|deadline| self.clock.time_of(deadline));
        let Manner { rank, spins, interruptible } = manner;
        let caller = Caller { thread, rank, deadline, interruptible };
        let queued = || {
            // The answer may depend on what this thread has left for later.
            let mut wakes = Wakes::default();
            self.catch_up(self.clock.now(), Whose::Own, &mut wakes);
            wakes.fire();
        };
        self.lead.wait(&caller, self.clock.now(), queued, |seat| {
            seat.spins = spins;
            let interrupted = self.turn(seat, limit) && interruptible;
            if interrupted || limit.is_some_and(|limit| seat.now >= limit) {
                return ControlFlow::Break(interrupted);
            }
            ControlFlow::Continue(())
        })
    }
}
