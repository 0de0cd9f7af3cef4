//! Streams as [`AsyncRead`] and [`AsyncWrite`].

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use ::bytes::Bytes;
use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use quicket_wire::StreamId;

use super::Connection;
use crate::chunk::Chunk;
use crate::core::{ConnRef, Interest, Waiter, WaiterId};
use crate::error::{ReadError, ReadToEndError, WriteError};
use crate::half::{Progress, RecvHalf, SendHalf};
use crate::ops::now_or;
use crate::waiting::wait;

/// The sending half of a stream.
///
/// Dropping it ends the stream as [`SendStream::finish`] does, or resets it with code 0 while the
/// thread panics, so that half a message is not taken for a whole one.
#[derive(Debug)]
pub struct SendStream {
    half: SendHalf,
    /// Who waits in the functions of [`AsyncWrite`].
    waiter: WaiterId,
}

impl SendStream {
    pub(super) fn new(conn: ConnRef, id: StreamId) -> Self {
        Self { half: SendHalf::new(conn, id), waiter: WaiterId::unique() }
    }

    /// The stream's number.
    pub const fn id(&self) -> StreamId {
        self.half.id()
    }

    /// Writes some of `data` and returns how much; waits while there is no room at all.
    ///
    /// Cancel safe: when the future is dropped before it is ready, nothing has happened.
    ///
    /// # Errors
    ///
    /// If the peer stopped the stream, the connection ended, or the stream was finished or reset
    /// before.
    pub async fn write_some(&mut self, data: &[u8]) -> Result<usize, WriteError> {
        let half = &self.half;
        wait(|waiter| half.poll_write(data, Some(waiter)), unregister_write(half)).await
    }

    /// Like [`SendStream::write_some`], without waiting.
    ///
    /// # Errors
    ///
    /// Like [`SendStream::write_some`]; [`WriteError::WouldBlock`] if there is no room.
    pub fn try_write(&mut self, data: &[u8]) -> Result<usize, WriteError> {
        now_or(self.half.poll_write(data, None), WriteError::WouldBlock)
    }

