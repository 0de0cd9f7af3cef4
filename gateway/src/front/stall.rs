//! Clients over TCP that ask nothing, or take nothing of their answers: neither their system's buffer nor HTTP/2's
//! flow control says so to anybody but who writes.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::{Body, BodyError};

/// What the client of a connection takes of the answers' bodies.
#[derive(Debug)]
pub(super) struct Progress {
    begun: Instant,
    /// When something was taken last, in milliseconds since the beginning.
    last: AtomicU64,
    /// Bodies whose next piece the client has no room for.
    due: AtomicUsize,
    /// A request has come.
    has_asked: AtomicBool,
    first: Notify,
}

impl Progress {
    pub(super) fn new() -> Arc<Self> {
        let (last, due) = (AtomicU64::new(0), AtomicUsize::new(0));
        let (has_asked, first) = (AtomicBool::new(false), Notify::new());
        Arc::new(Self { begun: Instant::now(), last, due, has_asked, first })
    }

    /// A request has come.
    pub(super) fn asked(&self) {
        self.has_asked.store(true, Ordering::Relaxed);
        self.first.notify_one();
    }

    /// Waits for the first request, if it has not come yet. One caller at a time.
    pub(super) async fn has_been_asked(&self) {
        self.first.notified().await;
    }

    /// A body that tells when the next piece is asked for.
    pub(super) fn follow(self: &Arc<Self>, body: Body) -> Body {
        Followed { body, progress: Arc::clone(self), is_due: false }.boxed_unsync()
    }

    /// Waits until the client has asked nothing at all for so long, or has taken nothing though there was something
    /// to take. One body that waits does no harm while others flow: players of videos pause so.
    pub(super) async fn stalled(&self, patience: Duration) {
        loop {
            sleep(patience / 4).await;
            let since = self.begun + Duration::from_millis(self.last.load(Ordering::Relaxed));
            let is_due = self.due.load(Ordering::Relaxed) > 0;
            let is_silent = !self.has_asked.load(Ordering::Relaxed);
            if (is_due || is_silent) && since.elapsed() > patience {
                return;
            }
        }
    }

    fn tick(&self) {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }
}

struct Followed {
    body: Body,
    progress: Arc<Progress>,
    /// A piece was given out, and no other was asked for.
    is_due: bool,
}

impl Followed {
    fn note(&mut self, is_due: bool) {
        if is_due != self.is_due {
            self.is_due = is_due;
            match is_due {
                true => self.progress.due.fetch_add(1, Ordering::Relaxed),
                false => self.progress.due.fetch_sub(1, Ordering::Relaxed),
            };
        }
    }
}

impl http_body::Body for Followed {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.progress.tick();
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.note(matches!(polled, Poll::Ready(Some(Ok(_)))));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.note(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::body;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_noticed_and_who_waits_for_an_origin_is_not() {
        let second = Duration::from_secs(1);
        assert!(timeout(second * 2, Progress::new().stalled(second)).await.is_ok(), "no request");
        let progress = Progress::new();
        progress.asked();
        assert!(timeout(second * 10, progress.stalled(second)).await.is_err(), "nothing is due");
        let mut taken = progress.follow(body(Bytes::from_static(b"a")));
        assert!(timeout(second * 10, progress.stalled(second)).await.is_err(), "the origin is");
        assert!(taken.frame().await.is_some());
        assert!(timeout(second * 2, progress.stalled(second)).await.is_ok());
        let mut other = progress.follow(body(Bytes::from_static(b"a")));
        assert!(other.frame().await.is_some());
        assert!(timeout(second / 2, progress.stalled(second)).await.is_err(), "another one flows");
        drop((taken, other));
        assert!(timeout(second * 10, progress.stalled(second)).await.is_err(), "nothing is due");
    }
}
