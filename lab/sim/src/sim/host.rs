//! A host: an endpoint, its connections, their applications.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::Waker;

use quicket_engine::crypto::CryptoProvider;
use quicket_engine::random::Random;
use quicket_engine::time::{Duration, Time};
use quicket_engine::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, Endpoint, EndpointConfig,
    EndpointEvent, Event, Route, ServerConfig, Transmit, TransmitStatus,
};
use quicket_wire::{EcnCodepoint, Side};

use super::checks::{AddressBook, Note, Notes, TimerCheck, Watcher};
use crate::app::{App, AppContext, Tally};
use crate::datagram::Datagram;
use crate::rng::SimRng;

/// The time of day at the origin of virtual time, in seconds since 1970.
const UNIX_SECS: u64 = 1_700_000_000;
/// Room for what one call may write.
const BUFFER: usize = 65_536;
/// How long a busy cipher is left alone.
const CIPHER_PAUSE: Duration = Duration::from_micros(20);
/// More rounds than this at one instant without an end are a spin.
const MAX_ROUNDS: usize = 10_000;

/// Makes the application of each connection that a server accepts.
pub type AppFactory = Box<dyn FnMut() -> Box<dyn App>>;

/// What a host is made of.
pub struct HostOptions {
    /// Its addresses; the first is used unless a connection says otherwise.
    pub addresses: Vec<IpAddr>,
    /// Its UDP port.
    pub port: u16,
    /// Its endpoint's configuration.
    pub endpoint: EndpointConfig,
    /// Its server's, if it is one.
    pub server: Option<ServerConfig>,
    /// Its packet protection.
    pub crypto: Arc<dyn CryptoProvider>,
    /// Makes the applications of accepted connections.
    pub apps: AppFactory,
}

/// A connection that is over.
pub struct Ended {
    /// Why it ended.
    pub error: Option<ConnectionError>,
    /// What its application did.
    pub tally: Tally,
    /// Whether its application had done all that it wanted.
    pub done: bool,
    /// Its application.
    pub app: Box<dyn App>,
    /// Everything that happened but stream events, with its time.
    pub events: Vec<(Time, Event)>,
    /// Its last statistics.
    pub stats: quicket_engine::Stats,
    /// How many timeouts it handled.
    pub timeouts: u64,
}

impl Ended {
    /// True if its handshake was completed.
    pub fn is_complete(&self) -> bool {
        self.events.iter().any(|(_, event)| *event == Event::HandshakeComplete)
    }
}

/// A connection with its application.
pub struct Session {
    /// The connection.
    pub connection: Box<Connection>,
    /// Its application.
    pub app: Box<dyn App>,
    /// Everything that happened so far but stream events, with its time.
    pub events: Vec<(Time, Event)>,
    /// Why it ended, if it has.
    pub error: Option<ConnectionError>,
    side: Side,
    rng: SimRng,
    notes: Notes,
    /// Notes about what is being written.
    unsent: Vec<Note>,
    timers: TimerCheck,
    timeout: Option<Time>,
    dirty: bool,
    /// What a busy cipher has half sealed, and when to ask again.
    half_sealed: Option<(Vec<u8>, Time)>,
}

/// Counts of what a host's endpoint did by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStats {
    /// Datagrams of no connection that were answered.
    pub replies: u64,
    /// Datagrams dropped without an answer.
    pub dropped: u64,
    /// Connection attempts that were accepted.
    pub accepted: u64,
    /// Connection attempts whose first packet was not valid.
    pub invalid: u64,
}

/// See the module.
pub struct Host {
    addresses: Vec<IpAddr>,
    port: u16,
    endpoint: Endpoint,
    is_server: bool,
    sessions: BTreeMap<ConnectionHandle, Session>,
    ended: Vec<Ended>,
    apps: AppFactory,
    rng: SimRng,
    book: AddressBook,
    stats: HostStats,
    trace: Option<String>,
    buffer: Vec<u8>,
}

impl Host {
    pub(super) fn new(options: HostOptions, rng: SimRng, trace: Option<String>) -> Self {
        let is_server = options.server.is_some();
        let server = options.server.map(Arc::new);
        let randomness = Box::new(rng.stream("endpoint"));
        Self {
            addresses: options.addresses,
            port: options.port,
            endpoint: Endpoint::new(options.endpoint, server, options.crypto, randomness),
            is_server,
            sessions: BTreeMap::new(),
            ended: Vec::new(),
            apps: options.apps,
            rng,
            book: AddressBook::default(),
            stats: HostStats::default(),
            trace,
            buffer: vec![0; BUFFER],
        }
    }

