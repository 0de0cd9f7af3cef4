//! Requests of a connection that are under way, whichever version of HTTP it speaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// Counts requests under way. Clones share the count.
#[derive(Clone, Debug)]
pub struct UnderWay(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    begun: Instant,
    count: AtomicUsize,
    /// When there was one last, in milliseconds since the beginning.
    last: AtomicU64,
    /// There is none any more.
    none: Notify,
}

/// A request, as long as it is under way. Each clone counts as one.
///
/// In the extensions of a CONNECT it is for who goes on with its stream once it is answered, and keeps this as long:
/// the connection is not idle.
#[derive(Debug)]
pub struct Counted(Arc<Inner>);

impl Default for UnderWay {
    fn default() -> Self {
        let (count, last, none) = (AtomicUsize::new(0), AtomicU64::new(0), Notify::new());
        Self(Arc::new(Inner { begun: Instant::now(), count, last, none }))
    }
}

impl UnderWay {
    /// A request is under way as long as what is given back.
    #[must_use]
    pub fn count(&self) -> Counted {
        self.0.count.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(&self.0))
    }

    /// Waits until there is none. Cancel safe; one caller at a time.
    pub async fn ends(&self) {
        // What is told may be of a time before others began.
        while self.0.count.load(Ordering::Acquire) > 0 {
            self.0.none.notified().await;
        }
    }

    /// Waits until there was none for so long. What else the client says does not count: it may answer PING without
    /// end.
    pub async fn idle(&self, patience: Duration) {
        loop {
            // The count is looked at first: who finds nothing under way finds also when the last one ended.
            let count = self.0.count.load(Ordering::Acquire);
            let last = Duration::from_millis(self.0.last.load(Ordering::Acquire));
            let left = match count {
                0 => (last + patience).saturating_sub(self.0.begun.elapsed()),
                _ => patience,
            };
            if left.is_zero() {
                return;
            }
            sleep(left).await;
        }
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        UnderWay(Arc::clone(&self.0)).count()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let now = u64::try_from(self.0.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last.store(now, Ordering::Release);
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.none.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_last_one_is_told() {
        let under_way = UnderWay::default();
        under_way.ends().await;
        for _ in 0..2 {
            let (one, other) = (under_way.count(), under_way.count());
            drop(one);
            assert!(timeout(Duration::from_secs(1), under_way.ends()).await.is_err());
            drop(other);
            let began = under_way.count();
            assert!(timeout(Duration::from_secs(1), under_way.ends()).await.is_err());
            let ending = tokio::spawn({
                let under_way = under_way.clone();
                async move { under_way.ends().await }
            });
            tokio::task::yield_now().await;
            drop(began);
            ending.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_idle_once_there_was_none_for_long_enough() {
        let second = Duration::from_secs(1);
        let under_way = UnderWay::default();
        let begun = Instant::now();
        under_way.idle(second).await;
        assert_eq!(begun.elapsed(), second, "nothing was asked");

        let under_way = UnderWay::default();
        let begun = Instant::now();
        sleep(second / 2).await;
        let one = under_way.count();
        assert!(timeout(second * 10, under_way.idle(second)).await.is_err());
        let other = one.clone();
        drop(one);
        assert!(timeout(second * 10, under_way.idle(second)).await.is_err(), "a clone counts");
        let ended = begun.elapsed();
        drop(other);
        under_way.idle(second).await;
        assert_eq!(begun.elapsed(), ended + second);
    }
}
