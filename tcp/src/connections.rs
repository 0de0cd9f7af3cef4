//! All connections of a stack: whose is a segment, and what becomes of a connection after it.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use quicket_packets::Tuple;
use quicket_packets::icmp::{Failure, Report};
use smoltcp::socket::tcp::State;
use smoltcp::time::Instant;

use crate::connection::{Connection, ORPHAN_TIME, Prepared, Role};
use crate::driving::Step;
use crate::isn::{self, InitialSequence};
use crate::listening::Listening;
use crate::out::Out;
use crate::owned::Owned;
use crate::segment::{Ends, Reply, Segment};
use crate::sync::{Arc, Condvar};
use crate::time_wait::{TimeWait, Verdict};
use crate::timers::Timers;
use crate::watch::{Ring, Watched};
use crate::way::{self, Way};

/// A connection's place. It is used again once the connection is over and no stream has it.
pub(crate) type Id = usize;

/// Connections of a stack, without those in TIME-WAIT.
pub const MAX_CONNECTIONS: usize = 65_536;
/// Octets of the buffers of all connections of a stack: so there are fewer of them if those are long.
pub const MAX_BUFFERS: usize = 4096 << 20;
/// Connections that nobody has any more, and that have not ended yet: beyond that, they end with a reset.
pub const MAX_ORPHANS: usize = 4096;
/// Sockets with buffers that are kept for the next connections.
pub const MAX_PREPARED: usize = 128;
/// Acknowledgments are not put off for so long.
const QUIET: smoltcp::time::Duration = smoltcp::time::Duration::from_secs(1);
/// How long a client's handshake may take.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(30);

/// What all connections of a stack have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) receive: usize,
    pub(crate) send: usize,
    pub(crate) mtu: usize,
}

/// The later one of two sequence numbers.
const fn later(one: u32, other: u32) -> u32 {
    if one.wrapping_sub(other).cast_signed() > 0 { one } else { other }
}

/// Who is to be woken.
#[derive(Debug)]
pub(crate) enum Wake {
    /// One of those that wait for the same, such as a connection to accept.
    One(Arc<Condvar>),
    All(Arc<Condvar>),
    /// Who watches many.
    Watch(Ring),
}

impl Wake {
    pub(crate) fn wake(self) {
        match self {
            Self::One(sleepers) => sleepers.notify_one(),
            Self::All(sleepers) => sleepers.notify_all(),
            Self::Watch(ring) => ring.ring(),
        }
    }
}

pub(crate) struct Connections {
    sizes: Sizes,
    slots: Vec<Option<Box<Connection>>>,
    free: Vec<Id>,
    by_ends: HashMap<Ends, Id>,
    listening: HashMap<SocketAddr, Listening>,
    pub(crate) owned: Owned,
    time_wait: TimeWait,
    timers: Timers,
    prepared: Vec<Prepared>,
    isn: InitialSequence,
    way: Way,
    /// How many nobody has any more.
    orphans: usize,
    /// Those that segments have come for.
    touched: Vec<Id>,
    /// Those that had no room to send.
    starved: VecDeque<Id>,
    /// Who is to be woken once nothing is locked.
    pub(crate) woken: Vec<Wake>,
    /// Sockets that were made, with buffers.
    #[cfg(test)]
    made: usize,
}

impl Connections {
    pub(crate) fn new(sizes: Sizes) -> Self {
        Self {
            sizes,
            slots: Vec::new(),
            free: Vec::new(),
            by_ends: HashMap::new(),
            listening: HashMap::new(),
            owned: Owned::default(),
            time_wait: TimeWait::default(),
            timers: Timers::default(),
            prepared: Vec::new(),
            isn: InitialSequence::default(),
            way: Way::default(),
            orphans: 0,
            touched: Vec::new(),
            starved: VecDeque::new(),
            woken: Vec::new(),
            #[cfg(test)]
            made: 0,
        }
    }

