//! Who receives: one leader at a time.
//!
//! A thread that waits in a blocking call receives for the whole endpoint meanwhile, so that the
//! answer to a request reaches it without a detour over another thread. What drives the endpoint
//! in the background (a thread, or a task of an async runtime) keeps away as long as callers do
//! its work. A leader that leaves promotes a caller that waits. All of that is decided in
//! [`machine`], under one lock; whoever is to be roused is roused after it.
//!
//! Checked by `tests/leading`, which includes this file.

mod machine;

use std::ops::ControlFlow;
use std::task::Waker;
use std::time::Instant;

use quicket_engine::time::{Duration, Time};

use super::kick::Kick;
use super::parker::{CurrentThread, Parker, Roused};
use super::sync::{Arc, Mutex, MutexGuard, PoisonError, Thread};
use machine::{Entry, Left, Machine, Party, Visit};
pub(crate) use machine::{HANDOVER, Rank};
pub(super) use machine::{Look, Shift};

/// What drives the endpoint when no caller does.
#[derive(Clone, Debug)]
pub(crate) enum Background {
    /// A thread of ours, to be unparked.
    Thread(Thread),
    /// A task, to be woken.
    Task(Waker),
}

/// What a leader works with, handed on with the seat.
pub(crate) trait Token {
    /// What is to be done by whoever leaves the seat.
    type Rest;

    /// True if there is such a thing: the leader should leave.
    fn has_rest(&self) -> bool;

    /// Takes it out.
    fn take_rest(&mut self) -> Self::Rest;

    /// Does it, when the seat is left.
    fn finish(rest: Self::Rest);
}

impl Party for Arc<Parker> {
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(self, other)
    }

    fn is_awake(&self) -> bool {
        self.is_woken()
    }
}

/// The leader's seat and the way to get hold of it.
pub(crate) struct Leadership<T: Token> {
    shared: Mutex<Shared<T>>,
    kick: Arc<Kick>,
    /// What threads have slept on that signals may wake. It belongs to the endpoint, and not to
    /// those threads: where the library is interposed, they may end outside of its calls.
    beds: Mutex<Vec<Arc<Kick>>>,
}

struct Shared<T> {
    machine: Machine<T, Arc<Parker>>,
    background: Option<Background>,
}

/// The right to receive for the endpoint. Dropping it leaves the seat.
pub(crate) struct Seat<'a, T: Token> {
    leadership: &'a Leadership<T>,
    token: Option<T>,
    /// The holder waits for an answer that may come at once.
    pub(super) spins: bool,
    /// All that the holder's last turn brought was long, and for others: it lets more come.
    pub(super) gathers: bool,
    /// The time at the end of the holder's last turn.
    pub(super) now: Time,
}

/// A place in the queue of those who wait while somebody else leads. Dropping it gives it up.
pub(crate) struct Place<'a, 't, T: Token> {
    leadership: &'a Leadership<T>,
    thread: &'t CurrentThread,
    now: Time,
}

/// Who waits, and how.
pub(super) struct Caller<'a> {
    pub(super) thread: &'a CurrentThread,
    pub(super) rank: Rank,
    pub(super) deadline: Option<Instant>,
    /// Signals end it.
    pub(super) interruptible: bool,
}

/// What came of asking for the seat.
pub(crate) enum Entrance<'a, 't, T: Token> {
    Seat(Seat<'a, T>),
    Queue(Place<'a, 't, T>),
}

impl<T: Token> Leadership<T> {
    pub(super) fn new(token: T, kick: Kick) -> Self {
        let shared = Shared { machine: Machine::new(token), background: None };
        Self { shared: Mutex::new(shared), kick: Arc::new(kick), beds: Mutex::default() }
    }

    /// What gets the leader out of its poll.
    pub(super) const fn kick(&self) -> &Arc<Kick> {
        &self.kick
    }

    /// Held for a look or a change, never while waiting.
    fn lock(&self) -> MutexGuard<'_, Shared<T>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the seat if it is vacant. Never waits.
    pub(super) fn try_enter(&self, rank: Rank, now: Time) -> Option<Seat<'_, T>> {
        let token = self.lock().machine.try_enter(rank)?;
        Some(self.seated(token, now))
    }

