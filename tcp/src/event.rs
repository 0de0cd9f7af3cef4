//! What one thread rings, and another one waits for: an eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::watch::Watch;

/// Readable from when it is rung until it is cleared.
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    /// # Errors
    ///
    /// What the system says if there is no descriptor.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn ring(&self) {
        // It fails where it is full, and then it is readable anyway.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        // It fails where nobody has rung.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event().as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_said_once_until_it_is_taken_and_then_anew() {
        let watch = Watch::new().unwrap();
        let (one, other) = (watch.watched(1), watch.watched(2));
        assert!(one.note().is_some(), "the first rings");
        assert!(one.note().is_none() && other.note().is_none());
        let mut tokens = Vec::new();
        watch.take(&mut tokens);
        assert_eq!(tokens, [1, 2]);
        watch.take(&mut tokens);
        assert_eq!(tokens, [1, 2]);
        assert!(other.note().is_some());
        watch.take(&mut tokens);
        assert_eq!(tokens, [1, 2, 2]);
    }
}
