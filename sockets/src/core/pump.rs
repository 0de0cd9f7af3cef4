//! What a connection does after anything happened to it: events, datagrams out, timers.

use std::sync::Arc;

use quicket_engine::time::{Duration, Time};
use quicket_engine::{
    Event, StreamEvent, Transmit, TransmitStatus, TransportError, TransportErrorCode,
};
use quicket_wire::Dir;

use super::Core;
use super::attempts::Attempt;
use super::buffers::Buffer;
use super::cell::{Cell, Conn, Role, SendEnd, Unsent, UnsentState};
use super::link::Links;
use super::postpone::POSTPONED;
use super::waiters::{Interest, Wakes};
use crate::config::Hello;
use quicket_udp::{Outgoing, SendOutcome};

/// How many bursts one connection may send before others get their turn.
const BURSTS_PER_TURN: usize = 32;
/// How long what was written is still delivered after the application let go of a connection.
const LINGER: Duration = Duration::from_secs(30);
/// When to ask a cipher again that was busy.
const CIPHER_RETRY: Duration = Duration::from_micros(50);
/// How often at most a connection looks at its timers while the kernel takes no packets of it: an
/// ACK that is due, say, cannot leave, and stays due.
const BLOCKED_RETRY: Duration = Duration::from_millis(10);
/// Later than now.
const INSTANT: Duration = Duration::from_nanos(1);

/// How much a connection is to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// All that it can.
    All,
    /// As long as what was postponed makes a burst.
    Bursts,
}

impl Core {
    /// Lets a connection report, send and set its timer. Call after anything that changed it.
    pub(super) fn pump(&self, now: Time, cell: &Arc<Cell>, conn: &mut Conn, wakes: &mut Wakes) {
        self.pump_as(now, cell, conn, Extent::All, wakes);
    }

    /// Like [`Core::pump`], but perhaps not all of what there is to send.
    pub(super) fn pump_as(
        &self,
        now: Time,
        cell: &Arc<Cell>,
        conn: &mut Conn,
        extent: Extent,
        wakes: &mut Wakes,
    ) {
        conn.postponed = false;
        if extent == Extent::All {
            conn.postponed_bytes = 0;
        }
        if conn.drained {
            return;
        }
        // Before the report, for writers may hear that there is room again.
        conn.settle_memory();
        if !self.defer(cell, conn, wakes) {
            self.report(now, cell, conn, wakes);
        }
        wakes.take_back(&mut conn.engine);
        if conn.attempt != Attempt::Over {
            self.follow_attempt(cell, conn);
        }
        let linger_end = self.linger(now, conn);
        // Before the datagrams that announce new connection IDs: another thread may receive the
        // answers while this one is still sending.
        if self.forward(conn, wakes) {
            return;
        }
        let retry_at = self.transmit(now, cell, conn, extent);
        if self.forward(conn, wakes) {
            return;
        }
        let deadlines = [conn.engine.poll_timeout(), retry_at, linger_end];
        if let Some(deadline) = deadlines.into_iter().flatten().min() {
            self.act_at(now, deadline, cell, conn);
        }
    }

    /// Has a connection act again at `deadline`, but not now: all others, and what comes in, get
    /// their turn before.
    fn act_at(&self, now: Time, deadline: Time, cell: &Arc<Cell>, conn: &mut Conn) {
        let pause = match conn.unsent.as_ref().map(|unsent| unsent.state) {
            None => INSTANT,
            Some(UnsentState::Sealing) => CIPHER_RETRY,
            Some(UnsentState::Blocked(..)) => BLOCKED_RETRY,
        };
        let deadline = deadline.max(now + pause);
        if conn.queued.is_none_or(|queued| deadline < queued) {
            conn.queued = Some(deadline);
            self.schedule(conn.handle, cell, deadline);
        }
    }

    /// Does what is due at a connection's deadline.
    pub(super) fn expire_one(&self, now: Time, cell: &Arc<Cell>, wakes: &mut Wakes) {
        let mut conn = cell.lock();
        conn.queued = None;
        if std::mem::take(&mut conn.progressed) {
            conn.engine.handshake_progressed(now);
        }
        if conn.engine.poll_timeout().is_some_and(|deadline| deadline <= now) {
            conn.engine.handle_timeout(now);
            if conn.engine.is_quiet() {
                cell.spent.return_to(&mut conn.engine);
                cell.spent.trim();
                conn.trim();
            }
        }
        self.pump(now, cell, &mut conn, wakes);
    }

    /// Passes on what the endpoint must know; true if the connection is gone.
    fn forward(&self, conn: &mut Conn, wakes: &mut Wakes) -> bool {
        let mut drained = false;
        while let Some(event) = conn.engine.poll_endpoint_event() {
            drained |= self.routing().handle_event(conn.handle, event, wakes);
        }
        if drained {
            conn.drained = true;
            conn.engine.end_loans();
            wakes.take_back(&mut conn.engine);
            self.unschedule(conn.handle);
            if let Some(unsent) = conn.unsent.take() {
                self.buffers().give(unsent.buffer);
            }
            if self.routing().live() == 0 {
                self.buffers().release();
            }
            self.check_over();
        }
        drained
    }

