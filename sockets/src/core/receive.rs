//! Datagrams in: trains to connections, one look-up per train.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quicket_engine::time::Time;
use quicket_engine::{Datagram, Reached, Route};
use quicket_switch::first_packet::HeldDatagram;
use quicket_wire::EcnCodepoint;

use super::Core;
use super::cell::Cell;
use super::lead::Token;
use super::mailbox::{Parcels, WHOLE};
use super::spin::Spinning;
use super::switch::Outbox;
use super::waiters::{Tasks, Wakes};
use crate::pass::{Arrived, Outlet, PassThrough, Whose};
use quicket_udp::{Arrival, Batch, Outgoing, ReceiveBuffers, Train, UdpSocket};

/// How many batches one turn receives before timers and the application get theirs.
const BATCHES_PER_TURN: usize = 8;

/// Whose the datagrams of a turn are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Brought {
    /// A long batch was there, and all of it was handed on to other workers.
    hands_on: bool,
    /// A connection of this worker has got something.
    own: bool,
}

impl Brought {
    /// There is nothing to do but to hand on, and what comes is long.
    pub(super) const fn only_hands_on(self) -> bool {
        self.hands_on && !self.own
    }

    const fn add(&mut self, long: bool, came: &Came) {
        self.hands_on |= long && came.foreign;
        self.own |= came.own;
    }
}

/// What a leader works with; kept for the next one.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(super) buffers: ReceiveBuffers,
    pub(super) work: Work,
    /// What other workers have left here; empty but while it is processed.
    mail: Parcels,
    /// How many batches came.
    pub(super) received: u64,
    pub(super) spinning: Spinning,
    /// What this turn has brought so far.
    pub(super) brought: Brought,
    /// Receiving failed: leave the socket alone until then.
    pub(super) paused_until: Option<Time>,
}

impl Scratch {
    /// Ends a pause whose time is over; returns until when it lasts if not.
    pub(super) fn end_pause(&mut self, now: Time) -> Option<Time> {
        self.paused_until = self.paused_until.filter(|&until| until > now);
        self.paused_until
    }
}

impl Token for Box<Scratch> {
    type Rest = Tasks;

    fn has_rest(&self) -> bool {
        self.work.wakes.has_tasks()
    }

    fn take_rest(&mut self) -> Tasks {
        self.work.wakes.take_tasks()
    }

    fn finish(rest: Tasks) {
        rest.fire();
    }
}

/// What a batch leaves to be done.
#[derive(Default)]
pub(crate) struct Work {
    /// Connections that got datagrams.
    touched: Vec<Arc<Cell>>,
    pub(super) wakes: Wakes,
    reply: Vec<u8>,
    /// Datagrams of other workers.
    outbox: Outbox,
    /// Datagrams of other programs.
    strays: Parcels,
}

/// How a datagram got here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// From a socket of this worker.
    Socket,
    /// The same, behind another datagram of one train: the kernel has not looked at it.
    Behind,
    /// From a socket that the switch has lent: nobody has looked at it.
    Lent,
    /// From the switch, which has found out that it is this program's.
    Switch,
    /// From another worker.
    Mailbox,
}

impl Origin {
    /// What neighbours hear of it.
    const fn reached(self) -> Reached {
        match self {
            Self::Socket => Reached::Chosen,
            Self::Behind | Self::Lent => Reached::Behind,
            Self::Switch | Self::Mailbox => Reached::HandedOn,
        }
    }
}

/// What came of a batch.
struct Came {
    /// Somebody has something to do now.
    woken: bool,
    /// Some of it was for connections of this worker.
    own: bool,
    /// It was for other workers, and for none of this one's connections.
    foreign: bool,
}

/// Where a datagram belongs.
enum Destination {
    /// To this connection.
    Cell(Arc<Cell>),
    /// To another worker; to the switch, if the number is that behind the last one's.
    Worker(usize),
    /// It was seen to, or dropped.
    Nobody,
}

