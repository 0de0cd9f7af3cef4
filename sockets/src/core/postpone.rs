//! What need not be sent this moment.
//!
//! A request is often written in pieces and then ended; sent at once, each piece would be a packet
//! and a system call of its own. So small changes wait until the caller's thread waits for
//! something or [`POSTPONED`] bytes have come together. A caller that does neither is helped out
//! by the background, which takes over [`HANDOVER`](super::lead::HANDOVER) after callers stopped
//! leading. Nothing waits while another thread leads: it may sleep longer than that.

use std::sync::Arc;

use quicket_engine::time::Time;

use super::Core;
use super::cell::{Cell, Conn};
use super::waiters::Wakes;

/// How many bytes of one connection wait at most: about as many as one system call can send.
const POSTPONED: usize = 60 << 10;

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

impl Core {
    /// Leaves a connection until the next wait; false if it must act at once.
    pub(super) fn postpone(&self, cell: &Arc<Cell>, conn: &mut Conn, bytes: usize) -> bool {
        conn.postponed_bytes += bytes;
        if conn.nodelay || conn.postponed_bytes >= POSTPONED || conn.unsent.is_some() {
            return false;
        }
        conn.postponed = true;
        if conn.listed {
            // Whoever has taken the seat since takes the list before it sleeps.
            return self.lead.is_vacant();
        }
        // The order matters: first the entry, then the look at who leads. A leader that comes in
        // between finds the entry before it sleeps.
        let first = self.postponed.push(cell);
        conn.listed = true;
        if !self.lead.is_vacant() {
            return false;
        }
        if first {
            self.lead.wake_task();
        }
        true
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
