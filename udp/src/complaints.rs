//! What the operating system refuses is told now and then, not each time.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a complaint is repeated at most.
const INTERVAL: Duration = Duration::from_secs(60);

/// One kind of complaint.
#[derive(Debug, Default)]
pub struct Complaints(Mutex<Option<Instant>>);

impl Complaints {
    /// None was made yet.
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Logs a warning, unless there was one in the last minute.
    pub fn warn(&self, text: fmt::Arguments<'_>) {
        if self.is_due(Instant::now()) {
            log::warn!("{text}");
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|last| now.saturating_duration_since(last) >= INTERVAL);
        if due {
            *last = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_made_once_a_minute() {
        let complaints = Complaints::default();
        let start = Instant::now();
        let due = |seconds| complaints.is_due(start + Duration::from_secs(seconds));
        assert!(due(0));
        assert!(!due(0) && !due(59));
        assert!(due(60) && !due(61));
    }
}
