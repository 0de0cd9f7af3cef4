//! One connection with what the sockets need to know beside it.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use quicket_engine::time::Time;
use quicket_engine::{Connection, ConnectionError, ConnectionHandle, Event, Transmit};
use quicket_wire::{Dir, StreamId};

use super::attempts::Attempt;
use super::budget::{Budget, Share};
use super::buffers::Buffer;
use super::held::{Held, HeldGuard};
use super::network::Follow;
use super::spent::Spent;
use super::waiters::{Map, Waiters};
use crate::session::SessionSink;

/// A connection behind its own lock, so that connections do not wait for each other.
pub(crate) struct Cell {
    conn: Held<Conn>,
    /// How many public values (connections, streams) lead here.
    pub(super) handles: AtomicUsize,
    /// Buffers that come back.
    pub(super) spent: Arc<Spent>,
}

/// What is known of a connection.
pub(crate) struct Conn {
    /// The protocol.
    pub(crate) engine: Box<Connection>,
    pub(crate) waiters: Waiters,
    pub(super) handle: ConnectionHandle,
    pub(super) role: Role,
    pub(super) attempt: Attempt,
    /// The deadline that the endpoint's timers hold for it; never later than the true one.
    pub(super) queued: Option<Time>,
    /// What it holds of the endpoint's memory.
    share: Share,
    /// What the kernel, or the cipher, did not take yet.
    pub(super) unsent: Option<Box<Unsent>>,
    /// It is among those that wait for room in the kernel's send buffer.
    pub(super) waits_for_room: bool,
    /// Nothing is left of it, and its handle may be another's by now.
    pub(super) drained: bool,
    /// It has something to do that was left for later.
    pub(crate) postponed: bool,
    /// It is among those that act when a thread waits next.
    pub(super) listed: bool,
    /// How many bytes its calls left for later: what was written or read since it acted last, less
    /// what has gone out meanwhile.
    pub(super) postponed_bytes: usize,
    /// When it last sent something.
    pub(super) sent_at: Time,
    /// Nothing is postponed.
    pub(crate) nodelay: bool,
    /// It got datagrams in the current batch.
    pub(super) touched: bool,
    /// The application is being called, or about to be: nothing is reported before that is over.
    pub(super) calling: bool,
    /// The handshake, which waited for somebody, has something new to say.
    pub(super) progressed: bool,
    /// The handshake is complete.
    pub(crate) established: bool,
    /// Streams may be opened before that.
    pub(crate) early_ready: bool,
    /// The server did not take the early data.
    pub(crate) early_rejected: bool,
    /// Why it ended.
    pub(crate) ended: Option<ConnectionError>,
    /// How many streams the application has accepted of each direction.
    pub(crate) accepted: [u64; 2],
    /// How sending streams ended, for those that the application still holds or has yet to
    /// accept.
    pub(crate) send_ends: Map<StreamId, Option<SendEnd>>,
    /// No public value leads here any more.
    pub(super) orphan: bool,
    /// Until when an orphan may go on delivering what was written.
    pub(super) lingers_until: Option<Time>,
    /// Where session tickets and tokens go.
    pub(crate) sink: Option<SessionSink>,
    /// Who else hears of everything.
    pub(crate) tap: Option<Arc<dyn Tap>>,
    /// It follows this host from network to network.
    pub(crate) follow: Option<Follow>,
    /// It ended because the address is gone from which its handshake began: it is to begin again.
    pub(crate) stranded: bool,
}

/// An API that keeps its own account of a connection. Called with the connection locked.
pub(crate) trait Tap: Send + Sync {
    /// Something happened.
    fn on_event(&self, engine: &mut Connection, event: &Event);

    /// Something may have happened. True if those who wait for [`Interest::Message`] should
    /// look.
    ///
    /// [`Interest::Message`]: super::Interest::Message
    fn on_turn(&self, engine: &mut Connection, now: Time) -> bool;
}

/// Which side a connection is on, and what its listener is still to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Made by connecting.
    Client,
    /// Made for a listener, which has not heard of it yet.
    Announcing,
    /// The listener has it.
    Announced,
}

/// How the peer took the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendEnd {
    /// All was acknowledged.
    Finished,
    /// The peer wanted no more.
    Stopped(u64),
}