    /// Takes the seat if it is vacant, for a caller that receives what is there and goes on. A thread in the
    /// background, or a caller that waits for something rare, is told to leave if such callers do its work. Never
    /// waits.
    pub(super) fn visit(&self, now: Time) -> Option<Seat<'_, T>> {
        let visit = {
            let mut shared = self.lock();
            if let Some(Background::Task(_)) = shared.background {
                // It holds the seat for a moment only, and nothing would wake it.
                return shared.machine.try_enter(Rank::Eager).map(|token| self.seated(token, now));
            }
            shared.machine.visit(now)
        };
        match visit {
            Visit::Seated(token) => return Some(self.seated(token, now)),
            Visit::Refused { interrupt: true } => self.kick.kick(),
            Visit::Refused { interrupt: false } => {}
        }
        None
    }

    /// Takes the seat if it is vacant, or a place in the queue; a leader of lower rank is told to
    /// leave.
    pub(super) fn enter<'a, 't>(
        &'a self,
        rank: Rank,
        now: Time,
        thread: &'t CurrentThread,
    ) -> Entrance<'a, 't, T> {
        let entry = self.lock().machine.enter(rank, thread.parker(), now);
        match entry {
            Entry::Seated(token) => Entrance::Seat(self.seated(token, now)),
            Entry::Queued { interrupt } => {
                if interrupt {
                    self.kick.kick();
                }
                Entrance::Queue(Place { leadership: self, thread, now })
            }
        }
    }

    /// What the background's thread is to do.
    pub(super) fn drive(&self, now: Time) -> Shift<Seat<'_, T>> {
        let shift = self.lock().machine.drive(now);
        match shift {
            Shift::Seated(token) => Shift::Seated(self.seated(token, now)),
            Shift::Nap(time) => Shift::Nap(time),
            Shift::Sleep => Shift::Sleep,
        }
    }

    /// Waits as a caller: leads if nobody of its rank does, and sleeps in the queue meanwhile, after
    /// a call of `queued`. Ends when the thread is woken or `deadline` has passed, when it should
    /// not lead any more, or when `turn`, which receives, says so. True if a signal ended it.
    pub(super) fn wait(
        &self,
        caller: &Caller<'_>,
        now: Time,
        queued: impl FnOnce(),
        mut turn: impl FnMut(&mut Seat<'_, T>) -> ControlFlow<bool>,
    ) -> bool {
        let &Caller { thread, rank, deadline, interruptible } = caller;
        let mut seat = match self.enter(rank, now, thread) {
            Entrance::Seat(seat) => seat,
            Entrance::Queue(place) => {
                queued();
                match place.wait(deadline, interruptible) {
                    Ok(seat) => seat,
                    Err(roused) => return roused == Roused::Interrupted,
                }
            }
        };
        thread.set_polling(Some(Arc::clone(&self.kick)));
        let mut interrupted = false;
        while !thread.is_woken() && !seat.is_wanted() {
            if let ControlFlow::Break(by_signal) = turn(&mut seat) {
                interrupted = by_signal;
                break;
            }
        }
        thread.set_polling(None);
        interrupted
    }

    /// Works as the thread in the background until `now` has no answer. `rest` sleeps, for as long
    /// as is said or until the thread is unparked.
    pub(super) fn work(
        &self,
        now: impl Fn() -> Option<Time>,
        rest: impl Fn(Option<Duration>),
        mut turn: impl FnMut(&mut Seat<'_, T>),
    ) {
        while let Some(time) = now() {
            match self.drive(time) {
                Shift::Seated(mut seat) => {
                    while !seat.is_wanted() && now().is_some() {
                        turn(&mut seat);
                    }
                }
                Shift::Nap(time) => rest(Some(time)),
                Shift::Sleep => rest(None),
            }
        }
    }

    /// As many as threads have slept at once.
    fn beds(&self) -> MutexGuard<'_, Vec<Arc<Kick>>> {
        self.beds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_bed(&self) -> Option<Arc<Kick>> {
        let known = self.beds().pop();
        known.or_else(|| Kick::new().ok().map(Arc::new))
    }

    const fn seated(&self, token: T, now: Time) -> Seat<'_, T> {
        Seat { leadership: self, token: Some(token), spins: false, gathers: false, now }
    }

    fn leave(&self, token: T, now: Time) {
        let (left, background) = {
            let mut shared = self.lock();
            let left = shared.machine.leave(token, now);
            let background = (left.task || left.thread).then(|| shared.background.clone());
            (left, background.flatten())
        };
        let Left { promoted, task, thread } = left;
        if let Some(parker) = promoted {
            parker.summon();
        }
        match background {
            Some(Background::Thread(handle)) if thread => handle.unpark(),
            // A task hears of datagrams by edges, which went to the caller.
            Some(Background::Task(waker)) if task => waker.wake(),
            _ => {}
        }
    }

    /// See [`Machine::next_look`].
    pub(super) fn next_look(&self, now: Time) -> Look {
        self.lock().machine.next_look(now)
    }

    /// See [`Machine::plan_look`].
    pub(super) fn plan_look(&self, now: Time) -> Option<Time> {
        self.lock().machine.plan_look(now)
    }

    /// See [`Machine::has_woken`].
    pub(super) fn has_woken(&self) {
        self.lock().machine.has_woken();
    }

    /// Gets a leader of any kind to look again.
    pub(super) fn interrupt(&self) {
        let (vacant, background) = {
            let shared = self.lock();
            (shared.machine.is_vacant(), shared.background.clone())
        };
        if !vacant {
            self.kick.kick();
        }
        if let Some(Background::Task(waker)) = background {
            waker.wake();
        }
    }

    /// Gets a task that drives in the background to look again.
    pub(super) fn wake_task(&self) {
        let background = self.lock().background.clone();
        if let Some(Background::Task(waker)) = background {
            waker.wake();
        }
    }

    /// Gets whatever drives in the background to look again, for the last time.
    pub(super) fn end(&self) {
        self.interrupt();
        let background = self.lock().background.clone();
        if let Some(Background::Thread(thread)) = background {
            thread.unpark();
        }
    }

    /// Says who drives in the background.
    pub(super) fn set_background(&self, background: Option<Background>) {
        let former = std::mem::replace(&mut self.lock().background, background);
        // A waker is somebody else's: not under the lock.
        drop(former);
    }
}

