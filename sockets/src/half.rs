//! The two halves of a stream as both APIs hold them.

use std::sync::Arc;
use std::task::{Poll, ready};

use bytes::Bytes;
use quicket_engine::ReadOutcome;
use quicket_wire::StreamId;

use crate::chunk::Chunk;
use crate::core::{ConnRef, Waiter};
use crate::error::{ReadError, WriteError};

/// A sending half. Dropping it ends the stream, or resets it while the thread panics.
#[derive(Debug)]
pub(crate) struct SendHalf {
    conn: ConnRef,
    id: StreamId,
    ended: bool,
}

impl SendHalf {
    pub(crate) const fn new(conn: ConnRef, id: StreamId) -> Self {
        Self { conn, id, ended: false }
    }

    pub(crate) const fn id(&self) -> StreamId {
        self.id
    }

    pub(crate) const fn conn(&self) -> &ConnRef {
        &self.conn
    }

    pub(crate) fn poll_write(
        &self,
        data: &[u8],
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<usize, WriteError>> {
        self.conn.poll_write(self.id, data, waiter)
    }

    /// Writes, and ends the stream if that was all.
    pub(crate) fn poll_write_last(
        &mut self,
        data: &[u8],
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<usize, WriteError>> {
        let written = ready!(self.conn.poll_write_last(self.id, data, waiter));
        self.ended |= written.as_ref().is_ok_and(|written| *written == data.len());
        Poll::Ready(written)
    }

    pub(crate) fn poll_write_bytes(
        &self,
        data: &mut Bytes,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<usize, WriteError>> {
        self.conn.poll_write_bytes(self.id, data, waiter)
    }

    /// Waits until the peer has everything or wants no more.
    pub(crate) fn poll_done(
        &self,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<Option<u64>, WriteError>> {
        self.conn.poll_send_done(self.id, waiter)
    }

    pub(crate) fn finish(&mut self) -> Result<(), WriteError> {
        self.ended = true;
        self.conn.finish(self.id)
    }

    /// True after [`SendHalf::finish`] or [`SendHalf::reset`].
    pub(crate) const fn is_ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn reset(&mut self, code: u64) -> Result<(), WriteError> {
        self.ended = true;
        self.conn.reset(self.id, code)
    }

    pub(crate) fn announce(&self) -> Result<(), WriteError> {
        self.conn.announce(self.id)
    }

    pub(crate) fn set_priority(&self, priority: i32) -> Result<(), WriteError> {
        self.conn.set_priority(self.id, priority)
    }
}

impl Drop for SendHalf {
    fn drop(&mut self) {
        self.conn.release_send(self.id, self.ended);
    }
}

/// A receiving half. Dropping it before its end stops it with code 0.
#[derive(Debug)]
pub(crate) struct RecvHalf {
    conn: ConnRef,
    id: StreamId,
    early: bool,
    state: ReadState,
    /// What is taken out and not read, or its buffer.
    chunk: Option<quicket_engine::Chunk>,
}

/// How far a stream is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadState {
    Open,
    /// The end was reached.
    AtEnd,
    /// The peer reset it.
    Reset(u64),
    /// This side stopped it.
    Stopped,
}

/// What there is to read now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// This many bytes.
    Read(usize),
    /// The end of the stream.
    End,
}

impl Progress {
    /// As [`std::io::Read::read`] counts.
    pub(crate) const fn count(self) -> usize {
        match self {
            Self::Read(len) => len,
            Self::End => 0,
        }
    }
}

impl RecvHalf {
    pub(crate) const fn new(conn: ConnRef, id: StreamId, early: bool) -> Self {
        Self { conn, id, early, state: ReadState::Open, chunk: None }
    }

    pub(crate) const fn id(&self) -> StreamId {
        self.id
    }

    pub(crate) const fn conn(&self) -> &ConnRef {
        &self.conn
    }

    /// The stream came before the handshake was complete.
    pub(crate) const fn is_early(&self) -> bool {
        self.early
    }

    pub(crate) fn poll_read(
        &mut self,
        out: &mut [u8],
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<Progress, ReadError>> {
        if self.holds_bytes() {
            return Poll::Ready(self.view_chunk(&mut |bytes, _| {
                let len = bytes.len().min(out.len());
                out.split_at_mut(len).0.copy_from_slice(bytes.split_at(len).0);
                len
            }));
        }
        match self.state {
            ReadState::Open => {
                let poll = self.conn.poll_read(self.id, out, waiter);
                poll.map(|result| self.note(result))
            }
            _ => Poll::Ready(self.past()),
        }
    }

    /// Shows the application what has arrived, with nothing locked; it says how much it takes. The
    /// rest stays here.
    pub(crate) fn poll_chunk(
        &mut self,
        view: &mut dyn FnMut(&[u8], bool) -> usize,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<Progress, ReadError>> {
        if self.state != ReadState::Open {
            return Poll::Ready(self.past());
        }
        if !self.holds_bytes() {
            match ready!(self.conn.poll_chunk(self.id, &mut self.chunk, waiter)) {
                Ok(chunk) => self.chunk = Some(chunk),
                Err(error) => return Poll::Ready(self.note(Err(error))),
            }
        }
        Poll::Ready(self.view_chunk(view))
    }

    /// Gives the application what has arrived, as much as lies in one piece; `None` at the end.
    pub(crate) fn poll_take(
        &mut self,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<Option<Chunk>, ReadError>> {
        if self.state != ReadState::Open {
            return Poll::Ready(self.past().map(|_| None));
        }
        if !self.holds_bytes() {
            match ready!(self.conn.poll_chunk(self.id, &mut self.chunk, waiter)) {
                Ok(chunk) => self.chunk = Some(chunk),
                Err(error) => return Poll::Ready(self.note(Err(error)).map(|_| None)),
            }
        }
        let taken = Chunk::take_from(&mut self.chunk, Arc::clone(self.conn.spent()));
        let (len, fin) = taken.as_ref().map_or((0, true), |chunk| (chunk.len(), chunk.is_last()));
        let progress = self.note(Ok(ReadOutcome { len, fin }));
        Poll::Ready(progress.map(|_| taken.filter(|chunk| !chunk.is_empty())))
    }

    fn holds_bytes(&self) -> bool {
        self.chunk.as_ref().is_some_and(|chunk| !chunk.is_empty())
    }

    /// Shows what was taken out.
    fn view_chunk(
        &mut self,
        view: &mut dyn FnMut(&[u8], bool) -> usize,
    ) -> Result<Progress, ReadError> {
        let Some(chunk) = &mut self.chunk else { return self.past() };
        let bytes = chunk.bytes();
        let len = view(bytes, chunk.is_last()).min(bytes.len());
        chunk.advance(len);
        let fin = chunk.fin() && chunk.is_empty();
        if fin {
            self.give_back();
        }
        self.note(Ok(ReadOutcome { len, fin }))
    }

    fn give_back(&mut self) {
        self.chunk.take().into_iter().for_each(|chunk| self.conn.give_back(chunk));
    }

    /// Shows what has arrived to `view`, which is ours, with the connection locked.
    fn poll_view(
        &mut self,
        view: &mut dyn FnMut(&[u8], bool) -> usize,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<Progress, ReadError>> {
        if self.holds_bytes() {
            return Poll::Ready(self.view_chunk(view));
        }
        match self.state {
            ReadState::Open => {
                let poll = self.conn.poll_view(self.id, view, waiter);
                poll.map(|result| self.note(result))
            }
            _ => Poll::Ready(self.past()),
        }
    }

    /// Appends what there is to `all`, as long as it stays within `limit` bytes; `None` if it
    /// does not, and then the stream is stopped.
    pub(crate) fn poll_append(
        &mut self,
        all: &mut Vec<u8>,
        limit: usize,
        waiter: Option<Waiter<'_>>,
    ) -> Poll<Result<Option<Progress>, ReadError>> {
        let mut too_long = false;
        let poll = self.poll_view(
            &mut |bytes, _| {
                too_long = all.len().saturating_add(bytes.len()) > limit;
                if too_long {
                    return 0;
                }
                all.extend_from_slice(bytes);
                bytes.len()
            },
            waiter,
        );
        if too_long {
            let _ = self.stop(0);
            return Poll::Ready(Ok(None));
        }
        poll.map(|result| result.map(Some))
    }

    pub(crate) fn stop(&mut self, code: u64) -> Result<(), ReadError> {
        if self.state != ReadState::Open {
            return Err(ReadError::Closed);
        }
        self.state = ReadState::Stopped;
        let has_come = self.chunk.as_ref().is_some_and(|chunk| chunk.fin() && !chunk.is_empty());
        self.give_back();
        // Where all has come, the peer has nothing to stop.
        if has_come { Ok(()) } else { self.conn.stop(self.id, code) }
    }

    /// What every read says once the stream has ended.
    const fn past(&self) -> Result<Progress, ReadError> {
        match self.state {
            ReadState::Open | ReadState::AtEnd => Ok(Progress::End),
            ReadState::Reset(code) => Err(ReadError::Reset(code)),
            ReadState::Stopped => Err(ReadError::Closed),
        }
    }

    fn note(&mut self, result: Result<ReadOutcome, ReadError>) -> Result<Progress, ReadError> {
        match result {
            Ok(outcome) => {
                if outcome.fin {
                    self.state = ReadState::AtEnd;
                }
                let end = outcome.fin && outcome.len == 0;
                Ok(if end { Progress::End } else { Progress::Read(outcome.len) })
            }
            Err(error) => {
                if let ReadError::Reset(code) = error {
                    self.state = ReadState::Reset(code);
                }
                Err(error)
            }
        }
    }
}

impl Drop for RecvHalf {
    fn drop(&mut self) {
        self.give_back();
        self.conn.release_receive(self.id, self.state != ReadState::Open);
    }
}
