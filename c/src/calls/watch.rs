//! Around poll, select and epoll: the kernel does them, on descriptors that say what is the case.

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use libc::pollfd;

use crate::entry::Entry;
use crate::inside::Inside;
use crate::memory::Memory;
use crate::native::Result;
use crate::table::{self, Kind};

/// Sockets that a call waits for, until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Watched(Vec<Arc<Entry>>);

impl Watched {
    fn add(&mut self, fd: c_int) {
        if table::kind(fd) == Kind::Socket
            && let Ok(entry) = table::get(fd)
        {
            entry.watch();
            self.0.push(entry);
        }
    }

    /// The sockets among those of a poll(2).
    pub(crate) fn polled(memory: &mut Memory, fds: usize, count: u64) -> Self {
        let mut watched = Self::default();
        if table::has_sockets()
            && let Ok(count) = usize::try_from(count)
            // What is wrong with the address is the kernel's to say.
            && let Ok(fds) = memory.values::<pollfd>(fds, count.min(table::MOST))
        {
            fds.iter().for_each(|poll| watched.add(poll.fd));
        }
        watched
    }

    /// The sockets among those of a select(2).
    pub(crate) fn selected(memory: &mut Memory, count: c_int, sets: [usize; 3]) -> Self {
        let mut watched = Self::default();
        let Ok(count) = usize::try_from(count) else { return watched };
        if !table::has_sockets() {
            return watched;
        }
        let words = count.min(table::MOST).div_ceil(64);
        let mut all = vec![0u64; words];
        for set in sets.into_iter().filter(|set| *set != 0) {
            let Ok(bits) = memory.values::<i64>(set, words) else { return watched };
            for (to, from) in all.iter_mut().zip(bits) {
                *to |= from.cast_unsigned();
            }
        }
        for (index, mut word) in all.into_iter().enumerate() {
            while word != 0 {
                let fd = index * 64 + word.trailing_zeros() as usize;
                if fd < count {
                    watched.add(fd as c_int);
                }
                word &= word - 1;
            }
        }
        watched
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        for entry in &self.0 {
            entry.unwatch();
        }
    }
}

thread_local! {
    static WATCHING: Watching = const { Watching(Cell::new(Vec::new())) };
}

/// What the calls of a thread wait for: that of a signal's handler after that of what it interrupted. A thread that is
/// cancelled in one of them leaves it here, and it ends with the thread.
struct Watching(Cell<Vec<Watched>>);

impl Watching {
    /// The handler of a signal that comes in between begins with none, and leaves none.
    fn change<T>(&self, change: impl FnOnce(&mut Vec<Watched>) -> T) -> T {
        let mut all = self.0.take();
        let answer = change(&mut all);
        self.0.set(all);
        answer
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _inside = Inside::enter();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(self.0.take())));
    }
}

/// Stands for what a call waits for, in a frame that may vanish: nothing of it waits to be dropped.
#[derive(Debug, Default)]
pub(crate) enum Kept {
    #[default]
    Nothing,
    /// It is the last in [`WATCHING`].
    InThread,
    /// The thread ends already, and is not cancelled any more.
    Here(ManuallyDrop<Watched>),
}

/// Keeps what a call waits for until [`leave`], or the end of the thread.
pub(crate) fn keep(watched: Watched) -> Kept {
    if watched.0.is_empty() {
        return Kept::Nothing;
    }
    let mut watched = Some(watched);
    let _ = WATCHING.try_with(|watching| watching.change(|all| all.extend(watched.take())));
    watched.map_or(Kept::InThread, |watched| Kept::Here(ManuallyDrop::new(watched)))
}

/// The call is over.
pub(crate) fn leave(kept: Kept) {
    match kept {
        Kept::Nothing => {}
        Kept::InThread => drop(WATCHING.try_with(|watching| watching.change(Vec::pop))),
        Kept::Here(watched) => drop(ManuallyDrop::into_inner(watched)),
    }
}

/// A descriptor is given to epoll_ctl(2), with these events.
pub(crate) fn by_epoll(fd: c_int, events: u32) -> Result<()> {
    let entry = table::get(fd)?;
    entry.watch_by_epoll(events & libc::EPOLLET as u32 != 0);
    Ok(())
}