impl Core {
    /// Receives what is there and processes it; true if the socket was empty at the end. `by`: from the
    /// socket itself, or from the switch beside it.
    pub(super) fn receive(
        &self,
        socket: &UdpSocket,
        by: Origin,
        scratch: &mut Scratch,
    ) -> io::Result<bool> {
        let Scratch { buffers, work, received, spinning, brought, .. } = scratch;
        for _ in 0..BATCHES_PER_TURN {
            let batch = match by {
                Origin::Switch => socket.receive_beside(buffers),
                Origin::Socket | Origin::Behind | Origin::Lent | Origin::Mailbox => {
                    socket.receive(buffers)
                }
            };
            let mut batch = match batch {
                Ok(batch) => batch,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            };
            let (short, long) = (!batch.more, batch.long);
            let by = match by {
                _ if batch.lent => Origin::Lent,
                Origin::Socket if socket.is_behind_port() => Origin::Switch,
                by => by,
            };
            *received += 1;
            spinning.bulk = long;
            let came = self.process(&mut batch, by, work);
            brought.add(long, &came);
            if !work.strays.is_empty() {
                self.hand_back(socket, &mut work.strays);
            }
            if short {
                return Ok(true);
            }
            if long && came.woken {
                break;
            }
        }
        Ok(false)
    }

    /// Hands a batch to its connections, then lets each of them act once.
    fn process(&self, batch: &mut Batch<'_>, by: Origin, work: &mut Work) -> Came {
        let now = self.clock().now();
        let mut received = 0;
        for train in batch.trains() {
            received += train.bytes.len().div_ceil(train.stride) as u64;
            self.deliver(now, train, by, work);
        }
        work.outbox.fill(batch);
        let own = !work.touched.is_empty();
        let foreign = work.outbox.has_any() && !own;
        self.counters().received.fetch_add(received, Ordering::Relaxed);
        self.hand_on(&mut work.outbox);
        Came { woken: self.let_act(now, work), own, foreign }
    }

    /// Hands what other workers have left to its connections, and lets first packets that have waited begin theirs.
    /// True if somebody has something to do now.
    pub(super) fn take_mail(&self, scratch: &mut Scratch) -> bool {
        let Scratch { mail, work, brought, .. } = scratch;
        let now = self.clock().now();
        match self.switch.mailbox(self.number) {
            Some(mailbox) => {
                mailbox.take(mail);
                self.counters().taken.fetch_add(mail.datagrams(), Ordering::Relaxed);
            }
            None if self.aside.is_ready() => self.aside.take(now, mail),
            None => {}
        }
        if mail.is_empty() {
            return false;
        }
        for (remote, local, ecn, stride, bytes) in mail.trains() {
            let train = Train { remote, local, ecn, stride, place: 0, bytes };
            self.deliver(now, train, Origin::Mailbox, work);
        }
        mail.clear();
        brought.own |= !work.touched.is_empty();
        self.let_act(now, work)
    }

    /// Lets each connection that got something act once.
    fn let_act(&self, now: Time, work: &mut Work) -> bool {
        for cell in work.touched.drain(..) {
            let mut conn = cell.lock();
            conn.touched = false;
            self.pump(now, &cell, &mut conn, &mut work.wakes);
        }
        work.wakes.fire_threads()
    }

