//! Bodies that may not stop flowing.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::BodyError;

/// When the last of a request was passed on.
#[derive(Clone, Debug)]
pub(crate) struct Clock(Arc<Mutex<Since>>);

#[derive(Clone, Copy, Debug)]
struct Since {
    last: Instant,
    /// The next piece is the client's to send, or the request waits for its turn: no server is slow meanwhile.
    is_held: bool,
}

impl Clock {
    pub(crate) fn now() -> Self {
        Self(Arc::new(Mutex::new(Since { last: Instant::now(), is_held: false })))
    }

    /// From when on the server is waited for: now, while the client is, or a turn.
    pub(crate) fn last(&self) -> Instant {
        let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if since.is_held { Instant::now() } else { since.last }
    }

    /// The server is not asked yet: it has more to do than it takes.
    pub(super) fn hold(&self) {
        self.tick(true);
    }

    /// It is asked now.
    pub(super) fn start(&self) {
        self.tick(false);
    }

    /// Whether somebody else than the server is waited for.
    pub(super) fn is_held(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_held
    }

    fn tick(&self, is_held: bool) {
        let since = Since { last: Instant::now(), is_held };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }
}

/// A request's body did not come to its end: its client is to blame, not the server that waits for it.
#[derive(Debug)]
pub(crate) struct ClientFailed(BodyError);

impl ClientFailed {
    pub(super) const fn reason(&self) -> &BodyError {
        &self.0
    }
}

impl std::fmt::Display for ClientFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ClientFailed {}

/// Nothing came for too long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silent {
    who: &'static str,
    limit: Duration,
}

impl std::fmt::Display for Silent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} sent nothing of the body for {} ms", self.who, self.limit.as_millis())
    }
}

impl std::error::Error for Silent {}

/// A body whose progress is noted, or demanded.
pub(crate) struct Watched<B> {
    body: B,
    clock: Option<Clock>,
    limit: Option<Limit>,
}

struct Limit {
    /// None before the sender is waited for: most bodies are there at once.
    sleep: Option<Pin<Box<Sleep>>>,
    silent: Silent,
    /// The sender is waited for. Time that the receiver takes is not the sender's.
    is_waiting: bool,
}

impl<B> Watched<B> {
    /// Notes on `clock` who is waited for, and whose fault it is if no more of a request comes.
    pub(crate) const fn new(body: B, clock: Clock) -> Self {
        Self { body, clock: Some(clock), limit: None }
    }

    /// Fails if `who` sends nothing for `limit`.
    pub(crate) const fn with_limit(body: B, limit: Duration, who: &'static str) -> Self {
        let limit = Limit { sleep: None, silent: Silent { who, limit }, is_waiting: false };
        Self { body, clock: None, limit: Some(limit) }
    }
}

impl<B> http_body::Body for Watched<B>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Some(clock) = &self.clock {
            clock.tick(polled.is_pending());
            return polled.map_err(|error| ClientFailed(error).into());
        }
        if polled.is_ready() {
            if let Some(limit) = &mut self.limit {
                limit.is_waiting = false;
            }
            return polled;
        }
        if let Some(limit) = &mut self.limit {
            let after = limit.silent.limit;
            let sleep = limit.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(after)));
            if !std::mem::replace(&mut limit.is_waiting, true) {
                sleep.as_mut().reset(Instant::now() + after);
            }
            ready!(sleep.as_mut().poll(cx));
            return Poll::Ready(Some(Err(limit.silent.into())));
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use http_body_util::combinators::UnsyncBoxBody;

    /// Pieces, each after so many milliseconds; then nothing for ever.
    struct Slow(Vec<u64>, Option<Pin<Box<Sleep>>>);

    impl http_body::Body for Slow {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            let Some(&wait) = self.0.first() else { return Poll::Pending };
            let sleep = self
                .1
                .get_or_insert_with(|| Box::pin(tokio::time::sleep(Duration::from_millis(wait))));
            ready!(sleep.as_mut().poll(cx));
            (self.1, _) = (None, self.0.remove(0));
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"a")))))
        }
    }

    fn watched(waits: &[u64]) -> UnsyncBoxBody<Bytes, BodyError> {
        let limit = Duration::from_millis(100);
        Watched::with_limit(Slow(waits.to_vec(), None), limit, "the origin").boxed_unsync()
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_a_body_and_a_slow_receiver_does_not() {
        let mut body = watched(&[90, 90, 0]);
        assert!(body.frame().await.unwrap().is_ok());
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(body.frame().await.unwrap().is_ok(), "the receiver was slow, not the sender");
        assert!(body.frame().await.unwrap().is_ok());
        let error = body.frame().await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "the origin sent nothing of the body for 100 ms");
        assert!(watched(&[110]).frame().await.unwrap().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_not_slow_while_the_client_is() {
        let clock = Clock::now();
        let mut body = Watched::new(Slow(vec![5000], None), clock.clone());
        let waiting = tokio::time::timeout(Duration::from_secs(1), body.frame());
        assert!(waiting.await.is_err());
        assert_eq!(clock.last(), Instant::now(), "the client is due");
        assert!(body.frame().await.unwrap().is_ok());
        let since = Instant::now();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(clock.last(), since, "the server is");
    }
}
