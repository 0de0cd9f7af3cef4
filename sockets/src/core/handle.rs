//! Counted references: the endpoint ends with the last of them, and a connection with its last.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quicket_engine::time::Time;

use super::held::HeldGuard;
use super::postpone::Postponed;
use super::spent::Spent;
use super::waiter_id::WaiterId;
use super::waiters::{Interest, Wakes};
use super::{Cell, Conn, Core, ENDED, Effect};

impl Core {
    /// Does something to a connection and lets it act on that, if anything changed.
    pub(crate) fn act_on<R>(
        &self,
        cell: &Arc<Cell>,
        action: impl FnOnce(&mut Conn, Time) -> (R, bool),
    ) -> R {
        self.act_as(cell, |conn, now| {
            let (result, changed) = action(conn, now);
            (result, if changed { Effect::Now } else { Effect::None })
        })
    }

    /// Like [`Core::act_on`]; who is to be woken is told in `wakes`, for callers that hold a lock.
    pub(crate) fn act_into<R>(
        &self,
        cell: &Arc<Cell>,
        wakes: &mut Wakes,
        action: impl FnOnce(&mut Conn, Time) -> R,
    ) -> R {
        let now = self.clock.now();
        let mut conn = cell.lock();
        let result = action(&mut conn, now);
        self.pump(now, cell, &mut conn, wakes);
        result
    }

    /// Does something to a connection and lets it act on that, now or later.
    pub(crate) fn act_as<R>(
        &self,
        cell: &Arc<Cell>,
        action: impl FnOnce(&mut Conn, Time) -> (R, Effect),
    ) -> R {
        let now = self.clock.now();
        let mut conn = cell.lock();
        let (result, effect) = action(&mut conn, now);
        self.heed(cell, conn, effect, Some(now));
        result
    }

    /// Like [`Core::act_as`], for what happens at no time: the clock is read only if there is something to do now.
    pub(crate) fn act_untimed<R>(
        &self,
        cell: &Arc<Cell>,
        action: impl FnOnce(&mut Conn) -> (R, Effect),
    ) -> R {
        let mut conn = cell.lock();
        let (result, effect) = action(&mut conn);
        self.heed(cell, conn, effect, None);
        result
    }

    /// Lets a connection act, now or later.
    fn heed(
        &self,
        cell: &Arc<Cell>,
        mut conn: HeldGuard<'_, Conn>,
        effect: Effect,
        now: Option<Time>,
    ) {
        match effect {
            Effect::None => return,
            Effect::Later(bytes) if conn.postpone_more(bytes) => return,
            Effect::Later(_) | Effect::Written(_) | Effect::Now => {}
        }
        let now = now.unwrap_or_else(|| self.clock.now());
        let verdict = match effect {
            Effect::None | Effect::Now => Postponed::Refused,
            Effect::Later(bytes) => self.postpone(now, cell, &mut conn, bytes, false),
            Effect::Written(bytes) => self.postpone(now, cell, &mut conn, bytes, true),
        };
        if verdict == Postponed::Waits {
            return;
        }
        let mut wakes = Wakes::default();
        match verdict {
            Postponed::Full => self.pump_bursts(now, cell, &mut conn, &mut wakes),
            Postponed::Waits | Postponed::Refused => {
                self.pump(now, cell, &mut conn, &mut wakes);
            }
        }
        drop(conn);
        wakes.fire();
        if verdict == Postponed::Full || self.is_unheard() {
            self.glance(now);
        }
    }
}

/// Keeps an endpoint.
pub(crate) struct CoreRef(Arc<Core>);

impl CoreRef {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        core.switch.handles.fetch_add(1, Ordering::AcqRel);
        Self(core)
    }

    /// Keeps an endpoint that perhaps nobody keeps any more; `None` if it has ended.
    pub(crate) fn revive(core: Arc<Core>) -> Option<Self> {
        let more = |handles: usize| (handles < ENDED).then_some(handles + 1);
        let revived = core.switch.handles.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        revived.is_ok().then_some(Self(core))
    }

    /// The endpoint without keeping it.
    pub(crate) const fn core(&self) -> &Arc<Core> {
        &self.0
    }
}

impl Clone for CoreRef {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.0))
    }
}

impl Drop for CoreRef {
    fn drop(&mut self) {
        if self.0.switch.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.check_over();
            // The process may be about to end.
            if self.0.workers().iter().any(|core| core.keeps_sessions.load(Ordering::Relaxed)) {
                crate::session::flush();
            }
        }
    }
}

impl Deref for CoreRef {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.0
    }
}

/// Keeps a connection and its endpoint.
pub(crate) struct ConnRef {
    core: CoreRef,
    cell: Arc<Cell>,
}

impl ConnRef {
    pub(crate) fn new(core: CoreRef, cell: Arc<Cell>) -> Self {
        cell.handles.fetch_add(1, Ordering::AcqRel);
        Self { core, cell }
    }

    /// The endpoint.
    pub(crate) const fn core(&self) -> &CoreRef {
        &self.core
    }

    /// Does something to the connection and lets it act on that.
    pub(crate) fn act<R>(&self, action: impl FnOnce(&mut Conn, Time) -> R) -> R {
        self.act_if(|conn, now| (action(conn, now), true))
    }

    /// Like [`ConnRef::act`]; who is to be woken is told in `wakes`, for callers that hold a lock.
    pub(crate) fn act_into<R>(
        &self,
        wakes: &mut Wakes,
        action: impl FnOnce(&mut Conn, Time) -> R,
    ) -> R {
        self.core.act_into(&self.cell, wakes, action)
    }

    /// Like [`ConnRef::act`]; `action` also says whether it changed anything.
    pub(crate) fn act_if<R>(&self, action: impl FnOnce(&mut Conn, Time) -> (R, bool)) -> R {
        self.core.act_on(&self.cell, action)
    }

    /// Like [`ConnRef::act`]; `action` also says what is to be done about it, and when.
    pub(crate) fn act_as<R>(&self, action: impl FnOnce(&mut Conn, Time) -> (R, Effect)) -> R {
        self.core.act_as(&self.cell, action)
    }

    /// Like [`ConnRef::act_as`], for what happens at no time.
    pub(crate) fn act_untimed<R>(&self, action: impl FnOnce(&mut Conn) -> (R, Effect)) -> R {
        self.core.act_untimed(&self.cell, action)
    }

    /// Does now what was left for later.
    pub(crate) fn flush(&self) {
        self.act_if(|conn, _| ((), conn.postponed));
    }

    /// Looks at the connection.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut Conn) -> R) -> R {
        look(&mut self.cell.lock())
    }

    /// Where its buffers are left.
    pub(crate) fn spent(&self) -> &Arc<Spent> {
        &self.cell.spent
    }

    /// Takes a party off a list of those who wait.
    pub(crate) fn unregister(&self, interest: Interest, id: WaiterId) {
        self.cell.lock().waiters.unregister(interest, id);
    }
}

impl Clone for ConnRef {
    fn clone(&self) -> Self {
        Self::new(self.core.clone(), Arc::clone(&self.cell))
    }
}

impl Drop for ConnRef {
    fn drop(&mut self) {
        if self.cell.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.act(|conn, _| conn.orphan = true);
        }
    }
}

impl fmt::Debug for ConnRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.look(|conn| conn.engine.fmt(f))
    }
}
