//! What threads that wait share: the standard library's means here; those of a scheduler that tries
//! out interleavings where `tests/leading` includes the same files.

pub(super) use std::sync::atomic::{AtomicBool, Ordering};
pub(super) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
pub(super) use std::thread::{self, Thread, ThreadId};

/// The calling thread's number. `thread::current` would count a reference to the thread up and down for it, with each request.
#[inline]
pub(super) fn this_thread() -> ThreadId {
    thread_local! {
        static ID: ThreadId = thread::current().id();
    }
    // Where a thread ends, its variables may be gone.
    ID.try_with(|id| *id).unwrap_or_else(|_| thread::current().id())
}
