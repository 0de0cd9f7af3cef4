//! Streams (RFC 9000, Sections 2 to 4): data in order, flow control, priorities.
//!
//! [`Streams`] holds all streams of a connection. Frames come in through [`incoming`], go out
//! through [`outgoing`], and the application acts through [`app`]; each of them ends by
//! settling the stream it touched, which puts it into the queues where it belongs. The halves
//! ([`send`], [`recv`]) know their own state and nothing of each other.

mod ahead;
mod app;
mod assembler;
mod chunk;
mod contents;
mod error;
mod event;
mod flow;
mod half;
mod id_map;
mod incoming;
mod lent;
mod limits;
mod news;
mod outgoing;
mod pool;
mod recv;
mod ring;
mod scheduler;
mod send;
mod send_buffer;
mod slab;
mod state;
mod stream;
mod table;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;

use quicket_wire::{Dir, Side, StreamId, TransportParameters};

use ahead::Ahead;
use app::BEGINNING;
pub(crate) use assembler::{AssembleError, Assembler};
pub use chunk::Chunk;
pub use error::{NotTaken, OpenError, Peek, ReadError, ReadOutcome, WriteError};
pub use event::StreamEvent;
use flow::{RecvWindow, SendCredit};
use half::Half;
pub(crate) use incoming::ReceiveRun;
pub use lent::Lent;
use limits::{LocalStreams, RemoteStreams};
use news::News;
pub use news::{RecvStatus, SendRoom, SendStatus, StreamCounts, StreamNews, StreamStatus};
pub(crate) use outgoing::StreamRun;
pub(crate) use pool::{BufferPool, OutOfMemory};
use recv::{RecvStream, Shared};
use scheduler::Scheduler;
use send::SendStream;
pub(crate) use send_buffer::SendBuffer;
use slab::{Queue, Slot};
pub use state::{RecvState, SendState};
use stream::{Ending, EventFlags, QueueKind, Stream};
use table::Table;

use crate::config::{StreamWindows, TransportConfig};

/// How many bytes of unused buffers a connection keeps for its next streams: as much as it holds
/// by default of what is to be sent. The pool frees what it does not need for long.
const POOL_BYTES: u32 = 16 << 20;

/// What this side grants and reserves. Sizes are in bytes.
#[derive(Clone, Debug)]
pub(crate) struct StreamsConfig {
    /// The first window of a stream, as announced in all three initial_max_stream_data
    /// parameters.
    pub(crate) stream_window: u64,
    /// The same for streams of some kinds.
    pub(crate) windows: StreamWindows,
    /// What auto-tuning may raise a stream's window to.
    pub(crate) max_stream_window: u64,
    /// The first window of all streams together, as announced in initial_max_data.
    pub(crate) window: u64,
    /// What auto-tuning may raise the window of all streams together to.
    pub(crate) max_window: u64,
    /// How many bidirectional streams the peer may have open, as announced.
    pub(crate) max_streams_bidi: u64,
    /// How many unidirectional streams the peer may have open, as announced.
    pub(crate) max_streams_uni: u64,
    /// How many more streams the peer may open before it hears of that; by default an eighth.
    pub(crate) max_streams_step: Option<u64>,
    /// How much a stream holds of what is to be sent or acknowledged.
    pub(crate) stream_send_buffer: usize,
    /// How much all streams together hold of it.
    pub(crate) send_buffer: usize,
    /// How much of it a stream holds that cannot leave yet.
    pub(crate) send_ahead: usize,
    /// Streams of equal priority take turns by packet, or one ends before the next.
    pub(crate) fair: bool,
}

/// The peer's limits from its transport parameters (RFC 9000, Section 18.2). "Local" and
/// "remote" are as the peer sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeerLimits {
    pub(crate) initial_max_data: u64,
    pub(crate) initial_max_stream_data_bidi_local: u64,
    pub(crate) initial_max_stream_data_bidi_remote: u64,
    pub(crate) initial_max_stream_data_uni: u64,
    pub(crate) initial_max_streams_bidi: u64,
    pub(crate) initial_max_streams_uni: u64,
}

