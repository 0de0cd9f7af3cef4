//! Attempts to connect that the application decides about, on a thread of their own: its code may
//! take its time, and may wait for the endpoint, which goes on meanwhile.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};

use quicket_engine::Incoming;
use quicket_engine::time::Time;

use super::Core;
use super::background::spawn_quietly;
use super::cell::Cell;
use super::waiters::Wakes;
use crate::config::{Admission, Decision};

/// Where attempts wait to be decided about. There are no more of them than the engine lets wait
/// (`max_incoming`). Dropping it ends the thread.
pub(crate) struct Desk(Sender<(Weak<Core>, Incoming)>);

impl Desk {
    pub(super) fn open(admission: Admission) -> io::Result<Self> {
        let (sender, attempts) = channel::<(Weak<Core>, Incoming)>();
        spawn_quietly("quicket admission", move || {
            for (core, incoming) in attempts {
                let (remote, validated) = (incoming.remote(), incoming.address_validated());
                let decided =
                    catch_unwind(AssertUnwindSafe(|| admission.decide(remote, validated)));
                let decision = decided.unwrap_or_else(|_| {
                    log::warn!("deciding about a client panicked; it is refused");
                    Decision::Refuse
                });
                let Some(core) = core.upgrade() else { return };
                core.decide(incoming, decision);
            }
        })?;
        Ok(Self(sender))
    }

    /// Leaves an attempt, to be decided for `core`. Returned if the thread has ended.
    pub(super) fn submit(&self, core: &Weak<Core>, incoming: Incoming) -> Option<Incoming> {
        self.0.send((Weak::clone(core), incoming)).err().map(|error| error.0.1)
    }
}

impl Core {
    /// A client knocks. Who decides at once also says whom it brought.
    pub(super) fn on_incoming(
        &self,
        now: Time,
        incoming: Incoming,
        reply: &mut Vec<u8>,
    ) -> Option<Arc<Cell>> {
        if self.switch.budget.is_used_up() {
            let remote = incoming.remote();
            log::debug!("{remote} is refused: the connections hold all memory that they may");
            return self.admit(now, incoming, Decision::Refuse, reply);
        }
        let Some(admission) = self.reception().admission() else {
            return self.admit(now, incoming, Decision::Refuse, reply);
        };
        if !admission.is_the_applications() {
            let decision = admission.decide(incoming.remote(), incoming.address_validated());
            return self.admit(now, incoming, decision, reply);
        }
        if let Some(incoming) = self.reception().submit(&self.this, incoming, &admission) {
            self.routing().endpoint.ignore(incoming);
        }
        None
    }

    /// The application has decided.
    fn decide(&self, incoming: Incoming, decision: Decision) {
        let now = self.clock().now();
        let mut reply = Vec::new();
        if let Some(cell) = self.admit(now, incoming, decision, &mut reply) {
            let mut wakes = Wakes::default();
            let mut conn = cell.lock();
            conn.touched = false;
            self.pump(now, &cell, &mut conn, &mut wakes);
            drop(conn);
            wakes.fire();
        }
    }

    /// Does what was decided. A connection that begins counts as touched: it is to act.
    fn admit(
        &self,
        now: Time,
        incoming: Incoming,
        decision: Decision,
        reply: &mut Vec<u8>,
    ) -> Option<Arc<Cell>> {
        let (remote, local) = (incoming.remote(), incoming.local());
        let mut routing = self.routing();
        let written = match decision {
            Decision::Accept if self.reception().reserve() => match routing.accept(now, incoming) {
                Ok(cell) => {
                    drop(routing);
                    cell.lock().touched = true;
                    return Some(cell);
                }
                Err(reason) => {
                    drop(routing);
                    self.reception().on_settled();
                    log::debug!("no connection for {remote}: {reason}");
                    return None;
                }
            },
            Decision::Accept | Decision::Refuse => routing.endpoint.refuse(now, incoming, reply),
            Decision::Retry => routing.endpoint.retry(now, incoming, reply),
            Decision::Ignore => {
                routing.endpoint.ignore(incoming);
                None
            }
        };
        drop(routing);
        if written.is_some() {
            self.reply(remote, local, reply);
        }
        None
    }
}
