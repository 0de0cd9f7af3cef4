//! The thread that hears of changes of the network: one for the process, as long as endpoints follow it.
//!
//! It hears of the network namespace of the thread that begins the first such connection, and makes sockets there.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use quicket_packets::device::Changes;

use super::System;
use super::schedule::Schedule;
use crate::core::kick::Kick;
use crate::core::{Core, spawn_quietly};

/// Who follows the network.
struct Watch {
    endpoints: Vec<Weak<Core>>,
    /// The process whose thread hears of changes; a child of fork(2) has none.
    process: Option<u32>,
    /// Has the thread look, although nothing has changed.
    kick: Option<Arc<Kick>>,
}

impl Watch {
    const fn new() -> Self {
        Self { endpoints: Vec::new(), process: None, kick: None }
    }
}

static WATCH: Mutex<Watch> = Mutex::new(Watch::new());

/// Keeps the list of who follows the network as it is while the process forks.
pub(crate) struct WatchHold(MutexGuard<'static, Watch>);

impl WatchHold {
    /// Takes hold, before the process forks. In the parent, letting go is all.
    pub(crate) fn acquire() -> Self {
        Self(watch())
    }

    /// In the child: what is there belongs to the parent, whose thread is not here.
    pub(crate) fn forget(mut self) {
        // Whatever it leads to may be locked by threads that are not here.
        std::mem::forget(std::mem::replace(&mut *self.0, Watch::new()));
    }
}

fn watch() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has an endpoint, or one of its workers, hear of changes, until it ends.
///
/// # Errors
///
/// If the system tells nothing of them, or no thread can be started.
pub(super) fn enroll(core: &Arc<Core>) -> io::Result<()> {
    let mut watch = watch();
    let this = Arc::downgrade(core);
    watch.endpoints.retain(|endpoint| endpoint.strong_count() > 0);
    if !watch.endpoints.iter().any(|endpoint| endpoint.ptr_eq(&this)) {
        watch.endpoints.push(this);
    }
    let process = Some(std::process::id());
    if watch.process != process {
        let (changes, kick) = (Changes::open()?, Arc::new(Kick::new()?));
        let kicked = Arc::clone(&kick);
        spawn_quietly("quicket-network", move || run(&changes, &kicked))?;
        (watch.process, watch.kick) = (process, Some(kick));
    }
    Ok(())
}

/// Has the thread look soon.
pub(super) fn look_again() {
    if let Some(kick) = &watch().kick {
        kick.kick();
    }
}

/// The endpoints that there are; none if the thread may end.
fn endpoints() -> Vec<Arc<Core>> {
    let mut watch = watch();
    let endpoints: Vec<_> = watch.endpoints.iter().filter_map(Weak::upgrade).collect();
    if endpoints.is_empty() {
        *watch = Watch::new();
    }
    endpoints
}

/// Whoever is woken by a look runs on this thread. Should that panic, another thread takes over with the next connection
/// that follows the network.
struct Successor;

impl Drop for Successor {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut watch = watch();
            (watch.process, watch.kick) = (None, None);
            drop(watch);
            log::warn!(
                "connections follow the network no more, before another one begins: what a look woke has panicked"
            );
        }
    }
}

fn run(changes: &Changes, kick: &Kick) {
    let _successor = Successor;
    let mut schedule = Schedule::default();
    // What has changed since the first connection was begun.
    schedule.on_change(Instant::now());
    loop {
        wait(changes, kick, schedule.patience(Instant::now()));
        if kick.is_kicked() {
            kick.clear();
            schedule.on_change(Instant::now());
        }
        match changes.hear() {
            Ok(true) => schedule.on_change(Instant::now()),
            Ok(false) => {}
            Err(error) => {
                log::warn!("nothing is heard of changes of the network any more: {error}");
                *watch() = Watch::new();
                return;
            }
        }
        if !schedule.is_due(Instant::now()) {
            continue;
        }
        let endpoints = endpoints();
        if endpoints.is_empty() {
            return;
        }
        let system = System::default();
        let mut unsettled = false;
        for endpoint in &endpoints {
            unsettled |= endpoint.look_at_network(&system);
        }
        schedule.on_look(Instant::now(), unsettled);
    }
}

/// Waits for a change.
fn wait(changes: &Changes, kick: &Kick, patience: Option<std::time::Duration>) {
    let fds = [changes.as_fd(), kick.as_fd()];
    let mut fds = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    match ppoll(&mut fds, patience.map(TimeSpec::from), None) {
        Ok(_) | Err(Errno::EINTR) => {}
        // Out of memory: nothing to do but to try again, and not too often.
        Err(_) => std::thread::sleep(std::time::Duration::from_millis(100)),
    }
}