/// One value for each direction.
#[derive(Debug)]
struct PerDir<T> {
    bidi: T,
    uni: T,
}

impl<T> PerDir<T> {
    fn get(&self, dir: Dir) -> &T {
        match dir {
            Dir::Bidi => &self.bidi,
            Dir::Uni => &self.uni,
        }
    }

    fn get_mut(&mut self, dir: Dir) -> &mut T {
        match dir {
            Dir::Bidi => &mut self.bidi,
            Dir::Uni => &mut self.uni,
        }
    }
}

const DIRS: [Dir; 2] = [Dir::Bidi, Dir::Uni];

/// All streams of a connection.
#[derive(Debug)]
pub(crate) struct Streams {
    side: Side,
    config: StreamsConfig,
    peer: PeerLimits,
    table: Table,
    /// Streams that this side opens.
    local: PerDir<LocalStreams>,
    /// Streams that the peer opens.
    /// In a box of their own: no stack frame is to be larger than 1 KiB.
    remote: Box<PerDir<RemoteStreams>>,
    /// What the peer lets all streams send.
    credit: SendCredit,
    /// What the peer may send on all streams.
    window: RecvWindow,
    /// Bytes held in all send buffers.
    held: usize,
    /// Bytes that may be held now in each direction.
    allowance: usize,
    /// What a stream may hold that cannot leave yet.
    ahead: Ahead,
    /// Pieces beyond gaps in all receive buffers.
    pieces: usize,
    pool: BufferPool,
    /// Streams with data to send.
    scheduler: Scheduler,
    /// Streams with control frames to send.
    control: Queue<QueueKind>,
    /// Streams with events for the application.
    events: Queue<QueueKind>,
    /// Streams that wait for room in the send buffers.
    writers: Queue<QueueKind>,
    /// What happens step by step.
    news: News,
    /// The application wants the peer to know once all credit is used.
    tell_blocked: bool,
    /// Data waits for more of it.
    corked: bool,
    /// The frames that come now are those of a 0-RTT packet.
    early: bool,
}

impl Streams {
    /// No streams yet, and no leave to send. `seed` should be hard to guess: it keeps a peer
    /// from choosing streams that are slow to find.
    pub(crate) fn new(side: Side, config: StreamsConfig, seed: u64) -> Self {
        Self {
            side,
            peer: PeerLimits::default(),
            table: Table::new(seed),
            local: PerDir { bidi: LocalStreams::default(), uni: LocalStreams::default() },
            remote: Box::new(PerDir {
                bidi: RemoteStreams::new(config.max_streams_bidi, config.max_streams_step),
                uni: RemoteStreams::new(config.max_streams_uni, config.max_streams_step),
            }),
            credit: SendCredit::default(),
            window: RecvWindow::new(config.window, config.max_window),
            held: 0,
            allowance: usize::MAX,
            ahead: Ahead::new(config.send_ahead),
            pieces: 0,
            pool: BufferPool::new(POOL_BYTES),
            scheduler: Scheduler::new(config.fair),
            control: Queue::new(QueueKind::Control),
            events: Queue::new(QueueKind::Event),
            writers: Queue::new(QueueKind::Writer),
            news: News::default(),
            tell_blocked: false,
            corked: false,
            early: false,
            config,
        }
    }

