//! Streams.

use std::task::{Poll, ready};

use bytes::{Buf, Bytes};
use quicket_engine::{Chunk, Lent, NotTaken, ReadOutcome};
use quicket_wire::{Dir, StreamId};

use super::super::core::{Conn, ConnRef, Effect, Interest, SendEnd, Waiter};
use crate::error::{AcceptError, OpenError, ReadError, WriteError};

/// With so many streams at most, the end of one is sent at once: as in one exchange after the other,
/// where the previous stream is still to be acknowledged.
const FEW_STREAMS: usize = 2;

/// Less than this is copied, in bytes: a packet or a few, which fit into memory that is there.
const LEAST_LENT: usize = 8 << 10;

/// How much is lent in a piece, in bytes: each is held until the peer has all of it.
const MOST_LENT: usize = 256 << 10;

/// How far a stream may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// As far as the send buffer has room. What the peer has no credit for yet waits there.
    Buffer,
    /// No further than the peer's limits, as the sockets of the kernel have it.
    Credit,
}

/// What APIs do to streams with the connection locked.
impl Conn {
    /// Opens the next stream of this side.
    pub(crate) fn open(&mut self, dir: Dir) -> Poll<Result<StreamId, OpenError>> {
        if let Some(error) = self.end() {
            return Poll::Ready(Err(OpenError::Lost(error)));
        }
        match self.engine.open(dir) {
            Ok(id) => Poll::Ready(Ok(id)),
            Err(quicket_engine::OpenError::StreamLimit) => Poll::Pending,
            Err(_) => Poll::Ready(Err(OpenError::OutOfMemory)),
        }
    }