    fn deliver(&self, now: Time, train: Train<'_>, origin: Origin, work: &mut Work) {
        let Train { remote, local, ecn, stride, place, bytes } = train;
        // What comes from another worker it has told.
        if origin != Origin::Mailbox {
            self.captured_came(remote, local, ecn, stride, bytes);
        }
        let pass_through = self.switch.pass_through.as_deref().filter(|it| it.is_active());
        let len = bytes.len();
        let mut rest = bytes;
        while !rest.is_empty() {
            let is_behind = origin == Origin::Socket && rest.len() < len;
            let origin = if is_behind { Origin::Behind } else { origin };
            if let Some(pass_through) = pass_through {
                let train = Train { remote, local, ecn, stride, place, bytes: &mut *rest };
                let passed = self.pass_on(now, pass_through, train, origin, work);
                if passed > 0 {
                    rest = std::mem::take(&mut rest).split_at_mut(passed).1;
                    continue;
                }
            }
            let (first, _) = rest.split_at_mut(stride.min(rest.len()));
            let mut datagram = Datagram { remote, local, ecn, data: first };
            let first = datagram.data.len();
            let cell = match self.route(now, &mut datagram, origin, work) {
                Destination::Cell(cell) => cell,
                Destination::Nobody => {
                    rest = std::mem::take(&mut rest).split_at_mut(first).1;
                    continue;
                }
                Destination::Worker(worker) => {
                    let run = run_to_one(rest, stride, self.cid_len);
                    let (theirs, more) = std::mem::take(&mut rest).split_at_mut(run);
                    rest = more;
                    if worker == self.switch.workers() {
                        work.strays.add((remote, local), ecn, stride, theirs);
                    } else if origin != Origin::Mailbox {
                        let (parcels, addresses) = (work.outbox.to(worker), (remote, local));
                        if run == len && len >= WHOLE {
                            parcels.add_whole(addresses, ecn, stride, (len, place));
                        } else {
                            parcels.add(addresses, ecn, stride, theirs);
                        }
                    } else {
                        // Never handed on twice: two that disagree would do so for ever.
                        let strays = theirs.len().div_ceil(stride) as u64;
                        self.counters().stray.fetch_add(strays, Ordering::Relaxed);
                    }
                    continue;
                }
            };
            let mut conn = cell.lock();
            let mut train = Datagram { remote, local, ecn, data: rest };
            let used = conn.engine.handle_train(now, &mut train, stride);
            rest = train.data.split_at_mut(used).1;
            if !std::mem::replace(&mut conn.touched, true) {
                drop(conn);
                work.touched.push(cell);
            }
        }
    }

    /// Lets somebody else have the first datagrams of a train, if they are no connection's here. How many bytes are seen
    /// to.
    fn pass_on(
        &self,
        now: Time,
        pass_through: &dyn PassThrough,
        train: Train<'_>,
        origin: Origin,
        work: &mut Work,
    ) -> usize {
        let Train { remote, local, ecn, stride, bytes, .. } = train;
        let (first, _) = bytes.split_at_mut(stride.min(bytes.len()));
        let datagram = Datagram { remote, local, ecn, data: first };
        if !self.routing().endpoint.is_stranger(&datagram, origin.reached()) {
            return 0;
        }
        let run = run_to_one(bytes, stride, self.cid_len);
        let (run, _) = bytes.split_at(run);
        let stray = Arrived { remote, local, ecn, segment_size: stride, bytes: run };
        match pass_through.look(&stray, &Outlet(self.this.clone())) {
            Whose::Others => run.len(),
            Whose::Own { held } => {
                for HeldDatagram { remote, local, ecn, mut bytes } in held {
                    let mut datagram = Datagram { remote, local, ecn, data: &mut bytes };
                    self.deliver_one(now, &mut datagram, origin, work);
                }
                0
            }
        }
    }

    /// Hands a datagram that somebody has held to its connection.
    fn deliver_one(&self, now: Time, datagram: &mut Datagram<'_>, origin: Origin, work: &mut Work) {
        let Destination::Cell(cell) = self.route(now, datagram, origin, work) else { return };
        let mut conn = cell.lock();
        let stride = datagram.data.len();
        conn.engine.handle_train(now, datagram, stride);
        if !std::mem::replace(&mut conn.touched, true) {
            drop(conn);
            work.touched.push(cell);
        }
    }

    /// Finds the connection of a datagram, or answers the datagram.
    fn route(
        &self,
        now: Time,
        datagram: &mut Datagram<'_>,
        origin: Origin,
        work: &mut Work,
    ) -> Destination {
        let unix_secs = self.clock().unix_secs(now);
        let mut routing = self.routing();
        let (endpoint, reply) = (&mut routing.endpoint, &mut work.reply);
        let route = endpoint.route_reached(now, unix_secs, datagram, origin.reached(), reply);
        match route {
            Route::Connection(handle) => {
                return routing
                    .find(handle)
                    .map_or(Destination::Nobody, |cell| Destination::Cell(Arc::clone(cell)));
            }
            Route::Elsewhere(worker) => return Destination::Worker(worker),
            Route::Incoming(incoming) if !self.aside.admits(now, datagram) => {
                endpoint.ignore(incoming);
            }
            Route::Incoming(incoming) => {
                drop(routing);
                if origin == Origin::Socket {
                    self.note_client(&incoming.first_dcid());
                }
                if let Some(cell) = self.on_incoming(now, incoming, &mut work.reply) {
                    work.touched.push(cell);
                }
            }
            Route::Reply => {
                drop(routing);
                self.reply(datagram.remote, datagram.local, &work.reply);
            }
            Route::Waiting => {}
            Route::Dropped(reason) => {
                log::trace!("dropped a datagram from {}: {reason:?}", datagram.remote);
            }
        }
        Destination::Nobody
    }