    /// Applies the peer's limits: first those remembered for 0-RTT, if any, then those of its
    /// transport parameters. They only ever raise what holds; that accepted 0-RTT must not be
    /// followed by lower ones (RFC 9000, Section 7.4.1) is for the connection to check.
    pub(crate) fn set_peer_limits(&mut self, limits: impl Into<PeerLimits>) {
        self.peer = limits.into();
        self.local.bidi.raise(self.peer.initial_max_streams_bidi);
        self.local.uni.raise(self.peer.initial_max_streams_uni);
        self.credit.raise(self.peer.initial_max_data);
        for slot in self.table.slots() {
            let Some(stream) = self.table.get_mut(slot) else { continue };
            let initial = self.peer.initial_stream_data(self.side, stream.id);
            if let Some(send) = &mut stream.send {
                send.raise_limit(initial);
            }
            stream.held_back = is_held_back(self.side, &self.local, stream.id);
            self.settle(slot);
            self.tell_credited(slot);
        }
        self.release_blocked();
        self.tell_writers();
    }

    /// The peer refused 0-RTT: what was sent counts as never sent and waits for the limits of
    /// the peer's new transport parameters (RFC 9000, Section 7.4.1). An application that would
    /// rather not repeat a stream resets it.
    pub(crate) fn on_early_data_rejected(&mut self) {
        self.peer = PeerLimits::default();
        self.credit.reset();
        for dir in DIRS {
            self.local.get_mut(dir).revoke();
        }
        for slot in self.table.slots() {
            let Some(stream) = self.table.get_mut(slot) else { continue };
            stream.held_back = is_held_back(self.side, &self.local, stream.id);
            if let Some(send) = &mut stream.send {
                send.rewind();
            }
            if let Some(recv) = &mut stream.recv {
                recv.set_stop_due(true);
            }
            self.settle(slot);
        }
    }

    /// Gives back memory that is kept for speed alone. For connections that have gone quiet.
    pub(crate) fn trim(&mut self) {
        self.pool.trim();
        self.table.trim();
        self.news.trim();
        self.scheduler.trim();
        for dir in DIRS {
            self.remote.get_mut(dir).trim();
        }
    }

    /// How many streams have state.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Bytes that are held for sending or until acknowledged, on all streams.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// True if the peer has acknowledged all that was written, finished or reset.
    pub(crate) fn is_delivered(&self) -> bool {
        let delivered = |send: &Half<SendStream>| {
            send.state().is_terminal() || (send.is_open() && send.held() == 0)
        };
        let mut streams = self.table.slots().filter_map(|slot| self.table.get(slot));
        streams.all(|stream| stream.send.as_ref().is_none_or(delivered))
    }

    /// True if the peer owes data: it has not ended its half of a stream that this side opened, and
    /// may send there. Looks at all streams; for those who have waited for long.
    ///
    /// Streams that the peer opens do not count: many are open for as long as the connection, as
    /// those of HTTP/3 for settings are.
    pub(crate) fn awaits_answer(&self) -> bool {
        self.window.available() > 0
            && self.table.slots().filter_map(|slot| self.table.get(slot)).any(|stream| {
                stream.id.initiator() == self.side
                    && stream.send.as_ref().is_none_or(|send| send.was_sent())
                    && stream.recv.as_ref().is_some_and(|recv| recv.awaits_data())
            })
    }

    /// Puts a stream into the queues where its state says it belongs, and frees it once it has
    /// nothing left to do.
    fn settle(&mut self, slot: Slot) {
        let Some(stream) = self.table.get_mut(slot) else { return };
        let place = stream.wanted_place(self.credit.available());
        let control = stream.has_control() && !stream.held_back;
        let ending = stream.ending();
        let is_news = ending == Ending::Finished || (ending == Ending::Closing && !stream.closing);
        if stream.place == place && stream.is_in_control() == control && !is_news {
            // As mostly: nothing to move.
            return;
        }
        let id = stream.id;
        let was_closing = stream.closing;
        stream.closing |= ending == Ending::Closing;
        let remote = (id.initiator() != self.side).then(|| self.remote.get_mut(id.dir()));
        self.scheduler.put(self.table.slab_mut(), slot, place);
        if control {
            self.control.push_back(self.table.slab_mut(), slot);
        } else {
            self.control.remove(self.table.slab_mut(), slot);
        }
        if ending == Ending::Finished {
            self.writers.remove(self.table.slab_mut(), slot);
            self.table.remove(slot);
        }
        match (ending, remote) {
            (Ending::Finished, Some(remote)) => remote.on_closed(was_closing),
            (Ending::Closing, Some(remote)) if !was_closing => remote.on_closing(),
            (Ending::Open | Ending::Closing | Ending::Finished, _) => {}
        }
    }