    /// Passes on what the application may want to know.
    fn report(&self, now: Time, cell: &Arc<Cell>, conn: &mut Conn, wakes: &mut Wakes) {
        while let Some(event) = conn.engine.poll_event() {
            if let Some(tap) = conn.tap.clone() {
                tap.on_event(&mut conn.engine, &event);
            }
            match event {
                Event::Stream(event) => {
                    if conn.role == Role::Announcing && matches!(event, StreamEvent::Opened { .. })
                    {
                        self.announce_early(cell, conn, wakes);
                    }
                    on_stream_event(conn, event, wakes);
                }
                Event::HandshakeComplete => self.on_established(cell, conn, wakes),
                Event::Closed(error) => self.on_closed(conn, error, wakes),
                Event::EarlyDataReady => {
                    conn.early_ready = true;
                    wake_openers(conn, wakes);
                }
                Event::ClientHello { alpn, server_name } => {
                    self.greet(now, cell, conn, (&alpn, server_name.as_deref()), wakes);
                    // TLS may have begun only now: what it asks for was not there when the turn began.
                    if self.defer(cell, conn, wakes) {
                        return;
                    }
                }
                Event::EarlyDataRejected => conn.early_rejected = true,
                Event::DatagramReceived => conn.waiters.wake(Interest::ReceiveDatagram, wakes),
                Event::DatagramsUnblocked => conn.waiters.wake(Interest::SendDatagram, wakes),
                Event::SessionTicket(ticket) => {
                    if let Some(sink) = &conn.sink {
                        sink.session(ticket);
                    }
                }
                Event::NewToken(token) => {
                    if let Some(sink) = &conn.sink {
                        sink.token(token);
                    }
                }
                _ => {}
            }
            conn.waiters.wake(Interest::Message, wakes);
        }
        if let Some(tap) = conn.tap.clone()
            && tap.on_turn(&mut conn.engine, now)
        {
            conn.waiters.wake(Interest::Message, wakes);
        }
    }

    /// Hands a connection over at its ClientHello, and the listener has nothing more to do with it; or has the application
    /// decide about it.
    fn greet(
        &self,
        now: Time,
        cell: &Arc<Cell>,
        conn: &mut Conn,
        (alpn, server_name): (&[Vec<u8>], Option<&str>),
        wakes: &mut Wakes,
    ) {
        if conn.role != Role::Announcing {
            return;
        }
        if let Some(greeter) = self.reception().greeter() {
            self.reception().on_settled();
            conn.role = Role::Announced;
            greeter.on_client_hello(now, (self.number, cell), conn, alpn, wakes);
        } else if let Some(decide) = self.reception().hello() {
            let remote = conn.engine.remote();
            if decide(&Hello { remote, server_name, alpn }) {
                conn.engine.accept_handshake_as_configured(now);
            } else {
                let why = "the application takes no more of these";
                let code = TransportErrorCode::CONNECTION_REFUSED;
                conn.engine.abort(now, TransportError::new(code, why));
            }
        }
    }

    /// An application that has let go of a connection still wants what it wrote to arrive; then
    /// the connection is closed. Returns when to look again at the latest.
    fn linger(&self, now: Time, conn: &mut Conn) -> Option<Time> {
        if !conn.orphan || conn.ended.is_some() {
            return None;
        }
        let until = *conn.lingers_until.get_or_insert(now + LINGER);
        if now < until && !conn.engine.is_delivered() {
            return Some(until);
        }
        conn.engine.close(now, 0, b"");
        None
    }

    /// Hands over a connection whose handshake is not complete, if the listener wants it: there is
    /// early data to read.
    fn announce_early(&self, cell: &Arc<Cell>, conn: &mut Conn, wakes: &mut Wakes) {
        if self.reception().on_early(self.number, cell, wakes) {
            conn.role = Role::Announced;
        }
    }

    fn on_established(&self, cell: &Arc<Cell>, conn: &mut Conn, wakes: &mut Wakes) {
        conn.established = true;
        conn.waiters.wake(Interest::Established, wakes);
        wake_openers(conn, wakes);
        conn.waiters.wake(Interest::SendDatagram, wakes);
        if conn.role == Role::Announcing {
            conn.role = Role::Announced;
            if !self.reception().on_ready(self.number, cell, wakes) {
                // The listener is gone.
                conn.orphan = true;
            }
        }
    }

    fn on_closed(
        &self,
        conn: &mut Conn,
        error: quicket_engine::ConnectionError,
        wakes: &mut Wakes,
    ) {
        if conn.role == Role::Announcing {
            conn.role = Role::Announced;
            log::debug!("a handshake with {} failed: {error}", conn.engine.remote());
            self.reception().on_settled();
        }
        conn.ended = Some(error);
        conn.engine.end_loans();
        conn.settle_memory();
        conn.waiters.wake_all(wakes);
    }

