//! Gives back what a connection keeps for speed alone, once it has gone quiet.
//!
//! A server may have many thousands of connections of which most say nothing most of the time.
//! What they hold then is little more than their state: buffers and rings are empty, and keys can
//! be derived again.

use super::Connection;
use crate::time::Time;

impl Connection {
    /// True while the connection is quiet: nothing was sent or received for a second at least, and
    /// it has given back what memory it could. Callers may do the same.
    pub fn is_quiet(&self) -> bool {
        self.idle.is_quiet()
    }

    /// Nothing was sent or received for a while: gives memory back. Whatever is in use stays as it
    /// is, and what is given up is made anew when it is needed.
    pub(super) fn go_quiet(&mut self) {
        self.idle.on_quiet();
        let space = &mut self.recovery.spaces.data;
        space.received.trim();
        space.crypto.trim();
        if space.recovery.trim() {
            self.pending.trim();
        }
        self.streams.trim();
        self.datagrams.trim();
        self.cids.trim();
        self.reporting.trim();
        self.transmission.trim();
        self.reception.trim();
        self.handshake.trim();
        // A cipher that is not done will be asked again.
        if self.reception.waiting() == 0 && !self.transmission.has_draft() {
            self.keys.sleep();
        }
    }

    /// The 1-RTT keys are about to be used.
    #[inline]
    pub(super) fn wake_keys(&mut self, now: Time) {
        if self.keys.wake() {
            self.idle.on_woken(now);
        }
    }
}
