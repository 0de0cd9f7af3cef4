//! The end of a connection of HTTP/1.1 whose client still sends a body that nobody wants.
//!
//! A socket that is closed while something has come that was not read resets the connection, and the client's system may
//! throw the answer away with that (RFC 9112, Section 9.6). So only our half is closed, and what comes is read and
//! forgotten until the client closes its own, or for a while.
//!
//! And the end of one on which a body broke off that would end with it: a reset, so that no client takes the part for the whole.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::Reason;
use http_body::{Frame, SizeHint};
use hyper::body::{Bytes, Incoming};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;

use crate::BodyError;
use crate::stall::Progress;

/// How long what nobody wants is read.
const LINGER: Duration = Duration::from_secs(5);
/// ... and how much of it, in bytes: more than is on the way when the client hears of the end.
const LINGER_BYTES: usize = 16 << 20;
/// ... at once, in bytes.
const PIECE: usize = 4096;

/// A stream whose end can be a reset.
pub(crate) trait Resets {
    /// Its end is to be one, once it is dropped.
    fn reset(&self);
}

impl Resets for TcpStream {
    fn reset(&self) {
        // Of one that has ended there is nothing to be reset.
        let _ = self.set_zero_linger();
    }
}

impl Resets for TlsStream<TcpStream> {
    fn reset(&self) {
        self.get_ref().0.reset();
    }
}

#[cfg(test)]
impl Resets for tokio::io::DuplexStream {
    fn reset(&self) {}
}

/// A stream whose end waits for the client's, if that still sends.
pub(crate) struct Lingering<S: Resets> {
    stream: S,
    progress: Arc<Progress>,
    /// Set once our half is closed.
    until: Option<Pin<Box<Sleep>>>,
    /// How much was read since.
    forgotten: usize,
}

impl<S: Resets> Lingering<S> {
    pub(crate) const fn new(stream: S, progress: Arc<Progress>) -> Self {
        Self { stream, progress, until: None, forgotten: 0 }
    }
}

impl<S: Resets> Drop for Lingering<S> {
    fn drop(&mut self) {
        if self.progress.is_cut() {
            self.stream.reset();
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Resets + Unpin> Lingering<S> {
    /// Reads until the client closes its half.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        if until.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        while self.forgotten < LINGER_BYTES {
            let mut piece = [0; PIECE];
            let mut piece = ReadBuf::new(&mut piece);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut piece)) {
                Ok(()) if !piece.filled().is_empty() => self.forgotten += piece.filled().len(),
                _ => break,
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Resets + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Resets + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.until.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            if !self.progress.has_left_unread() {
                return Poll::Ready(Ok(()));
            }
        }
        self.poll_end(cx).map(Ok)
    }
}

/// The body of a request, which tells when it is dropped before its end.
pub(crate) struct Wanted {
    body: Incoming,
    progress: Arc<Progress>,
    /// It has come to its end, which one in chunks does not know by itself.
    has_ended: bool,
}

impl Wanted {
    pub(crate) const fn new(body: Incoming, progress: Arc<Progress>) -> Self {
        Self { body, progress, has_ended: false }
    }
}

impl http_body::Body for Wanted {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.has_ended |= matches!(polled, Poll::Ready(None));
        polled.map_err(|error| match is_malformed(&error) {
            true => Malformed(error).into(),
            false => error.into(),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        if !self.has_ended && !http_body::Body::is_end_stream(&self.body) {
            self.progress.leave_unread();
        }
    }
}

/// A body over HTTP/2 that is not as its request has announced it. Its stream was reset for that, which [`hold`](crate::hold) has told of.
#[derive(Debug)]
pub struct Malformed(hyper::Error);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.source() {
            Some(reason) => fmt::Display::fmt(reason, f),
            None => fmt::Display::fmt(&self.0, f),
        }
    }
}

impl Error for Malformed {}

/// RFC 9113, Section 8.1.1: as h2 has found, and not the client by a reset.
fn is_malformed(error: &hyper::Error) -> bool {
    let source = error.source().and_then(|error| error.downcast_ref::<h2::Error>());
    source.is_some_and(|error| {
        error.is_reset() && error.is_library() && error.reason() == Some(Reason::PROTOCOL_ERROR)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn the_end_waits_for_a_client_that_sends_and_not_for_ever() {
        let progress = Progress::new();
        let (near, _far) = duplex(64);
        let begun = Instant::now();
        Lingering::new(near, Arc::clone(&progress)).shutdown().await.unwrap();
        assert!(begun.elapsed().is_zero(), "nothing was left unread");

        progress.leave_unread();
        let (near, mut far) = duplex(64);
        let ending = tokio::spawn({
            let mut stream = Lingering::new(near, Arc::clone(&progress));
            async move { stream.shutdown().await }
        });
        far.write_all(&[0; 100_000]).await.unwrap();
        assert_eq!(far.read(&mut [0]).await.unwrap(), 0, "its half is closed");
        assert!(!ending.is_finished());
        drop(far);
        ending.await.unwrap().unwrap();
        assert!(begun.elapsed() < LINGER);

        let (near, _far) = duplex(64);
        let begun = Instant::now();
        Lingering::new(near, progress).shutdown().await.unwrap();
        assert_eq!(begun.elapsed(), LINGER);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_does_not_wait_for_more_than_can_be_on_its_way() {
        let progress = Progress::new();
        progress.leave_unread();
        let (near, mut far) = duplex(64 << 10);
        let sending = tokio::spawn(async move {
            let mut sent = 0;
            while let Ok(more) = far.write(&[0; 64 << 10]).await {
                sent += more;
            }
            sent
        });
        let mut stream = Lingering::new(near, progress);
        let begun = Instant::now();
        stream.shutdown().await.unwrap();
        drop(stream);
        let sent = sending.await.unwrap();
        assert!(
            begun.elapsed() < LINGER && (LINGER_BYTES..2 * LINGER_BYTES).contains(&sent),
            "{sent}"
        );
    }

    #[test]
    fn the_next_request_and_an_upgrade_have_nothing_left_unread() {
        let progress = Progress::new();
        progress.leave_unread();
        progress.asked();
        assert!(!progress.has_left_unread());
        progress.leave_unread();
        assert!(progress.has_left_unread());
        progress.upgrade();
        assert!(!progress.has_left_unread());
    }
}