/// A burst that was written and is not sent.
pub(super) struct Unsent {
    pub(super) buffer: Buffer,
    pub(super) state: UnsentState,
}

/// How far it got.
#[derive(Clone, Copy, Debug)]
pub(super) enum UnsentState {
    /// The kernel's buffer is full; the first bytes are out.
    Blocked(Transmit, usize),
    /// The cipher works on it.
    Sealing,
}

impl Cell {
    pub(super) fn new(
        handle: ConnectionHandle,
        engine: Box<Connection>,
        role: Role,
        follow: Option<Follow>,
        budget: Arc<Budget>,
    ) -> Self {
        let conn = Conn {
            engine,
            waiters: Waiters::default(),
            handle,
            role,
            attempt: if role == Role::Client { Attempt::New } else { Attempt::Over },
            queued: None,
            share: Share::new(budget),
            unsent: None,
            waits_for_room: false,
            drained: false,
            postponed: false,
            listed: false,
            postponed_bytes: 0,
            sent_at: Time::ZERO,
            nodelay: false,
            touched: false,
            calling: false,
            progressed: false,
            established: false,
            early_ready: false,
            early_rejected: false,
            ended: None,
            accepted: [0; 2],
            send_ends: Map::default(),
            orphan: false,
            lingers_until: None,
            sink: None,
            tap: None,
            follow,
            stranded: false,
        };
        Self { conn: Held::outer(conn), handles: AtomicUsize::new(0), spent: Arc::default() }
    }

    /// Locks the connection. Never held while waiting for anything but the locks of the
    /// endpoint's shared parts.
    ///
    /// # Panics
    ///
    /// If this thread has locked it, as a function of the application has that runs meanwhile.
    pub(crate) fn lock(&self) -> HeldGuard<'_, Conn> {
        self.conn.lock()
    }
}

impl Conn {
    /// Counts its memory with that of all connections, and heeds how much there is.
    pub(super) fn settle_memory(&mut self) {
        self.share.settle(&mut self.engine);
    }

    /// Gives back memory that only busy connections use.
    pub(super) fn trim(&mut self) {
        self.waiters.trim();
        self.send_ends.shrink_to_fit();
    }

    /// The next stream that the peer opened and whether it came as early data.
    pub(crate) fn accept(&mut self, dir: Dir) -> Option<(StreamId, bool)> {
        let id = self.engine.accept(dir)?;
        self.accepted[dir_index(dir)] += 1;
        if dir == Dir::Bidi {
            self.send_ends.entry(id).or_insert(None);
        }
        Some((id, self.engine.is_early_data(id)))
    }

    /// A sending stream ended at the peer's side.
    pub(super) fn on_send_end(&mut self, id: StreamId, end: SendEnd) {
        if self.tap.is_some() {
            // It keeps an account of its own, and accepts no streams here.
            return;
        }
        let unaccepted =
            id.initiator() != self.side() && id.index() >= self.accepted[dir_index(id.dir())];
        if unaccepted {
            self.send_ends.insert(id, Some(end));
        } else if let Some(known) = self.send_ends.get_mut(&id) {
            *known = Some(end);
        }
    }

    /// How a sending stream ended, if it did.
    pub(crate) fn send_end(&self, id: StreamId) -> Option<SendEnd> {
        self.send_ends.get(&id).copied().flatten()
    }

    /// Which side this is.
    pub(crate) fn side(&self) -> quicket_wire::Side {
        match self.role {
            Role::Client => quicket_wire::Side::Client,
            Role::Announcing | Role::Announced => quicket_wire::Side::Server,
        }
    }

    /// Why the connection ended, once all that came before its end is told; `None` while it lives.
    pub(crate) fn lost(&self) -> Option<ConnectionError> {
        self.ended.clone()
    }

    /// The error that ends whatever is begun on the connection, even before its end is told.
    pub(crate) fn end(&self) -> Option<ConnectionError> {
        self.lost().or_else(|| self.engine.close_reason().cloned())
    }
}

/// A place for each direction in an array of two.
pub(crate) const fn dir_index(dir: Dir) -> usize {
    match dir {
        Dir::Bidi => 0,
        Dir::Uni => 1,
    }
}
