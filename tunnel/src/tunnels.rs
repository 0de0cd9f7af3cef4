//! Tunnels at work, as programs see them: started, changed, counted, stopped.

use std::io::{self, PipeWriter, Write};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use quicket_gue::MIN_MTU_V6;

use crate::config::{Port, Setup, Tunnel};
use crate::counters::Counters;
use crate::device;
use crate::grammar::{self, PortChoice};
use crate::ledger::Ledger;
use crate::path::Path;
use crate::worker::Worker;
use crate::world::World;

/// How long a change waits for the workers, which take it up between two batches.
const UPTAKE: Duration = Duration::from_secs(5);

/// Tunnels at work.
#[derive(Debug)]
pub struct Tunnels {
    shared: Arc<Shared>,
    /// One for each worker: a byte rouses it, and dropped it stops it.
    bells: Vec<PipeWriter>,
    workers: Vec<JoinHandle<()>>,
}

/// What workers have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Rung when a worker has taken up a change, or has failed.
    news: Condvar,
    /// That of the state, for a look without the lock.
    version: AtomicU64,
    pub(crate) ledger: Ledger,
}

#[derive(Debug)]
struct State {
    world: Arc<World>,
    version: u64,
    /// The version that each worker has.
    seen: Vec<u64>,
    /// Why a worker has ended.
    failed: Option<io::Error>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker has ended.
    fn fail(&self, error: io::Error) {
        self.state().failed.get_or_insert(error);
        self.news.notify_all();
    }

    /// The world, if it is another one than a worker has.
    pub(crate) fn newer(&self, worker: usize, version: &mut u64) -> Option<Arc<World>> {
        if self.version.load(Ordering::Acquire) == *version {
            return None;
        }
        let mut state = self.state();
        *version = state.version;
        state.seen[worker] = state.version;
        self.news.notify_all();
        Some(state.world.clone())
    }
}

