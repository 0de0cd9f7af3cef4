//! Streams that are read and written like files.

use std::fmt;
use std::io::{self, Read, Write};
use std::task::Poll;
use std::time::Duration;

use quicket_engine::ReadOutcome;
use quicket_wire::StreamId;

use super::deadline;
use crate::core::{ConnRef, Rank, Waiter};
use crate::error::{ReadError, ReadToEndError, WriteError};
use crate::ops::now_or;

/// How a stream's calls wait.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waiting {
    pub(super) nonblocking: bool,
    pub(super) timeout: Option<Duration>,
}

/// The sending half of a stream.
///
/// Dropping it ends the stream as [`SendStream::finish`] does, or resets it with code 0 while the
/// thread panics, so that half a message is not taken for a whole one.
pub struct SendStream {
    conn: ConnRef,
    id: StreamId,
    waiting: Waiting,
    ended: bool,
}

impl SendStream {
    pub(super) const fn new(conn: ConnRef, id: StreamId, waiting: Waiting) -> Self {
        Self { conn, id, waiting, ended: false }
    }

    /// The stream's number.
    pub const fn id(&self) -> StreamId {
        self.id
    }

    /// Writes some of `data` and returns how much; waits while there is no room at all.
    ///
    /// # Errors
    ///
    /// If the peer stopped the stream, the connection ended, the stream was finished or reset
    /// before, or (non-blocking or with a timeout) there is no room in time.
    pub fn write_some(&mut self, data: &[u8]) -> Result<usize, WriteError> {
        self.wait(|conn, id, waiter| conn.poll_write(id, data, waiter))
    }

    /// Like [`SendStream::write_some`], without waiting.
    ///
    /// # Errors
    ///
    /// Like [`SendStream::write_some`]; [`WriteError::WouldBlock`] if there is no room.
    pub fn try_write(&mut self, data: &[u8]) -> Result<usize, WriteError> {
        now_or(self.conn.poll_write(self.id, data, None), WriteError::WouldBlock)
    }

    /// Ends the stream: the peer finds its end behind what was written. What was written is
    /// still delivered in the background.
    ///
    /// # Errors
    ///
    /// If the peer stopped the stream, or it was finished or reset before.
    pub fn finish(&mut self) -> Result<(), WriteError> {
        self.ended = true;
        self.conn.finish(self.id)
    }

    /// Gives the stream up: the peer gets `code` instead of what it has not read yet.
    ///
    /// # Errors
    ///
    /// If all is delivered already, or the stream was reset before.
    pub fn reset(&mut self, code: u64) -> Result<(), WriteError> {
        self.ended = true;
        self.conn.reset(self.id, code)
    }

    /// Streams of higher priority are sent first; 0 is the default.
    ///
    /// # Errors
    ///
    /// If the stream is closed.
    pub fn set_priority(&mut self, priority: i32) -> Result<(), WriteError> {
        self.conn.set_priority(self.id, priority)
    }

    /// Waits until the peer has everything of the finished stream (`None`), or has stopped it
    /// (with this code of its application).
    ///
    /// # Errors
    ///
    /// If the connection ended first, or the write timeout passed.
    pub fn stopped(&mut self) -> Result<Option<u64>, WriteError> {
        self.wait(ConnRef::poll_send_done)
    }

    /// How long calls wait for room; `None` for as long as it takes.
    pub const fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.waiting.timeout = timeout;
    }

    /// Lets all calls answer at once, with [`WriteError::WouldBlock`] where they would wait.
    pub const fn set_nonblocking(&mut self, nonblocking: bool) {
        self.waiting.nonblocking = nonblocking;
    }

    fn wait<T>(
        &self,
        mut poll: impl FnMut(&ConnRef, StreamId, Option<Waiter<'_>>) -> Poll<Result<T, WriteError>>,
    ) -> Result<T, WriteError> {
        let Self { conn, id, waiting, .. } = self;
        if waiting.nonblocking {
            return now_or(poll(conn, *id, None), WriteError::WouldBlock);
        }
        let deadline = deadline(waiting.timeout);
        conn.core()
            .block_on(Rank::Eager, deadline, |waiter| poll(conn, *id, Some(waiter)))
            .unwrap_or(Err(WriteError::TimedOut))
    }
}

