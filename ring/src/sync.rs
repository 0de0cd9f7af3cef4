//! The atomics of the machine. The tests of interleavings have others in their place.

pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