impl Tunnels {
    /// Makes devices and sockets, and starts the workers.
    ///
    /// # Errors
    ///
    /// When a device or socket cannot be made; the message says which and what to do.
    /// `InvalidInput` if tunnels and ports contradict each other.
    pub fn start(setup: Setup, workers: usize) -> io::Result<Self> {
        let world = World::open(setup, workers, None)?;
        let mut queues = Vec::new();
        for (tunnel, path) in world.setup.tunnels.iter().zip(&world.paths) {
            let mtu = device_mtu(tunnel, path);
            let made = device::attach(&tunnel.name, tunnel.kind.is_ethernet(), workers, mtu);
            queues.push(made.map_err(|error| blame(&tunnel.name, &error))?);
        }
        let count = world.setup.tunnels.len();
        let world = Arc::new(world);
        let state =
            State { world: world.clone(), version: 0, seen: vec![0; workers], failed: None };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            news: Condvar::new(),
            version: AtomicU64::new(0),
            ledger: Ledger::new(count),
        });
        let mut started = Self { shared: shared.clone(), bells: Vec::new(), workers: Vec::new() };
        for number in 0..workers {
            let own = queues.iter_mut().filter_map(Vec::pop).collect();
            let worker = Worker::new(number, shared.clone(), world.clone(), own);
            let (ear, bell) = io::pipe()?;
            started.bells.push(bell);
            let thread = std::thread::Builder::new().name(format!("tunnel-{number}"));
            let shared = shared.clone();
            let work = move || {
                let ended = catch_unwind(AssertUnwindSafe(|| worker.run(ear)));
                let ended = ended.unwrap_or_else(|_| Err(io::Error::other("a worker panicked")));
                if let Err(error) = ended {
                    shared.fail(error);
                }
            };
            started.workers.push(thread.spawn(work)?);
        }
        Ok(started)
    }

    /// Tunnels and ports as they are now, those ports included that tunnels need besides.
    #[must_use]
    pub fn setup(&self) -> Setup {
        self.shared.state().world.setup.clone()
    }

    /// How many threads carry packets.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Changes a tunnel by words of the grammar; what they do not say remains. Packets go on: each
    /// goes the old way or the new one. All go the new way when this returns.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the words are wrong or contradict another tunnel, `NotFound` if there is
    /// no tunnel of that name, others if there are no sockets for it. Nothing has changed then.
    pub fn change(&self, name: &str, words: &[&str]) -> io::Result<()> {
        self.replace(|asked| {
            let tunnel = asked.tunnels.iter_mut().find(|tunnel| tunnel.name == name);
            let tunnel = tunnel.ok_or_else(|| {
                io::Error::new(io::ErrorKind::NotFound, format!("there is no tunnel {name} here"))
            })?;
            *tunnel = grammar::change(tunnel, words).map_err(|error| invalid(error.to_string()))?;
            Ok(())
        })
    }

    /// Opens a port; those that tunnels receive on remain.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if it has another meaning already, others if there is no socket for it.
    pub fn add_port(&self, port: Port) -> io::Result<()> {
        self.replace(|asked| {
            *asked = asked.clone().complete().map_err(|error| invalid(error.to_string()))?;
            asked.ports.push(port);
            Ok(())
        })
    }

    /// Closes the ports that are meant.
    ///
    /// # Errors
    ///
    /// `NotFound` if there are none, `InvalidInput` if a tunnel receives there and nowhere else.
    pub fn remove_port(&self, choice: PortChoice) -> io::Result<()> {
        self.replace(|asked| {
            let complete = |asked: &Setup| {
                asked.clone().complete().map_err(|error| invalid(error.to_string()))
            };
            let meant = |setup: &Setup| setup.ports.iter().any(|port| choice.matches(port));
            if !meant(&complete(asked)?) {
                return Err(io::Error::new(io::ErrorKind::NotFound, "there is no such port"));
            }
            asked.ports.retain(|port| !choice.matches(port));
            if meant(&complete(asked)?) {
                return Err(invalid(
                    "a tunnel receives there: open another port for it first (port add), or \
                     change its encap-dport"
                        .to_owned(),
                ));
            }
            Ok(())
        })
    }

    /// Lets another world take the place of this one.
    fn replace(&self, edit: impl FnOnce(&mut Setup) -> io::Result<()>) -> io::Result<()> {
        let mut state = self.shared.state();
        let before = state.world.clone();
        let mut asked = before.asked.clone();
        edit(&mut asked)?;
        let world = World::open(asked, self.workers.len(), Some(&before))?;
        for ((tunnel, old), new) in world.setup.tunnels.iter().zip(&before.paths).zip(&world.paths)
        {
            follow(tunnel, old, new);
        }
        state.world = Arc::new(world);
        state.version += 1;
        let version = state.version;
        self.shared.version.store(version, Ordering::Release);
        for mut bell in &self.bells {
            // A worker that has ended hears nothing, and needs not.
            let _ = bell.write_all(&[0]);
        }
        let behind = |state: &mut State| {
            state.failed.is_none() && state.seen.iter().any(|seen| *seen < version)
        };
        drop(self.shared.news.wait_timeout_while(state, UPTAKE, behind));
        Ok(())
    }

    /// Counters of a tunnel, by its place in the setup.
    #[must_use]
    pub fn counters(&self, index: usize) -> Option<&Counters> {
        self.shared.ledger.counters.get(index)
    }

    /// Counters of what was for no tunnel.
    #[must_use]
    pub fn strays(&self) -> &Counters {
        &self.shared.ledger.strays
    }

    /// What a tunnel with many other ends has learned: addresses inside, the other ends that they are
    /// behind, and since how many seconds nothing came from there.
    #[must_use]
    pub fn learned(&self, index: usize) -> Vec<(IpAddr, IpAddr, u32)> {
        let world = self.shared.state().world.clone();
        let peers = world.peers.get(index).and_then(Option::as_deref);
        let now = self.shared.ledger.seconds(Instant::now());
        peers.map_or_else(Vec::new, |peers| peers.learned(now))
    }

    /// The state of the search for the MTU of a tunnel's path by probes, and what it has found, with the
    /// outer header of IP; none if it is not asked for.
    #[must_use]
    pub fn discovery(&self, index: usize) -> Option<(&'static str, u16)> {
        self.shared.state().world.paths.get(index)?.discovery()
    }

    /// MTU of a tunnel as the path has it now, in bytes.
    #[must_use]
    pub fn mtu(&self, index: usize) -> Option<u16> {
        self.shared.state().world.paths.get(index).map(|path| path.inner_mtu())
    }

    /// Has [`Self::failed`] return an error of the kind `Interrupted`.
    pub fn interrupt(&self) {
        self.shared.fail(io::ErrorKind::Interrupted.into());
    }

    /// Waits until a worker fails, which none should, or for a time. What made it fail, if one has.
    #[must_use]
    pub fn failed(&self, wait: Option<Duration>) -> Option<io::Error> {
        let state = self.shared.state();
        let none = |state: &mut State| state.failed.is_none();
        let mut state = match wait {
            Some(wait) => {
                let waited = self.shared.news.wait_timeout_while(state, wait, none);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = self.shared.news.wait_while(state, none);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        };
        state.failed.take()
    }
}

impl std::ops::Drop for Tunnels {
    fn drop(&mut self) {
        self.bells.clear();
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                log::warn!("a worker of the tunnels has panicked");
            }
        }
    }
}

/// What a device should have: there is no IPv6 on one below its least MTU.
fn device_mtu(tunnel: &Tunnel, path: &Path) -> u16 {
    let least = if tunnel.carries(false) { MIN_MTU_V6 } else { 0 };
    path.inner_mtu().max(least)
}

/// A device whose MTU was that of the old path gets that of the new one; one that somebody has
/// given another keeps it.
fn follow(tunnel: &Tunnel, old: &Path, new: &Path) {
    let (old, new) = (device_mtu(tunnel, old), device_mtu(tunnel, new));
    if old != new
        && let Err(error) = device::follow_mtu(&tunnel.name, old, new)
    {
        log::warn!("{}: cannot set the MTU to {new} bytes: {error}", tunnel.name);
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

fn blame(name: &str, error: &io::Error) -> io::Error {
    let why = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM | Errno::EACCES) => "making a device needs CAP_NET_ADMIN (run as root)",
        Some(Errno::ENOENT | Errno::ENODEV) => "/dev/net/tun is missing: load the module tun",
        Some(Errno::EBUSY) => "another program has this device",
        Some(Errno::EINVAL) => {
            "a device of this name is of another kind, or has been made with another number of \
             workers: take another name, or remove it (ip link del)"
        }
        _ => "no device",
    };
    io::Error::new(error.kind(), format!("{name}: {why}: {error}"))
}
