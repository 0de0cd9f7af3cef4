//! A request's stream as one end of a tunnel (RFC 9220).
//!
//! Bytes pass through memory from one task to the other. An end of it that is dropped before it has said all is told to the
//! other one as an error, and becomes a reset in the end: never an orderly end for one that was none.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::sync::oneshot;

use crate::{Body, BodyError};

/// What of a tunnel's data waits for the other side, in each direction, in bytes.
const TUNNEL_BUFFER: usize = 64 << 10;

/// What comes out of a tunnel has no orderly end.
#[derive(Debug)]
pub(super) struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the other end of the tunnel is gone")
    }
}

impl std::error::Error for Cut {}

/// One direction: what is read of `Reader` was written to `Writer`.
struct Writer {
    pipe: DuplexStream,
    has_ended: bool,
    is_cut: Arc<AtomicBool>,
}

struct Reader {
    pipe: DuplexStream,
    is_cut: Arc<AtomicBool>,
}

fn direction() -> (Writer, Reader) {
    // Each is used in one direction: so either end hears when the other one is dropped.
    let (writing, reading) = duplex(TUNNEL_BUFFER);
    let is_cut = Arc::new(AtomicBool::new(false));
    let writer = Writer { pipe: writing, has_ended: false, is_cut: Arc::clone(&is_cut) };
    (writer, Reader { pipe: reading, is_cut })
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.has_ended {
            // The pipe is dropped after this: who finds its end finds this, too.
            self.is_cut.store(true, Ordering::Release);
        }
    }
}

impl Writer {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = ready!(Pin::new(&mut self.pipe).poll_shutdown(cx));
        self.has_ended |= ended.is_ok();
        Poll::Ready(ended)
    }

    async fn end(&mut self) {
        let _ = std::future::poll_fn(|cx| self.poll_end(cx)).await;
    }
}

impl Reader {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.pipe).poll_read(cx, buf))?;
        let is_end = buf.filled().len() == before && buf.remaining() > 0;
        Poll::Ready(match is_end && self.is_cut.load(Ordering::Acquire) {
            true => Err(io::Error::new(io::ErrorKind::ConnectionReset, Cut)),
            false => Ok(()),
        })
    }
}

/// The end for who carries bytes to and from a server.
pub(super) struct Near {
    to_client: Writer,
    from_client: Reader,
    _alive: oneshot::Sender<()>,
}

/// The end for the client's stream.
pub(super) struct Far {
    to_server: Writer,
    from_server: Reader,
    /// Resolves when the other end is gone.
    gone: oneshot::Receiver<()>,
}

/// Both ends of a tunnel.
pub(super) fn ends() -> (Near, Far) {
    let ((to_client, from_server), (to_server, from_client)) = (direction(), direction());
    let (alive, gone) = oneshot::channel();
    (Near { to_client, from_client, _alive: alive }, Far { to_server, from_server, gone })
}

impl AsyncRead for Near {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.from_client.poll_read(cx, buf)
    }
}

impl AsyncWrite for Near {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.to_client.pipe).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.to_client.pipe).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.to_client.poll_end(cx)
    }
}

/// Carries the client's data into a tunnel; what comes out of it is the body of the answer.
pub(super) fn carry(mut body: Body, far: Far) -> Body {
    let Far { mut to_server, from_server, mut gone } = far;
    tokio::spawn(async move {
        loop {
            let frame = tokio::select! {
                biased;
                frame = body.frame() => frame,
                // Nobody takes any more: the client is told to send no more, as the body is dropped.
                _ = &mut gone => return,
            };
            let data = match frame {
                Some(Ok(frame)) => frame.into_data(),
                // RFC 9220, Section 3: a stream that is reset is what RST is to TCP.
                Some(Err(_)) => return,
                None => return to_server.end().await,
            };
            // Trailers mean nothing here (RFC 9114, Section 4.4).
            let Ok(data) = data else { return };
            if to_server.pipe.write_all(&data).await.is_err() {
                return;
            }
        }
    });
    Outgoing(from_server).boxed_unsync()
}

/// What comes out of a tunnel.
struct Outgoing(Reader);

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut buffer = [0; 8 << 10];
        let mut read = ReadBuf::new(&mut buffer);
        if ready!(self.0.poll_read(cx, &mut read)).is_err() {
            return Poll::Ready(Some(Err(Cut.into())));
        }
        let data = Bytes::copy_from_slice(read.filled());
        Poll::Ready((!data.is_empty()).then(|| Ok(Frame::data(data))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::AsyncReadExt;
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    type Sent = Result<Frame<Bytes>, BodyError>;

    /// What a client sends.
    struct Sending(mpsc::UnboundedReceiver<Sent>);

    impl http_body::Body for Sending {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Sent>> {
            self.0.poll_recv(cx)
        }
    }

    /// A client that sends what is put into the channel, and the other end of its tunnel.
    fn tunnel() -> (mpsc::UnboundedSender<Sent>, Body, Near) {
        let (client, sent) = mpsc::unbounded_channel();
        let (near, far) = ends();
        (client, carry(Sending(sent).boxed_unsync(), far), near)
    }

    fn data(text: &'static str) -> Sent {
        Ok(Frame::data(Bytes::from_static(text.as_bytes())))
    }

    async fn next(body: &mut Body) -> Option<Result<Bytes, BodyError>> {
        let frame = timeout(Duration::from_secs(5), body.frame()).await.unwrap()?;
        Some(frame.map(|frame| frame.into_data().unwrap()))
    }

    #[tokio::test]
    async fn what_was_said_comes_whole_before_either_end() {
        let (client, mut answer, mut near) = tunnel();
        client.send(data("ask")).unwrap();
        drop(client);
        let mut heard = String::new();
        near.read_to_string(&mut heard).await.unwrap();
        near.write_all(b"answer").await.unwrap();
        near.shutdown().await.unwrap();
        drop(near);
        assert_eq!(
            (heard.as_str(), next(&mut answer).await.unwrap().unwrap()),
            ("ask", "answer".into())
        );
        assert!(next(&mut answer).await.is_none(), "an orderly end");
    }

    #[tokio::test]
    async fn an_end_that_is_dropped_is_no_orderly_end_of_the_answer() {
        let (client, mut answer, mut near) = tunnel();
        near.write_all(b"half").await.unwrap();
        drop(near);
        assert_eq!(next(&mut answer).await.unwrap().unwrap(), "half");
        assert!(next(&mut answer).await.unwrap().unwrap_err().is::<Cut>());
        // And the client's stream is not read any more, though it says nothing.
        timeout(Duration::from_secs(5), client.closed()).await.unwrap();
    }

    #[tokio::test]
    async fn a_client_that_breaks_off_is_an_error_for_the_other_end() {
        let (client, answer, mut near) = tunnel();
        client.send(data("half")).unwrap();
        client.send(Err("reset".into())).unwrap();
        let mut heard = Vec::new();
        let error = near.read_to_end(&mut heard).await.unwrap_err();
        assert_eq!(
            (heard.as_slice(), error.kind()),
            (&b"half"[..], io::ErrorKind::ConnectionReset)
        );
        // One that takes no more of the answer is found out by who writes.
        drop(answer);
        assert!(near.write_all(b"more").await.is_err());
    }
}
