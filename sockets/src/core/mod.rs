//! The core under all APIs: one endpoint, its connections, and whoever drives them.
//!
//! There is one way for datagrams to come in (`receive`), one for a connection to act (`pump`)
//! and one to wait (a poll function and a [`Waker`](std::task::Waker)); blocking calls
//! (`block`) and async ones differ only in who polls. Who receives is decided in `lead`. The order
//! of locks is in `docs/threads.md`.

mod admission;
mod aside;
mod attempts;
mod background;
mod begun;
mod bell;
mod block;
mod budget;
mod buffers;
mod captured;
mod cell;
mod clock;
mod deferred;
mod driver;
#[cfg(test)]
mod environment_tests;
mod handle;
mod handover;
mod held;
mod kick;
mod lead;
#[cfg(test)]
mod lead_tests;
mod link;
mod list;
mod mailbox;
#[cfg(test)]
mod mailbox_tests;
mod network;
mod parker;
#[cfg(test)]
mod parker_tests;
mod pins;
mod poller;
mod postpone;
mod pump;
mod receive;
mod reception;
mod routing;
#[cfg(test)]
mod seat_tests;
mod share;
mod spent;
mod spin;
mod switch;
mod sync;
mod timers;
mod waiter_id;
mod waiters;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

use quicket_engine::time::Time;
use quicket_engine::{ConnectionHandle, Endpoint};

pub(crate) use background::{spawn_prepared, spawn_quietly};
pub(crate) use block::GivenUp;
use buffers::BufferPool;
pub(crate) use cell::{Cell, Conn, Role, SendEnd, Tap};
pub(crate) use clock::Clock;
pub(crate) use driver::Driver;
pub(crate) use handle::{ConnRef, CoreRef};
use held::{Held, HeldGuard};
use kick::Kick;
use lead::Leadership;
pub(crate) use lead::Rank;
pub(crate) use link::{Link, Links};
use list::List;
pub(crate) use network::{Follow, WatchHold, source_towards};
pub(crate) use pins::{Pin, Pins};
pub(crate) use postpone::Effect;
use postpone::Entry;
use quicket_udp::{Complaints, UdpConfig, UdpOption};
use receive::Scratch;
use reception::Reception;
use routing::Routing;
pub(crate) use routing::{Greeter, ListenOptions};
pub(crate) use spent::Spent;
pub(crate) use switch::{SharedTokenLog, Switch};
use timers::Timers;
pub(crate) use waiter_id::WaiterId;
pub(crate) use waiters::{Interest, Waiter, Waiters, Wakes};

/// An endpoint with everything that belongs to it, or one of its workers.
pub(crate) struct Core {
    /// For threads that may outlive it.
    this: Weak<Core>,
    /// What the workers of the endpoint share; they all have one clock.
    switch: Arc<Switch>,
    clock: Clock,
    /// Which worker this is.
    number: usize,
    /// The length of our connection IDs in bytes.
    cid_len: usize,
    /// The other workers, if this is the first.
    others: OnceLock<Vec<Arc<Core>>>,
    /// How further sockets are made.
    udp: UdpConfig,
    /// Options of the sockets, those of `udp` first. Nothing else is locked under it but `links`.
    udp_options: Mutex<Vec<UdpOption>>,
    links: RwLock<Arc<Links>>,
    routing: Held<Routing>,
    deadlines: Mutex<Deadlines>,
    lead: Leadership<Box<Scratch>>,
    buffers: BufferPool,
    /// First packets that wait until it is known who accepts.
    aside: aside::Aside,
    /// Clients that have heard nothing yet.
    attempts: attempts::Attempts,
    /// Connections that have something to send when the caller's thread waits next.
    postponed: List<Entry>,
    /// Connections that wait for room in the kernel's send buffer.
    blocked: List<Arc<Cell>>,
    /// How often callers have sent since somebody received.
    unheard: AtomicU32,
    /// Receiving, or waiting for it, failed.
    complaints: Complaints,
    /// Some connection has a place where sessions are kept.
    keeps_sessions: AtomicBool,
    /// The application closed it: no connections come or go out.
    closed: AtomicBool,
    /// Nobody needs the endpoint any more, or it cannot go on.
    over: AtomicBool,
}

/// As many handles as there never are: the endpoint ends.
const ENDED: usize = usize::MAX / 2;

/// Deadlines of connections and when the leader looks at them next.
struct Deadlines {
    timers: Timers<Arc<Cell>>,
    /// When a socket that was replaced may be closed.
    links_end: Option<Time>,
    /// Until when the leader sleeps; the origin while it is awake or there is none.
    asleep_until: Time,
}

