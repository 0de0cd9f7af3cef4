//! What the workers of an endpoint share, and how they hand datagrams to each other.
//!
//! A worker is a [`Core`]: sockets, connections and somebody who drives them. A connection belongs to
//! one worker for life. `docs/switch.md` has the way of a datagram.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use quicket_engine::{StrikeRegister, TokenId, TokenLog};

use super::budget::Budget;
use super::cell::Cell;
use super::mailbox::{Mailbox, Parcels};
use super::pins::Pins;
use super::reception::Reception;
use super::share::Share;
use super::waiter_id::WaiterId;
use super::waiters::{Waiter, Wakes};
use super::{Clock, Core};
use crate::capture::Captures;
use crate::config::WorkerStats;
use crate::pass::PassThrough;
use crate::site::SiteKeys;
use crate::steering::KernelChoice;
use quicket_udp::Batch;

/// What the workers of an endpoint share; of one that is alone, too.
pub(crate) struct Switch {
    /// By number. They keep this one.
    cores: OnceLock<Box<[Weak<Core>]>>,
    pub(super) clock: Clock,
    pub(super) reception: Arc<Reception>,
    /// What all connections may hold together.
    pub(super) budget: Arc<Budget>,
    pub(crate) pins: Arc<Pins>,
    /// How the kernel is to choose among their sockets; by address without one.
    choice: Option<KernelChoice>,
    /// The keys that it has in common with other servers.
    pub(super) site: Option<SiteKeys>,
    /// Who may have datagrams of others.
    pub(super) pass_through: Option<Arc<dyn PassThrough>>,
    /// Who sees datagrams.
    pub(crate) captures: Option<Captures>,
    /// The share of an address that others have, too.
    pub(super) share: Share,
    /// How many public values lead to any of them.
    pub(super) handles: AtomicUsize,
    /// By number; none for a worker that is alone.
    mailboxes: Box<[Mailbox]>,
    counters: Box<[Counters]>,
    /// Which worker the next connection to a server gets.
    next: AtomicUsize,
}

/// What a worker did.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) received: AtomicU64,
    pub(super) handed_on: AtomicU64,
    pub(super) taken: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) stray: AtomicU64,
}

/// Datagrams on their way to other workers, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    parcels: Vec<Parcels>,
    any: bool,
    /// How many batches there were, one after the other, of which nothing goes away as it lies; counted while there may be
    /// buffers for that.
    spared: Option<u32>,
}

/// After so many batches of which nothing goes away as it lies, the buffers that are there for that are given back.
const MOST_SPARED: u32 = 64;

impl Outbox {
    /// What goes to `worker`.
    pub(super) fn to(&mut self, worker: usize) -> &mut Parcels {
        self.any = true;
        if self.parcels.len() <= worker {
            self.parcels.resize_with(worker + 1, Parcels::default);
        }
        &mut self.parcels[worker]
    }

    /// Whether there are some.
    pub(super) const fn has_any(&self) -> bool {
        self.any
    }

    /// Takes from a batch what goes away as it lies.
    pub(super) fn fill(&mut self, batch: &mut Batch<'_>) {
        let mut taken = false;
        if self.any {
            for parcels in &mut self.parcels {
                parcels.fill(|place, spare| {
                    taken = true;
                    batch.take(place, spare)
                });
            }
        }
        self.count(taken);
    }

    /// A batch was there of which something was taken as it lies, or nothing.
    fn count(&mut self, taken: bool) {
        self.spared = match self.spared {
            _ if taken => Some(0),
            Some(count) if count < MOST_SPARED => Some(count + 1),
            Some(_) => {
                self.parcels.iter_mut().for_each(Parcels::drop_spare);
                None
            }
            None => None,
        };
    }
}

impl Switch {
    /// For so many workers, whose connections hold so many bytes of streams.
    pub(crate) fn new(
        workers: usize,
        memory: usize,
        choice: Option<KernelChoice>,
        site: Option<SiteKeys>,
        pass_through: Option<Arc<dyn PassThrough>>,
        captures: Option<Captures>,
    ) -> Arc<Self> {
        let mailboxes = if workers > 1 { workers } else { 0 };
        Arc::new(Self {
            cores: OnceLock::new(),
            clock: Clock::new(),
            reception: Arc::default(),
            budget: Budget::new(memory),
            pins: Arc::default(),
            choice,
            site,
            pass_through,
            captures,
            share: Share::default(),
            handles: AtomicUsize::new(0),
            mailboxes: (0..mailboxes).map(|_| Mailbox::default()).collect(),
            counters: (0..workers).map(|_| Counters::default()).collect(),
            next: AtomicUsize::new(0),
        })
    }

    /// Says which the workers are, in the order of their numbers.
    pub(crate) fn introduce(&self, cores: &[Arc<Core>]) {
        let cores = cores.iter().map(Arc::downgrade).collect();
        // Fails for none: said once.
        let _ = self.cores.set(cores);
    }

    /// The worker with a number, while the endpoint lives.
    fn core(&self, worker: usize) -> Option<Arc<Core>> {
        self.cores.get()?.get(worker)?.upgrade()
    }

