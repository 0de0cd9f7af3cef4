//! When connections are to be looked at.

use std::collections::BTreeSet;

use smoltcp::time::Instant;

use crate::connections::Id;

/// One entry for each connection at most. It may be earlier than needed: a connection that has something to send
/// again and again moves its time, and is looked at for nothing once in a while instead.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    entries: BTreeSet<(Instant, Id)>,
}

impl Timers {
    /// Has a connection looked at by a time. `entry` is its entry.
    pub(crate) fn set(&mut self, id: Id, entry: &mut Option<Instant>, time: Instant) {
        match *entry {
            Some(earlier) if earlier <= time => {}
            _ => {
                self.remove(id, entry);
                self.entries.insert((time, id));
                *entry = Some(time);
            }
        }
    }

    pub(crate) fn remove(&mut self, id: Id, entry: &mut Option<Instant>) {
        if let Some(time) = entry.take() {
            self.entries.remove(&(time, id));
        }
    }

    /// A connection whose time has come. Its entry is gone.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Id> {
        let first = self.entries.first().filter(|(time, _)| *time <= now).copied()?;
        self.entries.remove(&first);
        Some(first.1)
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.entries.first().map(|(time, _)| *time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_later_times_leave_an_entry_where_it_is() {
        let at = Instant::from_millis_const;
        let mut timers = Timers::default();
        let (mut one, mut other) = (None, None);
        timers.set(1, &mut one, at(30));
        timers.set(2, &mut other, at(20));
        timers.set(1, &mut one, at(40));
        assert_eq!((timers.next(), one), (Some(at(20)), Some(at(30))));
        timers.set(1, &mut one, at(10));
        assert_eq!(timers.pop(at(9)), None);
        assert_eq!(timers.pop(at(25)), Some(1));
        assert_eq!(timers.pop(at(25)), Some(2));
        timers.set(2, &mut None, at(50));
        timers.remove(2, &mut Some(at(50)));
        assert_eq!((timers.pop(at(99)), timers.next()), (None, None));
    }
}
