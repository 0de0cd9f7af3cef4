//! What the log is told, and how often: others may have a hand in how much there is to tell.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the log hears nothing of the same kind after a line.
pub(crate) const TELL: Duration = Duration::from_secs(1);

/// When the log was told last.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<Option<Instant>>);

impl Told {
    /// True if it is time to tell, which counts as told.
    pub(crate) fn may(&self) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let may = told.is_none_or(|at| at.elapsed() >= TELL);
        if may {
            *told = Some(Instant::now());
        }
        may
    }
}
