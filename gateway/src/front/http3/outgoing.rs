//! Answers, as fast as clients take them.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h3::error::{Code, StreamError};
use h3::server::RequestStream;
use http::{Response, Version};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use quicket_h3::{SendStream, Transfer};
use tokio::time::timeout;

use super::tunnel::Cut;
use crate::origin::InPages;
use crate::{Body, BodyError};

/// The sending half of a request's stream.
pub(super) struct Outgoing<'a> {
    pub(super) stream: RequestStream<SendStream<Bytes>, Bytes>,
    pub(super) transfer: &'a Transfer,
    /// How long a client may take nothing.
    pub(super) patience: Duration,
}

impl Outgoing<'_> {
    /// Sends an answer; fails with what the client is told instead of its end.
    pub(super) async fn send(&mut self, response: Response<Body>) -> Result<(), Code> {
        let (parts, mut body) = response.into_parts();
        let is_lent = parts.extensions.get::<InPages>().is_none();
        let head = Response::from_parts(parts, ());
        let mut next = match body.is_end_stream() {
            true => Some(None),
            false => peek(&mut body).await,
        };
        // Most answers are short, and here as a whole: then they go out in one piece.
        let is_whole = match &next {
            Some(Some(frame)) => is_short(frame) && body.is_end_stream(),
            Some(None) => true,
            None => false,
        };
        if is_whole {
            self.transfer.hold();
        }
        self.send_head(head).await?;
        loop {
            let frame = match next.take() {
                Some(frame) => frame,
                // What is held must not wait for anything.
                None if body.is_end_stream() => None,
                None => body.frame().await,
            };
            let Some(frame) = frame else { break };
            // The client must not take the part for the whole.
            let frame = frame.map_err(|error| match error.is::<Cut>() {
                // RFC 9220, Section 3: as a connection of TCP that is reset.
                true => Code::H3_REQUEST_CANCELLED,
                false => Code::H3_INTERNAL_ERROR,
            })?;
            let (transfer, patience) = (self.transfer, self.patience);
            match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => {
                    if is_lent {
                        transfer.offer(&data);
                    }
                    taking(self.stream.send_data(data), || transfer.taken(), patience).await?
                }
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        let trailing = self.stream.send_trailers(trailers);
                        taking(trailing, || transfer.taken(), patience).await?;
                    }
                }
            }
        }
        taking(self.stream.finish(), || self.transfer.taken(), self.patience).await
    }

    /// Sends a header section, of an answer or of one that comes before it (RFC 9114, Section 4.1).
    pub(super) async fn send_head(&mut self, mut head: Response<()>) -> Result<(), Code> {
        *head.version_mut() = Version::HTTP_3;
        let responding = quicket_h3::respond(&mut self.stream, self.transfer, head);
        taking(responding, || self.transfer.taken(), self.patience).await
    }
}

type NextFrame = Option<Result<Frame<Bytes>, BodyError>>;

/// What a body gives next, if that is known without waiting.
async fn peek(body: &mut Body) -> Option<NextFrame> {
    poll_fn(|cx| match Pin::new(&mut *body).poll_frame(cx) {
        Poll::Ready(next) => Poll::Ready(Some(next)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// True for what of a body is copied anyway.
fn is_short(frame: &Result<Frame<Bytes>, BodyError>) -> bool {
    /// In bytes.
    const SHORT: usize = 2 << 10;
    frame.as_ref().is_ok_and(|frame| frame.data_ref().is_some_and(|data| data.len() <= SHORT))
}

/// Waits as long as the client takes something. One that takes nothing is not waited for for ever: it would keep the
/// request, what counts against its limits, and a connection to an origin.
async fn taking(
    sending: impl Future<Output = Result<(), StreamError>>,
    taken: impl Fn() -> u64,
    patience: Duration,
) -> Result<(), Code> {
    let mut sending = pin!(sending);
    // Mostly it is taken at once: nothing is asked of the clock then.
    if let Poll::Ready(sent) = poll_fn(|cx| Poll::Ready(sending.as_mut().poll(cx))).await {
        return sent.map_err(|_| Code::H3_REQUEST_CANCELLED);
    }
    let mut before = taken();
    loop {
        match timeout(patience, sending.as_mut()).await {
            Ok(sent) => return sent.map_err(|_| Code::H3_REQUEST_CANCELLED),
            Err(_) if taken() == before => return Err(Code::H3_EXCESSIVE_LOAD),
            Err(_) => before = taken(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicU64, Ordering};
    use tokio::time::{Instant, sleep};

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_given_up_and_a_slow_one_is_not() {
        assert_eq!(taking(ready(Ok(())), || 0, SECOND).await, Ok(()));
        let begun = Instant::now();
        let gone = taking(pending(), || 7, SECOND).await;
        assert_eq!((gone, begun.elapsed()), (Err(Code::H3_EXCESSIVE_LOAD), SECOND));
        // A byte in each half of a second, for a hundred seconds.
        let taken = AtomicU64::new(0);
        let slow = async {
            for _ in 0..200 {
                sleep(SECOND / 2).await;
                taken.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        assert_eq!(taking(slow, || taken.load(Ordering::Relaxed), SECOND).await, Ok(()));
    }
}
