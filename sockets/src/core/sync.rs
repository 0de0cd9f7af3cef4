//! What threads that wait share: the standard library's means here; those of a scheduler that tries
//! out interleavings where `tests/leading` includes the same files.

pub(super) use std::sync::atomic::{AtomicBool, Ordering};
pub(super) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
pub(super) use std::thread::{self, Thread, ThreadId};