    /// Why nothing was read, unless something may come: then `waiter` hears of it.
    fn unread<T>(
        &mut self,
        id: StreamId,
        error: quicket_engine::ReadError,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<T, ReadError>> {
        match (read_error(error), self.lost()) {
            (Some(error), _) => Poll::Ready(Err(error)),
            (None, Some(error)) => Poll::Ready(Err(ReadError::Lost(error))),
            (None, None) => {
                self.wait(Interest::Readable(id), waiter);
                Poll::Pending
            }
        }
    }

    /// Writes as much as there is room for, at least one byte unless `data` is empty.
    pub(crate) fn write(
        &mut self,
        id: StreamId,
        data: &[u8],
        ahead: Ahead,
    ) -> Poll<Result<usize, WriteError>> {
        if let Some(error) = self.end() {
            return Poll::Ready(Err(WriteError::Lost(error)));
        }
        let room = match ahead {
            Ahead::Buffer => None,
            Ahead::Credit => self.engine.send_room(id),
        };
        // Without a limit here, writing says what there is room for, or what is wrong.
        let limit = room.map_or(usize::MAX, |room| {
            usize::try_from(room.credit).unwrap_or(usize::MAX).min(room.buffer)
        });
        if limit == 0 && !data.is_empty() {
            return Poll::Pending;
        }
        match self.engine.write(id, data.get(..limit).unwrap_or(data)) {
            Ok(written) => Poll::Ready(Ok(written)),
            Err(quicket_engine::WriteError::Blocked) => Poll::Pending,
            Err(error) => Poll::Ready(Err(write_error(self.send_end(id), error))),
        }
    }

    /// The same, but large pieces are sent from where they are; what was taken is no more in `data`.
    pub(crate) fn write_bytes(
        &mut self,
        id: StreamId,
        data: &mut Bytes,
    ) -> Poll<Result<usize, WriteError>> {
        if let Some(error) = self.end() {
            return Poll::Ready(Err(WriteError::Lost(error)));
        }
        let room = self.engine.send_capacity(id).unwrap_or(0).min(data.len()).min(MOST_LENT);
        if room < LEAST_LENT {
            let written = ready!(self.write(id, data, Ahead::Buffer));
            data.advance(*written.as_ref().unwrap_or(&0));
            return Poll::Ready(written);
        }
        // Where it is not taken, this is not the last that holds it, so that nothing is dropped here.
        match self.engine.lend(id, Lent::new(data.slice(..room))) {
            Ok(()) => {
                data.advance(room);
                Poll::Ready(Ok(room))
            }
            Err(NotTaken { error: quicket_engine::WriteError::Blocked, .. }) => Poll::Pending,
            Err(NotTaken { error, .. }) => Poll::Ready(Err(write_error(self.send_end(id), error))),
        }
    }

    /// Ends a stream.
    pub(crate) fn finish(&mut self, id: StreamId) -> Result<(), WriteError> {
        match (self.end(), self.engine.finish(id)) {
            (_, Ok(())) => Ok(()),
            (Some(error), _) => Err(WriteError::Lost(error)),
            (None, Err(error)) => Err(write_error(self.send_end(id), error)),
        }
    }

    /// What is to be done once so many bytes and the end of a stream were written. Where few streams are open, little is
    /// likely to follow.
    fn after_end(&self, bytes: usize) -> Effect {
        match self.engine.stream_count() {
            ..=FEW_STREAMS => Effect::Now,
            _ => Effect::Written(bytes),
        }
    }

    /// Gives a stream up.
    pub(crate) fn reset(&mut self, id: StreamId, code: u64) -> Result<(), WriteError> {
        self.engine.reset(id, code).map_err(|error| write_error(self.send_end(id), error))
    }

    /// What is to be done about what was written, for programs that say what follows or leave it to
    /// Nagle's rule: less than a packet waits with `more`, or without `nodelay` while others are in
    /// flight. With `more` it waits until there is a packet full of it, else until a packet goes out
    /// anyway, such as when others are acknowledged. The other rule, until the thread waits, is
    /// [`Effect::Written`].
    pub(crate) fn gather(&mut self, more: bool, nodelay: bool) -> Effect {
        let engine = &mut self.engine;
        let waits = more || (!nodelay && engine.bytes_in_flight() > 0);
        let fills_a_packet = || engine.bytes_unsent() >= engine.max_packet_payload() as u64;
        let now = !engine.is_established() || !waits || fills_a_packet();
        engine.cork_streams(more && !now);
        if now { Effect::Now } else { Effect::None }
    }
}

impl ConnRef {
    /// Opens a stream.
    pub(crate) fn poll_open(
        &self,
        dir: Dir,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<StreamId, OpenError>> {
        self.try_later(
            |_| Effect::Later(0),
            |conn| {
                let opened = conn.open(dir);
                match &opened {
                    Poll::Ready(Ok(id)) => _ = conn.send_ends.insert(*id, None),
                    Poll::Ready(Err(_)) => {}
                    Poll::Pending => conn.wait(Interest::Open(dir), waiter),
                }
                opened
            },
        )
    }

    /// The next stream that the peer opened, and whether it came as early data.
    pub(crate) fn poll_accept(
        &self,
        dir: Dir,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<(StreamId, bool), AcceptError>> {
        self.try_later(
            |_| Effect::Later(0),
            |conn| match (conn.accept(dir), conn.lost()) {
                (Some(next), _) => Poll::Ready(Ok(next)),
                (None, Some(error)) => Poll::Ready(Err(AcceptError::Lost(error))),
                (None, None) => {
                    conn.wait(Interest::Accept(dir), waiter);
                    Poll::Pending
                }
            },
        )
    }

    /// Reads what has arrived.
    pub(crate) fn poll_read(
        &self,
        id: StreamId,
        out: &mut [u8],
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<ReadOutcome, ReadError>> {
        self.try_later(after_read, |conn| match conn.engine.read(id, out) {
            Ok(outcome) => Poll::Ready(Ok(outcome)),
            Err(error) => conn.unread(id, error, waiter),
        })
    }

    /// Takes what has arrived out in its buffer, and gives `spent` back.
    pub(crate) fn poll_chunk(
        &self,
        id: StreamId,
        spent: &mut Option<Chunk>,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<Chunk, ReadError>> {
        let effect = |taken: &Result<Chunk, _>| Effect::Later(taken.as_ref().map_or(0, Chunk::len));
        self.try_later(effect, |conn| {
            self.spent().return_to(&mut conn.engine);
            match conn.engine.take_chunk(id, spent.take()) {
                Ok(chunk) => Poll::Ready(Ok(chunk)),
                Err(error) => conn.unread(id, error, waiter),
            }
        })
    }

    /// Takes the buffer of a chunk back.
    pub(crate) fn give_back(&self, spent: Chunk) {
        self.look(|conn| conn.engine.give_back(spent));
    }

    /// Shows what has arrived to `view` in its place; `view`, which is not the application's, says how
    /// much of it it took.
    pub(crate) fn poll_view(
        &self,
        id: StreamId,
        view: &mut dyn FnMut(&[u8], bool) -> usize,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<ReadOutcome, ReadError>> {
        self.try_later(after_read, |conn| {
            let taken = match conn.engine.peek(id) {
                Ok(peek) => {
                    let last = peek.fin && peek.second.is_empty();
                    view(peek.first, last).min(peek.first.len())
                }
                Err(error) => {
                    if matches!(error, quicket_engine::ReadError::Reset(_)) {
                        // Telling the application of a reset ends the stream (RFC 9000,
                        // Section 3.2), and makes room for another one. Looking does neither.
                        let _ = conn.engine.consume(id, 0);
                    }
                    return conn.unread(id, error, waiter);
                }
            };
            let outcome = conn.engine.consume(id, taken);
            Poll::Ready(outcome.map_err(|error| read_error(error).unwrap_or(ReadError::Closed)))
        })
    }

    /// Wants no more of a stream.
    pub(crate) fn stop(&self, id: StreamId, code: u64) -> Result<(), ReadError> {
        let (stopped, _left) = self.act(|conn, _| {
            let stopped = conn.engine.stop_sending(id, code);
            (stopped, conn.waiters.forget(Interest::Readable(id)))
        });
        stopped.map_err(|error| read_error(error).unwrap_or(ReadError::Closed))
    }

    /// Writes as much as there is room for.
    pub(crate) fn poll_write(
        &self,
        id: StreamId,
        data: &[u8],
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<usize, WriteError>> {
        self.try_later(
            |written: &Result<usize, WriteError>| Effect::Written(*written.as_ref().unwrap_or(&0)),
            |conn| {
                let written = conn.write(id, data, Ahead::Buffer);
                if written.is_pending() {
                    conn.wait(Interest::Writable(id), waiter);
                }
                written
            },
        )
    }

    /// The same, but large pieces are sent from where they are; what was taken is no more in `data`.
    pub(crate) fn poll_write_bytes(
        &self,
        id: StreamId,
        data: &mut Bytes,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<usize, WriteError>> {
        self.try_later(
            |written: &Result<usize, WriteError>| Effect::Written(*written.as_ref().unwrap_or(&0)),
            |conn| {
                let written = conn.write_bytes(id, data);
                if written.is_pending() {
                    conn.wait(Interest::Writable(id), waiter);
                }
                written
            },
        )
    }

    /// Ends a stream.
    pub(crate) fn finish(&self, id: StreamId) -> Result<(), WriteError> {
        self.act_untimed(|conn| {
            let finished = conn.finish(id);
            (finished, conn.after_end(0))
        })
    }

    /// Writes as much as there is room for; where that is all, the stream ends behind it.
    pub(crate) fn poll_write_last(
        &self,
        id: StreamId,
        data: &[u8],
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<usize, WriteError>> {
        self.act_untimed(|conn| match conn.write(id, data, Ahead::Buffer) {
            Poll::Ready(Ok(written)) if written == data.len() => {
                let finished = conn.finish(id).map(|()| written);
                (Poll::Ready(finished), conn.after_end(written))
            }
            Poll::Ready(written) => {
                let bytes = *written.as_ref().unwrap_or(&0);
                (Poll::Ready(written), Effect::Written(bytes))
            }
            Poll::Pending => {
                conn.wait(Interest::Writable(id), waiter);
                (Poll::Pending, Effect::None)
            }
        })
    }

    /// Gives a stream up.
    pub(crate) fn reset(&self, id: StreamId, code: u64) -> Result<(), WriteError> {
        self.act(|conn, _| conn.reset(id, code))
    }

    /// Sets a stream's priority.
    pub(crate) fn set_priority(&self, id: StreamId, priority: i32) -> Result<(), WriteError> {
        self.act(|conn, _| match conn.engine.set_priority(id, priority) {
            Ok(()) => Ok(()),
            Err(error) => Err(write_error(conn.send_end(id), error)),
        })
    }

    /// Lets the peer hear of a stream before anything is sent on it.
    pub(crate) fn announce(&self, id: StreamId) -> Result<(), WriteError> {
        self.act(|conn, _| match conn.engine.announce(id) {
            Ok(()) => Ok(()),
            Err(error) => Err(write_error(conn.send_end(id), error)),
        })
    }

    /// Waits until the peer has everything (`None`) or wants no more (its code).
    pub(crate) fn poll_send_done(
        &self,
        id: StreamId,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<Option<u64>, WriteError>> {
        self.try_later(
            |_| Effect::Later(0),
            |conn| match (conn.send_end(id), conn.lost()) {
                (Some(SendEnd::Finished), _) => Poll::Ready(Ok(None)),
                (Some(SendEnd::Stopped(code)), _) => Poll::Ready(Ok(Some(code))),
                (None, Some(error)) => Poll::Ready(Err(WriteError::Lost(error))),
                (None, None) => {
                    conn.wait(Interest::SendDone(id), waiter);
                    Poll::Pending
                }
            },
        )
    }

    /// The application lets go of a sending half: ends the stream if that was not done yet, or
    /// gives it up if the application is unwinding.
    pub(crate) fn release_send(&self, id: StreamId, ended: bool) {
        // Who polled or waited with a time limit may be on the lists still.
        let _left = self.act_untimed(|conn| {
            conn.send_ends.remove(&id);
            if !ended && std::thread::panicking() {
                let _ = conn.engine.reset(id, 0);
            } else if !ended {
                let _ = conn.engine.finish(id);
            }
            let waiters = &mut conn.waiters;
            let left =
                (waiters.forget(Interest::Writable(id)), waiters.forget(Interest::SendDone(id)));
            (left, if ended { Effect::None } else { Effect::Later(0) })
        });
    }

    /// The application lets go of a receiving half.
    pub(crate) fn release_receive(&self, id: StreamId, ended: bool) {
        if !ended {
            let _left = self.later(|conn| {
                let _ = conn.engine.stop_sending(id, 0);
                conn.waiters.forget(Interest::Readable(id))
            });
        }
    }
}

/// The window has room for as much as was read.
fn after_read(read: &Result<ReadOutcome, ReadError>) -> Effect {
    Effect::Later(read.as_ref().map_or(0, |outcome| outcome.len))
}

/// The engine's error as the application hears it; `None` for "not yet".
fn read_error(error: quicket_engine::ReadError) -> Option<ReadError> {
    Some(match error {
        quicket_engine::ReadError::Blocked => return None,
        quicket_engine::ReadError::Reset(code) => ReadError::Reset(code),
        quicket_engine::ReadError::OutOfMemory => ReadError::OutOfMemory,
        _ => ReadError::Closed,
    })
}

/// The engine's error as the application hears it. The engine forgets a stopped stream once its
/// reset is acknowledged; `end` does not.
fn write_error(end: Option<SendEnd>, error: quicket_engine::WriteError) -> WriteError {
    match (end, error) {
        (Some(SendEnd::Stopped(code)), _) => WriteError::Stopped(code),
        (_, quicket_engine::WriteError::Stopped(code)) => WriteError::Stopped(code),
        (_, quicket_engine::WriteError::Blocked) => WriteError::WouldBlock,
        (_, quicket_engine::WriteError::OutOfMemory) => WriteError::OutOfMemory,
        _ => WriteError::Closed,
    }
}