impl Core {
    /// The worker with this number, on a socket. Nothing drives it yet.
    pub(crate) fn new(
        link: Link,
        udp: UdpConfig,
        endpoint: Endpoint,
        switch: Arc<Switch>,
        number: usize,
    ) -> io::Result<Arc<Self>> {
        let kick = Kick::new()?;
        let cid_len = endpoint.cid_len();
        let routing = Routing::new(endpoint, &switch, number);
        Ok(Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            clock: switch.clock,
            switch,
            number,
            cid_len,
            others: OnceLock::new(),
            udp_options: Mutex::new(udp.options.clone()),
            udp,
            links: RwLock::new(Arc::new(Links::new(link))),
            routing: Held::inner(routing),
            deadlines: Mutex::new(Deadlines {
                timers: Timers::new(),
                links_end: None,
                asleep_until: Time::ZERO,
            }),
            lead: Leadership::new(Box::default(), kick),
            buffers: BufferPool::default(),
            aside: aside::Aside::default(),
            attempts: attempts::Attempts::default(),
            postponed: List::default(),
            blocked: List::default(),
            unheard: AtomicU32::new(0),
            complaints: Complaints::default(),
            keeps_sessions: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }))
    }

    pub(crate) const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// How further sockets are made: with the options that the present ones have.
    pub(crate) fn udp_config(&self) -> UdpConfig {
        let options = self.udp_options.lock().unwrap_or_else(PoisonError::into_inner).clone();
        UdpConfig { options, ..self.udp.clone() }
    }

    /// Sets an option of all sockets, and of those to come.
    ///
    /// # Errors
    ///
    /// Those of setsockopt(2); where programs share the address, `InvalidInput` unless it is set, and [`NoSuchOption`]
    /// for what the socket of another user's switch never has.
    ///
    /// [`NoSuchOption`]: crate::ops::NoSuchOption
    pub(crate) fn set_udp_option(&self, option: UdpOption) -> io::Result<()> {
        if self.switch_config().is_some() {
            let links = self.links();
            let mut sockets = links.iter().map(|link| &link.socket);
            return sockets.try_for_each(|socket| crate::ops::check_option_of(socket, &option));
        }
        // Sockets that are made meanwhile have it from the list or from here.
        let mut options = self.udp_options.lock().unwrap_or_else(PoisonError::into_inner);
        for link in self.links().iter() {
            link.socket.set_option(&option)?;
        }
        option.put_into(&mut options);
        Ok(())
    }

    const fn buffers(&self) -> &BufferPool {
        &self.buffers
    }

    /// The sockets in use.
    pub(crate) fn links(&self) -> Arc<Links> {
        Arc::clone(&self.links.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The address that the endpoint is bound to.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        self.links().current().map_or(unknown, |link| link.socket.local_addr())
    }

    /// Changes the sockets; leaders notice at once.
    pub(crate) fn change_links(&self, change: impl FnOnce(&Links, Time) -> Option<Links>) {
        let now = self.clock.now();
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        let Some(changed) = change(&links, now) else { return };
        let end = changed.next_end();
        *links = Arc::new(changed);
        drop(links);
        self.attempts.heed(&self.links());
        self.deadlines().links_end = end;
        self.lead.interrupt();
    }

    pub(crate) fn routing(&self) -> HeldGuard<'_, Routing> {
        self.routing.lock()
    }

    /// Who listens.
    fn reception(&self) -> &Reception {
        &self.switch.reception
    }

    /// The endpoint's end is to wait until sessions are kept.
    pub(crate) fn keep_sessions(&self) {
        self.keeps_sessions.store(true, Ordering::Relaxed);
    }

    fn deadlines(&self) -> MutexGuard<'_, Deadlines> {
        self.deadlines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets a connection's deadline; a leader that would sleep past it is woken.
    fn schedule(&self, handle: ConnectionHandle, cell: &Arc<Cell>, at: Time) {
        let mut deadlines = self.deadlines();
        deadlines.timers.schedule(handle.0, at, Arc::clone(cell));
        if at < deadlines.asleep_until {
            deadlines.asleep_until = Time::ZERO;
            drop(deadlines);
            self.lead.interrupt();
        }
    }

    fn unschedule(&self, handle: ConnectionHandle) {
        self.deadlines().timers.remove(handle.0);
    }

    /// The kernel's send buffer of `link` is full: has the leader tell when it is not. `cell` is
    /// none if it is among those that wait already.
    fn wait_for_room(&self, cell: Option<&Arc<Cell>>, link: &Link) {
        // The order matters: first the entry, then the mark. Whoever takes the mark back takes the
        // list after that.
        let first = cell.is_some_and(|cell| self.blocked.push(Arc::clone(cell)));
        if link.set_full() || first {
            self.lead.interrupt();
        }
    }

    /// There is room again.
    fn on_writable(&self, now: Time, wakes: &mut Wakes) {
        for cell in self.blocked.take() {
            let mut conn = cell.lock();
            conn.waits_for_room = false;
            self.pump(now, &cell, &mut conn, wakes);
        }
    }

    /// Lets connections act whose deadlines have come.
    fn expire(&self, now: Time, wakes: &mut Wakes) {
        if self.deadlines().links_end.is_some_and(|end| end <= now) {
            self.change_links(Links::pruned);
        }
        loop {
            let due = self.deadlines().timers.pop_due(now);
            let Some(cell) = due else { return };
            self.expire_one(now, &cell, wakes);
        }
    }

    /// What connections of all workers hold of the budget, in bytes.
    pub(crate) fn memory_held(&self) -> usize {
        self.switch.budget.held()
    }

    /// Ends the background once nobody holds the endpoint and no connection is left.
    fn check_over(&self) {
        // Nobody can take hold of it again once it ends.
        let handles = &self.switch.handles;
        let unused = || handles.compare_exchange(0, ENDED, Ordering::AcqRel, Ordering::Acquire);
        if handles.load(Ordering::Acquire) == 0
            && self.workers().iter().all(|worker| worker.routing().live() == 0)
            && unused().is_ok()
        {
            self.end();
        }
    }

    /// Ends the background of all workers and wakes everybody.
    fn end(&self) {
        self.workers().iter().for_each(|worker| worker.end_worker());
        self.switch.share.leave();
    }

    fn end_worker(&self) {
        if !self.over.swap(true, Ordering::AcqRel) {
            let mut wakes = Wakes::default();
            self.routing().wake_all(&mut wakes);
            self.reception().wake(&mut wakes);
            wakes.fire();
            self.lead.end();
        }
    }

    /// Lets no connections come or go out any more.
    pub(crate) fn close_endpoint(&self) {
        self.closed.store(true, Ordering::Release);
        let mut wakes = Wakes::default();
        self.routing().close(&mut wakes);
        wakes.fire();
    }

    /// True if no connections can come or go out any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) || self.is_over()
    }

    /// True once nothing drives the endpoint any more.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}
