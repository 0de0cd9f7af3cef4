//! Where the tables of all connections have one.

use smoltcp::time::Instant;

use crate::segment::Ends;

/// What a connection knows of its place in the tables, so that each has it once at most.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) ends: Ends,
    /// Its place among the timers.
    pub(crate) entry: Option<Instant>,
    /// Segments do not come here any more: others may have the same ends.
    is_detached: bool,
    /// It is to be looked at after this batch.
    is_touched: bool,
    /// It had no room to send.
    is_starved: bool,
    /// It is among those that wait for room.
    is_queued: bool,
}

impl Place {
    pub(super) const fn new(ends: Ends) -> Self {
        Self {
            ends,
            entry: None,
            is_detached: false,
            is_touched: false,
            is_starved: false,
            is_queued: false,
        }
    }

    /// It is to be looked at after this batch. Returns whether nobody has said so yet.
    pub(crate) const fn touch(&mut self) -> bool {
        !std::mem::replace(&mut self.is_touched, true)
    }

    /// It is looked at.
    pub(crate) const fn look(&mut self) {
        self.is_touched = false;
    }

    /// Segments do not come here any more. Returns whether they did.
    pub(crate) const fn detach(&mut self) -> bool {
        !std::mem::replace(&mut self.is_detached, true)
    }

    pub(crate) const fn is_detached(&self) -> bool {
        self.is_detached
    }

    /// It has just sent what has room, and has more, or not.
    pub(super) const fn starve(&mut self, is_starved: bool) {
        self.is_starved = is_starved;
    }

    pub(crate) const fn is_starved(&self) -> bool {
        self.is_starved
    }

    /// Whether it has to be added to those that wait for room. It is one of them from now on.
    pub(crate) const fn queue(&mut self) -> bool {
        self.is_starved && !std::mem::replace(&mut self.is_queued, true)
    }

    /// It is not among those that wait for room any more. Returns whether it was.
    pub(crate) const fn leave_queue(&mut self) -> bool {
        std::mem::replace(&mut self.is_queued, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_a_connection_once() {
        let [local, remote] = [1, 2].map(|last| ([192, 0, 2, last], 80).into());
        let mut place = Place::new(Ends { local, remote });
        assert!(place.touch() && !place.touch());
        place.look();
        assert!(place.touch());
        assert!(!place.queue(), "it has room");
        place.starve(true);
        assert!(place.queue() && !place.queue());
        // It has sent all, and waits in the queue until its turn comes.
        place.starve(false);
        assert!(!place.queue() && place.leave_queue() && !place.leave_queue());
        place.starve(true);
        assert!(place.queue());
        assert!(!place.is_detached() && place.detach() && !place.detach() && place.is_detached());
    }
}
