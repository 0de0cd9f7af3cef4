//! Who waits for something of a connection, and is told when it is there.

use crate::connections::Wake;
use crate::driving::Step;
use crate::sync::{Arc, Condvar};
use crate::watch::Watched;

/// What a caller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Something to read.
    Reading,
    /// Room to write, or the connection itself.
    Writing,
}

/// Threads that sleep until a connection changes, and a watch that is told of it.
#[derive(Debug)]
pub(crate) struct Audience {
    changed: Arc<Condvar>,
    /// Threads that sleep on that until there is something to read, or room to write.
    readers: u32,
    writers: u32,
    /// They have been woken since the last one fell asleep.
    is_told: bool,
    /// Who is told that there is something to read, or room to write.
    watched: Option<Watched>,
    /// Room to write is worth telling: there was none, or the connection is new.
    wants_room: bool,
}

impl Audience {
    pub(super) fn new() -> Self {
        Self {
            changed: Arc::default(),
            readers: 0,
            writers: 0,
            is_told: false,
            watched: None,
            wants_room: true,
        }
    }

    /// Hears what a caller does that waits, and says what it sleeps on.
    pub(crate) fn step(&mut self, side: Side, step: Step) -> Arc<Condvar> {
        let waiters = match side {
            Side::Reading => &mut self.readers,
            Side::Writing => &mut self.writers,
        };
        match step {
            Step::Sleeps | Step::Leads => {
                *waiters += 1;
                self.is_told = false;
            }
            Step::Wakes | Step::Follows => *waiters = waiters.saturating_sub(1),
            Step::Serves => {}
        }
        Arc::clone(&self.changed)
    }

    /// A write found less room than it asked for: that there is some again is worth telling.
    pub(super) const fn want_room(&mut self) {
        self.wants_room = true;
    }

    /// Adds whom to wake for what the connection can do now.
    pub(crate) fn tell(&mut self, is_readable: bool, is_writable: bool, woken: &mut Vec<Wake>) {
        let reads = self.readers > 0 && is_readable;
        let writes = self.writers > 0 && is_writable;
        if (reads || writes) && !std::mem::replace(&mut self.is_told, true) {
            woken.push(self.all());
        }
        let has_room = self.wants_room && is_writable;
        if let Some(watched) = &self.watched
            && (is_readable || has_room)
        {
            self.wants_room &= !has_room;
            woken.extend(watched.note());
        }
    }

    /// Somebody watches from now on, and looks once. Returns whom to wake for that.
    pub(crate) fn watch(&mut self, watched: Watched) -> Option<Wake> {
        self.watched.insert(watched).note()
    }

    /// All threads that sleep.
    pub(crate) fn all(&self) -> Wake {
        Wake::All(Arc::clone(&self.changed))
    }

    /// Adds all threads that sleep, and who watches: the connection is over.
    pub(crate) fn dismiss(&self, woken: &mut Vec<Wake>) {
        woken.push(self.all());
        woken.extend(self.watched.iter().filter_map(Watched::note));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Watch;

    #[test]
    fn sleepers_are_woken_once_for_what_they_wait_for() {
        let (mut audience, mut woken) = (Audience::new(), Vec::new());
        audience.tell(true, true, &mut woken);
        assert!(woken.is_empty(), "nobody sleeps");
        let changed = audience.step(Side::Reading, Step::Sleeps);
        audience.tell(false, true, &mut woken);
        assert!(woken.is_empty(), "that is another side's");
        for _ in 0..2 {
            audience.tell(true, false, &mut woken);
            assert!(matches!(&woken[..], [Wake::All(all)] if Arc::ptr_eq(all, &changed)));
        }
        // Who falls asleep later has not been told.
        audience.step(Side::Writing, Step::Leads);
        audience.tell(false, true, &mut woken);
        assert_eq!(woken.len(), 2);
        audience.step(Side::Writing, Step::Follows);
        audience.step(Side::Reading, Step::Wakes);
        // One more than there are.
        audience.step(Side::Reading, Step::Wakes);
        audience.step(Side::Reading, Step::Serves);
        audience.is_told = false;
        audience.tell(true, true, &mut woken);
        assert_eq!(woken.len(), 2);
    }

    #[test]
    fn a_watch_hears_of_room_only_after_there_was_none() {
        let watch = Watch::new().unwrap();
        let (mut audience, mut woken) = (Audience::new(), Vec::new());
        let mut is_told = |audience: &mut Audience, is_readable, is_writable| {
            audience.tell(is_readable, is_writable, &mut woken);
            let mut tokens = Vec::new();
            watch.take(&mut tokens);
            tokens == [7]
        };
        assert!(audience.watch(watch.watched(7)).is_some(), "it looks once");
        assert!(is_told(&mut audience, false, false), "that is still to be taken");
        assert!(!is_told(&mut audience, false, false));
        assert!(is_told(&mut audience, false, true), "the connection is new");
        assert!(!is_told(&mut audience, false, true));
        assert!(is_told(&mut audience, true, true), "there is something to read");
        audience.want_room();
        assert!(!is_told(&mut audience, false, false));
        assert!(is_told(&mut audience, false, true));
        audience.dismiss(&mut woken);
        assert!(matches!(woken.last(), Some(Wake::Watch(_))));
    }
}