    /// Sends what waited for the limit of all streams together.
    fn release_blocked(&mut self) {
        if self.credit.available() == 0 {
            return;
        }
        while let Some(slot) = self.scheduler.pop_blocked(self.table.slab_mut()) {
            self.settle(slot);
        }
    }

    /// The stream's place, made if the stream is open but was not used yet; `None` for streams
    /// that are closed or not open.
    fn find(&mut self, id: StreamId) -> Result<Option<Slot>, OutOfMemory> {
        if let Some(slot) = self.table.find(id) {
            return Ok(Some(slot));
        }
        if id.initiator() == self.side {
            return Ok(None);
        }
        if !self.remote.get(id.dir()).is_untouched(id.index()) {
            return Ok(None);
        }
        let slot = self.create(id)?;
        if let Err(error) = self.remote.get_mut(id.dir()).touch(id.index()) {
            self.table.remove(slot);
            return Err(error);
        }
        Ok(Some(slot))
    }

    /// Makes a stream's state.
    fn create(&mut self, id: StreamId) -> Result<Slot, OutOfMemory> {
        let stream = self.new_stream(id)?;
        self.table.insert(stream)
    }

    #[inline(never)] // keeps the halves out of the frame of `create`
    fn new_stream(&self, id: StreamId) -> Result<Stream, OutOfMemory> {
        let is_local = id.initiator() == self.side;
        let sends = is_local || id.dir() == Dir::Bidi;
        let receives = !is_local || id.dir() == Dir::Bidi;
        let limit = self.peer.initial_stream_data(self.side, id);
        let window = || {
            let chosen = match (id.dir(), is_local) {
                (Dir::Bidi, true) => self.config.windows.bidi_local,
                (Dir::Bidi, false) => self.config.windows.bidi_remote,
                (Dir::Uni, _) => self.config.windows.uni,
            };
            let window = chosen.unwrap_or(self.config.stream_window);
            Half::new(RecvStream::new(window, self.config.max_stream_window))
        };
        let send = sends.then(|| Half::new(SendStream::new(limit))).transpose()?;
        let mut stream = Stream::new(id, send, receives.then(window).transpose()?);
        stream.accepted = is_local || self.remote.get(id.dir()).is_accepted(id.index());
        Ok(stream)
    }

    /// Notes an event for the application, if it knows the stream: one that waits to be accepted
    /// is looked at when it is.
    fn notify(&mut self, slot: Slot, events: EventFlags) {
        if let Some(stream) = self.table.get_mut(slot).filter(|stream| stream.accepted) {
            stream.events.insert(events);
            self.events.push_back(self.table.slab_mut(), slot);
        }
    }

    /// Notes that `freed` bytes left a stream's send buffer, and wakes writers once there is
    /// enough room to be worth it: a quarter of the stream's buffer and an eighth of all, beside
    /// what is kept for streams that hold little.
    fn on_freed(&mut self, slot: Slot, freed: usize) {
        self.held = self.held.saturating_sub(freed);
        let Some(stream) = self.table.get(slot) else { return };
        let of_stream = self.stream_limit();
        if stream.wants_room && of_stream.saturating_sub(stream.held()) >= of_stream / 4 {
            self.writers.push_back(self.table.slab_mut(), slot);
        }
        if !self.tell_writers() {
            self.tell_small_writer(slot);
        }
    }

    /// Others fill the common buffer: a stream that holds little goes on with what is kept for such.
    fn tell_small_writer(&mut self, slot: Slot) {
        let has_reserve = self.reserve() > 0;
        if let Some(stream) = self.table.get_mut(slot)
            && (has_reserve && stream.wants_room && stream.held() <= BEGINNING / 2)
        {
            stream.wants_room = false;
            self.notify(slot, EventFlags::WRITABLE);
        }
    }

