//! In place of an eventfd, and of poll(2) on it and on a bell.

use std::io;
use std::time::Duration;

use shuttle::sync::{Condvar, Mutex};

use crate::state::Bell;
use crate::sync::Arc;

#[derive(Debug, Default)]
pub(crate) struct Bed(Arc<Sleeper>);

/// What a bell wakes.
#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    is_up: Mutex<bool>,
    changed: Condvar,
}

impl Sleeper {
    pub(crate) fn wake(&self) {
        *self.is_up.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn sleep(&self) {
        let mut is_up = self.is_up.lock().unwrap();
        while !std::mem::take(&mut *is_up) {
            is_up = self.changed.wait(is_up).unwrap();
        }
    }
}

impl Bed {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self::default())
    }

    pub(crate) fn kick(&self) {
        self.0.wake();
    }

    /// A nap ends by itself.
    pub(crate) fn sleep(&self, time: Option<Duration>) {
        match time {
            Some(_) => shuttle::thread::yield_now(),
            None => self.0.sleep(),
        }
    }

    pub(crate) fn sleep_at(&self, bell: &Bell, time: Option<Duration>) -> bool {
        assert_eq!(time, None, "there are no timers");
        bell.0.listen(&self.0);
        self.0.sleep();
        bell.0.listen_no_more(&self.0)
    }
}
