//! The socket: its states and how it changes between them.

mod address;
mod claim;
mod handshake;
mod inherit;
mod options;
mod poll;
mod receive;
mod send;
mod setup;
mod steward;
mod streams;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

pub use inherit::Heir;
pub use poll::{PollId, PollState};
pub use steward::Steward;

use super::bound::Bound;
use super::errno::Errno;
use super::hub::ListenQueue;
use super::ledger::Ledger;
use super::settings::Settings;
use crate::core::{Conn, ConnRef, Core, GivenUp, Rank, Waiter};
use inherit::{Inheritance, Inherited};

/// A QUIC socket that sends and receives messages.
///
/// Clones are the same socket. When the last one is dropped, the connection is closed as
/// [`Socket::shutdown`] does.
#[derive(Clone)]
pub struct Socket {
    shared: Arc<Shared>,
}

struct Shared {
    /// Listening begins and ends one at a time, the switch's answers included. Taken before `Control`.
    turn: Mutex<()>,
    control: Mutex<Control>,
    ledger: Arc<Ledger>,
    nonblocking: AtomicBool,
    interruptible: AtomicBool,
}

/// What is decided call by call. Locked before everything else but the turn to listen; nobody waits under it,
/// and nobody is woken.
struct Control {
    settings: Settings,
    is_v6: bool,
    bound: Option<Bound>,
    phase: Phase,
    /// A listener that other processes may have, too.
    inheritance: Option<Inheritance>,
    /// What the switch said when it refused something last.
    refusal: Option<String>,
}

/// APPLICATION_ERROR (RFC 9000, Section 20.1).
const APPLICATION_ERROR: u32 = 0x0c;

/// What the socket is there for.
enum Phase {
    /// Nothing yet, or nothing any more.
    Idle,
    Listening(Arc<ListenQueue>),
    /// A listener of the process from which this one was forked, which was not used here yet.
    Inherited(Arc<Inherited>),
    Connection(Session),
}

/// A connection as its socket has it.
#[derive(Clone)]
struct Session {
    conn: ConnRef,
    is_server: bool,
    /// The handshake has begun: parameters are announced.
    begun: bool,
    /// Server: where clients should move.
    preferred: Option<SocketAddr>,
}

/// States of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Listening,
    Establishing,
    Established,
}

/// Which way to shut down; see [`Socket::shutdown`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// SHUT_RD
    Read,
    /// SHUT_WR
    Write,
    /// SHUT_RDWR
    Both,
}

/// The state of a connection, as the program has heard of it: while another thread receives, the
/// connection can know of its end before anything is told of it.
fn state_of(conn: &Conn) -> State {
    if conn.ended.is_some() {
        State::Closed
    } else if conn.established || conn.engine.is_established() {
        State::Established
    } else {
        State::Establishing
    }
}

impl Control {
    fn state(&self) -> State {
        match &self.phase {
            Phase::Idle => State::Closed,
            Phase::Listening(_) | Phase::Inherited(_) => State::Listening,
            Phase::Connection(session) => session.conn.look(|conn| state_of(conn)),
        }
    }

    /// True for listeners and what they accepted.
    const fn is_server(&self) -> bool {
        match &self.phase {
            Phase::Idle => false,
            Phase::Listening(_) | Phase::Inherited(_) => true,
            Phase::Connection(session) => session.is_server,
        }
    }

    /// The connection, or `error` if there is none.
    const fn session(&self, error: Errno) -> Result<&Session, Errno> {
        match &self.phase {
            Phase::Connection(session) => Ok(session),
            Phase::Idle | Phase::Listening(_) | Phase::Inherited(_) => Err(error),
        }
    }
}

impl Socket {
    /// A socket for IPv4.
    #[must_use]
    pub fn new_v4() -> Self {
        Self::new(false)
    }

    /// A socket for IPv6; bound to `[::]` it serves both.
    #[must_use]
    pub fn new_v6() -> Self {
        Self::new(true)
    }

    fn new(is_v6: bool) -> Self {
        let settings = Settings::default();
        Self::with(settings, is_v6, (None, Phase::Idle), Arc::new(Ledger::default()))
    }

