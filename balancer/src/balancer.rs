//! A balancer at work, as programs see it: started, changed, counted, stopped.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, PipeWriter};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::config::Config;
use crate::counters::Counters;
use crate::kernel::{Kernel, Offload};
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
    kernel: Mutex<Aid>,
}

/// What the kernel does.
#[derive(Debug)]
struct Aid {
    now: Standing,
    /// Packets and bytes that programs forwarded which are detached by now.
    before: [u64; 2],
}

#[derive(Debug)]
enum Standing {
    /// It was not asked to forward.
    NotAsked,
    /// It forwards, but for so many servers.
    Attached { kernel: Kernel, left_out: usize },
    /// It was asked to, and does not.
    Failed(String),
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
    /// The same in the kernel.
    offload: Option<Arc<Offload>>,
    /// Why a worker has ended.
    failed: Option<io::Error>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The snapshot, if it is another one than a worker has, and what it is in the kernel.
    pub(crate) fn newer(&self, version: &mut u64) -> Option<(Arc<Snapshot>, Option<Arc<Offload>>)> {
        let now = self.version.load(Ordering::Acquire);
        if now == *version {
            return None;
        }
        *version = now;
        let state = self.state();
        Some((state.snapshot.clone(), state.offload.clone()))
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
        let mut kernel = Aid { now: Standing::NotAsked, before: [0; 2] };
        let news = kernel.renew(config, &snapshot);
        news.tell();
        let offload = kernel.offload();
        let state = State { snapshot: snapshot.clone(), offload, failed: None };
        // Workers begin with the snapshot alone, and take up the rest with the first look.
        let shared = Arc::new(Shared { state: Mutex::new(state), version: AtomicU64::new(1) });
        let mut started = Self {
            shared: shared.clone(),
            counters: Vec::new(),
            bells: Vec::new(),
            workers: Vec::new(),
            kernel: Mutex::new(kernel),
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

    /// Puts another snapshot in its place: workers take it up before their next datagrams, the kernel
    /// at once. If the kernel did not forward although it was asked to, it is asked again. Flows stay
    /// where they are. `config` is what the snapshot was made of.
    pub fn replace(&self, config: &Config, snapshot: Snapshot) {
        let mut kernel = self.kernel();
        let news = kernel.renew(config, &snapshot);
        let mut state = self.shared.state();
        state.snapshot = Arc::new(snapshot);
        state.offload = kernel.offload();
        self.shared.version.fetch_add(1, Ordering::Release);
        drop(state);
        drop(kernel);
        news.tell();
    }

    /// Whether the kernel forwards what it can: none if it was not asked to, else for how many
    /// servers all goes by user space even so, or why it does not.
    #[must_use]
    pub fn in_kernel(&self) -> Option<Result<usize, String>> {
        match &self.kernel().now {
            Standing::NotAsked => None,
            Standing::Attached { left_out, .. } => Some(Ok(*left_out)),
            Standing::Failed(why) => Some(Err(why.clone())),
        }
    }

    fn kernel(&self) -> MutexGuard<'_, Aid> {
        self.kernel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why a worker has ended, if one has; once.
    #[must_use]
    pub fn failed(&self) -> Option<io::Error> {
        self.shared.state().failed.take()
    }

    /// The counters of all workers together, and of the kernel; those of servers are brought up to
    /// date as well.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = Counters::default().values();
        for one in &self.counters {
            all.iter_mut().zip(one.values()).for_each(|(sum, (_, value))| sum.1 += value);
        }
        let [packets, bytes] = self.kernel().count();
        for (name, value) in &mut all {
            *value += match *name {
                "received" | "named" | "sent" | "in_kernel" => packets,
                "received_bytes" => bytes,
                _ => 0,
            };
        }
        all
    }
}

impl Aid {
    /// Has the kernel forward by a snapshot, if it is asked to: in the place of the one before, or
    /// attached anew. The news are for the log, once the lock is given back.
    fn renew(&mut self, config: &Config, snapshot: &Snapshot) -> News {
        let known = std::mem::replace(&mut self.now, Standing::NotAsked);
        let renewed = match known {
            Standing::Attached { mut kernel, left_out } => match kernel.replace(config, snapshot) {
                Ok(()) => Ok(Some((kernel, Some(left_out)))),
                Err(_) => {
                    // What is attached still follows the old snapshot.
                    let gone = kernel.detach();
                    self.before.iter_mut().zip(gone).for_each(|(sum, one)| *sum += one);
                    Self::attach(config, snapshot)
                }
            },
            Standing::NotAsked => Self::attach(config, snapshot),
            Standing::Failed(why) => {
                let attached = Self::attach(config, snapshot);
                if let Err(error) = &attached
                    && error.to_string() == why
                {
                    self.now = Standing::Failed(why);
                    return News::None;
                }
                attached
            }
        };
        match renewed {
            Ok(None) => News::None,
            Ok(Some((kernel, known))) => {
                let left_out = kernel.offload().left_out();
                self.now = Standing::Attached { kernel, left_out };
                let is_new = known.unwrap_or(0) != left_out;
                if is_new { News::LeftOut(left_out) } else { News::None }
            }
            Err(error) => {
                let why = error.to_string();
                self.now = Standing::Failed(why.clone());
                News::Failed(why)
            }
        }
    }

    fn attach(config: &Config, snapshot: &Snapshot) -> io::Result<Option<Attached>> {
        let attached = Kernel::attach(config, snapshot)?;
        Ok(attached.map(|kernel| (kernel, None)))
    }

    /// The program, if one is attached.
    fn offload(&self) -> Option<Arc<Offload>> {
        match &self.now {
            Standing::Attached { kernel, .. } => Some(kernel.offload().clone()),
            _ => None,
        }
    }

    /// Packets and bytes of all programs so far.
    fn count(&self) -> [u64; 2] {
        let Standing::Attached { kernel, .. } = &self.now else { return self.before };
        let [packets, bytes] = kernel.count();
        [self.before[0] + packets, self.before[1] + bytes]
    }
}

/// What is attached, and how many servers were left out before.
type Attached = (Kernel, Option<usize>);

/// What has changed about the kernel's part.
#[derive(Debug)]
enum News {
    None,
    LeftOut(usize),
    Failed(String),
}

impl News {
    /// Writes it into the log, which belongs to the application: without a lock.
    fn tell(&self) {
        match self {
            Self::None => {}
            Self::LeftOut(count) => log::warn!(
                "xdp: {count} servers have no route, or the system does not forward their version of \
                 IP: all for them goes by user space"
            ),
            Self::Failed(why) => {
                log::warn!("the kernel forwards nothing (xdp), all goes by user space: {why}");
            }
        }
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
