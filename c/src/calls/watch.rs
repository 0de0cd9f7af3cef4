//! Around poll, select and epoll: the kernel does them, on descriptors that say what is the case.

use std::ffi::c_int;
use std::sync::Arc;

use libc::pollfd;

use crate::entry::Entry;
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

/// A descriptor is given to epoll_ctl(2), with these events.
pub(crate) fn by_epoll(fd: c_int, events: u32) -> Result<()> {
    let entry = table::get(fd)?;
    entry.watch_by_epoll(events & libc::EPOLLET as u32 != 0);
    Ok(())
}
