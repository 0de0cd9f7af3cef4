//! Datagrams in: trains to connections, one look-up per train.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use quicket_engine::time::Time;
use quicket_engine::{Datagram, Route};
use quicket_wire::EcnCodepoint;

use super::Core;
use super::cell::Cell;
use super::lead::Token;
use super::spin::Spinning;
use super::waiters::{Tasks, Wakes};
use crate::udp::{Batch, Outgoing, ReceiveBuffers, Train, UdpSocket};

/// How many batches one turn receives before timers and the application get theirs.
const BATCHES_PER_TURN: usize = 8;

/// What a leader works with; kept for the next one.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(super) buffers: ReceiveBuffers,
    pub(super) work: Work,
    /// How many batches came.
    pub(super) received: u64,
    pub(super) spinning: Spinning,
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
}

impl Core {
    /// Receives what is there and processes it; true if the socket was empty at the end.
    pub(super) fn receive(&self, socket: &UdpSocket, scratch: &mut Scratch) -> io::Result<bool> {
        let Scratch { buffers, work, received, spinning, .. } = scratch;
        for _ in 0..BATCHES_PER_TURN {
            let mut batch = match socket.receive(buffers) {
                Ok(batch) => batch,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            };
            let (short, long) = (!batch.more, batch.long);
            *received += 1;
            spinning.bulk = long;
            let woken = self.process(&mut batch, work);
            if short {
                return Ok(true);
            }
            if long && woken {
                break;
            }
        }
        Ok(false)
    }

    /// Hands a batch to its connections, then lets each of them act once. True if somebody has
    /// something to do now.
    fn process(&self, batch: &mut Batch<'_>, work: &mut Work) -> bool {
        let now = self.clock().now();
        for train in batch.trains() {
            self.deliver(now, train, work);
        }
        for cell in work.touched.drain(..) {
            let mut conn = cell.lock();
            conn.touched = false;
            self.pump(now, &cell, &mut conn, &mut work.wakes);
        }
        work.wakes.fire_threads()
    }

    fn deliver(&self, now: Time, train: Train<'_>, work: &mut Work) {
        let Train { remote, local, ecn, stride, bytes } = train;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (first, _) = rest.split_at_mut(stride.min(rest.len()));
            let mut datagram = Datagram { remote, local, ecn, data: first };
            let first = datagram.data.len();
            let Some(cell) = self.route(now, &mut datagram, work) else {
                rest = std::mem::take(&mut rest).split_at_mut(first).1;
                continue;
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

    /// Finds the connection of a datagram, or answers the datagram.
    fn route(&self, now: Time, datagram: &mut Datagram<'_>, work: &mut Work) -> Option<Arc<Cell>> {
        let unix_secs = self.clock().unix_secs(now);
        let mut routing = self.routing();
        match routing.endpoint.route(now, unix_secs, datagram, &mut work.reply) {
            Route::Connection(handle) => return routing.find(handle).cloned(),
            Route::Incoming(incoming) => {
                drop(routing);
                if let Some(cell) = self.on_incoming(now, incoming, &mut work.reply) {
                    work.touched.push(cell);
                }
            }
            Route::Reply => {
                drop(routing);
                self.reply(datagram.remote, datagram.local, &work.reply);
            }
            Route::Dropped(reason) => {
                log::trace!("dropped a datagram from {}: {reason:?}", datagram.remote);
            }
        }
        None
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
            let _ = link.sender.send(&burst);
        }
    }
}