    fn with(
        settings: Settings,
        is_v6: bool,
        (bound, phase): (Option<Bound>, Phase),
        ledger: Arc<Ledger>,
    ) -> Self {
        ledger.lock().inbox.set_limit(settings.receive_buffer());
        let control = Control { settings, is_v6, bound, phase, inheritance: None, refusal: None };
        let control = Mutex::new(control);
        let (nonblocking, interruptible) = (AtomicBool::new(false), AtomicBool::new(false));
        let turn = Mutex::default();
        Self { shared: Arc::new(Shared { turn, control, ledger, nonblocking, interruptible }) }
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.shared.control()
    }

    fn ledger(&self) -> &Arc<Ledger> {
        &self.shared.ledger
    }

    /// Lets calls answer at once, as with O_NONBLOCK.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.shared.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    /// True if calls answer at once.
    #[must_use]
    pub fn is_nonblocking(&self) -> bool {
        self.shared.nonblocking.load(Ordering::Relaxed)
    }

    /// Lets a signal that the waiting thread handles end a call: EINTR, or what was done so far.
    /// One that comes just before the thread sleeps is not noticed. Without this, calls go on.
    pub fn set_interruptible(&self, interruptible: bool) {
        self.shared.interruptible.store(interruptible, Ordering::Relaxed);
    }

    /// Waits until `poll` has an answer: EAGAIN if it takes too long, EINTR for a signal if that
    /// is wanted.
    fn wait_for<T>(
        &self,
        core: &Core,
        rank: Rank,
        deadline: Option<Instant>,
        poll: impl FnMut(Waiter<'_>) -> Poll<Result<T, Errno>>,
    ) -> Result<T, Errno> {
        if !self.shared.interruptible.load(Ordering::Relaxed) {
            return core.block_on(rank, deadline, poll).unwrap_or(Err(Errno::EAGAIN));
        }
        match core.block_on_unless_interrupted(rank, deadline, poll) {
            Ok(answer) => answer,
            Err(GivenUp::Late) => Err(Errno::EAGAIN),
            Err(GivenUp::Interrupted) => Err(Errno::EINTR),
        }
    }

    /// How long sending may wait (SO_SNDTIMEO); `None` for as long as it takes.
    pub fn set_send_timeout(&self, timeout: Option<Duration>) {
        self.control().settings.send_timeout = timeout;
    }

    /// How long receiving and accepting may wait (SO_RCVTIMEO); `None` for as long as it takes.
    pub fn set_receive_timeout(&self, timeout: Option<Duration>) {
        self.control().settings.receive_timeout = timeout;
    }

    /// How many bytes may wait to be sent and acknowledged (SO_SNDBUF); counts for connections
    /// that begin later.
    pub fn set_send_buffer(&self, bytes: usize) {
        self.control().settings.send_buffer = bytes;
    }

    /// How many bytes may wait to be sent and acknowledged.
    #[must_use]
    pub fn send_buffer(&self) -> usize {
        self.control().settings.send_buffer
    }

    /// How many bytes of notifications, datagrams and TLS messages may wait to be received
    /// (SO_RCVBUF); four times max_data unless chosen. Stream data has its own limits.
    pub fn set_receive_buffer(&self, bytes: usize) {
        self.control().settings.receive_buffer = Some(bytes);
        self.ledger().lock().inbox.set_limit(bytes);
    }

    /// How many bytes of notifications, datagrams and TLS messages may wait to be received.
    #[must_use]
    pub fn receive_buffer(&self) -> usize {
        self.control().settings.receive_buffer()
    }

    /// The address of this side; that of the active path once connected, and an unspecified one
    /// with port 0 before the socket has any.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        let control = self.control();
        let of_path = match &control.phase {
            Phase::Connection(session) => session.conn.look(|conn| conn.engine.local()),
            Phase::Inherited(inherited) => Some(inherited.address()),
            Phase::Idle | Phase::Listening(_) => None,
        };
        let bound = || control.bound.as_ref().map(|bound| bound.core.local_addr());
        of_path.or_else(bound).unwrap_or_else(|| control.unspecified())
    }

