//! Which connection a datagram belongs to, and what listens for new ones.

use std::fmt;
use std::sync::Arc;

use quicket_engine::time::Time;
use quicket_engine::{
    AcceptError, Connection, ConnectionHandle, Endpoint, EndpointEvent, Incoming,
};

use super::begun::Begun;
use super::budget::Budget;
use super::cell::{Cell, Conn, Role};
use super::network::Follow;
use super::pins::{OwnPins, Taken};
use super::reception::{Ready, Reception};
use super::switch::Switch;
use super::waiter_id::WaiterId;
use super::waiters::{Interest, Waiter, Waiters, Wakes};
use crate::config::{Admission, DecideByHello};
use crate::unencrypted::Unencrypted;

/// The part of an endpoint that connections share, behind one lock that is held only to look
/// something up.
pub(crate) struct Routing {
    pub(crate) endpoint: Endpoint,
    /// By handle.
    cells: Vec<Option<Arc<Cell>>>,
    live: usize,
    /// Clients whose connections began a moment ago.
    begun: Begun,
    /// Who listens.
    reception: Arc<Reception>,
    /// Who waits for the last connection to end.
    waiters: Waiters,
    /// What all connections may hold together.
    budget: Arc<Budget>,
    /// What leads here beside our connection IDs, where there are other workers.
    pins: Option<OwnPins>,
}

/// Why an attempt to connect made no connection.
#[derive(Debug)]
pub(super) enum NotAccepted {
    /// The engine says so.
    Engine(AcceptError),
    /// Another worker has taken this client.
    ByAnother,
    /// It has had its connection.
    Again,
}

impl fmt::Display for NotAccepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(error) => error.fmt(f),
            Self::ByAnother => f.write_str("another worker has it"),
            Self::Again => f.write_str("it has begun one already"),
        }
    }
}

/// Takes over connections of a listener whose handshake is held at the ClientHello. Called with
/// the connection locked.
pub(crate) trait Greeter: Send + Sync {
    /// A client of a worker says what it wants.
    fn on_client_hello(
        &self,
        now: Time,
        client: (usize, &Arc<Cell>),
        conn: &mut Conn,
        alpn: &[Vec<u8>],
        wakes: &mut Wakes,
    );

    /// Another program gets the clients from now on, and those on their way are here. Called without
    /// a lock.
    fn on_retired(&self);
}

/// What a listener wants.
pub(crate) struct ListenOptions {
    pub(crate) backlog: usize,
    pub(crate) admission: Admission,
    pub(crate) hello: Option<DecideByHello>,
    pub(crate) early: bool,
    pub(crate) greeter: Option<Arc<dyn Greeter>>,
    /// Whose connections are configured otherwise; the engine's configuration is that of all others.
    pub(crate) unencrypted: Option<Arc<Unencrypted>>,
}

impl Routing {
    pub(super) fn new(endpoint: Endpoint, switch: &Switch, number: usize) -> Self {
        let pins = switch.mailbox(number).map(|_| OwnPins::new(Arc::clone(&switch.pins), number));
        Self {
            endpoint,
            cells: Vec::new(),
            live: 0,
            begun: Begun::default(),
            reception: Arc::clone(&switch.reception),
            waiters: Waiters::default(),
            budget: Arc::clone(&switch.budget),
            pins,
        }
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
        self.insert_following(handle, connection, role, None)
    }

    /// The same, for one that follows this host from network to network, perhaps: from the beginning, so that no change is
    /// missed.
    pub(crate) fn insert_following(
        &mut self,
        handle: ConnectionHandle,
        mut connection: Box<Connection>,
        role: Role,
        follow: Option<Follow>,
    ) -> Arc<Cell> {
        // A capture may have ended while the connection was made, and looks for observers here.
        connection.forget_observer_that_is_done();
        let budget = Arc::clone(&self.budget);
        let cell = Arc::new(Cell::new(handle, connection, role, follow, budget));
        if self.cells.len() <= handle.0 {
            self.cells.resize_with(handle.0 + 1, || None);
        }
        if let Some(place) = self.cells.get_mut(handle.0) {
            *place = Some(Arc::clone(&cell));
            self.live += 1;
        }
        cell
    }

    /// Makes a connection of an attempt for which there is room.
    pub(super) fn accept(
        &mut self,
        now: Time,
        incoming: Incoming,
    ) -> Result<Arc<Cell>, NotAccepted> {
        let (first, remote) = (incoming.first_dcid(), incoming.remote());
        if self.begun.has(now, first, remote) {
            self.endpoint.ignore(incoming);
            return Err(NotAccepted::Again);
        }
        let taken = self.pins.as_ref().map(|pins| pins.take(first));
        if taken == Some(Taken::ByAnother) {
            self.endpoint.ignore(incoming);
            return Err(NotAccepted::ByAnother);
        }
        let unencrypted = self.reception.unencrypted();
        let config = unencrypted.and_then(|offer| offer.config(incoming.remote().ip()));
        let accepted = self.endpoint.accept(now, incoming, config);
        if let (Some(pins), Some(Taken::Now)) = (&mut self.pins, taken) {
            match &accepted {
                Ok((handle, _)) => pins.keep(first, *handle),
                Err(_) => pins.give_up(first),
            }
        }
        let (handle, engine) = accepted.map_err(NotAccepted::Engine)?;
        self.begun.add(now, first, remote);
        Ok(self.insert(handle, engine, Role::Announcing))
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
        if let Some(pins) = &mut self.pins {
            pins.on_event(handle, event);
        }
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
        self.reception.listen(options)
    }

    /// Takes no new connections, for good.
    pub(crate) fn close(&mut self, wakes: &mut Wakes) {
        self.endpoint.set_server(None);
        self.reception.wake(wakes);
    }

    /// Stops listening; returns the connections that nobody accepted.
    pub(crate) fn stop_listening(&mut self, wakes: &mut Wakes) -> Vec<Ready> {
        self.endpoint.set_server(None);
        self.reception.stop(wakes)
    }

    /// The same, but for the packets of clients, which are somebody else's and wait for him
    /// ([`Core::set_first_packets_waiting`]).
    pub(crate) fn stop_accepting(&mut self, wakes: &mut Wakes) -> Vec<Ready> {
        self.reception.stop(wakes)
    }

    /// True once there are no connections; if there are, `waiter` hears of the end of the last.
    pub(crate) fn is_idle(&mut self, waiter: Waiter<'_>) -> bool {
        let idle = self.live == 0;
        if !idle {
            self.waiters.register(Interest::Idle, waiter);
        }
        idle
    }

    /// Somebody waits no more for the last connection to end.
    pub(crate) fn unregister_idle(&mut self, id: WaiterId) {
        self.waiters.unregister(Interest::Idle, id);
    }

    /// Wakes everybody who waits for this endpoint: it is over.
    pub(crate) fn wake_all(&mut self, wakes: &mut Wakes) {
        self.waiters.wake_all(wakes);
    }
}
