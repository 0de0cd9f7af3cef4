//! Blocking calls: whoever waits drives the endpoint meanwhile, if nobody else does.

use std::time::Instant;

use std::task::Poll;

use super::Core;
use super::lead::Rank;
use super::parker::CurrentThread;
use super::waiters::Waiter;

impl Core {
    /// Polls until there is an answer or `deadline` has passed (`None`).
    pub(crate) fn block_on<T>(
        &self,
        rank: Rank,
        deadline: Option<Instant>,
        poll: impl FnMut(Waiter<'_>) -> Poll<T>,
    ) -> Option<T> {
        self.wait_until(rank, false, deadline, poll)
    }

    /// Like [`Core::block_on`], for something that the peer may answer at once.
    pub(crate) fn block_on_answer<T>(
        &self,
        deadline: Option<Instant>,
        poll: impl FnMut(Waiter<'_>) -> Poll<T>,
    ) -> Option<T> {
        self.wait_until(Rank::Eager, true, deadline, poll)
    }

    fn wait_until<T>(
        &self,
        rank: Rank,
        spins: bool,
        deadline: Option<Instant>,
        mut poll: impl FnMut(Waiter<'_>) -> Poll<T>,
    ) -> Option<T> {
        let thread = CurrentThread::get();
        loop {
            thread.reset();
            if let Poll::Ready(answer) = poll(thread.waiter()) {
                return Some(answer);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return None;
            }
            self.wait_as(rank, spins, &thread, deadline);
        }
    }

    /// Waits until the thread is woken or the deadline has passed, or somebody more urgent wants
    /// to lead.
    fn wait_as(&self, rank: Rank, spins: bool, thread: &CurrentThread, deadline: Option<Instant>) {
        let Some(mut seat) = self.lead.take(rank, self.clock.now()) else {
            thread.park(deadline);
            return;
        };
        seat.spins = spins;
        let limit = deadline.map(|deadline| self.clock.time_of(deadline));
        thread.set_leading(Some(self.lead.kick().clone()));
        while !thread.is_woken() && !seat.is_wanted() {
            self.turn(&mut seat, limit);
            if limit.is_some_and(|limit| seat.now >= limit) {
                break;
            }
        }
        thread.set_leading(None);
    }
}
