//! What all benchmarked servers share.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Assignment, Failure, Usage};

/// What a server counts, for a client to compare with its own count.
#[derive(Debug, Default)]
pub struct Counters {
    handshakes: AtomicU64,
}

impl Counters {
    /// Counts one completed handshake.
    pub fn handshake(&self) {
        self.handshakes.fetch_add(1, Ordering::Relaxed);
    }
}

/// The answer to [`Request::Usage`](super::Request::Usage).
///
/// # Errors
///
/// When the kernel does not tell.
pub fn usage_answer(counters: &Counters) -> Result<[u8; Usage::LENGTH], Failure> {
    let usage = Usage { handshakes: counters.handshakes.load(Ordering::Relaxed), ..Usage::now()? };
    Ok(usage.encode())
}

/// Threads of a server that gives one to each connection that is busy.
#[must_use]
pub fn workers(assignment: &Assignment) -> usize {
    /// For the control connection, and for those that are about to end.
    const OTHERS: usize = 14;
    assignment.conditions.busy + OTHERS
}
