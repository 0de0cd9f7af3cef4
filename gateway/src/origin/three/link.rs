//! A stream that has become another protocol's (RFC 9220): bytes in DATA frames, both ways.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::client::RequestStream;
use h3::error::{Code, StreamError};
use quicket_h3::{RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::Share;
use super::fault;

/// The most that becomes one DATA frame, in bytes, and that is held until it is sent.
const PIECE: usize = 16 << 10;

type Half = RequestStream<SendStream<Bytes>, Bytes>;
type Sent = (Half, Result<(), StreamError>);

/// The server's end of a tunnel. Dropped before its ends, it is given up in both directions.
pub(super) struct Link {
    receiving: RequestStream<RecvStream, Bytes>,
    /// What has come, and was not read.
    come: Bytes,
    has_ended: bool,
    sending: Sending,
    _share: Share,
}

/// What is under way to the server.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each tunnel, which is large mostly"
)]
enum Sending {
    Nothing(Half),
    Piece(Pin<Box<dyn Future<Output = Sent> + Send>>),
    /// The end: nothing may follow.
    End(Pin<Box<dyn Future<Output = Sent> + Send>>),
    /// It has ended, or is broken.
    Over,
}

impl Link {
    pub(super) const fn new(
        sending: Half,
        receiving: RequestStream<RecvStream, Bytes>,
        share: Share,
    ) -> Self {
        let sending = Sending::Nothing(sending);
        Self { receiving, come: Bytes::new(), has_ended: false, sending, _share: share }
    }

    /// Ready once the server has room for more.
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (half, sent, is_end) = match &mut self.sending {
            Sending::Nothing(_) | Sending::Over => return Poll::Ready(Ok(())),
            Sending::Piece(sending) => {
                let (half, sent) = ready!(sending.as_mut().poll(cx));
                (half, sent, false)
            }
            Sending::End(sending) => {
                let (half, sent) = ready!(sending.as_mut().poll(cx));
                (half, sent, true)
            }
        };
        // A half that is dropped before its end resets the stream.
        self.sending = match sent.is_ok() && !is_end {
            true => Sending::Nothing(half),
            false => Sending::Over,
        };
        Poll::Ready(sent.map_err(broken))
    }
}

fn broken(error: StreamError) -> io::Error {
    io::Error::other(fault::plain(error))
}

impl AsyncRead for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.come.is_empty() && !self.has_ended {
            let data = ready!(self.receiving.poll_recv_data(cx)).map_err(broken)?;
            match data.map(|mut data| data.copy_to_bytes(data.remaining())) {
                Some(data) => self.come = data,
                None => self.has_ended = true,
            }
        }
        let some = self.come.len().min(buf.remaining());
        buf.put_slice(&self.come.split_to(some));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_sent(cx))?;
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let Sending::Nothing(mut half) = std::mem::replace(&mut self.sending, Sending::Over) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let piece = Bytes::copy_from_slice(&buf[..buf.len().min(PIECE)]);
        let length = piece.len();
        self.sending = Sending::Piece(Box::pin(async move {
            let sent = half.send_data(piece).await;
            (half, sent)
        }));
        // What does not go at once is held, and waited for before the next one.
        match self.poll_sent(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(length)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !matches!(self.sending, Sending::End(_)) {
            ready!(self.poll_sent(cx))?;
        }
        self.sending = match std::mem::replace(&mut self.sending, Sending::Over) {
            Sending::Nothing(mut half) => Sending::End(Box::pin(async move {
                let sent = half.finish().await;
                (half, sent)
            })),
            other => other,
        };
        self.poll_sent(cx)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // RFC 9220, Section 3: as a connection of TCP that is reset.
        if !self.has_ended {
            self.receiving.stop_sending(Code::H3_REQUEST_CANCELLED);
        }
    }
}