impl Write for SendStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok(self.write_some(data)?)
    }

    /// Does nothing: what is written is sent as soon as the network allows.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        self.conn.release_send(self.id, self.ended);
    }
}

impl fmt::Debug for SendStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendStream").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The receiving half of a stream.
///
/// Dropping it before its end stops it with code 0.
pub struct RecvStream {
    conn: ConnRef,
    id: StreamId,
    waiting: Waiting,
    early: bool,
    state: ReadState,
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

impl RecvStream {
    pub(super) const fn new(conn: ConnRef, id: StreamId, waiting: Waiting, early: bool) -> Self {
        Self { conn, id, waiting, early, state: ReadState::Open }
    }

    /// The stream's number.
    pub const fn id(&self) -> StreamId {
        self.id
    }

    /// True on a server if the stream came before the handshake was complete: an attacker can
    /// send what it holds again and again (RFC 9001, Section 9.2). Once the connection is
    /// established, this connection's client is known to be the one that sent it.
    pub const fn is_early_data(&self) -> bool {
        self.early
    }

    /// Reads some bytes, at least one unless the stream ends (0) or `out` is empty; waits while
    /// there is nothing.
    ///
    /// # Errors
    ///
    /// If the peer reset the stream, the connection ended, the stream was stopped before, or
    /// (non-blocking or with a timeout) nothing arrives in time.
    pub fn read_some(&mut self, out: &mut [u8]) -> Result<usize, ReadError> {
        let result = match self.ready()? {
            true => self.wait(|conn, id, waiter| conn.poll_read(id, out, waiter)),
            false => return Ok(0),
        };
        self.note(result)
    }

    /// Like [`RecvStream::read_some`], without waiting.
    ///
    /// # Errors
    ///
    /// Like [`RecvStream::read_some`]; [`ReadError::WouldBlock`] if there is nothing.
    pub fn try_read(&mut self, out: &mut [u8]) -> Result<usize, ReadError> {
        let result = match self.ready()? {
            true => now_or(self.conn.poll_read(self.id, out, None), ReadError::WouldBlock),
            false => return Ok(0),
        };
        self.note(result)
    }

    /// Shows received bytes in their place, without a copy; waits while there are none. `view`
    /// gets the bytes and whether the stream ends behind them, and returns how many of them it
    /// took; the rest will be shown again. Returns that number, or 0 at the end of the stream.
    ///
    /// The connection is locked while `view` runs: it must not use the connection or its
    /// streams.
    ///
    /// # Errors
    ///
    /// Like [`RecvStream::read_some`].
    pub fn read_chunk(
        &mut self,
        mut view: impl FnMut(&[u8], bool) -> usize,
    ) -> Result<usize, ReadError> {
        let result = match self.ready()? {
            true => self.wait(|conn, id, waiter| conn.poll_view(id, &mut view, waiter)),
            false => return Ok(0),
        };
        self.note(result)
    }

    /// Reads all that is left of the stream, but no more than `limit` bytes.
    ///
    /// # Errors
    ///
    /// If reading fails, or the stream is longer; it is stopped with code 0 then.
    pub fn read_to_end(&mut self, limit: usize) -> Result<Vec<u8>, ReadToEndError> {
        let mut all = Vec::new();
        loop {
            let fits = |all: &Vec<u8>, len| all.len().saturating_add(len) <= limit;
            let mut too_long = false;
            let read = self.read_chunk(|bytes, _| {
                too_long = !fits(&all, bytes.len());
                if too_long {
                    return 0;
                }
                all.extend_from_slice(bytes);
                bytes.len()
            })?;
            if too_long {
                let _ = self.stop(0);
                return Err(ReadToEndError::TooLong(limit));
            }
            if read == 0 && self.state == ReadState::AtEnd {
                return Ok(all);
            }
        }
    }

    /// Wants no more: what comes is dropped, and the peer is asked with `code` to stop.
    ///
    /// # Errors
    ///
    /// If the stream has ended already.
    pub fn stop(&mut self, code: u64) -> Result<(), ReadError> {
        if self.state != ReadState::Open {
            return Err(ReadError::Closed);
        }
        self.state = ReadState::Stopped;
        self.conn.stop(self.id, code)
    }