    /// How many there are.
    pub(super) fn workers(&self) -> usize {
        self.counters.len()
    }

    pub(super) fn mailbox(&self, worker: usize) -> Option<&Mailbox> {
        self.mailboxes.get(worker)
    }
}

impl Core {
    /// All workers of the endpoint, this one included, by number.
    pub(crate) fn workers(&self) -> Vec<Arc<Self>> {
        let cores = self.switch.cores.get().map(|cores| &**cores).unwrap_or_default();
        if cores.is_empty() {
            return self.this.upgrade().into_iter().collect();
        }
        cores.iter().filter_map(Weak::upgrade).collect()
    }

    /// How the kernel is to choose among the workers' sockets; by address without one.
    pub(crate) fn kernel_choice(&self) -> Option<&KernelChoice> {
        self.switch.choice.as_ref()
    }

    /// The keys that it has in common with other servers.
    pub(crate) fn site_keys(&self) -> Option<&SiteKeys> {
        self.switch.site.as_ref()
    }

    /// The worker with a number.
    pub(crate) fn worker(&self, number: usize) -> Option<Arc<Self>> {
        if number == self.number { self.this.upgrade() } else { self.switch.core(number) }
    }

    /// Keeps the other workers as long as it lives itself.
    pub(crate) fn keep(&self, others: Vec<Arc<Self>>) {
        // Fails for none: said once.
        let _ = self.others.set(others);
    }

    /// The worker for the next connection to a server.
    pub(crate) fn next_worker(&self) -> Option<Arc<Self>> {
        let workers = self.switch.counters.len();
        if workers == 1 {
            return self.this.upgrade();
        }
        self.worker(self.switch.next.fetch_add(1, Ordering::Relaxed) % workers)
    }

    /// The next connection of the listener and its worker; without one, `waiter` hears of the next.
    pub(crate) fn accept(&self, waiter: Option<Waiter<'_>>) -> Option<(Arc<Self>, Arc<Cell>)> {
        let (worker, cell) = self.reception().accept(waiter)?;
        Some((self.worker(worker)?, cell))
    }

    /// Somebody waits no more for a connection.
    pub(crate) fn unregister_accept(&self, id: WaiterId) {
        let mut wakes = Wakes::default();
        self.reception().unregister(id, &mut wakes);
        wakes.fire();
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.switch.counters[self.number]
    }

    /// What this worker did.
    pub(crate) fn worker_stats(&self) -> WorkerStats {
        let (connections, retries) = {
            let routing = self.routing();
            (routing.live(), routing.endpoint.retries())
        };
        let counters = self.counters();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WorkerStats {
            connections,
            received: read(&counters.received),
            handed_on: read(&counters.handed_on),
            taken: read(&counters.taken),
            lost: read(&counters.lost),
            stray: read(&counters.stray),
            retries,
        }
    }

    /// Leaves datagrams to their workers. Waits for none of them.
    pub(super) fn hand_on(&self, outbox: &mut Outbox) {
        if !std::mem::take(&mut outbox.any) {
            return;
        }
        for (worker, parcels) in outbox.parcels.iter_mut().enumerate() {
            let (false, Some(mailbox)) = (parcels.is_empty(), self.switch.mailbox(worker)) else {
                continue;
            };
            let count = parcels.datagrams();
            let pushed = mailbox.push(parcels);
            self.counters().handed_on.fetch_add(count - pushed.lost, Ordering::Relaxed);
            if let (true, Some(counters)) = (pushed.lost > 0, self.switch.counters.get(worker)) {
                counters.lost.fetch_add(pushed.lost, Ordering::Relaxed);
            }
            if pushed.wake
                && let Some(core) = self.switch.core(worker)
            {
                core.lead.interrupt();
            }
        }
    }

    /// Whether other workers have left something, or first packets have waited. For a leader that does not sleep: nobody wakes it, it
    /// looks again.
    pub(super) fn has_mail(&self) -> bool {
        self.aside.is_ready() || self.switch.mailbox(self.number).is_some_and(Mailbox::has_mail)
    }

    /// The leader is about to sleep: other workers wake it. False if they have left something, so
    /// that it should not.
    pub(super) fn has_no_mail(&self) -> bool {
        let no_mail = self.switch.mailbox(self.number).is_none_or(Mailbox::fall_asleep);
        no_mail && !self.aside.is_ready()
    }
}

/// One register of used tokens for all workers (RFC 9000, Section 8.1.4).
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedTokenLog(Arc<Mutex<StrikeRegister>>);

impl TokenLog for SharedTokenLog {
    fn begin(&mut self, now: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).begin(now);
    }

    fn first_use(&mut self, id: TokenId, issued: u64, lifetime: u64, now: u64) -> bool {
        let mut register = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        register.first_use(id, issued, lifetime, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_one_worker_took_is_used_for_all() {
        let mut one = SharedTokenLog::default();
        let mut other = one.clone();
        let id = TokenId([7; 12]);
        assert!(one.first_use(id, 160, 100, 160));
        assert!(!other.first_use(id, 160, 100, 160));
        assert!(!one.first_use(id, 160, 100, 160));
    }
}
