//! How many signatures a client may have in a second.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Clients that are told apart; of more, those that have asked for nothing for longest are forgotten.
pub(crate) const MAX_CLIENTS: usize = 1024;

/// Who asks: all connections of a user, or with a certificate, are one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asker {
    User(u32),
    Certificate([u8; 32]),
}

/// What each client may still have. A second's worth comes at once.
#[derive(Debug)]
pub(crate) struct Rates {
    per_second: Option<u32>,
    buckets: Mutex<HashMap<Asker, (f64, Instant)>>,
}

impl Rates {
    pub(crate) fn new(per_second: Option<u32>) -> Self {
        Self { per_second, buckets: Mutex::default() }
    }

    /// Takes one signature's worth; false if there is none.
    pub(crate) fn take(&self, asker: Asker, now: Instant) -> bool {
        let Some(rate) = self.per_second.map(f64::from) else { return true };
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MAX_CLIENTS && !buckets.contains_key(&asker) {
            let oldest = buckets.iter().min_by_key(|(_, (_, at))| *at).map(|(asker, _)| *asker);
            oldest.map(|oldest| buckets.remove(&oldest));
        }
        let (left, at) = buckets.entry(asker).or_insert((rate, now));
        let since = now.saturating_duration_since(*at).as_secs_f64();
        (*left, *at) = ((*left + since * rate).min(rate), now);
        let has = *left >= 1.0;
        if has {
            *left -= 1.0;
        }
        has
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_client_gets_its_rate_and_others_theirs() {
        let rates = Rates::new(Some(10));
        let begun = Instant::now();
        let take = |user, at| (0..100).filter(|_| rates.take(Asker::User(user), at)).count();
        assert_eq!((take(1, begun), take(2, begun), take(1, begun)), (10, 10, 0));
        assert_eq!(take(1, begun + Duration::from_millis(501)), 5);
        assert_eq!(take(1, begun + Duration::from_secs(60)), 10);
        for user in 0..3 * MAX_CLIENTS as u32 {
            rates.take(Asker::User(user), begun);
        }
        assert!(rates.buckets.lock().unwrap().len() <= MAX_CLIENTS);
        assert!(Rates::new(None).take(Asker::Certificate([0; 32]), begun));
    }
}
