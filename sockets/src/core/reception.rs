//! Who listens, and the connections that wait to be accepted: of all workers of an endpoint.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use quicket_engine::Incoming;

use super::Core;
use super::admission::Desk;
use super::cell::Cell;
use super::parker::CurrentThread;
use super::routing::{Greeter, ListenOptions};
use super::waiter_id::WaiterId;
use super::waiters::{Interest, Waiter, Waiters, Wakes};
use crate::config::{Admission, DecideByHello};
use crate::unencrypted::Unencrypted;

/// A connection with the number of the worker that owns it.
pub(crate) type Ready = (usize, Arc<Cell>);

/// Where the workers of an endpoint bring connections, and the application takes them. Locked under a
/// connection or [`Routing`](super::routing::Routing), for a look or a change.
#[derive(Default)]
pub(crate) struct Reception {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    listening: Option<Listening>,
    /// Somebody has listened.
    was_found: bool,
    waiters: Waiters,
}

/// A listener's state.
struct Listening {
    options: ListenOptions,
    /// Connections that nobody has accepted yet.
    ready: VecDeque<Ready>,
    /// How many handshakes are under way.
    handshaking: usize,
    /// Where the application decides about attempts, since it was asked first.
    desk: Option<Desk>,
}

impl Reception {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to listen; false if somebody does already.
    pub(super) fn listen(&self, options: ListenOptions) -> bool {
        let mut state = self.lock();
        let free = state.listening.is_none();
        state.was_found = true;
        if free {
            let ready = VecDeque::new();
            state.listening = Some(Listening { options, ready, handshaking: 0, desk: None });
        }
        free
    }

    /// True if somebody listens or has listened: others may know the address.
    pub(super) fn was_found(&self) -> bool {
        self.lock().was_found
    }

    /// Stops listening; returns the connections that nobody accepted.
    pub(super) fn stop(&self, wakes: &mut Wakes) -> Vec<Ready> {
        let mut state = self.lock();
        state.waiters.wake(Interest::Incoming, wakes);
        let listening = state.listening.take();
        drop(state);
        listening.map(|listening| listening.ready.into()).unwrap_or_default()
    }

    /// Has those who wait for a connection look again.
    pub(super) fn wake(&self, wakes: &mut Wakes) {
        self.lock().waiters.wake(Interest::Incoming, wakes);
    }

    /// Who decides about attempts, if there is a listener.
    pub(super) fn admission(&self) -> Option<Admission> {
        self.lock().listening.as_ref().map(|listening| listening.options.admission.clone())
    }

    /// Who decides about clients by what they ask for.
    pub(super) fn hello(&self) -> Option<DecideByHello> {
        self.lock().listening.as_ref()?.options.hello.clone()
    }

    /// Whose connections are not as those of all others, if there is a listener.
    pub(super) fn unencrypted(&self) -> Option<Arc<Unencrypted>> {
        self.lock().listening.as_ref()?.options.unencrypted.clone()
    }

    /// Leaves an attempt to the application, whose decision goes to `core`. Returned if there is
    /// nobody who decides.
    pub(super) fn submit(
        &self,
        core: &Weak<Core>,
        incoming: Incoming,
        admission: &Admission,
    ) -> Option<Incoming> {
        let has_desk = |state: &State| state.listening.as_ref().is_some_and(|l| l.desk.is_some());
        let mut state = self.lock();
        if !has_desk(&state) {
            drop(state);
            let desk = Desk::open(admission.clone());
            let desk = desk.map_err(|error| log::warn!("no thread decides about clients: {error}"));
            state = self.lock();
            // Another worker may have opened one meanwhile.
            if let Some(listening) = &mut state.listening
                && listening.desk.is_none()
            {
                listening.desk = desk.ok();
            }
        }
        match state.listening.as_ref().and_then(|listening| listening.desk.as_ref()) {
            Some(desk) => desk.submit(core, incoming),
            None => Some(incoming),
        }
    }

    /// Makes room for another connection, whose handshake begins; false if there is none, or nobody
    /// listens.
    pub(super) fn reserve(&self) -> bool {
        let mut state = self.lock();
        let Some(listening) = &mut state.listening else { return false };
        let fits = listening.ready.len() + listening.handshaking < listening.options.backlog;
        listening.handshaking += usize::from(fits);
        fits
    }

    /// A connection is no longer among the handshakes of the listener: it is ready, has failed, or
    /// was handed over.
    pub(super) fn on_settled(&self) {
        if let Some(listening) = &mut self.lock().listening {
            listening.settle();
        }
    }

    /// Who takes connections over at their ClientHello, in place of the listener.
    pub(super) fn greeter(&self) -> Option<Arc<dyn Greeter>> {
        self.lock().listening.as_ref().and_then(|listening| listening.options.greeter.clone())
    }

    /// A connection is ready for the application; false if nobody listens.
    pub(super) fn on_ready(&self, worker: usize, cell: &Arc<Cell>, wakes: &mut Wakes) -> bool {
        self.announce(worker, cell, |_| true, wakes)
    }

    /// The same for one that has early data, if the listener wants those.
    pub(super) fn on_early(&self, worker: usize, cell: &Arc<Cell>, wakes: &mut Wakes) -> bool {
        self.announce(worker, cell, |options| options.early, wakes)
    }

    fn announce(
        &self,
        worker: usize,
        cell: &Arc<Cell>,
        wanted: impl Fn(&ListenOptions) -> bool,
        wakes: &mut Wakes,
    ) -> bool {
        let mut state = self.lock();
        let State { listening, waiters, .. } = &mut *state;
        let Some(listening) = listening.as_mut().filter(|listening| wanted(&listening.options))
        else {
            return false;
        };
        listening.settle();
        listening.ready.push_back((worker, Arc::clone(cell)));
        // A leader that waits for connections itself goes on without a detour over others.
        let this = CurrentThread::get().id();
        waiters.wake_one(Interest::Incoming, Some(this), wakes);
        true
    }

    /// True while handshakes are under way, or connections wait to be accepted.
    pub(super) fn is_busy(&self) -> bool {
        let state = self.lock();
        let listening = state.listening.as_ref();
        listening.is_some_and(|listening| listening.handshaking > 0 || !listening.ready.is_empty())
    }

    /// The next connection for the application; `None` if there is none yet, and then `waiter`
    /// hears of the next.
    pub(super) fn accept(&self, waiter: Option<Waiter<'_>>) -> Option<Ready> {
        let mut state = self.lock();
        let next = state.listening.as_mut().and_then(|listening| listening.ready.pop_front());
        if let (None, Some(waiter)) = (&next, waiter) {
            state.waiters.register(Interest::Incoming, waiter);
        }
        next
    }

    /// Somebody waits no more. If that one was woken for a connection and did not take it, another
    /// is.
    pub(super) fn unregister(&self, id: WaiterId, wakes: &mut Wakes) {
        let mut state = self.lock();
        state.waiters.unregister(Interest::Incoming, id);
        if state.listening.as_ref().is_some_and(|listening| !listening.ready.is_empty()) {
            state.waiters.wake_one(Interest::Incoming, None, wakes);
        }
    }
}

impl Listening {
    fn settle(&mut self) {
        self.handshaking = self.handshaking.saturating_sub(1);
    }
}
