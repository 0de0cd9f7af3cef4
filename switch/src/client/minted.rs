//! Connection IDs that the switch makes for a program that has no key to make them.
//!
//! Each worker has a store of them, and asks for more when half of a delivery is used. What is left when the
//! switch has died lasts for so many new connections and moves.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::ONCE;
use super::membership::Shared;
use crate::protocol::{ID_LEN, Minted, Request, Tenancy};

/// A worker that has fewer asks for more.
const LOW: usize = 256;
/// What a worker keeps at most: a switch that gives more is not right in its mind.
const MOST: usize = 4096;
/// How long a worker waits that has none.
const PATIENCE: Duration = Duration::from_millis(250);

/// The stores of all workers.
#[derive(Debug, Default)]
pub(super) struct Pools(Vec<Pool>);

#[derive(Debug, Default)]
struct Pool {
    store: Mutex<Store>,
    filled: Condvar,
}

#[derive(Default)]
struct Store {
    ids: Vec<[u8; ID_LEN]>,
    /// More are on their way.
    asked: bool,
    /// Somebody has waited in vain, and nothing has come since.
    in_vain: bool,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("ids", &self.ids.len()).finish_non_exhaustive()
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pools {
    pub(super) fn new(workers: usize, tenancy: Option<Tenancy>) -> Self {
        let this = Self((0..workers).map(|_| Pool::default()).collect());
        for minted in tenancy.into_iter().flat_map(|tenancy| tenancy.minted) {
            this.fill(minted);
        }
        this
    }

    /// Some have come.
    pub(super) fn fill(&self, minted: Minted) {
        let Minted { worker, anew, ids } = minted;
        let Some(pool) = self.0.get(usize::from(worker)) else { return };
        let mut store = pool.lock();
        if anew {
            store.ids.clear();
        }
        let room = MOST.saturating_sub(store.ids.len());
        store.ids.extend(ids.into_iter().map(|id| id.0).take(room));
        store.asked = false;
        store.in_vain &= store.ids.is_empty();
        drop(store);
        pool.filled.notify_all();
    }
}

/// What gives out connection IDs that lead to a worker.
#[derive(Clone)]
pub struct ConnectionIds {
    program: Weak<Shared>,
    pools: Arc<Pools>,
    worker: u16,
}

impl fmt::Debug for ConnectionIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionIds").field("worker", &self.worker).finish_non_exhaustive()
    }
}

impl ConnectionIds {
    pub(super) const fn new(program: Weak<Shared>, pools: Arc<Pools>, worker: u16) -> Self {
        Self { program, pools, worker }
    }

    /// The same for another worker.
    #[must_use]
    pub fn for_worker(&self, worker: u16) -> Self {
        Self { worker, ..self.clone() }
    }

    /// The next one. `None` if there is none, and the switch gives none within a quarter of a second: nobody waits
    /// for it again before it has given some.
    #[must_use]
    pub fn take(&self) -> Option<[u8; ID_LEN]> {
        let pool = self.pools.0.get(usize::from(self.worker))?;
        let mut store = pool.lock();
        if store.ids.len() < LOW && !store.asked {
            store.asked = true;
            drop(store);
            // Not under the lock: whoever fills the store may be about to take it.
            let asked = self.ask();
            store = pool.lock();
            store.asked &= asked;
        }
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(id) = store.ids.pop() {
                return Some(id);
            }
            let left = until.saturating_duration_since(Instant::now());
            if store.in_vain || left.is_zero() {
                store.in_vain = true;
                return None;
            }
            let waited = pool.filled.wait_timeout(store, left);
            store = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Asks for more, without waiting; false if nobody hears that.
    fn ask(&self) -> bool {
        let Some(program) = self.program.upgrade() else { return false };
        let connection = program.state().connection.clone();
        connection.is_some_and(|connection| {
            connection.send(ONCE, Request::Mint(self.worker), &[]).is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Hex, Secrets};

    fn minted(worker: u16, anew: bool, first: u8, count: u8) -> Minted {
        let ids = (first..).take(count.into()).map(|octet| Hex([octet; ID_LEN])).collect();
        Minted { worker, anew, ids }
    }

    #[test]
    fn each_worker_has_its_own_and_forgets_those_that_were_rotated() {
        assert_eq!(Secrets::format().unwrap().id_len(), ID_LEN);
        let address = "127.0.0.1:1".parse().unwrap();
        let tenancy =
            Tenancy { address, minted: vec![minted(0, true, 1, 2), minted(1, true, 9, 1)] };
        let pools = Arc::new(Pools::new(2, Some(tenancy)));
        let first = ConnectionIds::new(Weak::new(), Arc::clone(&pools), 0);
        let second = first.for_worker(1);
        assert_eq!(second.take(), Some([9; ID_LEN]));
        assert_eq!(first.take(), Some([2; ID_LEN]));
        pools.fill(minted(0, true, 20, 1));
        pools.fill(minted(7, true, 20, 1));
        assert_eq!(first.take(), Some([20; ID_LEN]), "and not 1");
    }

    #[test]
    fn who_waits_in_vain_does_so_once_until_some_come() {
        let pools = Arc::new(Pools::new(1, None));
        let ids = ConnectionIds::new(Weak::new(), Arc::clone(&pools), 0);
        let begun = Instant::now();
        assert_eq!(ids.take(), None);
        assert!(begun.elapsed() >= PATIENCE);
        let begun = Instant::now();
        assert!((0..100).all(|_| ids.take().is_none()));
        assert!(begun.elapsed() < PATIENCE);
        // None came: too many were asked for of late.
        pools.fill(minted(0, false, 0, 0));
        assert_eq!(ids.take(), None);
        assert!(begun.elapsed() < PATIENCE);
        let waits = std::thread::spawn({
            let ids = ids.clone();
            move || ids.take()
        });
        pools.fill(minted(0, false, 5, 1));
        let came = waits.join().unwrap().or_else(|| ids.take());
        assert_eq!(came, Some([5; ID_LEN]));
    }
}
