//! What a store may say until it has answered.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is read of a store from one answer that was whole to the next, in bytes: it waits in memory.
pub(super) const MAX_UNANSWERED: usize = 1 << 20;

/// What may be read still. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Allowance(Arc<AtomicUsize>);

impl Allowance {
    fn new() -> Self {
        Self(Arc::new(AtomicUsize::new(MAX_UNANSWERED)))
    }

    /// An answer was whole.
    pub(super) fn renew(&self) {
        self.0.store(MAX_UNANSWERED, Ordering::Relaxed);
    }

    /// So much was read; false if that is too much.
    fn take(&self, len: usize) -> bool {
        let taken =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(len));
        taken.is_ok()
    }
}

/// A connection that fails when too much comes that answers nothing.
pub(super) struct Bounded<S> {
    inner: S,
    allowance: Allowance,
}

impl<S> Bounded<S> {
    pub(super) fn new(inner: S) -> (Self, Allowance) {
        let allowance = Allowance::new();
        (Self { inner, allowance: allowance.clone() }, allowance)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let len = buffer.filled().len() - before;
        Poll::Ready(match self.allowance.take(len) {
            true => Ok(()),
            false => Err(io::Error::other("it says more than any answer has")),
        })
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn what_answers_nothing_comes_to_an_end() {
        let (mut endless, allowance) =
            Bounded::new(tokio::io::join(tokio::io::repeat(7), tokio::io::sink()));
        let mut part = vec![0; MAX_UNANSWERED / 2];
        for _ in 0..3 {
            endless.read_exact(&mut part).await.unwrap();
            endless.read_exact(&mut part).await.unwrap();
            allowance.renew();
        }
        endless.read_exact(&mut part).await.unwrap();
        endless.read_exact(&mut part).await.unwrap();
        assert!(endless.read_exact(&mut part).await.is_err());
    }
}
