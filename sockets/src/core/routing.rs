//! Which connection a datagram belongs to, and what listens for new ones.

use std::collections::VecDeque;
use std::sync::Arc;

use quicket_engine::time::Time;
use quicket_engine::{Connection, ConnectionHandle, Endpoint, EndpointEvent};

use super::admission::Desk;
use super::budget::Budget;
use super::cell::{Cell, Conn, Role};
use super::parker::CurrentThread;
use super::waiter_id::WaiterId;
use super::waiters::{Interest, Waiter, Waiters, Wakes};
use crate::config::Admission;

/// The part of an endpoint that connections share, behind one lock that is held only to look
/// something up.
pub(crate) struct Routing {
    pub(crate) endpoint: Endpoint,
    /// By handle.
    cells: Vec<Option<Arc<Cell>>>,
    live: usize,
    pub(crate) listener: Option<Listening>,
    /// Who waits for a connection to accept, or for the last one to end.
    waiters: Waiters,
    /// What all connections may hold together.
    budget: Arc<Budget>,
}

/// A listener's state.
pub(crate) struct Listening {
    /// Connections that nobody has accepted yet.
    ready: VecDeque<Arc<Cell>>,
    /// How many handshakes are under way.
    handshaking: usize,
    /// How many of both together there may be.
    backlog: usize,
    /// Decides about attempts.
    pub(super) admission: Admission,
    /// Where the application does, since it was asked first.
    pub(super) desk: Option<Desk>,
    /// Connections are handed out as soon as early data can be read.
    pub(crate) early: bool,
    /// Who gets connections at their ClientHello, in place of the listener.
    pub(crate) greeter: Option<Arc<dyn Greeter>>,
}

/// Takes over connections of a listener whose handshake is held at the ClientHello. Called with
/// the connection locked.
pub(crate) trait Greeter: Send + Sync {
    /// A client says what it wants.
    fn on_client_hello(
        &self,
        now: Time,
        cell: &Arc<Cell>,
        conn: &mut Conn,
        alpn: &[Vec<u8>],
        wakes: &mut Wakes,
    );
}

/// What a listener wants.
pub(crate) struct ListenOptions {
    pub(crate) backlog: usize,
    pub(crate) admission: Admission,
    pub(crate) early: bool,
    pub(crate) greeter: Option<Arc<dyn Greeter>>,
}

impl Routing {
    pub(crate) fn new(endpoint: Endpoint, budget: Arc<Budget>) -> Self {
        let (cells, waiters) = (Vec::new(), Waiters::default());
        Self { endpoint, cells, live: 0, listener: None, waiters, budget }
    }

    /// How many connections there are, ending ones included.
    pub(crate) const fn live(&self) -> usize {
        self.live
    }

    pub(crate) fn find(&self, handle: ConnectionHandle) -> Option<&Arc<Cell>> {
        self.cells.get(handle.0)?.as_ref()
    }

    /// All connections there are now.
    pub(crate) fn all(&self) -> Vec<Arc<Cell>> {
        self.cells.iter().flatten().cloned().collect()
    }

    /// Gives a new connection its place.
    pub(crate) fn insert(
        &mut self,
        handle: ConnectionHandle,
        connection: Box<Connection>,
        role: Role,
    ) -> Arc<Cell> {
        if role == Role::Announcing
            && let Some(listener) = &mut self.listener
        {
            listener.handshaking += 1;
        }
        let cell = Arc::new(Cell::new(handle, connection, role, Arc::clone(&self.budget)));
        if self.cells.len() <= handle.0 {
            self.cells.resize_with(handle.0 + 1, || None);
        }
        if let Some(place) = self.cells.get_mut(handle.0) {
            *place = Some(Arc::clone(&cell));
            self.live += 1;
        }
        cell
    }