    /// Wakes those who wait for room, if there is enough; says whether there is.
    fn tell_writers(&mut self) -> bool {
        let of_all = self.send_limit();
        if self.ahead.is_bounded() && self.credit.available() == 0 {
            // None of them could send it.
            return false;
        }
        if of_all.saturating_sub(self.held) < (of_all / 8).saturating_add(self.reserve()) {
            return false;
        }
        // Those that the peer's limit of all streams holds up stay, until the first one of them comes round again. Others hear
        // when data of theirs is acknowledged, or when their own limit rises.
        let mut first_kept = None;
        while let Some(slot) = self.writers.pop_front(self.table.slab_mut()) {
            let may_write = self.room(slot) > 0;
            let is_held_up = self.is_held_up(slot);
            let Some(stream) = self.table.get_mut(slot).filter(|stream| stream.wants_room) else {
                continue;
            };
            if may_write {
                stream.wants_room = false;
                self.notify(slot, EventFlags::WRITABLE);
                continue;
            }
            if !is_held_up {
                continue;
            }
            self.writers.push_back(self.table.slab_mut(), slot);
            if first_kept == Some(slot) {
                break;
            }
            first_kept.get_or_insert(slot);
        }
        true
    }

    /// What the halves share on the way in, and the stream at `slot`.
    fn receiving(&mut self, slot: Slot) -> Option<(&mut RecvStream, Shared<'_>)> {
        let recv = self.table.get_mut(slot)?.recv.as_deref_mut()?;
        let Self { window, pieces, pool, .. } = self;
        Some((recv, Shared { window, pieces, pool }))
    }
}

impl From<&TransportParameters> for PeerLimits {
    fn from(parameters: &TransportParameters) -> Self {
        Self {
            initial_max_data: parameters.initial_max_data,
            initial_max_stream_data_bidi_local: parameters.initial_max_stream_data_bidi_local,
            initial_max_stream_data_bidi_remote: parameters.initial_max_stream_data_bidi_remote,
            initial_max_stream_data_uni: parameters.initial_max_stream_data_uni,
            initial_max_streams_bidi: parameters.initial_max_streams_bidi,
            initial_max_streams_uni: parameters.initial_max_streams_uni,
        }
    }
}

impl From<&TransportConfig> for StreamsConfig {
    #[inline(never)] // keeps a copy of it out of the frame of who makes streams
    fn from(config: &TransportConfig) -> Self {
        Self {
            stream_window: config.initial_stream_window,
            windows: config.announced.stream_windows,
            max_stream_window: config.max_stream_window,
            window: config.initial_receive_window,
            max_window: config.max_receive_window,
            max_streams_bidi: config.max_streams_bidi,
            max_streams_uni: config.max_streams_uni,
            max_streams_step: config.max_streams_step,
            stream_send_buffer: config.stream_send_buffer,
            send_buffer: config.send_buffer,
            send_ahead: config.send_ahead,
            fair: config.send_fairness,
        }
    }
}

impl PeerLimits {
    /// How much `side` may send at first on stream `id` (RFC 9000, Section 18.2).
    fn initial_stream_data(&self, side: Side, id: StreamId) -> u64 {
        match (id.dir(), id.initiator() == side) {
            (Dir::Uni, true) => self.initial_max_stream_data_uni,
            (Dir::Uni, false) => 0,
            (Dir::Bidi, true) => self.initial_max_stream_data_bidi_remote,
            (Dir::Bidi, false) => self.initial_max_stream_data_bidi_local,
        }
    }
}

/// True for a stream opened under limits of refused 0-RTT that the peer does not grant any more.
fn is_held_back(side: Side, local: &PerDir<LocalStreams>, id: StreamId) -> bool {
    id.initiator() == side && !local.get(id.dir()).permits(id.index())
}
