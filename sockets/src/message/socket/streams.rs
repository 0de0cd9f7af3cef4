//! Which stream a message goes to, and whether it may.

use std::task::Poll;

use quicket_engine::crypto::Level;
use quicket_engine::{Connection, RecvState, SendState, StreamStatus};
use quicket_wire::{Dir, StreamId};

use crate::core::Conn;
use crate::message::errno::Errno;
use crate::message::flags::StreamFlags;
use crate::message::ledger::{Account, Ledger, signed};

/// Why a stream cannot be used now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// For good, or until the program does something about it.
    Error(Errno),
    /// The peer does not permit as many streams yet.
    Limit,
    /// The stream's or the connection's limits, or the buffer, leave no room.
    Room,
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Error(errno)
    }
}

/// The stream that a program names, to send on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Its ID; -1 for the latest, or else the next to open.
    pub(super) stream_id: i64,
    pub(super) flags: StreamFlags,
    /// The latest one will do.
    pub(super) or_latest: bool,
}

impl Wanted {
    /// Finds or opens it.
    pub(super) fn open(&mut self, conn: &mut Conn, ledger: &Ledger) -> Result<StreamId, Refusal> {
        if conn.end().is_some() {
            return Err(Errno::EPIPE.into());
        }
        let mut account = ledger.lock();
        let latest = account.active_stream.filter(|_| self.or_latest);
        let id = match (self.stream_id, latest) {
            (-1, Some(latest)) => latest,
            (-1, None) => next_to_open(&conn.engine, self.flags),
            (number, _) => parse(number)?,
        };
        let opened = for_sending(conn, ledger, &mut account, id, self.flags);
        if opened == Err(Refusal::Limit) {
            // The next one by name, whatever is opened meanwhile.
            self.stream_id = signed(id);
        }
        opened.map(|()| id)
    }
}

/// The next stream to open.
fn next_to_open(engine: &Connection, flags: StreamFlags) -> StreamId {
    let dir = if flags.contains(StreamFlags::UNI) { Dir::Uni } else { Dir::Bidi };
    StreamId::new(engine.side(), dir, engine.stream_counts(dir).opened)
}

/// An ID as the interface writes it.
pub(super) fn parse(stream_id: i64) -> Result<StreamId, Errno> {
    let number = u64::try_from(stream_id).map_err(|_| Errno::EINVAL)?;
    StreamId::try_from(number).map_err(|_| Errno::EINVAL)
}

/// True if the interface takes the stream for closed: its halves are through, though the
/// program may not have read all.
fn is_over(status: &StreamStatus) -> bool {
    let sent = status
        .send
        .is_none_or(|send| matches!(send.state, SendState::DataRecvd | SendState::ResetRecvd));
    let received = status
        .recv
        .is_none_or(|recv| !matches!(recv.state, RecvState::Recv | RecvState::SizeKnown));
    sent && received
}

/// Finds a stream to send on, or opens it if the flags say so.
fn find_or_open(
    conn: &mut Conn,
    ledger: &Ledger,
    account: &mut Account,
    id: StreamId,
    flags: StreamFlags,
) -> Result<StreamStatus, Refusal> {
    let engine = &mut conn.engine;
    let is_local = id.initiator() == engine.side();
    if id.dir() == Dir::Uni && !is_local {
        return Err(Errno::EINVAL.into());
    }
    if let Some(status) = engine.stream_status(id).filter(|status| !is_over(status)) {
        return Ok(status);
    }
    if !is_local {
        return Err(Errno::EINVAL.into());
    }
    let counts = engine.stream_counts(id.dir());
    if id.index() < counts.opened {
        return Err(Errno::ENOSTR.into());
    }
    if !flags.contains(StreamFlags::NEW) {
        return Err(Errno::EINVAL.into());
    }
    if id.index() >= counts.permitted {
        // Early data cannot wait for limits that come with the handshake.
        let can_wait = engine.is_established() || ledger.mailbox.can_send(Level::OneRtt);
        if !can_wait {
            return Err(Errno::EINVAL.into());
        }
        if flags.contains(StreamFlags::SNDBLOCK) {
            engine.tell_streams_blocked(id.dir());
        }
        return Err(Refusal::Limit);
    }
    // RFC 9000, Section 2.1: those below are open then too.
    while conn.engine.stream_counts(id.dir()).opened <= id.index() {
        let Poll::Ready(Ok(_)) = conn.open(id.dir()) else { return Err(Errno::ENOMEM.into()) };
    }
    account.active_stream = Some(id);
    conn.engine.stream_status(id).ok_or(Errno::ENOMEM.into())
}

/// Finds or opens a stream for a message.
fn for_sending(
    conn: &mut Conn,
    ledger: &Ledger,
    account: &mut Account,
    id: StreamId,
    flags: StreamFlags,
) -> Result<(), Refusal> {
    let status = find_or_open(conn, ledger, account, id, flags)?;
    let Some(send) = status.send else { return Err(Errno::EINVAL.into()) };
    let is_new = send.state == SendState::Ready && !send.written && !send.finished;
    if flags.contains(StreamFlags::NEW) && !is_new {
        return Err(Errno::EINVAL.into());
    }
    let is_open = matches!(send.state, SendState::Ready | SendState::Send) && !send.finished;
    if is_open { Ok(()) } else { Err(Errno::EINVAL.into()) }
}

/// A stream to reset.
pub(super) fn for_reset(conn: &mut Conn, ledger: &Ledger, id: StreamId) -> Result<(), Errno> {
    let found = find_or_open(conn, ledger, &mut ledger.lock(), id, StreamFlags::NONE);
    let status = found.map_err(|refusal| match refusal {
        Refusal::Error(errno) => errno,
        Refusal::Limit | Refusal::Room => Errno::EAGAIN,
    })?;
    let state = status.send.map(|send| send.state);
    match state {
        Some(SendState::Ready | SendState::Send | SendState::DataSent) => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// A stream of which the peer is asked to stop.
pub(super) fn for_stop(engine: &mut Connection, id: StreamId) -> Result<(), Errno> {
    let is_local = id.initiator() == engine.side();
    if id.dir() == Dir::Uni && is_local {
        return Err(Errno::EINVAL);
    }
    let Some(status) = engine.stream_status(id).filter(|status| !is_over(status)) else {
        let counts = engine.stream_counts(id.dir());
        let opened = if is_local { counts.opened } else { counts.opened_by_peer };
        return Err(if id.index() < opened { Errno::ENOSTR } else { Errno::EINVAL });
    };
    match status.recv {
        Some(recv) if !matches!(recv.state, RecvState::Recv | RecvState::SizeKnown) => {
            Err(Errno::EINVAL)
        }
        // One request is enough.
        Some(recv) if recv.stopped => Err(Errno::EAGAIN),
        Some(_) => Ok(()),
        None => Err(Errno::EINVAL),
    }
}
