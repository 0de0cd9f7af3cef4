//! Which threads are at work for this library, rather than for the program.
//!
//! What such a thread opens belongs to the library: the program must not close it by accident. That is of use to the
//! preloaded library only; see `quicket-preload`. Nor is such a thread cancelled (pthread_cancel(3)): what it holds and
//! has begun would stay so. The request waits until the program reaches a cancellation point of its own.

use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;

use crate::native;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// The program is to have a SIGPIPE once the thread works for it again.
    static SIGPIPE_DUE: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, the thread works for the library.
#[derive(Debug)]
pub struct Inside {
    /// Whether the thread could be cancelled before, as the C library has it.
    cancel_state: Option<c_int>,
    of_this_thread: PhantomData<*const ()>,
}

impl Inside {
    /// Goes to work for the library.
    #[must_use]
    pub fn enter() -> Self {
        let depth = DEPTH.get();
        let cancel_state = (depth == 0).then(native::forbid_cancellation);
        DEPTH.set(depth + 1);
        Self { cancel_state, of_this_thread: PhantomData }
    }

    /// True if the thread works for the library.
    #[must_use]
    pub fn is() -> bool {
        DEPTH.get() > 0
    }

    /// Has the thread work for the program while it sleeps: handlers of signals run then, and what they open is the
    /// program's.
    pub fn pause<T>(sleep: impl FnOnce() -> T) -> T {
        let depth = DEPTH.replace(0);
        let answer = sleep();
        DEPTH.set(depth);
        answer
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if let Some(state) = self.cancel_state {
            native::set_cancel_state(state);
        }
    }
}

/// Has the program get a SIGPIPE when the call is over: its handler is not the library's work, and may never return.
pub(crate) fn owe_sigpipe() {
    SIGPIPE_DUE.set(true);
}

/// Sends the thread the signal that it is owed.
pub(crate) fn pay_sigpipe() {
    if SIGPIPE_DUE.replace(false) {
        native::raise_sigpipe();
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
        Inside::pause(|| {
            assert!(!Inside::is());
            drop(Inside::enter());
            assert!(!Inside::is());
        });
        assert!(Inside::is());
        drop(outer);
        assert!(!Inside::is());
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the C library")]
    fn a_thread_that_is_inside_cannot_be_cancelled() {
        let state = || {
            let state = native::forbid_cancellation();
            native::set_cancel_state(state);
            state
        };
        let before = state();
        let outer = Inside::enter();
        let inner = Inside::enter();
        assert_ne!(state(), before);
        drop(inner);
        Inside::pause(|| {
            drop(Inside::enter());
            assert_ne!(state(), before);
        });
        drop(outer);
        assert_eq!(state(), before);
    }
}
