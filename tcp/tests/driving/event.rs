//! In place of an eventfd.

use std::io;

use shuttle::sync::{Condvar, Mutex};

#[derive(Debug, Default)]
pub(crate) struct Event {
    is_rung: Mutex<bool>,
    changed: Condvar,
}

impl Event {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self::default())
    }

    pub(crate) fn ring(&self) {
        *self.is_rung.lock().unwrap() = true;
        self.changed.notify_all();
    }

    pub(crate) fn clear(&self) {
        *self.is_rung.lock().unwrap() = false;
    }

    /// What poll(2) does.
    pub(crate) fn wait(&self) {
        let mut is_rung = self.is_rung.lock().unwrap();
        while !*is_rung {
            is_rung = self.changed.wait(is_rung).unwrap();
        }
    }
}
