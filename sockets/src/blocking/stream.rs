//! Streams that are read and written like files.

use std::io::{self, Read, Write};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use quicket_wire::StreamId;

use super::deadline;
use crate::chunk::Chunk;
use crate::core::{ConnRef, Rank, Waiter};
use crate::error::{ReadError, ReadToEndError, WriteError};
use crate::half::{Progress, RecvHalf, SendHalf};
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
#[derive(Debug)]
pub struct SendStream {
    half: SendHalf,
    waiting: Waiting,
}

impl SendStream {
    pub(super) const fn new(conn: ConnRef, id: StreamId, waiting: Waiting) -> Self {
        Self { half: SendHalf::new(conn, id), waiting }
    }

    /// The stream's number.
    pub const fn id(&self) -> StreamId {
        self.half.id()
    }

    /// Writes some of `data` and returns how much; waits while there is no room at all.
    ///
    /// # Errors
    ///
    /// If the peer stopped the stream, the connection ended, the stream was finished or reset
    /// before, or (non-blocking or with a timeout) there is no room in time.
    pub fn write_some(&mut self, data: &[u8]) -> Result<usize, WriteError> {
        self.wait(|half, waiter| half.poll_write(data, waiter))
    }

    /// Like [`SendStream::write_some`], without waiting.
    ///
    /// # Errors
    ///
    /// Like [`SendStream::write_some`]; [`WriteError::WouldBlock`] if there is no room.
    pub fn try_write(&mut self, data: &[u8]) -> Result<usize, WriteError> {
        now_or(self.half.poll_write(data, None), WriteError::WouldBlock)
    }

    /// Writes some of `data` and returns how much; waits while there is no room at all. A piece of 8 KiB or more is not
    /// copied: it is sent from where it is, and dropped by a thread of the endpoint, or of a call on it, once the peer
    /// has it. What was taken is no more in `data`.
    ///
    /// # Errors
    ///
    /// Like [`SendStream::write_some`].
    pub fn write_bytes(&mut self, data: &mut Bytes) -> Result<usize, WriteError> {
        self.wait(|half, waiter| half.poll_write_bytes(data, waiter))
    }

    /// Ends the stream: the peer finds its end behind what was written. What was written is
    /// still delivered in the background.
    ///
    /// # Errors
    ///
    /// If the peer stopped the stream, or it was finished or reset before.
    pub fn finish(&mut self) -> Result<(), WriteError> {
        self.half.finish()
    }

    /// Gives the stream up: the peer gets `code` instead of what it has not read yet.
    ///
    /// # Errors
    ///
    /// If all is delivered already, or the stream was reset before.
    pub fn reset(&mut self, code: u64) -> Result<(), WriteError> {
        self.half.reset(code)
    }

    /// Streams of higher priority are sent first; 0 is the default.
    ///
    /// # Errors
    ///
    /// If the stream is closed.
    pub fn set_priority(&mut self, priority: i32) -> Result<(), WriteError> {
        self.half.set_priority(priority)
    }

    /// Waits until the peer has everything of the finished stream (`None`), or has stopped it
    /// (with this code of its application).
    ///
    /// # Errors
    ///
    /// If the connection ended first, or the write timeout passed.
    pub fn stopped(&mut self) -> Result<Option<u64>, WriteError> {
        self.wait(SendHalf::poll_done)
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
        mut poll: impl FnMut(&SendHalf, Option<Waiter<'_>>) -> Poll<Result<T, WriteError>>,
    ) -> Result<T, WriteError> {
        let Self { half, waiting } = self;
        if waiting.nonblocking {
            return now_or(poll(half, None), WriteError::WouldBlock);
        }
        let deadline = deadline(waiting.timeout);
        half.conn()
            .core()
            .block_on(Rank::Eager, deadline, |waiter| poll(half, Some(waiter)))
            .unwrap_or(Err(WriteError::TimedOut))
    }
}

impl Write for SendStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok(self.write_some(data)?)
    }

    /// Sends what waits for more to come, as soon as the network allows; see
    /// [`Connection::set_nodelay`](super::Connection::set_nodelay).
    fn flush(&mut self) -> io::Result<()> {
        self.half.conn().flush();
        Ok(())
    }
}

/// The receiving half of a stream.
///
/// Dropping it before its end stops it with code 0.
#[derive(Debug)]
pub struct RecvStream {
    half: RecvHalf,
    waiting: Waiting,
}

impl RecvStream {
    pub(super) const fn new(conn: ConnRef, id: StreamId, waiting: Waiting, early: bool) -> Self {
        Self { half: RecvHalf::new(conn, id, early), waiting }
    }

    /// The stream's number.
    pub const fn id(&self) -> StreamId {
        self.half.id()
    }

