//! What HTTP/2 writes in a turn goes out together: h2 writes and flushes each frame of a body by itself, and each such
//! write would be a record of TLS and a system call, though answers of several requests are there at the same time.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::resets::Frames;

/// The most that waits for the end of a turn, in bytes: four frames of the size that h2 allows by default.
const MOST: usize = 64 << 10;
/// The memory for what waits, at first, in bytes.
const FIRST: usize = 8 << 10;

/// A stream to which what is written goes out only where there is too much of it to wait, or by [`Gathered::follow`].
/// Clones lead to the same one; all of them are used by one task.
pub(super) struct Gathered<S>(Arc<Mutex<Inner<S>>>);

struct Inner<S> {
    stream: S,
    /// What waits. It has no memory while there is nothing.
    waiting: Vec<u8>,
    /// How much of it the stream has taken.
    taken: usize,
    /// The stream may hold something that it was given.
    is_unflushed: bool,
    frames: Frames,
    on_reset: Box<dyn Fn() + Send>,
}

impl<S> Clone for Gathered<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Gathered<S> {
    /// `on_reset` is called for each stream that is reset as malformed.
    pub(super) fn new(stream: S, on_reset: impl Fn() + Send + 'static) -> Self {
        let (frames, on_reset) = (Frames::default(), Box::new(on_reset));
        let (waiting, taken, is_unflushed) = (Vec::new(), 0, false);
        let inner = Inner { stream, waiting, taken, is_unflushed, frames, on_reset };
        Self(Arc::new(Mutex::new(inner)))
    }

    fn lock(&self) -> MutexGuard<'_, Inner<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Awaits what writes to the stream. What it has written goes out each time that it has nothing more to do, and
    /// all of it before its end.
    pub(super) async fn follow<T, E: From<io::Error>>(
        &self,
        writing: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut writing = pin!(writing);
        let mut ended = None;
        poll_fn(|cx| {
            if ended.is_none()
                && let Poll::Ready(output) = writing.as_mut().poll(cx)
            {
                ended = Some(output);
            }
            let flushed = self.lock().poll_flush(cx);
            match (ended.take(), flushed) {
                // What has failed says why itself.
                (Some(Err(error)), _) => Poll::Ready(Err(error)),
                (_, Poll::Ready(Err(error))) => Poll::Ready(Err(error.into())),
                (Some(Ok(output)), Poll::Ready(Ok(()))) => Poll::Ready(Ok(output)),
                (output, _) => {
                    ended = output;
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl<S: AsyncWrite + Unpin> Inner<S> {
    /// Has the stream take what waits.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(left @ [_, ..]) = self.waiting.get(self.taken..) {
            self.is_unflushed = true;
            match ready!(Pin::new(&mut self.stream).poll_write(cx, left))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.taken += written,
            }
        }
        (self.waiting, self.taken) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.waiting.is_empty() {
            ready!(self.poll_drain(cx))?;
        }
        if self.is_unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Takes all that is written, if there is room for it, or once there is.
    fn poll_gather(
        &mut self,
        cx: &mut Context<'_>,
        length: usize,
        gather: impl FnOnce(&mut Vec<u8>),
    ) -> Poll<io::Result<usize>> {
        if self.waiting.len().saturating_add(length) > MOST && !self.waiting.is_empty() {
            ready!(self.poll_drain(cx))?;
        }
        if self.waiting.capacity() == 0 {
            self.waiting.reserve(length.max(FIRST));
        }
        let before = self.waiting.len();
        gather(&mut self.waiting);
        let resets = self.frames.note(self.waiting.get(before..).unwrap_or_default());
        (0..resets).for_each(|_| (self.on_reset)());
        Poll::Ready(Ok(length))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gathered<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Pin::new(&mut inner.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Gathered<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        // What is longer comes in parts.
        let bytes = bytes.get(..MOST).unwrap_or(bytes);
        self.lock().poll_gather(cx, bytes.len(), |waiting| waiting.extend_from_slice(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = slices.iter().fold(0, |sum: usize, slice| sum.saturating_add(slice.len()));
        let length = length.min(MOST);
        self.lock().poll_gather(cx, length, |waiting| {
            let mut left = length;
            for slice in slices {
                let some = slice.get(..left).unwrap_or(slice);
                waiting.extend_from_slice(some);
                left -= some.len();
            }
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Leaves it to the end of the turn.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.lock();
        ready!(inner.poll_flush(cx))?;
        Pin::new(&mut inner.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A stream that takes so much, and counts writes.
    #[derive(Default)]
    struct Narrow {
        room: usize,
        taken: Vec<u8>,
        writes: usize,
    }

    impl AsyncRead for Narrow {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Narrow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let some = bytes.len().min(self.room);
            if some == 0 {
                return Poll::Pending;
            }
            self.room -= some;
            self.writes += 1;
            self.taken.extend_from_slice(&bytes[..some]);
            Poll::Ready(Ok(some))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn narrow(room: usize) -> Gathered<Narrow> {
        Gathered::new(Narrow { room, ..Narrow::default() }, || {})
    }

    #[tokio::test]
    async fn what_is_written_in_a_turn_goes_out_in_one_write_at_its_end() {
        let stream = narrow(usize::MAX);
        let mut writing = stream.clone();
        let turn = stream.follow(async {
            for _ in 0..8 {
                writing.write_all(&[7; 1000]).await?;
                writing.flush().await?;
            }
            assert_eq!(writing.lock().stream.writes, 0);
            Ok::<_, io::Error>(5)
        });
        assert_eq!(turn.await.unwrap(), 5);
        let inner = stream.lock();
        assert_eq!((inner.stream.writes, inner.stream.taken.len()), (1, 8000));
        assert_eq!(inner.waiting.capacity(), 0, "it keeps no memory");
    }

    #[test]
    fn no_more_waits_than_there_may_and_nothing_is_lost_or_doubled() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut stream = narrow(0);
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        let mut written = 0;
        for turn in 0..1000 {
            let left = &bytes[written..];
            let (first, second) = left.split_at(left.len().min(9));
            let second = &second[..second.len().min(16 << 10)];
            let slices = [IoSlice::new(first), IoSlice::new(second)];
            match Pin::new(&mut stream).poll_write_vectored(&mut cx, &slices) {
                Poll::Ready(some) => written += some.unwrap(),
                Poll::Pending => stream.lock().stream.room += 1000 + turn,
            }
            assert!(stream.lock().waiting.len() <= MOST);
            if written == bytes.len() {
                break;
            }
        }
        assert_eq!(written, bytes.len());
        stream.lock().stream.room = usize::MAX;
        assert!(stream.lock().poll_flush(&mut cx).is_ready());
        assert!(stream.lock().stream.taken == bytes);
    }

    #[tokio::test]
    async fn an_end_waits_for_what_was_written_and_a_failure_of_the_stream_ends_it() {
        let (near, mut far) = tokio::io::duplex(10);
        let stream = Gathered::new(near, || {});
        let mut writing = stream.clone();
        let turn = stream.follow(async { writing.write_all(&[1; 100]).await });
        let mut read = [0; 100];
        let (ended, came) = tokio::join!(turn, far.read_exact(&mut read));
        ended.unwrap();
        assert_eq!((came.unwrap(), read), (100, [1; 100]));

        drop(far);
        let mut writing = stream.clone();
        let turn = stream.follow(async {
            writing.write_all(&[1; 100]).await?;
            std::future::pending::<io::Result<()>>().await
        });
        assert!(turn.await.is_err());
    }
}