impl<T: Token> Seat<'_, T> {
    /// True if the holder should leave: for somebody of higher rank, or to see to what cannot be
    /// done in the seat.
    pub(super) fn is_wanted(&self) -> bool {
        self.token.as_ref().is_some_and(Token::has_rest)
            || self.leadership.lock().machine.is_wanted()
    }

    /// What the leader works with.
    pub(super) const fn scratch(&mut self) -> Option<&mut T> {
        self.token.as_mut()
    }
}

impl<T: Token> Drop for Seat<'_, T> {
    fn drop(&mut self) {
        let Some(mut token) = self.token.take() else { return };
        let rest = token.take_rest();
        self.leadership.leave(token, self.now);
        T::finish(rest);
    }
}

impl<'a, T: Token> Place<'a, '_, T> {
    /// Sleeps until there is something to do or `deadline` has passed. With the seat, the caller
    /// was promoted.
    pub(super) fn wait(
        self,
        deadline: Option<Instant>,
        interruptible: bool,
    ) -> Result<Seat<'a, T>, Roused> {
        // Without descriptors signals go unnoticed.
        let bed = interruptible.then(|| self.leadership.take_bed()).flatten();
        let waited = self.wait_on(deadline, bed.as_ref());
        bed.into_iter().for_each(|bed| self.leadership.beds().push(bed));
        waited
    }

    fn wait_on(
        &self,
        deadline: Option<Instant>,
        bed: Option<&Arc<Kick>>,
    ) -> Result<Seat<'a, T>, Roused> {
        loop {
            match self.thread.park(deadline, bed) {
                Roused::Summoned => {
                    self.thread.reset_summons();
                    let claimed = self.leadership.lock().machine.claim(self.thread.parker());
                    if let Some(token) = claimed {
                        return Ok(self.leadership.seated(token, self.now));
                    }
                }
                roused => return Err(roused),
            }
        }
    }
}

impl<T: Token> Drop for Place<'_, '_, T> {
    fn drop(&mut self) {
        let promoted = self.leadership.lock().machine.withdraw(self.thread.parker());
        // Whoever was promoted and needs it no more passes it on.
        drop(promoted.map(|token| self.leadership.seated(token, self.now)));
    }
}
