//! What need not be sent this moment.
//!
//! A request is often written in pieces and then ended; sent at once, each piece would be a packet
//! and a system call of its own. So small changes wait until the caller's thread waits for
//! something or [`POSTPONED`] bytes have come together, which then go in full packets; less than
//! such a burst stays behind and waits on. A caller that does neither is helped out within
//! [`HANDOVER`](super::lead::HANDOVER): by the background, which takes over so long after callers
//! stopped leading, or by the thread that leads, which sleeps no longer than that while others
//! postpone. Nothing waits for a leader that may sleep longer, as it does when all was quiet.
//!
//! While another thread leads, the one that writes need not wait for anything soon. What it writes
//! is then sent at once, unless its connection has sent something within
//! [`HANDOVER`](super::lead::HANDOVER) already: a message now and then is never late, and many small
//! ones go together.

use std::sync::Arc;

use quicket_engine::time::Time;

use super::Core;
use super::cell::{Cell, Conn};
use super::lead::{HANDOVER, Look};
use super::pump::Extent;
use super::sync::{ThreadId, this_thread};
use super::waiters::Wakes;

/// How many bytes of one connection wait at most: about as many as one system call can send.
pub(super) const POSTPONED: usize = 60 << 10;

/// What an action left to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    None,
    /// Something to send that may wait for more, and how many bytes of it there are.
    Later(usize),
    /// The same, but the peer's application waits for it.
    Written(usize),
    /// Something to send at once.
    Now,
}

/// What becomes of something that may be sent later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Postponed {
    /// It waits.
    Waits,
    /// Enough has come together.
    Full,
    /// It cannot wait.
    Refused,
}

/// Whose connections are to act now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// Everybody's.
    All,
    /// Those that the calling thread has left, as it is about to wait, and those that nobody has
    /// seen to for too long. Other threads are likely to add to theirs.
    Own,
    /// Those that nobody has seen to for too long.
    Late,
}

/// A connection that was left for later.
pub(super) struct Entry {
    cell: Arc<Cell>,
    /// Who has left it.
    by: ThreadId,
    /// When somebody else must see to it.
    pub(super) due: Time,
}

impl Entry {
    fn new(cell: &Arc<Cell>, now: Time) -> Self {
        Self { cell: Arc::clone(cell), by: this_thread(), due: now + HANDOVER }
    }
}

impl Conn {
    /// Leaves so many bytes more with what waits already, if nobody waits for them and they may.
    pub(super) fn postpone_more(&mut self, bytes: usize) -> bool {
        let bytes = self.postponed_bytes + bytes;
        let waits = self.postponed && self.listed && !self.nodelay && self.unsent.is_none();
        if !waits || bytes >= POSTPONED {
            return false;
        }
        self.postponed_bytes = bytes;
        true
    }
}

impl Core {
    /// Leaves a connection until the next wait, if that may be. `pressing`: what it has to send is
    /// waited for.
    pub(super) fn postpone(
        &self,
        now: Time,
        cell: &Arc<Cell>,
        conn: &mut Conn,
        bytes: usize,
        pressing: bool,
    ) -> Postponed {
        conn.postponed_bytes += bytes;
        if conn.nodelay || conn.unsent.is_some() {
            return Postponed::Refused;
        }
        if conn.postponed_bytes >= POSTPONED {
            return Postponed::Full;
        }
        conn.postponed = true;
        // The order matters: first the entry, then the look at who leads. A leader says when it
        // looks next before it takes the list, so that it finds the entry if it says so after.
        let first = !conn.listed && self.postponed.push(Entry::new(cell, now));
        conn.listed = true;
        match self.lead.next_look(now) {
            Look::ByNext => {}
            Look::Soon if !pressing || now < conn.sent_at + HANDOVER => {}
            Look::Soon | Look::TooLate => return Postponed::Refused,
        }
        if first {
            self.lead.wake_task();
        }
        Postponed::Waits
    }

    /// Sends what makes full bursts and leaves the rest until the next wait.
    pub(super) fn pump_bursts(
        &self,
        now: Time,
        cell: &Arc<Cell>,
        conn: &mut Conn,
        wakes: &mut Wakes,
    ) {
        self.pump_as(now, cell, conn, Extent::Bursts, wakes);
        if conn.postponed_bytes > 0 && self.postpone(now, cell, conn, 0, false) != Postponed::Waits
        {
            self.pump(now, cell, conn, wakes);
        }
    }

    /// Lets connections act that were left until now.
    pub(super) fn catch_up(&self, now: Time, whose: Whose, wakes: &mut Wakes) {
        let acts = |entry: &Entry| match whose {
            Whose::All => true,
            Whose::Own => entry.due <= now || entry.by == this_thread(),
            Whose::Late => entry.due <= now,
        };
        for Entry { cell, .. } in self.postponed.take_if(acts) {
            let mut conn = cell.lock();
            conn.listed = false;
            if conn.postponed {
                self.pump(now, &cell, &mut conn, wakes);
            }
        }
    }
}
