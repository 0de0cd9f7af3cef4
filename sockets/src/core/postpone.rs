//! What need not be sent this moment.
//!
//! A request is often written in pieces and then ended; sent at once, each piece would be a packet
//! and a system call of its own. So small changes wait until the caller's thread waits for
//! something or [`POSTPONED`] bytes have come together, which then go in full packets; less than
//! such a burst stays behind and waits on. A caller that does neither is helped out by the
//! background, which takes over [`HANDOVER`](super::lead::HANDOVER) after callers stopped
//! leading. Nothing waits while another thread leads: it may sleep longer than that.

use std::sync::Arc;

use quicket_engine::time::Time;

use super::Core;
use super::cell::{Cell, Conn};
use super::pump::Extent;
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

impl Core {
    /// Leaves a connection until the next wait, if that may be.
    pub(super) fn postpone(&self, cell: &Arc<Cell>, conn: &mut Conn, bytes: usize) -> Postponed {
        conn.postponed_bytes += bytes;
        if conn.nodelay || conn.unsent.is_some() {
            return Postponed::Refused;
        }
        if conn.postponed_bytes >= POSTPONED {
            return Postponed::Full;
        }
        conn.postponed = true;
        if conn.listed {
            // Whoever has taken the seat since takes the list before it sleeps.
            return if self.lead.is_vacant() { Postponed::Waits } else { Postponed::Refused };
        }
        // The order matters: first the entry, then the look at who leads. A leader that comes in
        // between finds the entry before it sleeps.
        let first = self.postponed.push(cell);
        conn.listed = true;
        if !self.lead.is_vacant() {
            return Postponed::Refused;
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
        if conn.postponed_bytes > 0 && self.postpone(cell, conn, 0) != Postponed::Waits {
            self.pump(now, cell, conn, wakes);
        }
    }

    /// Lets those connections act that were left until now.
    pub(super) fn catch_up(&self, now: Time, wakes: &mut Wakes) {
        for cell in self.postponed.take() {
            let mut conn = cell.lock();
            conn.listed = false;
            if conn.postponed {
                self.pump(now, &cell, &mut conn, wakes);
            }
        }
    }
}
