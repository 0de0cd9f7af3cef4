//! Streams of this side that last as long as the connection: its control stream, and those of QPACK.

use std::fmt;
use std::marker::PhantomData;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};
use h3::quic::{self, StreamErrorIncoming, StreamId, WriteBuf};

use crate::error;
use crate::stream::number;

/// The sending half of such a stream. Every connection has three, which write little and seldom: what only requests need is not
/// kept for them.
pub struct CriticalStream<B: Buf> {
    stream: quicket::tokio::SendStream,
    /// What is to be written. In a box, for mostly there is nothing.
    writing: Option<Box<BytesMut>>,
    data: PhantomData<fn(B)>,
}

impl<B: Buf> CriticalStream<B> {
    pub(crate) const fn new(stream: quicket::tokio::SendStream) -> Self {
        Self { stream, writing: None, data: PhantomData }
    }
}

impl<B: Buf> fmt::Debug for CriticalStream<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stream.fmt(f)
    }
}

impl<B: Buf> quic::SendStream<B> for CriticalStream<B> {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        while let Some(data) = self.writing.as_mut().filter(|data| !data.is_empty()) {
            match ready!(self.stream.poll_write_some(cx, data)) {
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
        let frame = data.into();
        let mut joined = BytesMut::with_capacity(frame.remaining());
        joined.put(frame);
        self.writing = Some(Box::new(joined));
        Ok(())
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        ready!(self.poll_ready(cx))?;
        Poll::Ready(self.stream.finish().map_err(error::write))
    }

    fn reset(&mut self, code: u64) {
        // Where it has ended already, there is nothing to give up.
        let _ = self.stream.reset(code);
    }

    fn send_id(&self) -> StreamId {
        number(self.stream.id())
    }
}
