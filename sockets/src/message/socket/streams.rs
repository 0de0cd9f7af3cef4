//! Which stream a message goes to, and whether it may.

use quicket_engine::crypto::Level;
use quicket_engine::{Connection, RecvState, SendState, StreamStatus};
use quicket_wire::{Dir, StreamId};

use crate::message::errno::Errno;
use crate::message::flags::StreamFlags;
use crate::message::ledger::{Account, Ledger};

/// Why a stream cannot be used now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// For good, or until the program does something about it.
    Error(Errno),
    /// The peer does not permit as many streams yet.
    Limit,
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Error(errno)
    }
}

/// The stream that a message goes to: the one that it names, or else the latest, or else the
/// next to open.
pub(super) fn resolve(
    engine: &Connection,
    account: &Account,
    stream_id: i64,
    flags: StreamFlags,
) -> Result<StreamId, Errno> {
    if stream_id == -1 {
        return Ok(account.active_stream.unwrap_or_else(|| next_to_open(engine, flags)));
    }
    parse(stream_id)
}

/// The next stream to open.
pub(super) fn next_to_open(engine: &Connection, flags: StreamFlags) -> StreamId {
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
pub(super) fn find_or_open(
    engine: &mut Connection,
    ledger: &Ledger,
    account: &mut Account,
    id: StreamId,
    flags: StreamFlags,
) -> Result<StreamStatus, Refusal> {
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
    while engine.stream_counts(id.dir()).opened <= id.index() {
        engine.open(id.dir()).map_err(|_| Errno::ENOMEM)?;
    }
    account.active_stream = Some(id);
    engine.stream_status(id).ok_or(Errno::ENOMEM.into())
}

/// Finds or opens a stream for a message.
pub(super) fn for_sending(
    engine: &mut Connection,
    ledger: &Ledger,
    account: &mut Account,
    id: StreamId,
    flags: StreamFlags,
) -> Result<(), Refusal> {
    let status = find_or_open(engine, ledger, account, id, flags)?;
    let Some(send) = status.send else { return Err(Errno::EINVAL.into()) };
    let is_new = send.state == SendState::Ready && !send.written && !send.finished;
    if flags.contains(StreamFlags::NEW) && !is_new {
        return Err(Errno::EINVAL.into());
    }
    let is_open = matches!(send.state, SendState::Ready | SendState::Send) && !send.finished;
    if is_open { Ok(()) } else { Err(Errno::EINVAL.into()) }
}

/// A stream to reset.
pub(super) fn for_reset(
    engine: &mut Connection,
    ledger: &Ledger,
    account: &mut Account,
    id: StreamId,
) -> Result<(), Errno> {
    let found = find_or_open(engine, ledger, account, id, StreamFlags::NONE);
    let status = found.map_err(|refusal| match refusal {
        Refusal::Error(errno) => errno,
        Refusal::Limit => Errno::EAGAIN,
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
