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
use super::cell::{Cell, Role};
use super::waiters::Wakes;
use crate::config::{Admission, Decision};

/// Where attempts wait to be decided about. There are no more of them than the engine lets wait
/// (`max_incoming`). Dropping it ends the thread.
pub(crate) struct Desk(Sender<Incoming>);

impl Desk {
    pub(super) fn open(core: Weak<Core>, admission: Admission) -> io::Result<Self> {
        let (sender, attempts) = channel::<Incoming>();
        spawn_quietly("quicket admission", move || {
            for incoming in attempts {
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
}

impl Core {
    /// A client knocks. Who decides at once also says whom it brought.
    pub(super) fn on_incoming(
        &self,
        now: Time,
        incoming: Incoming,
        reply: &mut Vec<u8>,
    ) -> Option<Arc<Cell>> {
        if self.budget.is_used_up() {
            let remote = incoming.remote();
            log::debug!("{remote} is refused: the connections hold all memory that they may");
            return self.admit(now, incoming, Decision::Refuse, reply);
        }
        let mut routing = self.routing();
        let Some(listener) = &routing.listener else {
            drop(routing);
            return self.admit(now, incoming, Decision::Refuse, reply);
        };
        let admission = listener.admission.clone();
        if !admission.is_the_applications() {
            drop(routing);
            let decision = admission.decide(incoming.remote(), incoming.address_validated());
            return self.admit(now, incoming, decision, reply);
        }
        if listener.desk.is_none() {
            drop(routing);
            let desk = Desk::open(self.this.clone(), admission);
            let desk = desk.map_err(|error| log::warn!("no thread decides about clients: {error}"));
            routing = self.routing();
            if let Some(listener) = &mut routing.listener {
                listener.desk = desk.ok();
            }
        }
        let desk = routing.listener.as_ref().and_then(|listener| listener.desk.as_ref());
        let refused = match desk {
            // Fails for none: the thread lives as long as this end.
            Some(Desk(sender)) => sender.send(incoming).err().map(|error| error.0),
            None => Some(incoming),
        };
        if let Some(incoming) = refused {
            routing.endpoint.ignore(incoming);
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
            Decision::Accept if routing.listener.as_ref().is_some_and(|l| l.has_room()) => {
                match routing.endpoint.accept(now, incoming, None) {
                    Ok((handle, engine)) => {
                        let cell = routing.insert(handle, engine, Role::Announcing);
                        drop(routing);
                        cell.lock().touched = true;
                        return Some(cell);
                    }
                    Err(error) => {
                        log::debug!("no connection for {remote}: {error}");
                        return None;
                    }
                }
            }
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