    /// Writes all of `data`.
    ///
    /// Not cancel safe: when the future is dropped before it is ready, some of `data` may be
    /// written.
    ///
    /// # Errors
    ///
    /// Like [`SendStream::write_some`].
    pub async fn write_all(&mut self, mut data: &[u8]) -> Result<(), WriteError> {
        while !data.is_empty() {
            let written = self.write_some(data).await?;
            data = data.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// Writes all of `data`, of which pieces of 8 KiB and more are not copied: they are sent from where they are, and dropped
    /// by a thread of the endpoint, or of a call on it, once the peer has them. What was taken is no more in `data`.
    ///
    /// Cancel safe: when the future is dropped before it is ready, `data` is what was not written.
    ///
    /// # Errors
    ///
    /// Like [`SendStream::write_some`]; `data` is what was not written then.
    pub async fn write_bytes(&mut self, data: &mut Bytes) -> Result<(), WriteError> {
        let half = &self.half;
        while !data.is_empty() {
            wait(|waiter| half.poll_write_bytes(data, Some(waiter)), unregister_write(half))
                .await?;
        }
        Ok(())
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
    /// Cancel safe: when the future is dropped before it is ready, nothing has happened.
    ///
    /// # Errors
    ///
    /// If the connection ended first.
    pub async fn stopped(&self) -> Result<Option<u64>, WriteError> {
        let half = &self.half;
        let interest = Interest::SendDone(half.id());
        wait(|waiter| half.poll_done(Some(waiter)), |id| half.conn().unregister(interest, id)).await
    }

    /// Polls for room and writes some of `data`, as [`AsyncWrite::poll_write`] does, with the
    /// stream's own error.
    pub fn poll_write_some(
        &mut self,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<Result<usize, WriteError>> {
        let waiter = Waiter::task(self.waiter, context.waker());
        self.half.poll_write(data, Some(waiter))
    }

    /// Polls for room and writes some of `data`; where that is all of it, the stream ends behind it, as
    /// [`SendStream::finish`] ends it.
    pub fn poll_write_last(
        &mut self,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<Result<usize, WriteError>> {
        let waiter = Waiter::task(self.waiter, context.waker());
        self.half.poll_write_last(data, Some(waiter))
    }

    /// Polls for room and writes some of `data` without a copy, as [`SendStream::write_bytes`] does; what was taken is no
    /// more in `data`.
    pub fn poll_write_bytes(
        &mut self,
        context: &mut Context<'_>,
        data: &mut Bytes,
    ) -> Poll<Result<usize, WriteError>> {
        let waiter = Waiter::task(self.waiter, context.waker());
        self.half.poll_write_bytes(data, Some(waiter))
    }

    /// Polls whether the peer has everything or has stopped the stream; see
    /// [`SendStream::stopped`].
    pub fn poll_stopped(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<u64>, WriteError>> {
        let waiter = Waiter::task(self.waiter, context.waker());
        self.half.poll_done(Some(waiter))
    }
}

fn unregister_write(half: &SendHalf) -> impl FnMut(WaiterId) + '_ {
    |id| half.conn().unregister(Interest::Writable(half.id()), id)
}

impl AsyncWrite for SendStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_some(context, data).map_err(io::Error::from)
    }

    /// Sends what waits for more to come, as soon as the network allows; see
    /// [`Connection::set_nodelay`](super::Connection::set_nodelay).
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.half.conn().flush();
        Poll::Ready(Ok(()))
    }

    /// Ends the stream, once.
    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.half.is_ended() {
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(self.finish().map_err(io::Error::from))
    }
}

/// The receiving half of a stream.
///
/// Dropping it before its end stops it with code 0.
#[derive(Debug)]
pub struct RecvStream {
    half: RecvHalf,
    /// Who waits in the functions of [`AsyncRead`].
    waiter: WaiterId,
}

impl RecvStream {
    pub(super) fn new(conn: ConnRef, id: StreamId, early: bool) -> Self {
        Self { half: RecvHalf::new(conn, id, early), waiter: WaiterId::unique() }
    }

    /// The stream's number.
    pub const fn id(&self) -> StreamId {
        self.half.id()
    }

    /// The connection that it is of.
    pub fn connection(&self) -> Connection {
        Connection::new(self.half.conn().clone())
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
    /// Cancel safe: no byte is lost when the future is dropped before it is ready.
    ///
    /// # Errors
    ///
    /// If the peer reset the stream, the connection ended, or the stream was stopped before.
    pub async fn read_some(&mut self, out: &mut [u8]) -> Result<usize, ReadError> {
        self.wait(|half, waiter| half.poll_read(out, waiter)).await.map(Progress::count)
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
    /// Cancel safe: no byte is lost when the future is dropped before it is ready.
    ///
    /// # Errors
    ///
    /// Like [`RecvStream::read_some`].
    pub async fn read_chunk(
        &mut self,
        mut view: impl FnMut(&[u8], bool) -> usize,
    ) -> Result<Option<usize>, ReadError> {
        Ok(match self.wait(|half, waiter| half.poll_chunk(&mut view, waiter)).await? {
            Progress::Read(len) => Some(len),
            Progress::End => None,
        })
    }

    /// Takes received bytes in the buffer in which they came, up to 64 KiB, without a copy; waits while
    /// there are none. `None` at the end of the stream. What was taken counts as read for the peer's
    /// limits.
    ///
    /// Cancel safe: no byte is lost when the future is dropped before it is ready.
    ///
    /// # Errors
    ///
    /// Like [`RecvStream::read_some`].
    pub async fn take_chunk(&mut self) -> Result<Option<Chunk>, ReadError> {
        self.wait(RecvHalf::poll_take).await
    }

    /// Reads all that is left of the stream, but no more than `limit` bytes. When dropped before
    /// it is done, what it has read is lost.
    ///
    /// Not cancel safe: what was read is lost when the future is dropped before it is ready.
    ///
    /// # Errors
    ///
    /// If reading fails, or the stream is longer; it is stopped with code 0 then.
    pub async fn read_to_end(&mut self, limit: usize) -> Result<Vec<u8>, ReadToEndError> {
        let mut all = Vec::new();
        loop {
            match self.wait(|half, waiter| half.poll_append(&mut all, limit, waiter)).await? {
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

    /// Polls for bytes, with the stream's own error; returns 0 at its end.
    pub fn poll_read_some(
        &mut self,
        context: &mut Context<'_>,
        out: &mut [u8],
    ) -> Poll<Result<usize, ReadError>> {
        let waiter = Waiter::task(self.waiter, context.waker());
        self.half.poll_read(out, Some(waiter)).map_ok(Progress::count)
    }

    /// Polls for bytes in their place; see [`RecvStream::read_chunk`].
    pub fn poll_read_chunk(
        &mut self,
        context: &mut Context<'_>,
        mut view: impl FnMut(&[u8], bool) -> usize,
    ) -> Poll<Result<Option<usize>, ReadError>> {
        let waiter = Waiter::task(self.waiter, context.waker());
        self.half.poll_chunk(&mut view, Some(waiter)).map_ok(|progress| match progress {
            Progress::Read(len) => Some(len),
            Progress::End => None,
        })
    }

    /// Polls for bytes to take; see [`RecvStream::take_chunk`].
    pub fn poll_take_chunk(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Chunk>, ReadError>> {
        let waiter = Waiter::task(self.waiter, context.waker());
        self.half.poll_take(Some(waiter))
    }

    async fn wait<T>(
        &mut self,
        mut poll: impl FnMut(&mut RecvHalf, Option<Waiter<'_>>) -> Poll<Result<T, ReadError>>,
    ) -> Result<T, ReadError> {
        let half = &mut self.half;
        let (conn, interest) = (half.conn().clone(), Interest::Readable(half.id()));
        wait(|waiter| poll(half, Some(waiter)), |id| conn.unregister(interest, id)).await
    }
}

impl AsyncRead for RecvStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.poll_read_some(context, out.initialize_unfilled()) {
            Poll::Ready(Ok(len)) => {
                out.advance(len);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Pending => Poll::Pending,
        }
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

    /// Both halves, to be used by different tasks.
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
    /// Not cancel safe: what was read is lost when the future is dropped before it is ready.
    ///
    /// # Errors
    ///
    /// Like [`RecvStream::read_to_end`].
    pub async fn read_to_end(&mut self, limit: usize) -> Result<Vec<u8>, ReadToEndError> {
        self.recv.read_to_end(limit).await
    }

    /// See [`RecvStream::is_early_data`].
    pub const fn is_early_data(&self) -> bool {
        self.recv.is_early_data()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.recv).poll_read(context, out)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.send).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.send).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.send).poll_shutdown(context)
    }
}
