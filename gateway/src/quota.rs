//! How many requests a site takes, of all clients together.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use crate::bucket::Bucket;
use crate::clients::Exceeded;

/// What a site may have; all there is where there is no number.
#[derive(Debug, Default)]
pub(crate) struct Quota {
    /// Requests under way.
    most: Option<u32>,
    /// Requests in a second.
    per_second: Option<u32>,
    /// Begun, or taken over from the configuration before, with the first request.
    spent: OnceLock<Arc<Spent>>,
}

/// What a site has of it, whichever configuration its requests came by.
#[derive(Debug)]
struct Spent {
    under_way: AtomicU32,
    asked: Mutex<Bucket>,
}

/// Counts as a request under way.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Spent>);

impl Quota {
    pub(crate) const fn new(most: Option<u32>, per_second: Option<u32>) -> Self {
        Self { most, per_second, spent: OnceLock::new() }
    }

    fn spent(&self) -> &Arc<Spent> {
        self.spent.get_or_init(|| {
            let asked = Mutex::new(Bucket::full(Instant::now()));
            Arc::new(Spent { under_way: AtomicU32::new(0), asked })
        })
    }

    /// Counts a request until what is returned is dropped.
    pub(crate) fn ask(&self) -> Result<Option<Arc<UnderWay>>, Exceeded> {
        if self.most.is_none() && self.per_second.is_none() {
            return Ok(None);
        }
        let most = self.most.unwrap_or(u32::MAX);
        let more = |under_way: u32| (under_way < most).then_some(under_way + 1);
        let spent = self.spent();
        let counted = spent.under_way.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let too_many = Exceeded { reason: "too many requests of one site", retry_after: 1 };
        counted.map_err(|_| too_many)?;
        let under_way = Arc::new(UnderWay(Arc::clone(spent)));
        if let Some(per_second) = self.per_second {
            let mut asked = spent.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.take(per_second, Instant::now()).map_err(|wait| Exceeded {
                reason: "requests of one site come too fast",
                retry_after: u32::try_from(wait.div_ceil(1000)).unwrap_or(u32::MAX),
            })?;
        }
        Ok(Some(under_way))
    }

    /// From now on the requests of the configuration before count here, too.
    pub(crate) fn take_over(&self, before: &Self) {
        // Where there were requests already, these count.
        let _ = self.spent.set(Arc::clone(before.spent()));
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_numbers_nothing_is_counted() {
        assert!(Quota::default().ask().unwrap().is_none());
    }

    #[test]
    fn requests_under_way_are_counted_over_reloads() {
        let before = Quota::new(Some(2), None);
        let (first, second) = (before.ask().unwrap(), before.ask().unwrap());
        let next = Quota::new(Some(2), None);
        next.take_over(&before);
        assert_eq!(next.ask().unwrap_err().reason, "too many requests of one site");
        drop(first);
        let third = next.ask().unwrap();
        assert!(before.ask().is_err() && next.ask().is_err());
        drop((second, third));
        assert!(next.ask().is_ok());
    }

    #[test]
    fn requests_in_a_second_are_counted_and_those_refused_are_not_under_way() {
        let quota = Quota::new(Some(4), Some(2));
        let begun = Instant::now();
        let held = (quota.ask().unwrap(), quota.ask().unwrap());
        for _ in 0..3 {
            let refused = quota.ask();
            assert!(refused.is_err() || begun.elapsed().as_millis() >= 500);
        }
        drop(held);
        assert_eq!(quota.spent().under_way.load(Ordering::Relaxed), 0);
    }
}
