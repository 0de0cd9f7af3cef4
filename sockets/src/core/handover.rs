//! Who goes on once an answer is there that may come during a call, after it, or from another thread.
//!
//! The caller goes on if the answer came before its call returned, and the giver if it came later: one of both, for
//! each answer. Each says what it knows before it looks at what the other one says, so that one finds the other.

use super::sync::{AtomicBool, Ordering};

/// One call after the other, whose answers come when they like.
pub(crate) struct Handover {
    /// An answer is there, and nobody has gone on with it.
    answered: AtomicBool,
    is_called: AtomicBool,
}

impl Handover {
    pub(crate) const fn new() -> Self {
        Self { answered: AtomicBool::new(false), is_called: AtomicBool::new(false) }
    }

    /// A call begins.
    pub(crate) fn begin(&self) {
        self.is_called.store(true, Ordering::SeqCst);
    }

    /// The call has returned. True if an answer is there that the caller is to go on with.
    pub(crate) fn end(&self) -> bool {
        self.is_called.store(false, Ordering::SeqCst);
        self.answered.swap(false, Ordering::SeqCst)
    }

    /// An answer is there. True if who gives it is to go on with it.
    pub(crate) fn answer(&self) -> bool {
        self.answered.store(true, Ordering::SeqCst);
        !self.is_called.load(Ordering::SeqCst) && self.answered.swap(false, Ordering::SeqCst)
    }
}
