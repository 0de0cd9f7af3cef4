//! What is put off while this process or the system has no descriptors or memory left. Others may have what is missing, and nothing tells
//! when they give it back: so it is tried again after some time.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventFlags};

use super::clerk::Clerk;
use super::{Daemon, LISTENER, MAX_HANDED_OF_OTHERS, token};

/// After so much time it is tried again.
pub(super) const RETRY_TIME: Duration = Duration::from_millis(100);

/// What waits for that.
#[derive(Debug, Default)]
pub(super) struct Shortage {
    /// The listener is not watched: nobody is let in.
    pub(super) is_deaf: bool,
    /// Connections whose next message has no room yet, each with its serial number.
    pub(super) crowded: Vec<(usize, u64)>,
    /// When it is tried again; none if nothing waits.
    retry_at: Option<Instant>,
}

impl Shortage {
    /// Something is put off, from now on.
    fn wait(&mut self) {
        self.retry_at.get_or_insert_with(|| Instant::now() + RETRY_TIME);
    }

    /// How long until it is tried again.
    pub(super) fn patience(&self) -> Option<Duration> {
        self.retry_at.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

impl Daemon {
    /// Lets nobody in until something is closed, or it is tried again.
    pub(super) fn be_deaf(&mut self) {
        self.desk.is_awaited.store(true, Ordering::Release);
        self.shortage.is_deaf = epoll::delete(&self.events, &self.listener).is_ok();
        self.shortage.wait();
    }

    /// Hears nothing of a connection until it is tried again: the descriptors of its next message have no room.
    pub(super) fn be_patient(&mut self, at: usize, serial: u64) {
        self.suspend(at);
        self.shortage.crowded.push((at, serial));
        self.shortage.wait();
    }

    /// Tries again what was put off, if it is time.
    pub(super) fn try_again(&mut self) {
        if self.shortage.patience().is_none_or(|left| !left.is_zero()) {
            return;
        }
        self.shortage.retry_at = None;
        self.listen_again();
        if self.shortage.is_deaf {
            self.shortage.wait();
        }
        for (at, serial) in std::mem::take(&mut self.shortage.crowded) {
            self.resume(at, serial);
        }
    }

    /// Lets programs in again, if there is room now.
    pub(super) fn listen_again(&mut self) {
        let is_full = |porter: &Clerk| porter.handed() >= MAX_HANDED_OF_OTHERS;
        if !self.shortage.is_deaf || self.porter.as_ref().is_some_and(is_full) {
            return;
        }
        let again = epoll::add(&self.events, &self.listener, token(LISTENER, 0), EventFlags::IN);
        self.shortage.is_deaf = again.is_err();
        self.desk.is_awaited.store(self.shortage.is_deaf, Ordering::Release);
    }
}
