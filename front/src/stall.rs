//! Clients over TCP that ask nothing, or take nothing of their answers: neither their system's buffer nor HTTP/2's
//! flow control says so to anybody but who writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use http_body_util::BodyExt;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::under_way::{Counted, UnderWay};
use crate::{Body, Polled, Watch, Watched};

/// What the client of a connection takes of the answers' bodies.
#[derive(Debug)]
pub(crate) struct Progress {
    begun: Instant,
    /// When something was taken last, in milliseconds since the beginning.
    last: AtomicU64,
    /// Bodies whose next piece the client has no room for.
    due: AtomicUsize,
    under_way: UnderWay,
    /// A request has come.
    has_asked: AtomicBool,
    first: Notify,
    /// The body of the last request was not read to its end.
    left_unread: AtomicBool,
    /// The connection has become a tunnel: what comes on it is no body.
    is_tunnel: AtomicBool,
    /// A body broke off whose end is that of the connection.
    is_cut: AtomicBool,
}

impl Progress {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            last: AtomicU64::new(0),
            due: AtomicUsize::new(0),
            under_way: UnderWay::default(),
            has_asked: AtomicBool::new(false),
            first: Notify::new(),
            left_unread: AtomicBool::new(false),
            is_tunnel: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
        })
    }

    /// Which requests are under way.
    pub(crate) const fn under_way(&self) -> &UnderWay {
        &self.under_way
    }

    /// A request has come, and so all of the one before, over HTTP/1.1.
    pub(crate) fn asked(&self) {
        self.left_unread.store(false, Ordering::Relaxed);
        self.has_asked.store(true, Ordering::Relaxed);
        self.first.notify_one();
    }

    /// Nobody wants the rest of a request's body.
    pub(crate) fn leave_unread(&self) {
        self.left_unread.store(true, Ordering::Relaxed);
    }

    /// The connection is about to be upgraded to another protocol (RFC 9110, Section 7.8).
    pub(crate) fn upgrade(&self) {
        self.is_tunnel.store(true, Ordering::Relaxed);
    }

    /// True if the client may still send what nobody wants.
    pub(crate) fn has_left_unread(&self) -> bool {
        self.left_unread.load(Ordering::Relaxed) && !self.is_tunnel.load(Ordering::Relaxed)
    }

    /// True if the end of the connection must not look like that of a body (RFC 9112, Section 6.3).
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }

    /// Waits for the first request, if it has not come yet. One caller at a time.
    pub(crate) async fn has_been_asked(&self) {
        self.first.notified().await;
    }

    /// The body of an answer, which tells when the next piece is asked for. The request is under way until it ends, as the
    /// connection does that `is_last`: nothing else says where the body ends.
    pub(crate) fn follow(self: &Arc<Self>, request: Counted, body: Body, is_last: bool) -> Body {
        let progress = Arc::clone(self);
        let followed = Followed { progress, _request: request, is_due: false, is_last };
        Watched::new(body, followed).boxed_unsync()
    }

    /// Waits until the client has asked nothing at all for so long, or has taken nothing though there was something
    /// to take. One body that waits does no harm while others flow: players of videos pause so.
    pub(crate) async fn stalled(&self, patience: Duration) {
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
    progress: Arc<Progress>,
    _request: Counted,
    /// A piece was given out, and no other was asked for.
    is_due: bool,
    /// Its end is that of the connection.
    is_last: bool,
}

impl Followed {
    fn note(&mut self, is_due: bool) {
        if is_due != self.is_due {
            self.is_due = is_due;
            let due = &self.progress.due;
            match is_due {
                true => due.fetch_add(1, Ordering::Relaxed),
                false => due.fetch_sub(1, Ordering::Relaxed),
            };
        }
    }
}

impl Watch for Followed {
    fn on_frame(&mut self, polled: &Polled, _: bool) {
        self.progress.tick();
        if self.is_last && matches!(polled, Poll::Ready(Some(Err(_)))) {
            self.progress.is_cut.store(true, Ordering::Release);
        }
        self.note(matches!(polled, Poll::Ready(Some(Ok(_)))));
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
    use bytes::Bytes;
    use http_body_util::Full;
    use tokio::time::timeout;

    fn body() -> Body {
        Full::new(Bytes::from_static(b"a")).map_err(Into::into).boxed_unsync()
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_noticed_and_who_waits_for_an_origin_is_not() {
        let second = Duration::from_secs(1);
        assert!(timeout(second * 2, Progress::new().stalled(second)).await.is_ok(), "no request");
        let progress = Progress::new();
        progress.asked();
        assert!(timeout(second * 10, progress.stalled(second)).await.is_err(), "nothing is due");
        let mut taken = progress.follow(progress.under_way().count(), body(), false);
        assert!(timeout(second * 10, progress.stalled(second)).await.is_err(), "the origin is");
        assert!(taken.frame().await.is_some());
        assert!(timeout(second * 2, progress.stalled(second)).await.is_ok());
        let mut other = progress.follow(progress.under_way().count(), body(), false);
        assert!(other.frame().await.is_some());
        assert!(timeout(second / 2, progress.stalled(second)).await.is_err(), "another one flows");
        drop((taken, other));
        assert!(timeout(second * 10, progress.stalled(second)).await.is_err(), "nothing is due");
    }
}
