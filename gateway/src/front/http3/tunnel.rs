//! A request's stream as one end of a tunnel (RFC 9220).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncWriteExt, DuplexStream, ReadBuf, ReadHalf};

use crate::{Body, BodyError};

/// What of a tunnel's data waits for the other side, in each direction, in bytes.
pub(super) const TUNNEL_BUFFER: usize = 64 << 10;

/// Carries the client's data into a tunnel; what comes out of it is the body of the answer.
pub(super) fn carry(mut body: Body, far: DuplexStream) -> Body {
    let (reading, mut writing) = tokio::io::split(far);
    // It ends with the client's data, or when the tunnel takes no more.
    tokio::spawn(async move {
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { break };
            if writing.write_all(&data).await.is_err() {
                return;
            }
        }
        let _ = writing.shutdown().await;
    });
    Outgoing(reading).boxed_unsync()
}

/// What comes out of a tunnel.
struct Outgoing(ReadHalf<DuplexStream>);

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut buffer = [0; 8 << 10];
        let mut read = ReadBuf::new(&mut buffer);
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut read))?;
        let data = Bytes::copy_from_slice(read.filled());
        Poll::Ready((!data.is_empty()).then(|| Ok(Frame::data(data))))
    }
}