    pub(crate) fn get(&mut self, id: Id) -> io::Result<&mut Connection> {
        self.slots
            .get_mut(id)
            .and_then(Option::as_deref_mut)
            .ok_or_else(|| ErrorKind::NotConnected.into())
    }

    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.next()
    }

    pub(crate) fn is_starved(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Whether all connections are over.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }

    /// Whether a connection between these ends may begin. That they are in TIME-WAIT is no obstacle if `may_reopen`: the sequence
    /// numbers of this side go on.
    pub(crate) fn is_free(&self, ends: &Ends, may_reopen: bool, now: Instant) -> bool {
        !self.by_ends.contains_key(ends) && (may_reopen || !self.time_wait.contains(ends, now))
    }

    /// Takes a segment to its connection. What comes of it waits for [`Connections::settle_touched`].
    pub(crate) fn deliver(&mut self, segment: &Segment<'_>, out: &mut Out, now: Instant) {
        let Segment { ends, header, .. } = segment;
        if let Some(id) = self.by_ends.get(ends).copied() {
            self.input(id, segment, out, now);
            return;
        }
        let listens = self.listening.get(&ends.local).is_some_and(Listening::has_room);
        let is_listened = self.listening.contains_key(&ends.local);
        let sequence = match self.time_wait.judge(ends, header, listens, now) {
            Verdict::Ignore => return,
            Verdict::Answer(reply) => return out.reply(ends, reply),
            Verdict::Reopen(sequence) => later(self.number(ends, now), sequence),
            Verdict::Unknown => self.number(ends, now),
        };
        if header.is_request() && is_listened {
            // Without room, the client tries again.
            if listens && let Some(id) = self.begin(*ends, sequence, out, now) {
                self.input(id, segment, out, now);
            }
        } else if let Some(reply) = Reply::to_nobody(header) {
            out.reply(ends, reply);
        }
    }

    /// Takes what ICMP says of a packet to its connection. Only that it was too long changes something (RFC 5927, Section 5: other errors
    /// end no connection).
    pub(crate) fn hear(&mut self, report: &Report<'_>, now: Instant) {
        let Failure::TooBig { mtu } = report.failure else { return };
        let address = |tuple: Tuple| SocketAddr::from((tuple.address, tuple.port));
        let ends = Ends { local: address(report.source), remote: address(report.destination) };
        let sequence = report.quoted.get(4..8).and_then(|octets| octets.first_chunk());
        let (Some(sequence), Some(id)) = (sequence, self.by_ends.get(&ends).copied()) else {
            return;
        };
        let Some(connection) = self.slots[id].as_deref_mut() else { return };
        let mtu = way::told(mtu, connection.mtu(), ends.local.is_ipv4());
        if connection.shorten(u32::from_be_bytes(*sequence), mtu, now) && connection.place.touch() {
            self.touched.push(id);
        }
    }

    fn input(&mut self, id: Id, segment: &Segment<'_>, out: &mut Out, now: Instant) {
        let Some(connection) = self.slots[id].as_deref_mut() else { return };
        connection.input(segment, out, now);
        if connection.place.touch() {
            self.touched.push(id);
        }
    }

    fn number(&self, ends: &Ends, now: Instant) -> u32 {
        let time = u64::try_from(now.total_micros()).unwrap_or_default();
        self.isn.number(ends, Duration::from_micros(time))
    }

    /// A client's connection begins.
    fn begin(&mut self, ends: Ends, sequence: u32, out: &mut Out, now: Instant) -> Option<Id> {
        while let Some(oldest) = self.listening.get(&ends.local)?.in_the_way() {
            // It may be established by now.
            if self.get(oldest).is_ok_and(|connection| connection.is_established()) {
                self.settle(oldest, out, now);
            } else {
                self.remove(oldest);
            }
        }
        if !self.has_room() {
            return None;
        }
        let (turn, seed) = (self.listening.get(&ends.local)?.turn(), isn::seed(sequence));
        let prepared = self.prepare();
        // In a flood of SYNs, the system is asked for those who have answered.
        let mtu = self.way.mtu_of_stranger(&ends, self.sizes.mtu, now);
        let (turn, mtu) = ((turn, mtu.is_some()), mtu.unwrap_or(self.sizes.mtu));
        let mut connection = Connection::listen(prepared, ends, turn, mtu, seed, now)?;
        connection.times.give(HANDSHAKE_TIME, now);
        let id = self.insert(connection);
        self.listening.get_mut(&ends.local)?.begin(id);
        Some(id)
    }

    /// A connection of this side begins; the local address is registered, and the ends are free.
    pub(crate) fn connect(&mut self, ends: Ends, out: &mut Out, now: Instant) -> io::Result<Id> {
        if !self.has_room() {
            let text = "this stack has as many connections as it may have";
            return Err(io::Error::new(ErrorKind::QuotaExceeded, text));
        }
        let number = self.number(&ends, now);
        let sequence = self.time_wait.take(&ends, now).unwrap_or(number);
        let seed = isn::seed(later(number, sequence));
        let prepared = self.prepare();
        let mtu = self.way.mtu(&ends, self.sizes.mtu, now);
        let connection = Connection::connect(prepared, ends, mtu, seed, now)?;
        let id = self.insert(connection);
        self.settle(id, out, now);
        Ok(id)
    }

    fn has_room(&self) -> bool {
        let Sizes { receive, send, .. } = self.sizes;
        let most = MAX_CONNECTIONS.min(MAX_BUFFERS / (receive + send));
        self.slots.len() - self.free.len() < most
    }

    fn prepare(&mut self) -> Prepared {
        let Sizes { receive, send, .. } = self.sizes;
        let kept = self.prepared.pop();
        #[cfg(test)]
        {
            self.made += usize::from(kept.is_none());
        }
        kept.unwrap_or_else(|| Prepared::new(receive, send))
    }

    fn insert(&mut self, connection: Connection) -> Id {
        let ends = connection.place.ends;
        let connection = Some(Box::new(connection));
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id] = connection;
                id
            }
            None => {
                self.slots.push(connection);
                self.slots.len() - 1
            }
        };
        self.by_ends.insert(ends, id);
        self.owned.connection_begins(ends.local);
        id
    }

    /// A connection is over and nobody has it.
    fn remove(&mut self, id: Id) {
        let Some(mut connection) = self.slots[id].take() else { return };
        self.timers.remove(id, &mut connection.place.entry);
        let ends = connection.place.ends;
        if !connection.place.is_detached() {
            self.by_ends.remove(&ends);
        }
        if let (Role::HalfOpen { turn, .. }, Some(listening)) =
            (connection.role, self.listening.get_mut(&ends.local))
        {
            listening.forget(turn);
        }
        self.owned.connection_ends(ends.local);
        self.orphans -= usize::from(connection.role == Role::Orphan);
        if connection.place.leave_queue() {
            self.starved.retain(|starved| *starved != id);
        }
        self.free.push(id);
        if self.prepared.len() < MAX_PREPARED {
            self.prepared.extend(connection.into_prepared());
        }
    }

    /// Somebody listens. `SocketAddr` is registered.
    pub(crate) fn listen(&mut self, local: SocketAddr, backlog: usize) {
        self.listening.insert(local, Listening::new(backlog));
    }

    /// Nobody listens any more: connections that were not accepted end.
    pub(crate) fn listen_no_more(&mut self, local: SocketAddr, out: &mut Out, now: Instant) {
        let Some(listening) = self.listening.remove(&local) else { return };
        for id in listening.into_connections() {
            self.leave_alone(id, true, now);
            self.settle(id, out, now);
        }
        self.owned.listen_no_more(local);
    }

    /// Nobody has a connection any more: it ends, by a reset if `is_abort`.
    fn leave_alone(&mut self, id: Id, is_abort: bool, now: Instant) {
        let is_abort = is_abort || self.orphans >= MAX_ORPHANS;
        let Some(connection) = self.slots.get_mut(id).and_then(Option::as_deref_mut) else {
            return;
        };
        self.orphans += usize::from(connection.role != Role::Orphan);
        connection.role = Role::Orphan;
        connection.times.give(ORPHAN_TIME, now);
        // RFC 2525, Section 2.17.
        if is_abort || connection.has_unread() {
            connection.abort();
        } else {
            connection.close();
        }
    }

    /// Ends all of them with resets.
    pub(crate) fn abort_all(&mut self, out: &mut Out, now: Instant) {
        for id in 0..self.slots.len() {
            self.leave_alone(id, true, now);
            self.settle(id, out, now);
        }
    }

    /// The next connection of a listener.
    pub(crate) fn accept(&mut self, local: SocketAddr) -> Option<Id> {
        let id = self.listening.get_mut(&local)?.accept()?;
        self.get(id).ok()?.role = Role::Owned;
        Some(id)
    }

    /// Hears what a caller does that waits for a connection, and says what it sleeps on.
    pub(crate) fn step(&mut self, local: SocketAddr, step: Step) -> io::Result<Arc<Condvar>> {
        let listening = self.listening.get_mut(&local).ok_or(ErrorKind::NotConnected)?;
        Ok(listening.step(step, &mut self.woken))
    }

    /// A stream has gone: what was written still leaves.
    pub(crate) fn release(&mut self, id: Id, out: &mut Out, now: Instant) {
        let resets = self.get(id).is_ok_and(|connection| connection.settings.resets);
        self.leave_alone(id, resets, now);
        self.settle(id, out, now);
    }

    /// Looks at all that segments have come for.
    pub(crate) fn settle_touched(&mut self, out: &mut Out, now: Instant) {
        while let Some(id) = self.touched.pop() {
            self.settle(id, out, now);
        }
    }

    /// Looks at those whose time has come.
    pub(crate) fn settle_due(&mut self, out: &mut Out, now: Instant) {
        while let Some(id) = self.timers.pop(now) {
            if let Ok(connection) = self.get(id) {
                connection.place.entry = None;
                self.settle(id, out, now);
            }
        }
    }

    /// Looks at those that had no room, as long as there is some.
    pub(crate) fn settle_starved(&mut self, out: &mut Out, now: Instant) {
        for _ in 0..self.starved.len() {
            if !out.has_room() {
                return;
            }
            let Some(id) = self.starved.pop_front() else { return };
            if let Ok(connection) = self.get(id) {
                connection.place.leave_queue();
                self.settle(id, out, now);
            }
        }
    }

    /// Sends what a connection has to send, and does what its state asks for.
    pub(crate) fn settle(&mut self, id: Id, out: &mut Out, now: Instant) {
        let Some(connection) = self.slots[id].as_deref_mut() else { return };
        connection.place.look();
        if connection.times.is_up(now) {
            connection.abort();
        }
        if !connection.place.is_detached() {
            connection.advance(out, now);
        }
        if connection.place.queue() {
            self.starved.push_back(id);
        }
        self.follow(id, out, now);
    }

    /// What is different in a state.
    fn follow(&mut self, id: Id, out: &mut Out, now: Instant) {
        let Some(connection) = self.slots[id].as_deref_mut() else { return };
        let ends = connection.place.ends;
        match (connection.role, connection.state()) {
            (Role::HalfOpen { .. }, _) if connection.is_over() => return self.remove(id),
            (Role::HalfOpen { .. }, State::Listen | State::Closed) => return self.remove(id),
            (Role::HalfOpen { .. }, State::SynReceived) => {}
            // More have been established meanwhile than may wait.
            (Role::HalfOpen { turn, .. }, _)
                if !self.listening.get(&ends.local).is_some_and(Listening::has_room) =>
            {
                if let Some(listening) = self.listening.get_mut(&ends.local) {
                    listening.forget(turn);
                }
                self.leave_alone(id, true, now);
                return self.settle(id, out, now);
            }
            (Role::HalfOpen { turn, knows_way }, _) => {
                if !knows_way {
                    connection.limit_mtu(self.way.mtu(&ends, self.sizes.mtu, now), now);
                }
                connection.role = Role::Queued;
                connection.times.spare();
                if let Some(listening) = self.listening.get_mut(&ends.local) {
                    listening.establish(turn, &mut self.woken);
                }
            }
            // Nobody will read that (RFC 2525, Section 2.17).
            (Role::Orphan, State::FinWait1 | State::FinWait2) if connection.has_unread() => {
                connection.abort();
                connection.advance(out, now);
            }
            _ => {}
        }
        let next = connection.next(now);
        // An acknowledgment that is still to be sent waits for less; TIME-WAIT ends later.
        let is_quiet = next.is_none_or(|next| next > now + QUIET) && !connection.place.is_starved();
        if !connection.place.is_detached() && connection.state() == State::TimeWait && is_quiet {
            let (sequence, expected) = connection.numbers();
            self.time_wait.insert(ends, sequence, expected, now);
            self.detach(id);
        } else if connection.is_over() {
            self.detach(id);
        } else if let Some(next) = next {
            let entry = &mut connection.place.entry;
            self.timers.set(id, entry, next);
        }
        self.tell(id);
    }

    /// Segments do not come to it any more. If nobody has it, that is its end.
    fn detach(&mut self, id: Id) {
        let Some(connection) = self.slots[id].as_deref_mut() else { return };
        self.timers.remove(id, &mut connection.place.entry);
        if connection.place.detach() {
            self.by_ends.remove(&connection.place.ends);
        }
        if connection.role == Role::Orphan {
            self.remove(id);
        }
    }

    /// Wakes who waits for what is there.
    fn tell(&mut self, id: Id) {
        let Some(connection) = self.slots[id].as_deref_mut() else { return };
        let (is_readable, is_writable) = (connection.is_readable(), connection.is_writable());
        connection.audience.tell(is_readable, is_writable, &mut self.woken);
    }

    /// Somebody watches a connection from now on, and looks at it once.
    pub(crate) fn watch(&mut self, id: Id, watched: Watched) -> io::Result<()> {
        let wake = self.get(id)?.audience.watch(watched);
        self.woken.extend(wake);
        Ok(())
    }

    /// The same for a listener.
    pub(crate) fn watch_listener(&mut self, local: SocketAddr, watched: Watched) -> io::Result<()> {
        let listening = self.listening.get_mut(&local).ok_or(ErrorKind::NotConnected)?;
        let wake = listening.watched.insert(watched).note();
        self.woken.extend(wake);
        Ok(())
    }

    /// Wakes all who wait for something of a connection: it has another setting.
    pub(crate) fn rouse(&mut self, id: Id) {
        if let Ok(connection) = self.get(id) {
            let all = connection.audience.all();
            self.woken.push(all);
        }
    }

    /// Ends all of them: the switch has gone.
    pub(crate) fn fail(&mut self, kind: ErrorKind) {
        for id in 0..self.slots.len() {
            let Some(connection) = self.slots[id].as_deref_mut() else { continue };
            connection.error.get_or_insert(kind);
            connection.abort();
            connection.audience.dismiss(&mut self.woken);
            match connection.role {
                Role::Owned | Role::Queued => self.detach(id),
                Role::HalfOpen { .. } | Role::Orphan => self.remove(id),
            }
        }
        for listening in self.listening.values() {
            self.woken.push(Wake::All(Arc::clone(&listening.changed)));
            self.woken.extend(listening.watched.iter().filter_map(Watched::note));
        }
    }
}

#[cfg(any(test, feature = "fuzz"))]
#[path = "connections_fuzz.rs"]
pub(crate) mod fuzz;

#[cfg(test)]
#[path = "connections_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "connections_flood_tests.rs"]
mod flood_tests;

#[cfg(test)]
#[path = "connections_talk_tests.rs"]
mod talk_tests;