    /// Takes note of what a connection says; true if it is gone.
    pub(crate) fn handle_event(
        &mut self,
        handle: ConnectionHandle,
        event: EndpointEvent,
        wakes: &mut Wakes,
    ) -> bool {
        let drained = event == EndpointEvent::Drained;
        self.endpoint.handle_event(handle, event);
        if drained
            && let Some(place) = self.cells.get_mut(handle.0)
            && place.take().is_some()
        {
            self.live -= 1;
            if self.live == 0 {
                self.waiters.wake(Interest::Idle, wakes);
            }
        }
        drained
    }

    /// Starts to listen; false if somebody does already.
    pub(crate) fn listen(&mut self, options: ListenOptions) -> bool {
        let ListenOptions { backlog, admission, early, greeter } = options;
        let free = self.listener.is_none();
        if free {
            let ready = VecDeque::new();
            self.listener = Some(Listening {
                ready,
                handshaking: 0,
                backlog,
                admission,
                desk: None,
                early,
                greeter,
            });
        }
        free
    }

    /// Takes no new connections, for good.
    pub(crate) fn close(&mut self, wakes: &mut Wakes) {
        self.endpoint.set_server(None);
        self.waiters.wake(Interest::Incoming, wakes);
    }

    /// Stops listening; returns the connections that nobody accepted.
    pub(crate) fn stop_listening(&mut self, wakes: &mut Wakes) -> Vec<Arc<Cell>> {
        self.endpoint.set_server(None);
        self.waiters.wake(Interest::Incoming, wakes);
        self.listener.take().map(|listener| listener.ready.into()).unwrap_or_default()
    }

    /// The next connection for the application; `None` if there is none yet, and then `waiter`
    /// hears of the next.
    pub(crate) fn accept(&mut self, waiter: Option<Waiter<'_>>) -> Option<Arc<Cell>> {
        let next = self.listener.as_mut().and_then(|listener| listener.ready.pop_front());
        if let (None, Some(waiter)) = (&next, waiter) {
            self.waiters.register(Interest::Incoming, waiter);
        }
        next
    }

    /// True once there are no connections; if there are, `waiter` hears of the end of the last.
    pub(crate) fn is_idle(&mut self, waiter: Waiter<'_>) -> bool {
        let idle = self.live == 0;
        if !idle {
            self.waiters.register(Interest::Idle, waiter);
        }
        idle
    }

    /// Somebody waits no more. If that one was woken for a connection and did not take it, another
    /// is.
    pub(crate) fn unregister(&mut self, interest: Interest, id: WaiterId, wakes: &mut Wakes) {
        self.waiters.unregister(interest, id);
        let is_ready = self.listener.as_ref().is_some_and(|listener| !listener.ready.is_empty());
        if interest == Interest::Incoming && is_ready {
            self.waiters.wake_one(interest, None, wakes);
        }
    }

    /// A connection of the listener is ready for the application.
    pub(crate) fn on_ready(&mut self, cell: &Arc<Cell>, wakes: &mut Wakes) -> bool {
        self.on_settled();
        let Some(listener) = &mut self.listener else { return false };
        listener.ready.push_back(Arc::clone(cell));
        // A leader that waits for connections itself goes on without a detour over others.
        let this = CurrentThread::get().id();
        self.waiters.wake_one(Interest::Incoming, Some(this), wakes);
        true
    }

    /// A connection is no longer among the handshakes of the listener: it is ready, has failed, or
    /// was handed over.
    pub(crate) fn on_settled(&mut self) {
        if let Some(listener) = &mut self.listener {
            listener.handshaking = listener.handshaking.saturating_sub(1);
        }
    }

    /// Wakes everybody who waits for this endpoint: it is over.
    pub(crate) fn wake_all(&mut self, wakes: &mut Wakes) {
        self.waiters.wake_all(wakes);
    }
}

impl Listening {
    /// True if another connection fits.
    pub(crate) fn has_room(&self) -> bool {
        self.ready.len() + self.handshaking < self.backlog
    }
}