    /// How long calls wait for data; `None` for as long as it takes.
    pub const fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.waiting.timeout = timeout;
    }

    /// Lets all calls answer at once, with [`ReadError::WouldBlock`] where they would wait.
    pub const fn set_nonblocking(&mut self, nonblocking: bool) {
        self.waiting.nonblocking = nonblocking;
    }

    /// True if there may be something to read, false at the end.
    const fn ready(&self) -> Result<bool, ReadError> {
        match self.state {
            ReadState::Open => Ok(true),
            ReadState::AtEnd => Ok(false),
            ReadState::Reset(code) => Err(ReadError::Reset(code)),
            ReadState::Stopped => Err(ReadError::Closed),
        }
    }

    fn note(&mut self, result: Result<ReadOutcome, ReadError>) -> Result<usize, ReadError> {
        match result {
            Ok(outcome) => {
                if outcome.fin {
                    self.state = ReadState::AtEnd;
                }
                Ok(outcome.len)
            }
            Err(error) => {
                if let ReadError::Reset(code) = error {
                    self.state = ReadState::Reset(code);
                }
                Err(error)
            }
        }
    }

    fn wait(
        &self,
        mut poll: impl FnMut(
            &ConnRef,
            StreamId,
            Option<Waiter<'_>>,
        ) -> Poll<Result<ReadOutcome, ReadError>>,
    ) -> Result<ReadOutcome, ReadError> {
        let Self { conn, id, waiting, .. } = self;
        if waiting.nonblocking {
            return now_or(poll(conn, *id, None), ReadError::WouldBlock);
        }
        let deadline = deadline(waiting.timeout);
        conn.core()
            .block_on(Rank::Eager, deadline, |waiter| poll(conn, *id, Some(waiter)))
            .unwrap_or(Err(ReadError::TimedOut))
    }
}

impl Read for RecvStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        Ok(self.read_some(out)?)
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        self.conn.release_receive(self.id, self.state != ReadState::Open);
    }
}

impl fmt::Debug for RecvStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvStream")
            .field("id", &self.id)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// A bidirectional stream.
#[derive(Debug)]
pub struct Stream {
    send: SendStream,
    recv: RecvStream,
}

impl Stream {
    pub(super) const fn new(send: SendStream, recv: RecvStream) -> Self {
        Self { send, recv }
    }

    /// The stream's number.
    pub const fn id(&self) -> StreamId {
        self.send.id()
    }

    /// The sending half.
    pub const fn send(&mut self) -> &mut SendStream {
        &mut self.send
    }

    /// The receiving half.
    pub const fn recv(&mut self) -> &mut RecvStream {
        &mut self.recv
    }

    /// Both halves, to be used by different threads.
    pub fn split(self) -> (SendStream, RecvStream) {
        (self.send, self.recv)
    }

    /// Ends the sending half; see [`SendStream::finish`].
    ///
    /// # Errors
    ///
    /// Like [`SendStream::finish`].
    pub fn finish(&mut self) -> Result<(), WriteError> {
        self.send.finish()
    }

    /// Reads all that is left; see [`RecvStream::read_to_end`].
    ///
    /// # Errors
    ///
    /// Like [`RecvStream::read_to_end`].
    pub fn read_to_end(&mut self, limit: usize) -> Result<Vec<u8>, ReadToEndError> {
        self.recv.read_to_end(limit)
    }

    /// See [`RecvStream::is_early_data`].
    pub const fn is_early_data(&self) -> bool {
        self.recv.is_early_data()
    }

    /// How long reads wait; see [`RecvStream::set_read_timeout`].
    pub const fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.recv.set_read_timeout(timeout);
    }

    /// How long writes wait; see [`SendStream::set_write_timeout`].
    pub const fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.send.set_write_timeout(timeout);
    }

    /// Lets all calls answer at once.
    pub const fn set_nonblocking(&mut self, nonblocking: bool) {
        self.send.set_nonblocking(nonblocking);
        self.recv.set_nonblocking(nonblocking);
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.recv.read(out)
    }
}

impl Write for Stream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.send.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send.flush()
    }
}