    /// Its address and port.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.addresses[0], self.port)
    }

    /// True if it accepts connections.
    pub fn is_server(&self) -> bool {
        self.is_server
    }

    /// Its connections that are not over.
    pub fn sessions(&self) -> impl Iterator<Item = (ConnectionHandle, &Session)> {
        self.sessions.iter().map(|(handle, session)| (*handle, session))
    }

    /// A connection that is not over. It is polled afterwards, for whatever the caller does to it.
    pub fn session_mut(&mut self, handle: ConnectionHandle) -> Option<&mut Session> {
        let session = self.sessions.get_mut(&handle)?;
        session.dirty = true;
        Some(session)
    }

    /// The only connection of this host that is not over.
    ///
    /// # Panics
    /// If there is none, or more than one.
    pub fn session(&mut self) -> &mut Session {
        assert_eq!(self.sessions.len(), 1, "the host has exactly one connection");
        let session = self.sessions.values_mut().next().expect("there is one");
        session.dirty = true;
        session
    }

    /// Connections that are over, in the order in which they ended.
    pub fn ended(&self) -> &[Ended] {
        &self.ended
    }

    /// What its endpoint did by itself.
    pub fn stats(&self) -> &HostStats {
        &self.stats
    }

    /// Its endpoint.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Forgets all connections, as when the process dies.
    pub fn crash(&mut self) {
        for (handle, _) in std::mem::take(&mut self.sessions) {
            self.endpoint.handle_event(handle, EndpointEvent::Drained);
        }
    }

    pub(super) fn connect(
        &mut self,
        now: Time,
        config: ClientConfig,
        remote: SocketAddr,
        app: Box<dyn App>,
    ) -> Result<ConnectionHandle, String> {
        let local = Some(self.address());
        let (handle, connection) = self
            .endpoint
            .connect(now, config, remote, local, "sim.example")
            .map_err(|error| format!("connect: {error}"))?;
        self.add(handle, connection, Side::Client, app);
        Ok(handle)
    }

    fn add(
        &mut self,
        handle: ConnectionHandle,
        mut connection: Box<Connection>,
        side: Side,
        app: Box<dyn App>,
    ) {
        let trace = self.trace.as_ref().map(|name| format!("{name}/{}", handle.0));
        let notes = Notes::default();
        let watcher = Watcher { notes: notes.clone(), trace };
        connection.set_observer(Some(Box::new(watcher)));
        let rng = SimRng::new(self.rng.next_u64());
        let session = Session {
            connection,
            app,
            events: Vec::new(),
            error: None,
            side,
            rng,
            notes,
            unsent: Vec::new(),
            timers: TimerCheck::default(),
            timeout: None,
            dirty: true,
            half_sealed: None,
        };
        self.sessions.insert(handle, session);
    }

    /// Takes in a datagram; answers of the endpoint itself go to `out`.
    pub(super) fn receive(
        &mut self,
        now: Time,
        mut datagram: Datagram,
        out: &mut Vec<Datagram>,
    ) -> Result<(), String> {
        let (remote, local) = (datagram.src, datagram.dst);
        self.book.received(remote, datagram.payload.len());
        let mut incoming = quicket_engine::Datagram {
            remote,
            local: Some(local),
            ecn: datagram.ecn,
            data: &mut datagram.payload,
        };
        let unix_secs = UNIX_SECS + now.as_nanos() / 1_000_000_000;
        let mut reply = Vec::new();
        match self.endpoint.route(now, unix_secs, &mut incoming, &mut reply) {
            Route::Connection(handle) => {
                let Some(session) = self.sessions.get_mut(&handle) else {
                    return Err(format!("a datagram was routed to {handle:?}, which is gone"));
                };
                let peer = session.connection.remote();
                session.connection.handle_datagram(now, &mut incoming);
                session.timers.progress();
                session.dirty = true;
                self.book.after_receiving(remote, peer, &session.take_notes());
            }
            Route::Incoming(attempt) => {
                if attempt.address_validated() {
                    self.book.validated(remote);
                }
                match self.endpoint.accept(now, attempt, None) {
                    Ok((handle, connection)) => {
                        self.stats.accepted += 1;
                        let app = (self.apps)();
                        self.add(handle, connection, Side::Server, app);
                    }
                    Err(_) => self.stats.invalid += 1,
                }
            }
            Route::Reply => {
                self.stats.replies += 1;
                self.check_sent(remote, reply.len(), &[])?;
                let (src, dst) = (local, remote);
                out.push(Datagram { src, dst, ecn: EcnCodepoint::NotEct, payload: reply });
            }
            // Attempts are decided about at once here.
            Route::Waiting | Route::Elsewhere(_) | Route::Dropped(_) => self.stats.dropped += 1,
        }
        Ok(())
    }

    fn check_sent(&mut self, remote: SocketAddr, len: usize, notes: &[Note]) -> Result<(), String> {
        // Clients choose whom they speak to; only servers can be made to amplify.
        if self.is_server { self.book.sent(remote, len, notes) } else { Ok(()) }
    }

    /// Handles the timeouts that are due.
    pub(super) fn handle_timeouts(&mut self, now: Time) -> Result<(), String> {
        for session in self.sessions.values_mut() {
            // What the timer wants to send cannot go out before what is half sealed.
            let busy = session.half_sealed.as_ref().is_some_and(|(_, at)| *at > now);
            if !busy && session.timeout.is_some_and(|at| at <= now) {
                session.timers.fired(now)?;
                session.connection.handle_timeout(now);
                session.dirty = true;
            }
            session.dirty |= session.app_time().is_some_and(|at| at <= now);
            session.dirty |= session.half_sealed.as_ref().is_some_and(|(_, at)| *at <= now);
        }
        Ok(())
    }

    /// Handshakes and ciphers may have something to say that they had not before.
    pub(super) fn wake(&mut self, now: Time) {
        for session in self.sessions.values_mut() {
            session.connection.handshake_progressed(now);
            session.connection.handle_timeout(now);
            session.dirty = true;
        }
    }

    /// When to call again if nothing arrives.
    pub(super) fn next_time(&self) -> Option<Time> {
        let next = |session: &Session| match &session.half_sealed {
            Some((_, at)) => Some(*at),
            None => session.timeout.into_iter().chain(session.app_time()).min(),
        };
        self.sessions.values().filter_map(next).min()
    }

    /// Lets connections that were touched do what they want to do now.
    pub(super) fn settle(&mut self, now: Time, out: &mut Vec<Datagram>) -> Result<bool, String> {
        let handles: Vec<ConnectionHandle> =
            self.sessions.iter().filter(|(_, s)| s.dirty).map(|(handle, _)| *handle).collect();
        let touched = !handles.is_empty();
        for handle in handles {
            self.settle_one(now, handle, out)
                .map_err(|error| format!("{:?} {error}", self.describe(handle)))?;
        }
        Ok(touched)
    }

    fn describe(&self, handle: ConnectionHandle) -> String {
        let side = self.sessions.get(&handle).map(|session| session.side);
        format!("{side:?} {}", handle.0)
    }

    fn settle_one(
        &mut self,
        now: Time,
        handle: ConnectionHandle,
        out: &mut Vec<Datagram>,
    ) -> Result<(), String> {
        let mut rounds = 0;
        loop {
            rounds += 1;
            if rounds > MAX_ROUNDS {
                return Err("spin: there is something new to do without an end".to_owned());
            }
            let Some(session) = self.sessions.get_mut(&handle) else { return Ok(()) };
            session.dirty = false;
            // Of packets that had to wait.
            let peer = session.connection.remote();
            self.book.after_receiving(peer, peer, &session.take_notes());
            session.run_app(now)?;
            let mut drained = false;
            while let Some(event) = session.connection.poll_endpoint_event() {
                drained |= event == EndpointEvent::Drained;
                self.endpoint.handle_event(handle, event);
            }
            if drained {
                return self.bury(handle);
            }
            if !self.transmit(now, handle, out)? {
                break;
            }
        }
        let Some(session) = self.sessions.get_mut(&handle) else { return Ok(()) };
        session.timeout = session.connection.poll_timeout();
        Ok(())
    }

    /// One call of `poll_transmit`; true if there was something to send.
    fn transmit(
        &mut self,
        now: Time,
        handle: ConnectionHandle,
        out: &mut Vec<Datagram>,
    ) -> Result<bool, String> {
        let Some(session) = self.sessions.get_mut(&handle) else { return Ok(false) };
        let segments = session.rng.between(1, 12) as usize;
        let mut half_sealed = session.half_sealed.take();
        if half_sealed.as_ref().is_some_and(|(_, at)| *at > now) {
            session.half_sealed = half_sealed;
            return Ok(false);
        }
        let buffer = half_sealed.as_mut().map_or(&mut self.buffer, |(buffer, _)| buffer);
        match session.connection.poll_transmit(now, buffer, segments) {
            TransmitStatus::Idle => Ok(false),
            TransmitStatus::NotYet => {
                session.half_sealed = Some((buffer.clone(), now + CIPHER_PAUSE));
                Ok(false)
            }
            TransmitStatus::Ready(transmit) => {
                session.timers.progress();
                let payload = buffer.get(..transmit.len).unwrap_or(&[]).to_vec();
                session.take_notes();
                let unsent = std::mem::take(&mut session.unsent);
                self.send(&transmit, &payload, &unsent, out)?;
                Ok(true)
            }
        }
    }

    /// Cuts what was written into datagrams.
    fn send(
        &mut self,
        transmit: &Transmit,
        bytes: &[u8],
        notes: &[Note],
        out: &mut Vec<Datagram>,
    ) -> Result<(), String> {
        if bytes.is_empty() || bytes.len() != transmit.len || transmit.segment_size == 0 {
            return Err(format!("an impossible transmit: {transmit:?}"));
        }
        if let ([_, ..], Some(first)) = (notes, bytes.chunks(transmit.segment_size).next()) {
            self.book.check_expanded(transmit.remote, first.len(), self.is_server)?;
        }
        self.check_sent(transmit.remote, bytes.len(), notes)?;
        let src = transmit.local.unwrap_or(self.address());
        for payload in bytes.chunks(transmit.segment_size) {
            let (dst, ecn, payload) = (transmit.remote, transmit.ecn, payload.to_vec());
            out.push(Datagram { src, dst, ecn, payload });
        }
        Ok(())
    }

    fn bury(&mut self, handle: ConnectionHandle) -> Result<(), String> {
        let Some(session) = self.sessions.remove(&handle) else { return Ok(()) };
        if session.error.is_none() {
            return Err("the connection is drained, but never said that it closed".to_owned());
        }
        self.ended.push(Ended {
            error: session.error,
            tally: session.app.tally(),
            done: session.app.is_done(),
            app: session.app,
            events: session.events,
            stats: session.connection.stats(),
            timeouts: session.timers.total,
        });
        Ok(())
    }
}

