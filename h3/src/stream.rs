//! Streams.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h3::error::Code;
use h3::quic::{self, StreamErrorIncoming, StreamId, WriteBuf};

use crate::frames::{Control, RequestFrames};
use crate::seldom::Seldom;
use crate::{Acceptance, Piece, Requests, Scope, Transfer, Violation, error, message, websocket};

/// Less than this becomes memory of its own, in bytes: the buffer in which it came is mostly empty.
const SMALL: usize = 16 << 10;
/// A frame that is no longer than this is written in one piece, in bytes: to copy it costs less than to write its head
/// and its content one after the other.
const JOINED: usize = 2 << 10;

/// A stream's number as h3 wants it.
pub(crate) fn number(id: quicket::StreamId) -> StreamId {
    // Both types hold the numbers below 2^62 (RFC 9000, Section 2.1).
    StreamId::try_from(u64::from(id)).expect("stream numbers have 62 bits")
}

/// The sending half of a request's stream.
pub struct SendStream<B: Buf> {
    stream: quicket::tokio::SendStream,
    writing: Option<Writing<B>>,
    /// Dropping it unfinished resets it.
    reset_on_drop: bool,
    /// Where what it takes is counted.
    transfer: Option<Arc<Transfer>>,
    /// What is to be written behind a frame's head, if whose it is was said.
    content: Option<Bytes>,
    /// Of a request of this side, until its first frame is written: it may ask for WebSocket.
    may_ask: Option<bool>,
}

/// What is to be written of a frame.
enum Writing<B> {
    Joined(BytesMut),
    /// Its head, and its content behind. In a box, for few streams write so much.
    Apart(Box<WriteBuf<B>>),
}

impl<B: Buf> Writing<B> {
    fn new(frame: WriteBuf<B>) -> Self {
        match frame.remaining() {
            length @ ..=JOINED => {
                let mut joined = BytesMut::with_capacity(length);
                joined.put(frame);
                Self::Joined(joined)
            }
            _ => Self::Apart(Box::new(frame)),
        }
    }

    /// The same with more behind it.
    fn with(self, mut more: impl Buf) -> Self {
        let mut joined = match self {
            Self::Joined(first) => first,
            Self::Apart(first) => {
                let mut joined = BytesMut::with_capacity(first.remaining() + more.remaining());
                joined.put(*first);
                joined
            }
        };
        joined.put(&mut more);
        Self::Joined(joined)
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Self::Joined(bytes) => bytes,
            Self::Apart(frame) => frame.chunk(),
        }
    }

    fn advance(&mut self, written: usize) {
        match self {
            Self::Joined(bytes) => bytes.advance(written),
            Self::Apart(frame) => frame.advance(written),
        }
    }

    fn has_remaining(&self) -> bool {
        !self.chunk().is_empty()
    }
}

/// True if both are the same bytes of memory.
fn is_same(content: &[u8], chunk: &[u8]) -> bool {
    content.len() == chunk.len() && content.as_ptr() == chunk.as_ptr()
}

impl<B: Buf> SendStream<B> {
    fn new(stream: quicket::tokio::SendStream) -> Self {
        let (writing, transfer, content) = (None, None, None);
        Self { stream, writing, reset_on_drop: true, transfer, content, may_ask: None }
    }

    /// True if what is written waits for what follows.
    fn is_held(&self) -> bool {
        self.transfer.as_ref().is_some_and(|transfer| transfer.is_held())
    }