    /// Hands the switch what belongs to another program.
    fn hand_back(&self, socket: &UdpSocket, strays: &mut Parcels) {
        let Some(port) = socket.port_to_switch() else { return strays.clear() };
        for (remote, local, ecn, stride, bytes) in strays.trains() {
            let datagrams = bytes.len().div_ceil(stride) as u64;
            let train = Arrival { remote, local, ecn, stride, len: bytes.len() };
            let counters = self.counters();
            // While there is no switch, what is handed back waits for the next one, as far as there is room.
            match port.hand_back(&train, bytes) {
                Ok(()) => counters.handed_on.fetch_add(datagrams, Ordering::Relaxed),
                Err(_) => counters.lost.fetch_add(datagrams, Ordering::Relaxed),
            };
        }
        strays.clear();
    }

    pub(super) fn reply(&self, remote: SocketAddr, local: Option<SocketAddr>, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let burst = Outgoing {
            remote,
            local: local.map(|local| local.ip()),
            ecn: EcnCodepoint::NotEct,
            segment_size: bytes.len(),
            bytes,
        };
        if let Some(link) = self.links().for_path(local) {
            // When the kernel's buffer is full, the peer asks again.
            let _ = self.send_by(link, &burst);
        }
    }
}

/// How many bytes of a train lead where its first datagram does: that and those behind it with short
/// headers and the same connection ID of `cid_len` bytes (RFC 9000, Section 17.3.1).
fn run_to_one(train: &[u8], stride: usize, cid_len: usize) -> usize {
    let mut datagrams = train.chunks(stride);
    let Some(first) = datagrams.next() else { return 0 };
    let Some(id) = id_after_short_header(first, cid_len) else { return first.len() };
    let is_alike = |datagram: &&[u8]| id_after_short_header(datagram, cid_len) == Some(id);
    let alike = datagrams.take_while(is_alike);
    first.len() + alike.map(<[u8]>::len).sum::<usize>()
}

fn id_after_short_header(datagram: &[u8], cid_len: usize) -> Option<&[u8]> {
    let is_short = datagram.first().is_some_and(|first| first & 0x80 == 0);
    is_short.then(|| datagram.get(1..=cid_len)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_brings_something_of_its_own_does_not_only_hand_on() {
        let came = |own, foreign| Came { woken: false, own, foreign };
        let brought = |batches: &[(bool, Came)]| {
            let mut brought = Brought::default();
            batches.iter().for_each(|(long, came)| brought.add(*long, came));
            brought.only_hands_on()
        };
        assert!(!brought(&[]));
        assert!(brought(&[(true, came(false, true))]));
        assert!(!brought(&[(false, came(false, true))]), "they are short");
        assert!(brought(&[(true, came(false, true)), (false, came(false, true))]));
        assert!(!brought(&[(true, came(false, true)), (true, came(true, false))]));
        assert!(!brought(&[(false, came(true, false)), (true, came(false, true))]));
    }

    #[test]
    fn datagrams_for_one_connection_id_are_handed_on_together() {
        let short = |id: u8| vec![0x40, id, id, 0xff];
        let long = || vec![0xc0, 1, 1, 0xff];
        let run = |train: &[Vec<u8>]| run_to_one(&train.concat(), 4, 2);
        assert_eq!(run(&[short(1), short(1), short(2), short(1)]), 8);
        assert_eq!(run(&[short(1), short(1), vec![0x40, 1, 1]]), 11, "the last is shorter");
        assert_eq!(run(&[short(1), vec![0x40, 1]]), 4);
        assert_eq!(run(&[short(1), long()]), 4);
        assert_eq!(run(&[long(), long()]), 4, "lengths of connection IDs are in them");
        assert_eq!(run(&[]), 0);
    }
}