impl Session {
    /// How many timeouts were handled.
    pub fn timeouts(&self) -> u64 {
        self.timers.total
    }

    /// Notes taken since the last call; those about packets are put aside until they are sent.
    fn take_notes(&mut self) -> Vec<Note> {
        let (unsent, others) = self.notes.take().into_iter().partition(|note| note.is_pending());
        self.unsent.extend::<Vec<Note>>(unsent);
        others
    }

    fn app_time(&self) -> Option<Time> {
        self.app.next_time().filter(|_| self.error.is_none())
    }

    /// Hands events to the application and lets it work.
    fn run_app(&mut self, now: Time) -> Result<(), String> {
        // What TLS asks of the application, such as its strike register, which answers at once.
        let mut called = false;
        while let Some(call) = self.connection.poll_deferred() {
            call(Waker::noop());
            called = true;
        }
        if called {
            self.connection.handshake_progressed(now);
        }
        for _ in 0..MAX_ROUNDS {
            let Some(event) = self.connection.poll_event() else {
                let mut cx = AppContext {
                    now,
                    side: self.side,
                    connection: &mut self.connection,
                    rng: &mut self.rng,
                };
                return self.app.poll(&mut cx);
            };
            if self.error.is_some() {
                return Err(format!("{event:?} came after the connection had closed"));
            }
            let mut cx = AppContext {
                now,
                side: self.side,
                connection: &mut self.connection,
                rng: &mut self.rng,
            };
            self.app.on_event(&mut cx, &event)?;
            match &event {
                Event::Closed(error) => self.error = Some(error.clone()),
                Event::Stream(_) => continue,
                _ => {}
            }
            self.events.push((now, event));
        }
        Err("spin: events without an end".to_owned())
    }
}
