//! In place of an eventfd and of poll(2): what a thread sleeps on that can be kicked.

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::{Condvar, Mutex};
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Kick {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    kicked: bool,
    readable: bool,
}

impl Kick {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self::default())
    }

    pub(crate) fn kick(&self) {
        self.state.lock().unwrap().kicked = true;
        self.changed.notify_all();
    }

    pub(crate) fn clear(&self) {
        self.state.lock().unwrap().kicked = false;
    }

    /// The socket has something, or nothing any more.
    pub(crate) fn set_readable(&self, readable: bool) {
        self.state.lock().unwrap().readable = readable;
        self.changed.notify_all();
    }

    /// Sleeps until kicked or the socket has something.
    pub(crate) fn poll(&self) {
        let mut state = self.state.lock().unwrap();
        while !state.kicked && !state.readable {
            state = self.changed.wait(state).unwrap();
        }
        state.kicked = false;
    }

    /// Sleeps until kicked, or until a signal comes, which may be at once: true.
    pub(super) fn sleep(&self, _: Option<Duration>) -> bool {
        if thread_rng().gen_bool(0.5) {
            return true;
        }
        let mut state = self.state.lock().unwrap();
        while !state.kicked {
            state = self.changed.wait(state).unwrap();
        }
        false
    }
}
