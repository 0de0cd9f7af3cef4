//! Names of those who wait.

use std::sync::atomic::{AtomicU64, Ordering};

/// Names one waiting party, so that it is registered once and can take itself off the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaiterId(u64);

impl WaiterId {
    /// A name that nobody else has.
    pub(crate) fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}
