//! Streams.

use std::fmt;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{self, StreamErrorIncoming, StreamId, WriteBuf};

use crate::{EarlyStreams, error};

/// Less than this becomes memory of its own, in bytes: the buffer in which it came is mostly empty.
const SMALL: usize = 16 << 10;

/// A stream's number as h3 wants it.
fn number(id: quicket::StreamId) -> StreamId {
    // Both types hold the numbers below 2^62 (RFC 9000, Section 2.1).
    StreamId::try_from(u64::from(id)).expect("stream numbers have 62 bits")
}

/// The sending half of a stream.
pub struct SendStream<B: Buf> {
    stream: quicket::tokio::SendStream,
    writing: Option<WriteBuf<B>>,
    /// Dropping it unfinished resets it.
    reset_on_drop: bool,
}

impl<B: Buf> SendStream<B> {
    /// A request or response.
    fn message(stream: quicket::tokio::SendStream) -> Self {
        Self { stream, writing: None, reset_on_drop: true }
    }

    /// A control stream or one of QPACK's: they last as long as the connection.
    pub(crate) fn critical(stream: quicket::tokio::SendStream) -> Self {
        Self { stream, writing: None, reset_on_drop: false }
    }
}

impl<B: Buf> fmt::Debug for SendStream<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stream.fmt(f)
    }
}

impl<B: Buf> Drop for SendStream<B> {
    fn drop(&mut self) {
        if self.reset_on_drop {
            // Where it has ended in the meantime, there is nothing to give up.
            let _ = self.stream.reset(Code::H3_REQUEST_CANCELLED.value());
        }
    }
}

impl<B: Buf> quic::SendStream<B> for SendStream<B> {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        while let Some(data) = self.writing.as_mut().filter(|data| data.has_remaining()) {
            match ready!(self.stream.poll_write_some(cx, data.chunk())) {
                Ok(written) => data.advance(written),
                Err(error) => {
                    // Nothing more of it can be sent.
                    self.writing = None;
                    return Poll::Ready(Err(error::write(error)));
                }
            }
        }
        self.writing = None;
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        if self.writing.is_some() {
            return Err(error::misuse("data was sent while earlier data was not written yet"));
        }
        self.writing = Some(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        ready!(self.poll_ready(cx))?;
        self.reset_on_drop = false;
        Poll::Ready(self.stream.finish().map_err(error::write))
    }

    fn reset(&mut self, code: u64) {
        self.reset_on_drop = false;
        // Where it has ended already, there is nothing to give up.
        let _ = self.stream.reset(code);
    }

    fn send_id(&self) -> StreamId {
        number(self.stream.id())
    }
}

impl<B: Buf> quic::SendStreamUnframed<B> for SendStream<B> {
    fn poll_send<D: Buf>(
        &mut self,
        cx: &mut Context<'_>,
        data: &mut D,
    ) -> Poll<Result<usize, StreamErrorIncoming>> {
        if self.writing.is_some() {
            let what = "raw data was sent while earlier data was not written yet";
            return Poll::Ready(Err(error::misuse(what)));
        }
        let written =
            ready!(self.stream.poll_write_some(cx, data.chunk())).map_err(error::write)?;
        data.advance(written);
        Poll::Ready(Ok(written))
    }
}

/// The receiving half of a stream.
///
/// h3 asks for a piece before it looks for the next frame, and before it gives out what it holds of a body: with
/// every DATA frame it would have a piece more in hand, without end. So after a large one there is nothing
/// yet, once: what it holds goes out first, and where it holds nothing, it asks again.
#[derive(Debug)]
pub struct RecvStream {
    stream: quicket::tokio::RecvStream,
    /// A large piece was given out, and nobody asked since.
    given: bool,
}

impl RecvStream {
    pub(crate) const fn new(stream: quicket::tokio::RecvStream) -> Self {
        Self { stream, given: false }
    }
}

impl quic::RecvStream for RecvStream {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Self::Buf>, StreamErrorIncoming>> {
        if std::mem::take(&mut self.given) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let chunk = ready!(self.stream.poll_take_chunk(cx)).map_err(error::read)?;
        self.given = chunk.as_ref().is_some_and(|chunk| chunk.len() >= SMALL);
        Poll::Ready(Ok(chunk.map(|chunk| {
            if self.given { Bytes::from_owner(chunk) } else { Bytes::copy_from_slice(&chunk) }
        })))
    }

    fn stop_sending(&mut self, code: u64) {
        // Where it has ended already, there is nothing to stop.
        let _ = self.stream.stop(code);
    }

    fn recv_id(&self) -> StreamId {
        number(self.stream.id())
    }
}

/// A bidirectional stream: a request and its response.
#[derive(Debug)]
pub struct BidiStream<B: Buf> {
    send: SendStream<B>,
    recv: RecvStream,
    early: Option<Early>,
}

/// Forgets an early stream when it is dropped.
#[derive(Debug)]
struct Early {
    streams: EarlyStreams,
    id: u64,
}

impl Drop for Early {
    fn drop(&mut self) {
        self.streams.remove(self.id);
    }
}

impl<B: Buf> BidiStream<B> {
    /// A stream of this side.
    pub(crate) fn opened(stream: quicket::tokio::Stream) -> Self {
        let (send, recv) = stream.split();
        Self { send: SendStream::message(send), recv: RecvStream::new(recv), early: None }
    }

    /// A stream of the peer.
    pub(crate) fn accepted(stream: quicket::tokio::Stream, early: &EarlyStreams) -> Self {
        let id = u64::from(stream.id());
        let early = stream.is_early_data().then(|| {
            early.insert(id);
            Early { streams: early.clone(), id }
        });
        Self { early, ..Self::opened(stream) }
    }
}

impl<B: Buf> quic::BidiStream<B> for BidiStream<B> {
    type SendStream = SendStream<B>;
    type RecvStream = RecvStream;

    /// Takes the stream apart; [`EarlyStreams`] forgets it.
    fn split(self) -> (Self::SendStream, Self::RecvStream) {
        drop(self.early);
        (self.send, self.recv)
    }
}

impl<B: Buf> quic::SendStream<B> for BidiStream<B> {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_finish(cx)
    }

    fn reset(&mut self, code: u64) {
        self.send.reset(code);
    }

    fn send_id(&self) -> StreamId {
        self.send.send_id()
    }
}

impl<B: Buf> quic::SendStreamUnframed<B> for BidiStream<B> {
    fn poll_send<D: Buf>(
        &mut self,
        cx: &mut Context<'_>,
        data: &mut D,
    ) -> Poll<Result<usize, StreamErrorIncoming>> {
        self.send.poll_send(cx, data)
    }
}

impl<B: Buf> quic::RecvStream for BidiStream<B> {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Self::Buf>, StreamErrorIncoming>> {
        self.recv.poll_data(cx)
    }

    fn stop_sending(&mut self, code: u64) {
        self.recv.stop_sending(code);
    }

    fn recv_id(&self) -> StreamId {
        self.recv.recv_id()
    }
}
