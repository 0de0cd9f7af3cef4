//! How much of something there may be, of all clients together: requests or connections of a site, connections of a private protocol,
//! and those to its origin.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use crate::bucket::Bucket;
use crate::clients::Exceeded;

/// What there may be; all there is where there is no number. It counts on when the file is read again.
#[derive(Debug, Default)]
pub(crate) struct Quota {
    /// At once.
    most: Option<u32>,
    /// In a second.
    per_second: Option<u32>,
    /// Begun, or taken over from the configuration before, when it is asked for first.
    spent: OnceLock<Arc<Spent>>,
}

/// What there is of it, whichever configuration it came by.
#[derive(Debug)]
struct Spent {
    taken: AtomicU32,
    asked: Mutex<Bucket>,
}

/// Counts as one of what there may be at once.
#[derive(Debug)]
pub(crate) struct Taken(Arc<Spent>);

/// What there is too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// At once.
    Many,
    /// In this second: there is one more after so many milliseconds.
    Fast(u64),
}

impl Over {
    /// In words.
    pub(crate) fn explain(self, too_many: &'static str, too_fast: &'static str) -> Exceeded {
        match self {
            Self::Many => Exceeded { reason: too_many, retry_after: 1 },
            Self::Fast(wait) => Exceeded {
                reason: too_fast,
                retry_after: u32::try_from(wait.div_ceil(1000)).unwrap_or(u32::MAX),
            },
        }
    }
}

impl Quota {
    pub(crate) const fn new(most: Option<u32>, per_second: Option<u32>) -> Self {
        Self { most, per_second, spent: OnceLock::new() }
    }

    fn spent(&self) -> &Arc<Spent> {
        self.spent.get_or_init(|| {
            let asked = Mutex::new(Bucket::full(Instant::now()));
            Arc::new(Spent { taken: AtomicU32::new(0), asked })
        })
    }

    /// Counts one until what is returned is dropped, and in this second.
    pub(crate) fn take(&self) -> Result<Option<Taken>, Over> {
        let place = self.take_place()?;
        self.take_turn()?;
        Ok(place)
    }

    /// Counts one until what is returned is dropped. Nothing is counted where there is no number.
    pub(crate) fn take_place(&self) -> Result<Option<Taken>, Over> {
        let most = match (self.most, self.per_second) {
            (None, None) => return Ok(None),
            (most, _) => most.unwrap_or(u32::MAX),
        };
        let more = |taken: u32| (taken < most).then_some(taken + 1);
        let spent = self.spent();
        let counted = spent.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        counted.map(|_| Some(Taken(Arc::clone(spent)))).map_err(|_| Over::Many)
    }

    /// Whether there may be one more at once; none is counted.
    pub(crate) fn has_place(&self) -> Result<(), Over> {
        let Some(most) = self.most else { return Ok(()) };
        let is_free = self.spent().taken.load(Ordering::Relaxed) < most;
        is_free.then_some(()).ok_or(Over::Many)
    }

    /// Counts one in this second.
    pub(crate) fn take_turn(&self) -> Result<(), Over> {
        let Some(per_second) = self.per_second else { return Ok(()) };
        let mut asked = self.spent().asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.take(per_second, Instant::now()).map_err(Over::Fast)
    }

    /// From now on what came by the configuration before counts here, too.
    pub(crate) fn take_over(&self, before: &Self) {
        // Where something was counted already, that counts.
        let _ = self.spent.set(Arc::clone(before.spent()));
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_numbers_nothing_is_counted() {
        let quota = Quota::default();
        assert!(quota.take().unwrap().is_none());
        assert_eq!((quota.has_place(), quota.take_turn()), (Ok(()), Ok(())));
    }

    #[test]
    fn what_was_taken_before_counts_on() {
        let before = Quota::new(Some(2), None);
        let (first, second) = (before.take().unwrap(), before.take().unwrap());
        assert_eq!((before.take().unwrap_err(), before.has_place()), (Over::Many, Err(Over::Many)));
        let next = Quota::new(Some(1), None);
        next.take_over(&before);
        assert!(next.take().is_err());
        drop(first);
        assert!(next.take().is_err() && before.take().is_ok());
        drop(second);
        let third = next.take().unwrap();
        assert!(next.take().is_err() && before.take().is_ok());
        drop(third);
        assert!(next.take().is_ok());
    }

    #[test]
    fn what_is_too_fast_takes_no_place() {
        let quota = Quota::new(Some(4), Some(2));
        let begun = Instant::now();
        let held = (quota.take().unwrap(), quota.take().unwrap());
        for _ in 0..3 {
            let refused = quota.take();
            assert!(refused.is_err() || begun.elapsed().as_millis() >= 500);
        }
        drop(held);
        assert_eq!(quota.spent().taken.load(Ordering::Relaxed), 0);
        assert!(quota.has_place().is_ok(), "only places are looked for");
    }

    #[test]
    fn what_is_exceeded_is_told() {
        let told = |over: Over| over.explain("many", "fast");
        assert_eq!(told(Over::Many), Exceeded { reason: "many", retry_after: 1 });
        assert_eq!(told(Over::Fast(1001)), Exceeded { reason: "fast", retry_after: 2 });
    }
}
