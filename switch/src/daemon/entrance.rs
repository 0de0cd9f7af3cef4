//! Where programs connect.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::epoll::EpollFlags;

use super::Listener;
use super::events::{Events, Token};
use crate::sys;

/// How long nobody is taken after one could not be.
pub(super) const DEAF: Duration = Duration::from_millis(100);

/// The socket at which programs find the switch.
#[derive(Debug)]
pub(super) struct Entrance {
    listener: Listener,
    /// Until when nobody who connects is taken.
    deaf_until: Option<Instant>,
}

impl Entrance {
    /// Takes those who connect.
    ///
    /// # Errors
    ///
    /// When the system does not let it be watched.
    pub(super) fn open(events: &Events, listener: Listener) -> io::Result<Self> {
        events.add(&listener, EpollFlags::EPOLLIN, Token::Listener)?;
        Ok(Self { listener, deaf_until: None })
    }

    /// The next one who connects.
    pub(super) fn accept(&self) -> io::Result<OwnedFd> {
        sys::accept(self.listener.as_fd())
    }

    /// Whether nobody is taken for now.
    pub(super) const fn is_deaf(&self) -> bool {
        self.deaf_until.is_some()
    }

    /// Nobody can be taken for now: those who connect wait.
    pub(super) fn turn_away(&mut self, events: &Events) {
        if events.remove(&self.listener).is_ok() {
            self.deaf_until = Some(Instant::now() + DEAF);
        }
    }

    /// Takes those again who connect, when it is time.
    pub(super) fn hear_again(&mut self, events: &Events) {
        if self.deaf_until.is_some_and(|until| until <= Instant::now()) {
            let added = events.add(&self.listener, EpollFlags::EPOLLIN, Token::Listener);
            self.deaf_until = added.is_err().then(|| Instant::now() + DEAF);
        }
    }
}
