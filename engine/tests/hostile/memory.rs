//! Counts the memory that each thread holds: a test runs in one.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: isize) {
    // A thread that ends has no counter any more, and needs none.
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: all is left to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are those that the system's allocator wants.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}

/// Bytes that this thread holds.
pub(crate) fn held() -> isize {
    HELD.with(Cell::get)
}

/// How many bytes more are held after `attack` than before.
pub(crate) fn growth<T>(state: &mut T, attack: impl FnOnce(&mut T)) -> isize {
    let before = held();
    attack(state);
    held() - before
}

#[test]
fn what_is_held_is_counted() {
    let mut kept = Vec::new();
    assert_eq!(growth(&mut kept, |kept: &mut Vec<u8>| kept.reserve_exact(1000)), 1000);
    assert_eq!(growth(&mut kept, |kept| *kept = Vec::new()), -1000);
}