    /// True on a server if the stream began as early data: an attacker can send what it holds again
    /// and again (RFC 9001, Section 9.2). Once the connection is established, this connection's
    /// client is known to be the one that sent it.
    pub const fn is_early_data(&self) -> bool {
        self.half.is_early()
    }

    /// Reads some bytes, at least one unless the stream ends (0) or `out` is empty; waits while
    /// there is nothing.
    ///
    /// # Errors
    ///
    /// If the peer reset the stream, the connection ended, the stream was stopped before, or
    /// (non-blocking or with a timeout) nothing arrives in time.
    pub fn read_some(&mut self, out: &mut [u8]) -> Result<usize, ReadError> {
        self.wait(|half, waiter| half.poll_read(out, waiter)).map(Progress::count)
    }

    /// Like [`RecvStream::read_some`], without waiting.
    ///
    /// # Errors
    ///
    /// Like [`RecvStream::read_some`]; [`ReadError::WouldBlock`] if there is nothing.
    pub fn try_read(&mut self, out: &mut [u8]) -> Result<usize, ReadError> {
        now_or(self.half.poll_read(out, None), ReadError::WouldBlock).map(Progress::count)
    }

    /// Shows received bytes in the buffer in which they came, without a copy; waits while there are
    /// none. `view` gets the bytes and whether the stream ends behind them, and returns how many of
    /// them it took; the rest will be shown again. Returns that number, or `None` at the end of the
    /// stream.
    ///
    /// Nothing is locked while `view` runs: it may use the connection and wait. What is shown counts
    /// as read for the peer's limits, 64 KiB at most; its buffer is used again with the next call, or
    /// when this half is dropped.
    ///
    /// # Errors
    ///
    /// Like [`RecvStream::read_some`].
    pub fn read_chunk(
        &mut self,
        mut view: impl FnMut(&[u8], bool) -> usize,
    ) -> Result<Option<usize>, ReadError> {
        Ok(match self.wait(|half, waiter| half.poll_chunk(&mut view, waiter))? {
            Progress::Read(len) => Some(len),
            Progress::End => None,
        })
    }

    /// Takes received bytes in the buffer in which they came, up to 64 KiB, without a copy; waits while
    /// there are none. `None` at the end of the stream. What was taken counts as read for the peer's
    /// limits.
    ///
    /// # Errors
    ///
    /// Like [`RecvStream::read_some`].
    pub fn take_chunk(&mut self) -> Result<Option<Chunk>, ReadError> {
        self.wait(RecvHalf::poll_take)
    }

    /// Reads all that is left of the stream, but no more than `limit` bytes.
    ///
    /// # Errors
    ///
    /// If reading fails, or the stream is longer; it is stopped with code 0 then.
    pub fn read_to_end(&mut self, limit: usize) -> Result<Vec<u8>, ReadToEndError> {
        let mut all = Vec::new();
        loop {
            match self.wait(|half, waiter| half.poll_append(&mut all, limit, waiter))? {
                Some(Progress::Read(_)) => {}
                Some(Progress::End) => return Ok(all),
                None => return Err(ReadToEndError::TooLong(limit)),
            }
        }
    }

    /// Wants no more: what comes is dropped, and the peer is asked with `code` to stop.
    ///
    /// # Errors
    ///
    /// If the stream has ended already.
    pub fn stop(&mut self, code: u64) -> Result<(), ReadError> {
        self.half.stop(code)
    }

    /// How long calls wait for data; `None` for as long as it takes.
    pub const fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.waiting.timeout = timeout;
    }

    /// Lets all calls answer at once, with [`ReadError::WouldBlock`] where they would wait.
    pub const fn set_nonblocking(&mut self, nonblocking: bool) {
        self.waiting.nonblocking = nonblocking;
    }

    fn wait<T>(
        &mut self,
        mut poll: impl FnMut(&mut RecvHalf, Option<Waiter<'_>>) -> Poll<Result<T, ReadError>>,
    ) -> Result<T, ReadError> {
        let Self { half, waiting } = self;
        if waiting.nonblocking {
            return now_or(poll(half, None), ReadError::WouldBlock);
        }
        let core = half.conn().core().clone();
        core.block_on_answer(deadline(waiting.timeout), |waiter| poll(half, Some(waiter)))
            .unwrap_or(Err(ReadError::TimedOut))
    }
}

impl Read for RecvStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        Ok(self.read_some(out)?)
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

    /// Lets the peer accept the stream before anything is written to it: for protocols in which the side that
    /// did not open it speaks first. Without this a stream is opened by the first byte, or its end.
    ///
    /// # Errors
    ///
    /// If the stream is closed.
    pub fn announce(&mut self) -> Result<(), WriteError> {
        self.send.half.announce()
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