    fn take_lines(&self) -> Option<Bytes> {
        self.transfer.as_ref()?.take_lines()
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
        if self.is_held() {
            return Poll::Ready(Ok(()));
        }
        while let Some(data) = self.writing.as_mut().filter(|data| data.has_remaining()) {
            let chunk = data.chunk();
            let polled = match &mut self.content {
                Some(content) if is_same(content, chunk) => {
                    self.stream.poll_write_bytes(cx, content)
                }
                _ => self.stream.poll_write_some(cx, chunk),
            };
            match ready!(polled) {
                Ok(written) => {
                    data.advance(written);
                    if let Some(transfer) = &self.transfer {
                        transfer.count(written);
                    }
                }
                Err(error) => {
                    // Nothing more of it can be sent.
                    (self.writing, self.content) = (None, None);
                    return Poll::Ready(Err(error::write(error)));
                }
            }
        }
        (self.writing, self.content) = (None, None);
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        let is_held = self.is_held();
        let held = if is_held { self.writing.take() } else { None };
        if self.writing.is_some() {
            return Err(error::misuse("data was sent while earlier data was not written yet"));
        }
        let mut frame = data.into();
        let other = match (self.may_ask.take(), self.take_lines()) {
            (Some(may_ask), _) => {
                let frame = frame.copy_to_bytes(frame.remaining());
                let written = websocket::written(&frame);
                if written.is_some() && !may_ask {
                    return Err(error::misuse("WebSocket was asked for without `with_websocket`"));
                }
                Some(written.unwrap_or(frame).into())
            }
            (None, Some(lines)) => {
                let frame = frame.copy_to_bytes(frame.remaining());
                let written = message::with_lines(&frame, &lines, is_held);
                let misuse = || error::misuse("a frame that is not of the head of an answer");
                Some(written.ok_or_else(misuse)?)
            }
            (None, None) => None,
        };
        self.writing = Some(match (held, other) {
            (None, None) => Writing::new(frame),
            (None, Some(other)) => Writing::Joined(other),
            (Some(held), None) => held.with(frame),
            (Some(held), Some(other)) => held.with(other),
        });
        self.content = self.transfer.as_ref().and_then(|transfer| transfer.take_offer());
        Ok(())
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        if let Some(transfer) = &self.transfer {
            transfer.release();
        }
        // What is in one piece goes out with the stream's end.
        while let Some(Writing::Joined(data)) =
            self.writing.as_mut().filter(|data| data.has_remaining())
        {
            let polled = self.stream.poll_write_last(cx, data);
            let written = match ready!(polled) {
                Ok(written) => written,
                Err(error) => {
                    self.writing = None;
                    return Poll::Ready(Err(error::write(error)));
                }
            };
            data.advance(written);
            let is_all = data.is_empty();
            if let Some(transfer) = &self.transfer {
                transfer.count(written);
            }
            if is_all {
                self.writing = None;
                self.reset_on_drop = false;
                return Poll::Ready(Ok(()));
            }
        }
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
///
/// Of a body that is checked one frame is given out at a time, large or not, for the same reason.
pub struct RecvStream {
    stream: quicket::tokio::RecvStream,
    /// A piece was given out that is to go on first, and nobody asked since.
    given: bool,
    guard: Option<Box<Guard>>,
    /// Of a control stream.
    seldom: Option<Seldom>,
}

/// What comes from a peer that may be hostile, before h3 sees it.
struct Guard {
    frames: Frames,
    /// What has been read and not gone over.
    chunk: Bytes,
    failed: Option<Violation>,
}

enum Frames {
    Request(RequestFrames),
    /// Of a control stream; its type is still to be given out.
    Control {
        frames: Control,
        acceptance: Acceptance,
        is_typed: bool,
    },
}

impl fmt::Debug for RecvStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stream.fmt(f)
    }
}

impl Guard {
    const fn new(frames: Frames, chunk: Bytes) -> Self {
        Self { frames, chunk, failed: None }
    }

    /// The next piece of what has been read.
    fn next(&mut self) -> Result<Option<Piece>, Violation> {
        let next = match &mut self.frames {
            _ if self.failed.is_some() => Ok(None),
            Frames::Request(frames) => frames.next(&mut self.chunk),
            Frames::Control { is_typed: is_typed @ false, .. } => {
                *is_typed = true;
                Ok(Some(Piece::Frame(Bytes::from_static(&[0]))))
            }
            Frames::Control { frames, acceptance, .. } => {
                let next = frames.next(&mut self.chunk);
                if let Some(first) = frames.goaway() {
                    acceptance.ends_before(first);
                }
                if let Some(settings) = frames.take_settings() {
                    acceptance.settles(settings);
                }
                next
            }
        };
        self.failed.map_or(next, Err)
    }

    fn end(&self) -> Result<(), Violation> {
        match &self.frames {
            Frames::Request(frames) => frames.end(),
            Frames::Control { frames, .. } => frames.end(),
        }
    }
}

impl RecvStream {
    pub(crate) const fn new(stream: quicket::tokio::RecvStream) -> Self {
        Self { stream, given: false, guard: None, seldom: None }
    }

    /// A peer's control stream, of which this has come behind its type.
    pub(crate) fn control(
        stream: quicket::tokio::RecvStream,
        frames: Control,
        acceptance: Acceptance,
        rest: Bytes,
    ) -> Self {
        let frames = Frames::Control { frames, acceptance, is_typed: false };
        let guard = Some(Box::new(Guard::new(frames, rest)));
        Self { guard, seldom: Some(Seldom::new()), ..Self::new(stream) }
    }

    fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        let chunk = ready!(self.stream.poll_take_chunk(cx)).map_err(error::read)?;
        Poll::Ready(Ok(chunk.map(|chunk| match chunk.len() {
            SMALL.. => Bytes::from_owner(chunk),
            _ => Bytes::copy_from_slice(&chunk),
        })))
    }

    /// What h3 may see of a peer's stream.
    fn poll_checked(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Piece>, StreamErrorIncoming>> {
        loop {
            let Some(guard) = &mut self.guard else {
                return self.poll_chunk(cx).map_ok(|chunk| {
                    chunk.map(|chunk| match chunk.len() {
                        SMALL.. => Piece::Data(chunk),
                        _ => Piece::Frame(chunk),
                    })
                });
            };
            match guard.next() {
                Ok(None) => {}
                Ok(piece) => return Poll::Ready(Ok(piece)),
                Err(violation) => return Poll::Ready(Err(self.refuse(violation))),
            }
            let chunk = ready!(self.poll_chunk(cx))?;
            let Some(guard) = &mut self.guard else { continue };
            match chunk {
                Some(chunk) => guard.chunk = chunk,
                None => {
                    return Poll::Ready(match guard.end() {
                        Ok(()) => Ok(None),
                        Err(violation) => Err(self.refuse(violation)),
                    });
                }
            }
        }
    }

    /// The next piece for h3.
    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        if std::mem::take(&mut self.given) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let piece = ready!(self.poll_checked(cx))?;
        self.given = matches!(piece, Some(Piece::Data(_)));
        Poll::Ready(Ok(piece.map(|(Piece::Data(bytes) | Piece::Frame(bytes))| bytes)))
    }

    fn refuse(&mut self, violation: Violation) -> StreamErrorIncoming {
        if let Some(guard) = &mut self.guard {
            guard.failed = Some(violation);
            if violation.scope == Scope::Connection {
                let connection_error = error::refuse(&self.stream.connection(), violation);
                return StreamErrorIncoming::ConnectionErrorIncoming { connection_error };
            }
        }
        // Where it has ended already, there is nothing to stop.
        let _ = self.stream.stop(violation.code.value());
        StreamErrorIncoming::Unknown(Box::new(violation))
    }
}

impl quic::RecvStream for RecvStream {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Self::Buf>, StreamErrorIncoming>> {
        if let Some(seldom) = self.seldom.take() {
            let polled = seldom.poll(cx, |cx| self.poll_piece(cx));
            self.seldom = Some(seldom);
            return polled;
        }
        self.poll_piece(cx)
    }

    fn stop_sending(&mut self, code: u64) {
        // Where it has ended already, there is nothing to stop.
        let _ = self.stream.stop(code);
    }

    fn recv_id(&self) -> StreamId {
        number(self.stream.id())
    }
}

/// One of the few that are no request's: h3 keeps places for more of them than come, and a box has a small one.
impl quic::RecvStream for Box<RecvStream> {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Self::Buf>, StreamErrorIncoming>> {
        (**self).poll_data(cx)
    }

    fn stop_sending(&mut self, code: u64) {
        (**self).stop_sending(code);
    }

    fn recv_id(&self) -> StreamId {
        (**self).recv_id()
    }
}

/// A bidirectional stream: a request and its response.
#[derive(Debug)]
pub struct BidiStream<B: Buf> {
    send: SendStream<B>,
    recv: RecvStream,
    known: Option<Known>,
}

/// Has a request of the peer forgotten when it is dropped.
#[derive(Debug)]
struct Known {
    requests: Requests,
    id: u64,
}

impl Drop for Known {
    fn drop(&mut self) {
        self.requests.remove(self.id);
    }
}

impl<B: Buf> BidiStream<B> {
    /// A stream of this side.
    pub(crate) fn opened(stream: quicket::tokio::Stream) -> Self {
        let (send, recv) = stream.split();
        Self { send: SendStream::new(send), recv: RecvStream::new(recv), known: None }
    }

    /// A stream of the peer.
    pub(crate) fn accepted(
        stream: quicket::tokio::Stream,
        requests: &Requests,
        transfer: Arc<Transfer>,
    ) -> Self {
        let id = u64::from(stream.id());
        requests.insert(id, Arc::clone(&transfer));
        let mut accepted = Self::opened(stream);
        accepted.send.transfer = Some(transfer);
        accepted.known = Some(Known { requests: requests.clone(), id });
        accepted
    }

    /// A request of this side, which may ask for WebSocket or must not.
    pub(crate) fn asking(mut self, may_ask: bool) -> Self {
        self.send.may_ask = Some(may_ask);
        self
    }

    /// The same, where what comes on it is checked.
    pub(crate) fn guarded(mut self, frames: RequestFrames) -> Self {
        let guard = Guard::new(Frames::Request(frames), Bytes::new());
        self.recv.guard = Some(Box::new(guard));
        self
    }
}

impl<B: Buf> quic::BidiStream<B> for BidiStream<B> {
    type SendStream = SendStream<B>;
    type RecvStream = RecvStream;

    /// Takes the stream apart; [`Requests`] forgets it.
    fn split(self) -> (Self::SendStream, Self::RecvStream) {
        drop(self.known);
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
        let polled = self.recv.poll_data(cx);
        if let Some(Guard { failed: Some(violation), .. }) = self.recv.guard.as_deref()
            && matches!(polled, Poll::Ready(Err(_)))
        {
            // Of a request that is malformed nothing is answered; one whose answer is needs no more of its body.
            quic::SendStream::reset(&mut self.send, violation.code.value());
        }
        polled
    }

    fn stop_sending(&mut self, code: u64) {
        self.recv.stop_sending(code);
    }

    fn recv_id(&self) -> StreamId {
        self.recv.recv_id()
    }
}
