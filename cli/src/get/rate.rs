//! Reads no faster than is allowed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// What is read at once is waited for in pieces of at most this much time: progress is seen.
const STEP: Duration = Duration::from_millis(200);

/// Counts what all downloads read. Whoever is ahead of the rate waits, reads nothing meanwhile, and
/// flow control slows the server down.
#[derive(Debug)]
pub(crate) struct Limit {
    /// In bytes per second.
    rate: u64,
    /// When all that was read would have come at this rate.
    free: Mutex<Instant>,
}

impl Limit {
    pub(crate) fn new(rate: u64) -> Self {
        Self { rate, free: Mutex::new(Instant::now()) }
    }

    /// So many bytes were read: waits until more may be.
    pub(crate) async fn passed(&self, bytes: u64) {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate);
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let until = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            // Time in which nothing came is not made up for.
            let begin = (*free).max(Instant::now());
            *free = begin.checked_add(cost).unwrap_or(begin);
            *free
        };
        while Instant::now() < until {
            sleep_until(until.min(Instant::now() + STEP)).await;
        }
    }

    /// How much a server may send ahead, in bytes: about a second's worth.
    pub(crate) fn window(rate: u64, default: u64) -> u64 {
        const LEAST: u64 = 16 << 10;
        rate.max(LEAST).min(default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test(start_paused = true)]
    async fn all_downloads_together_keep_to_the_rate() {
        let limit = Arc::new(Limit::new(1000));
        let begun = Instant::now();
        let one = |limit: Arc<Limit>| async move {
            for _ in 0..5 {
                limit.passed(500).await;
            }
        };
        tokio::join!(one(limit.clone()), one(limit.clone()));
        assert_eq!(begun.elapsed().as_secs(), 5);
        // An idle minute does not allow for a burst.
        tokio::time::sleep(Duration::from_secs(60)).await;
        let begun = Instant::now();
        limit.passed(2000).await;
        assert_eq!(begun.elapsed().as_secs(), 2);
    }
}
