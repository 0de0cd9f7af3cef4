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
    usage_answer_with(counters, 0)
}

/// The same of a server for which other processes work, too: the CPU time of these, in nanoseconds.
///
/// # Errors
///
/// When the kernel does not tell.
pub fn usage_answer_with(
    counters: &Counters,
    others_cpu_ns: u64,
) -> Result<[u8; Usage::LENGTH], Failure> {
    let own = Usage::now()?;
    let handshakes = counters.handshakes.load(Ordering::Relaxed);
    Ok(Usage { handshakes, cpu_ns: own.cpu_ns + others_cpu_ns, ..own }.encode())
}

/// Threads of a server that gives one to each connection that is busy.
#[must_use]
pub fn workers(assignment: &Assignment) -> usize {
    /// For the control connection, and for those that are about to end.
    const OTHERS: usize = 14;
    assignment.conditions.busy + OTHERS
}
