//! Requests of a connection that are not answered yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts requests under way.
#[derive(Clone, Default)]
pub(super) struct UnderWay(Arc<Inner>);

#[derive(Default)]
struct Inner {
    count: AtomicUsize,
    /// There is none any more.
    none: Notify,
}

/// A request, as long as it is under way.
pub(super) struct Counted(Arc<Inner>);

impl UnderWay {
    pub(super) fn count(&self) -> Counted {
        self.0.count.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(&self.0))
    }

    /// Waits until there is none. Cancel safe; one caller at a time.
    pub(super) async fn ends(&self) {
        // What is told may be of a time before others began.
        while self.0.count.load(Ordering::Acquire) > 0 {
            self.0.none.notified().await;
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.none.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
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
}
