//! The system's allocator, with a count of the bytes that are in use.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use crate::until;

/// How long nothing may change.
const REST: Duration = Duration::from_secs(2);

static IN_USE: AtomicI64 = AtomicI64::new(0);

/// The allocator of a test that counts:
/// `#[global_allocator] static ALLOCATOR: Counting = Counting;`
#[derive(Debug)]
pub struct Counting;

/// Bytes that [`Counting`] has given out and not got back, all threads together.
pub fn bytes_in_use() -> i64 {
    IN_USE.load(Ordering::Relaxed)
}

/// Waits until [`bytes_in_use`] has not changed for a while, and returns it.
///
/// # Panics
///
/// If it never comes to rest.
#[track_caller]
pub fn settled() -> i64 {
    let mut last = (0, Instant::now());
    until("the heap comes to rest", || {
        let now = bytes_in_use();
        if now != last.0 {
            last = (now, Instant::now());
        }
        last.1.elapsed() >= REST
    });
    last.0
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(place, layout) }
    }
}
