//! Who locks the stack, who takes frames off the port for it, and who sleeps on what.

use std::io::{self, ErrorKind};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::bed::Bed;
use crate::connections::Wake;
use crate::seat::Shift;
use crate::state::{Bell, Core};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How soon it is looked again whether addresses can be given back.
const SURPLUS_TIME: Duration = Duration::from_millis(1);

/// What a caller does that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is going to sleep until somebody else wakes it.
    Sleeps,
    /// It does so no more.
    Wakes,
    /// It is going to sleep at the bell.
    Leads,
    /// It does so no more.
    Follows,
    /// It has taken frames, and what it waits for: nobody else need be woken for that.
    Serves,
}

#[derive(Debug)]
pub(crate) struct Driving {
    core: Mutex<Core>,
    bell: Bell,
    /// Where the stack's thread sleeps.
    thread: Bed,
    /// Where a caller sleeps that has the seat.
    caller: Bed,
    /// All connections are over: who waits for that.
    pub(crate) finished: Condvar,
}

impl Driving {
    pub(crate) fn new(core: Core, bell: Bell) -> io::Result<Self> {
        Ok(Self {
            core: Mutex::new(core),
            bell,
            thread: Bed::new()?,
            caller: Bed::new()?,
            finished: Condvar::new(),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the core, and what comes of it: sends, wakes.
    pub(crate) fn act<T>(&self, what: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.lock();
        let result = what(&mut core);
        self.leave(core);
        result
    }

    /// Has the thread look, whatever it sleeps on.
    pub(crate) fn rouse(&self) {
        self.thread.kick();
    }

    /// Unlocks the core, and then rings and wakes.
    fn leave(&self, mut core: MutexGuard<'_, Core>) {
        let must_ring = core.flush();
        let (kicks_thread, kicks_caller) = core.must_interrupt();
        let woken = core.take_woken();
        let is_finished = core.is_empty();
        drop(core);
        self.ring(must_ring);
        if kicks_thread {
            self.thread.kick();
        }
        if kicks_caller {
            self.caller.kick();
        }
        woken.into_iter().for_each(Wake::wake);
        if is_finished {
            self.finished.notify_all();
        }
    }

    fn ring(&self, must_ring: bool) {
        if must_ring {
            // Of a switch that has gone, whoever sleeps at the bell hears.
            let _ = self.bell.ring();
        }
    }

    /// Tries something until it is done, and waits in between, for some time at most: it takes frames off the port if nobody else
    /// does, and sleeps otherwise. `sleeper` says on what, and hears what the caller does.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when the time is over.
    pub(crate) fn block<T>(
        &self,
        time: Option<Duration>,
        mut attempt: impl FnMut(&mut Core) -> Poll<io::Result<T>>,
        mut sleeper: impl FnMut(&mut Core, Step) -> io::Result<Arc<Condvar>>,
    ) -> io::Result<T> {
        let until = time.and_then(|time| Instant::now().checked_add(time));
        let mut seat =
            Seated { driving: self, is_seated: false, has_panicked: std::thread::panicking() };
        let mut core = self.lock();
        // Who had the seat has left what came meanwhile to whoever comes next.
        let mut has_turned = core.seat.is_vacant() && core.has_frames();
        let mut has_more = has_turned && core.turn();
        loop {
            if let Poll::Ready(result) = attempt(&mut core) {
                if has_turned {
                    let _ = sleeper(&mut core, Step::Serves);
                }
                seat.leave(core);
                return result;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                seat.leave(core);
                return Err(ErrorKind::WouldBlock.into());
            }
            let is_new = !seat.is_seated && seat.take(&mut core);
            core = if is_new && !has_turned {
                has_more = core.turn();
                core
            } else if seat.is_seated {
                let mut core = self.wait_seated(core, left, has_more, &mut sleeper)?;
                has_more = core.turn();
                core
            } else if has_turned {
                self.leave(core);
                self.lock()
            } else {
                wait(core, left, &mut sleeper)?
            };
            has_turned = seat.is_seated;
        }
    }

    /// Publishes, wakes, and sleeps until frames come, unless there are more already.
    fn wait_seated<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        left: Option<Duration>,
        has_more: bool,
        sleeper: &mut impl FnMut(&mut Core, Step) -> io::Result<Arc<Condvar>>,
    ) -> io::Result<MutexGuard<'a, Core>> {
        let own = sleeper(&mut core, Step::Leads)?;
        core.leader = Some(own);
        // Published before the switch is told that this side sleeps, so that an answer wakes it.
        let must_ring = core.flush();
        let sleep = if has_more { None } else { core.fall_asleep() };
        let (woken, is_finished) = (core.take_woken(), core.is_empty());
        let rouses = core.must_rouse();
        drop(core);
        self.ring(must_ring);
        woken.into_iter().for_each(Wake::wake);
        if is_finished {
            self.finished.notify_all();
        }
        if rouses {
            self.thread.kick();
        }
        let is_rung = sleep.is_some_and(|time| {
            self.caller.sleep_at(&self.bell, time.into_iter().chain(left).min())
        });
        let mut core = self.lock();
        core.wake();
        core.leader = None;
        if is_rung && self.bell.hush().is_err() {
            core.fail(ErrorKind::ConnectionReset);
            self.thread.kick();
        }
        sleeper(&mut core, Step::Follows)?;
        Ok(core)
    }

    /// What the stack's thread does, until the stack is over. `give_back` has the switch take back addresses.
    pub(crate) fn drive(&self, give_back: impl Fn()) {
        // Without this thread, nobody who waits would be woken.
        let _end = End(self);
        loop {
            let mut core = self.lock();
            let has_surplus = core.has_surplus();
            // What is not given back yet is so soon.
            let most = has_surplus.then_some(SURPLUS_TIME);
            let rest = match core.shift() {
                Shift::Lead => None,
                Shift::Nap(time) => Some(Some(Duration::from_micros(time))),
                Shift::Sleep => Some(None),
            };
            if let Some(time) = rest {
                drop(core);
                if has_surplus {
                    give_back();
                }
                self.thread.sleep(time.into_iter().chain(most).min());
                continue;
            }
            let has_more = core.turn();
            let is_finished = core.is_empty();
            if is_finished {
                self.finished.notify_all();
            }
            if core.has_ended() {
                self.leave(core);
                return;
            }
            let has_surplus = core.has_surplus();
            let most = has_surplus.then_some(SURPLUS_TIME);
            // Published before the switch is told that this side sleeps, so that an answer wakes it.
            let must_ring = core.flush();
            let sleep = if has_more { None } else { core.fall_asleep() };
            let woken = core.take_woken();
            drop(core);
            self.ring(must_ring);
            woken.into_iter().for_each(Wake::wake);
            if has_surplus {
                give_back();
            }
            let is_rung = sleep.is_some_and(|time| {
                self.thread.sleep_at(&self.bell, time.into_iter().chain(most).min())
            });
            let mut core = self.lock();
            // A caller that has taken the seat meanwhile has been told so, and a ring is his.
            if core.seat.is_threads() {
                core.wake();
                if is_rung && self.bell.hush().is_err() {
                    core.fail(ErrorKind::ConnectionReset);
                }
            }
        }
    }
}

/// Sleeps until somebody else who takes frames wakes this one.
fn wait<'a>(
    mut core: MutexGuard<'a, Core>,
    left: Option<Duration>,
    sleeper: &mut impl FnMut(&mut Core, Step) -> io::Result<Arc<Condvar>>,
) -> io::Result<MutexGuard<'a, Core>> {
    let changed = sleeper(&mut core, Step::Sleeps)?;
    let mut core = match left {
        Some(left) => changed.wait_timeout(core, left).unwrap_or_else(PoisonError::into_inner).0,
        None => changed.wait(core).unwrap_or_else(PoisonError::into_inner),
    };
    sleeper(&mut core, Step::Wakes)?;
    Ok(core)
}

