//! Calls of what belongs to the application and to one connection: its key log, and its strike register.
//!
//! TLS asks for them in the midst of a handshake. They are made with nothing locked and out of the
//! leader's seat, one after the other, and the connection reports nothing meanwhile: whoever waits
//! until it is established finds all lines in the log.
//!
//! The handshake goes on where the call was made, if the answer comes within it. One that comes later is only noted
//! by whoever gives it: whoever leads the endpoint goes on, as with a datagram.

use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use quicket_engine::crypto::Deferred;

use super::Core;
use super::cell::{Cell, Conn};
use super::handover::Handover;
use super::waiters::Wakes;

/// Calls that a connection has to make.
pub(super) struct Calls {
    core: Arc<Core>,
    cell: Arc<Cell>,
    first: Deferred,
}

impl Core {
    /// Has the calls made that TLS asks for, if any, by whoever fires `wakes`. True if some are not
    /// made yet.
    pub(super) fn defer(&self, cell: &Arc<Cell>, conn: &mut Conn, wakes: &mut Wakes) -> bool {
        if !conn.calling
            && let Some(first) = conn.engine.poll_deferred()
            && let Some(core) = self.this.upgrade()
        {
            conn.calling = true;
            wakes.defer(Calls { core, cell: Arc::clone(cell), first });
        }
        conn.calling
    }

    /// A connection's handshake has something new to say: whoever leads hears it, next.
    fn note_progress(&self, cell: &Arc<Cell>) {
        let now = self.clock.now();
        let mut conn = cell.lock();
        if conn.drained {
            return;
        }
        conn.progressed = true;
        conn.queued = Some(now);
        self.schedule(conn.handle, cell, now);
    }
}

impl Calls {
    /// Makes them, and lets the connection report.
    pub(super) fn make(self) {
        let Self { core, cell, first } = self;
        let progress = Arc::new(Progress {
            core: Arc::downgrade(&core),
            cell: Arc::downgrade(&cell),
            handover: Handover::new(),
        });
        let waker = Waker::from(Arc::clone(&progress));
        let mut next = Some(first);
        while let Some(call) = next {
            progress.handover.begin();
            call(&waker);
            let answered = progress.handover.end();
            let mut conn = cell.lock();
            if answered {
                conn.engine.handshake_progressed(core.clock.now());
            }
            next = conn.engine.poll_deferred();
            if next.is_none() {
                conn.calling = false;
                let mut wakes = Wakes::default();
                core.pump(core.clock.now(), &cell, &mut conn, &mut wakes);
                drop(conn);
                wakes.fire();
            }
        }
    }
}

/// A connection whose handshake may have something new to say, if it is still there.
struct Progress {
    core: Weak<Core>,
    cell: Weak<Cell>,
    handover: Handover,
}

impl Wake for Progress {
    fn wake(self: Arc<Self>) {
        if self.handover.answer()
            && let (Some(core), Some(cell)) = (self.core.upgrade(), self.cell.upgrade())
        {
            core.note_progress(&cell);
        }
    }
}