    /// Sends what is to be sent. Returns when to try again, if nobody else will say so.
    fn transmit(
        &self,
        now: Time,
        cell: &Arc<Cell>,
        conn: &mut Conn,
        extent: Extent,
    ) -> Option<Time> {
        let links = self.links();
        let mut buffer = match conn.unsent.take().map(|unsent| *unsent) {
            None => self.buffers().take(),
            Some(Unsent { buffer, state: UnsentState::Sealing }) => buffer,
            Some(Unsent { buffer, state: UnsentState::Blocked(transmit, sent) }) => {
                match self.send(&links, &buffer, &transmit, sent, conn) {
                    None => buffer,
                    Some(sent) => {
                        self.block(&links, cell, conn, buffer, (transmit, sent));
                        return None;
                    }
                }
            }
        };
        let mut retry_at = Some(now);
        for _ in 0..BURSTS_PER_TURN {
            if extent == Extent::Bursts && conn.postponed_bytes < POSTPONED {
                retry_at = None;
                break;
            }
            match conn.engine.poll_transmit(now, &mut buffer, links.max_segments()) {
                TransmitStatus::Idle => {
                    // What is left waits for the peer.
                    conn.postponed_bytes = 0;
                    retry_at = None;
                    break;
                }
                TransmitStatus::NotYet => {
                    conn.unsent = Some(Box::new(Unsent { buffer, state: UnsentState::Sealing }));
                    return Some(now + CIPHER_RETRY);
                }
                TransmitStatus::Ready(transmit) => {
                    conn.sent_at = now;
                    conn.postponed_bytes = conn.postponed_bytes.saturating_sub(transmit.len);
                    if let Some(sent) = self.send(&links, &buffer, &transmit, 0, conn) {
                        self.block(&links, cell, conn, buffer, (transmit, sent));
                        return None;
                    }
                }
            }
        }
        self.buffers().give(buffer);
        retry_at
    }

    /// Keeps a burst of which so much is out until its socket has room.
    fn block(
        &self,
        links: &Links,
        cell: &Arc<Cell>,
        conn: &mut Conn,
        buffer: Buffer,
        (transmit, sent): (Transmit, usize),
    ) {
        let state = UnsentState::Blocked(transmit, sent);
        conn.unsent = Some(Box::new(Unsent { buffer, state }));
        let waits = std::mem::replace(&mut conn.waits_for_room, true);
        if let Some(link) = links.for_path(transmit.local) {
            self.wait_for_room((!waits).then_some(cell), link);
        }
    }

    /// Hands a burst to the kernel, less what is out already. `None` if it took all; else how much
    /// is out now.
    fn send(
        &self,
        links: &Links,
        buffer: &[u8],
        transmit: &Transmit,
        sent: usize,
        conn: &mut Conn,
    ) -> Option<usize> {
        let outgoing = Outgoing {
            remote: transmit.remote,
            local: transmit.local.map(|local| local.ip()),
            ecn: transmit.ecn,
            segment_size: transmit.segment_size,
            bytes: buffer.get(sent..transmit.len).unwrap_or_default(),
        };
        let link = links.for_path(transmit.local)?;
        debug_assert_eq!(conn.engine.poll_endpoint_event(), None, "answers would not find the way");
        // Who follows the network moves by itself: no connection ID is to be seen at two addresses (RFC 9000, Section 9.5),
        // but where the engine has no other choice (`Connection::move_at_once`).
        let outcome = match conn.follow {
            Some(_) => self.send_strictly_by(link, &outgoing),
            None => self.send_by(link, &outgoing),
        };
        match outcome {
            SendOutcome::Done => None,
            SendOutcome::TooLarge => {
                conn.engine.on_send_refused(transmit.segment_size);
                None
            }
            SendOutcome::Blocked { sent: more } => Some(sent + more),
        }
    }
}

fn on_stream_event(conn: &mut Conn, event: StreamEvent, wakes: &mut Wakes) {
    match event {
        StreamEvent::Opened { dir } => conn.waiters.wake(Interest::Accept(dir), wakes),
        StreamEvent::Available { dir } => conn.waiters.wake(Interest::Open(dir), wakes),
        StreamEvent::Readable { id } => conn.waiters.wake(Interest::Readable(id), wakes),
        StreamEvent::Writable { id } => conn.waiters.wake(Interest::Writable(id), wakes),
        StreamEvent::Finished { id } => {
            conn.on_send_end(id, SendEnd::Finished);
            conn.waiters.wake(Interest::SendDone(id), wakes);
        }
        StreamEvent::Stopped { id, code } => {
            conn.on_send_end(id, SendEnd::Stopped(code));
            conn.waiters.wake(Interest::SendDone(id), wakes);
            conn.waiters.wake(Interest::Writable(id), wakes);
        }
        _ => {}
    }
}

fn wake_openers(conn: &mut Conn, wakes: &mut Wakes) {
    conn.waiters.wake(Interest::Open(Dir::Bidi), wakes);
    conn.waiters.wake(Interest::Open(Dir::Uni), wakes);
}
