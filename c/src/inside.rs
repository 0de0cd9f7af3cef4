//! Which threads are at work for this library, rather than for the program.
//!
//! What such a thread opens belongs to the library: the program must not close it by accident.
//! Only the preloaded library makes use of this; see `quicket-preload`.

use std::cell::Cell;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// While it lives, the thread works for the library.
#[derive(Debug)]
pub struct Inside(());

impl Inside {
    /// Goes to work for the library.
    #[must_use]
    pub fn enter() -> Self {
        DEPTH.with(|depth| depth.set(depth.get() + 1));
        Self(())
    }

    /// True if the thread works for the library.
    #[must_use]
    pub fn is() -> bool {
        DEPTH.with(Cell::get) > 0
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.with(|depth| depth.set(depth.get() - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_inside_until_it_has_left_as_often_as_it_entered() {
        assert!(!Inside::is());
        let outer = Inside::enter();
        drop(Inside::enter());
        assert!(Inside::is());
        std::thread::spawn(|| assert!(!Inside::is())).join().unwrap();
        drop(outer);
        assert!(!Inside::is());
    }
}