/// A caller that may have the seat, and leaves it whatever happens.
struct Seated<'a> {
    driving: &'a Driving,
    is_seated: bool,
    /// The thread did so before it came here.
    has_panicked: bool,
}

impl Seated<'_> {
    fn take(&mut self, core: &mut Core) -> bool {
        let was_threads = core.seat.is_threads();
        self.is_seated = core.take_seat();
        if self.is_seated && was_threads {
            if core.is_asleep() {
                self.driving.thread.kick();
            }
            core.wake();
        }
        self.is_seated
    }

    fn leave(&mut self, mut core: MutexGuard<'_, Core>) {
        let rouses = std::mem::take(&mut self.is_seated) && core.leave_seat();
        self.driving.leave(core);
        if rouses {
            self.driving.thread.kick();
        }
    }
}

impl Drop for Seated<'_> {
    fn drop(&mut self) {
        let panics = std::thread::panicking() && !self.has_panicked;
        if self.is_seated || panics {
            let mut core = self.driving.lock();
            if panics {
                // In the midst of a frame: what it has done to the stack is not known.
                core.fail(ErrorKind::Other);
            }
            if self.is_seated {
                core.wake();
                core.leader = None;
            }
            self.leave(core);
            if panics {
                self.driving.thread.kick();
            }
        }
    }
}

/// Ends the stack if its thread panics.
struct End<'a>(&'a Driving);

impl Drop for End<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.act(|core| core.fail(ErrorKind::Other));
        }
    }
}
