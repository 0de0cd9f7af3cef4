//! A balancer at work, as programs see it: started, changed, counted, stopped.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, PipeWriter};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::config::Config;
use crate::counters::Counters;
use crate::snapshot::Snapshot;
use crate::worker::Worker;

/// A balancer at work. It stops when it is dropped.
#[derive(Debug)]
pub struct Balancer {
    shared: Arc<Shared>,
    counters: Vec<Arc<Counters>>,
    /// One for each worker: dropped it stops it.
    bells: Vec<PipeWriter>,
    workers: Vec<JoinHandle<()>>,
}

/// What workers have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// That of the state, for a look without the lock.
    version: AtomicU64,
}

#[derive(Debug)]
struct State {
    snapshot: Arc<Snapshot>,
    /// Why a worker has ended.
    failed: Option<io::Error>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The snapshot, if it is another one than a worker has.
    pub(crate) fn newer(&self, version: &mut u64) -> Option<Arc<Snapshot>> {
        let now = self.version.load(Ordering::Acquire);
        if now == *version {
            return None;
        }
        *version = now;
        Some(self.state().snapshot.clone())
    }
}

impl Balancer {
    /// Opens the sockets and starts the workers.
    ///
    /// # Errors
    ///
    /// When a socket cannot be made; the message says which and what to do.
    pub fn start(config: &Config, snapshot: Snapshot) -> io::Result<Self> {
        let snapshot = Arc::new(snapshot);
        let state = State { snapshot: snapshot.clone(), failed: None };
        let shared = Arc::new(Shared { state: Mutex::new(state), version: AtomicU64::new(0) });
        let mut started = Self {
            shared: shared.clone(),
            counters: Vec::new(),
            bells: Vec::new(),
            workers: Vec::new(),
        };
        // All sockets before the first thread: the system spreads flows over those that there are.
        let mut opened = Vec::new();
        for number in 0..config.workers {
            let counters = Arc::<Counters>::default();
            started.counters.push(counters.clone());
            let (shared, snapshot) = (shared.clone(), snapshot.clone());
            opened.push(Worker::open(config, shared, snapshot, counters, secret(number))?);
        }
        for (number, worker) in opened.into_iter().enumerate() {
            let (ear, bell) = io::pipe()?;
            started.bells.push(bell);
            let thread = std::thread::Builder::new().name(format!("balancer-{number}"));
            let shared = shared.clone();
            let work = move || {
                let ended = catch_unwind(AssertUnwindSafe(|| worker.run(ear)));
                let ended = ended.unwrap_or_else(|_| Err(io::Error::other("a worker panicked")));
                if let Err(error) = ended {
                    shared.state().failed.get_or_insert(error);
                }
            };
            started.workers.push(thread.spawn(work)?);
        }
        Ok(started)
    }

    /// What decisions are made of now.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.state().snapshot.clone()
    }

    /// Puts another snapshot in its place: workers take it up before their next datagrams. Flows stay
    /// where they are.
    pub fn replace(&self, snapshot: Snapshot) {
        self.shared.state().snapshot = Arc::new(snapshot);
        self.shared.version.fetch_add(1, Ordering::Release);
    }

    /// Why a worker has ended, if one has; once.
    #[must_use]
    pub fn failed(&self) -> Option<io::Error> {
        self.shared.state().failed.take()
    }

    /// The counters of all workers together.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = Counters::default().values();
        for one in &self.counters {
            all.iter_mut().zip(one.values()).for_each(|(sum, (_, value))| sum.1 += value);
        }
        all
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.bells.clear();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

/// A secret that nobody knows: the standard library keys its hashes from the system's.
fn secret(number: usize) -> [u8; 16] {
    let half = |part: u8| RandomState::new().hash_one((number, part)).to_le_bytes();
    let mut secret = [0; 16];
    let (first, second) = secret.split_at_mut(8);
    first.copy_from_slice(&half(0));
    second.copy_from_slice(&half(1));
    secret
}
