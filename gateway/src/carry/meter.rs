//! How much was carried, and when last.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Counts bytes both ways.
#[derive(Debug)]
pub(crate) struct Meter {
    begun: Instant,
    /// When something came last, in milliseconds since the beginning.
    last: AtomicU64,
    went: AtomicU64,
    came: AtomicU64,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            last: AtomicU64::new(0),
            went: AtomicU64::new(0),
            came: AtomicU64::new(0),
        }
    }

    /// Bytes went from near to far.
    pub(crate) fn went(&self, len: usize) {
        self.went.fetch_add(len as u64, Ordering::Relaxed);
        self.touch();
    }

    /// Bytes came from far to near.
    pub(crate) fn came(&self, len: usize) {
        self.came.fetch_add(len as u64, Ordering::Relaxed);
        self.touch();
    }

    /// It is no silence, though nothing is carried.
    pub(super) fn touch(&self) {
        self.last.store(self.now(), Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// What went from near to far, and what came back.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.went.load(Ordering::Relaxed), self.came.load(Ordering::Relaxed))
    }

    /// Waits until nothing has come for `limit`.
    pub(crate) async fn idle(&self, limit: Duration) {
        loop {
            let since = self.now().saturating_sub(self.last.load(Ordering::Relaxed));
            match limit.checked_sub(Duration::from_millis(since)) {
                Some(left) if !left.is_zero() => sleep(left).await,
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_comes_puts_the_end_off() {
        let (meter, begun) = (Meter::new(), Instant::now());
        let limit = Duration::from_secs(10);
        let busy = async {
            for _ in 0..3 {
                sleep(Duration::from_secs(6)).await;
                meter.went(5);
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = meter.idle(limit) => {}
            () = busy => {}
        }
        assert_eq!(begun.elapsed().as_secs(), 28);
        assert_eq!(meter.counts(), (15, 0));
    }
}