    /// The address of the peer; it changes when the peer moves.
    ///
    /// # Errors
    ///
    /// ENOTCONN without a connection, and once it has ended.
    pub fn peer_addr(&self) -> Result<SocketAddr, Errno> {
        let control = self.control();
        let session = control.session(Errno::ENOTCONN)?;
        session.conn.look(|conn| match state_of(conn) {
            State::Closed => Err(Errno::ENOTCONN),
            _ => Ok(conn.engine.remote()),
        })
    }

    /// Ends the connection, whichever way it is shut down: the peer gets what was set with
    /// [`Socket::set_connection_close`]. What was written is sent as far as that goes at once.
    ///
    /// # Errors
    ///
    /// ENOTCONN without a connection, or if it has ended; on a listener, which goes on listening,
    /// EOPNOTSUPP unless `how` is [`Shutdown::Write`].
    pub fn shutdown(&self, how: Shutdown) -> Result<(), Errno> {
        let state = self.control().state();
        match (state, how) {
            (State::Closed, _) => Err(Errno::ENOTCONN),
            (State::Listening, Shutdown::Write) => Ok(()),
            (State::Listening, Shutdown::Read | Shutdown::Both) => Err(Errno::EOPNOTSUPP),
            (State::Establishing | State::Established, _) => {
                self.shared.close();
                Ok(())
            }
        }
    }

    /// Gives up an address that is shared ([`Socket::set_switch`]) because the process ends: the switch hears
    /// that the program goes in good order, and resets nobody in its place. Clients that nobody has
    /// accepted are turned away. This waits for nobody and wakes nobody: a thread that waits for clients
    /// does so until the process has ended. To be called when all connections have been
    /// [shut down](Self::shutdown).
    pub fn leave(&self) {
        let mut control = self.control();
        control.inheritance = None;
        let Some(bound) = control.bound.clone() else { return };
        let listener = match &control.phase {
            Phase::Listening(listener) => Some(Arc::clone(listener)),
            Phase::Idle | Phase::Inherited(_) | Phase::Connection(_) => None,
        };
        drop(control);
        if let Some(listener) = listener {
            listener.turn_away();
        }
        bound.core.core().leave_switch();
    }
}

impl Shared {
    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops listening, if the socket does: waits until the switch knows. The turn ends before anybody is
    /// woken, which is somebody else's code.
    fn stop_listening(&self, turn: MutexGuard<'_, ()>) {
        let mut control = self.control();
        // Before the switch looks whether another process has it.
        control.inheritance = None;
        if matches!(control.phase, Phase::Inherited(_)) {
            control.phase = Phase::Idle;
        }
        let Phase::Listening(listener) = &control.phase else { return };
        let (listener, bound) = (Arc::clone(listener), control.bound.clone());
        control.phase = Phase::Idle;
        drop(control);
        let removed = bound.map(|bound| bound.hub.unlisten(&bound.core, &listener));
        drop(turn);
        if let Some(removed) = removed {
            removed.finish();
        }
    }

    /// Closes the connection, if there is one. It stays, for what waits to be received.
    fn close(&self) {
        let conn = match &self.control().phase {
            Phase::Idle | Phase::Listening(_) | Phase::Inherited(_) => return,
            Phase::Connection(session) => session.conn.clone(),
        };
        let establishing = conn.look(|conn| state_of(conn)) == State::Establishing;
        let mut account = self.ledger.lock();
        // RFC 9000, Section 10.2.3: nothing of the application before the peer is known.
        if establishing {
            account.close.errcode = APPLICATION_ERROR;
        }
        let close = account.close;
        drop(account);
        // First what may be sent before the end.
        conn.act(|conn, _| conn.engine.cork_streams(false));
        conn.close(u64::from(close.errcode), close.words());
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop_listening(self.turn());
        self.close();
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let control = self.control();
        f.debug_struct("Socket")
            .field("state", &control.state())
            .field("local_addr", &control.bound.as_ref().map(|bound| bound.core.local_addr()))
            .finish_non_exhaustive()
    }
}

/// When a call must have an answer: now for those that do not wait.
#[derive(Clone, Copy, Debug)]
enum Patience {
    None,
    Until(Option<Instant>),
}

impl Patience {
    fn new(nonblocking: bool, timeout: Option<Duration>) -> Self {
        if nonblocking {
            return Self::None;
        }
        // A timeout beyond what the clock can tell is none.
        Self::Until(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }
}
