//! How far a listener is from accepting its next client, where processes have it from one another over fork(2):
//! the switch gives clients to those that wait for them.

use quicket_switch::protocol::Attention;

/// What is known of a listener in this process.
#[derive(Debug, Default)]
pub(super) struct Attendance {
    /// It was passed on, or came from another process: the switch is told of changes.
    passed_on: bool,
    /// Calls of accept that are under way.
    accepting: usize,
    /// The process polls it, so that it comes back without accepting.
    polled: bool,
    /// What the switch knows.
    said: Attention,
}

/// How a listener is looked after when the process forks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// A call of poll(2) or select(2) waits for it.
    pub polled: bool,
    /// It was given to epoll(7), which may be asked any time.
    pub in_epoll: bool,
}

impl Attendance {
    /// That of a process that has the listener from another one, and is about to accept.
    pub(super) fn inherited() -> Self {
        Self { passed_on: true, ..Self::default() }
    }

    /// The process is about to fork. Whether it will ever accept again is not known, unless it is waiting for
    /// clients now.
    pub(super) fn pass_on(&mut self, watched: Watched) -> Attention {
        self.passed_on = true;
        self.polled = watched.polled || watched.in_epoll;
        self.said = if self.accepting > 0 || watched.polled {
            Attention::Accepting
        } else if watched.in_epoll {
            Attention::Busy
        } else {
            Attention::Away
        };
        self.said
    }

    /// What the switch knows.
    pub(super) const fn said(&self) -> Attention {
        self.said
    }

    /// A call accepts. Returns what the switch is to be told, if anything.
    pub(super) fn begin(&mut self) -> Option<Attention> {
        self.accepting += 1;
        self.say(Attention::Accepting)
    }

    /// It has come back, perhaps with a client that the process serves before it accepts again.
    pub(super) fn end(&mut self, with_client: bool, waits: bool) -> Option<Attention> {
        self.accepting -= 1;
        let busy = with_client && waits && self.accepting == 0 && !self.polled;
        if busy { self.say(Attention::Busy) } else { None }
    }

    /// The process polls the listener.
    pub(super) fn poll(&mut self) -> Option<Attention> {
        self.polled = true;
        self.say(Attention::Accepting)
    }

    fn say(&mut self, attention: Attention) -> Option<Attention> {
        if !self.passed_on || self.said == attention {
            return None;
        }
        self.said = attention;
        Some(attention)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOT: Watched = Watched { polled: false, in_epoll: false };

    #[test]
    fn the_switch_hears_nothing_of_a_listener_that_was_not_passed_on() {
        let mut own = Attendance::default();
        assert_eq!((own.begin(), own.end(true, true), own.poll()), (None, None, None));
    }

    #[test]
    fn who_has_forked_is_away_until_it_accepts_or_polls() {
        let mut master = Attendance::default();
        assert_eq!(master.pass_on(NOT), Attention::Away);
        assert_eq!(master.begin(), Some(Attention::Accepting));
        assert_eq!(master.end(false, true), None);
        assert_eq!(master.pass_on(NOT), Attention::Away);
        assert_eq!(master.poll(), Some(Attention::Accepting));
        assert_eq!(master.pass_on(NOT), Attention::Away);
    }

    #[test]
    fn who_waits_for_clients_while_another_thread_forks_is_not_away() {
        let mut threads = Attendance::default();
        assert_eq!(threads.begin(), None);
        assert_eq!(threads.pass_on(NOT), Attention::Accepting);
        assert_eq!(threads.end(false, true), None);
        let polled = Watched { polled: true, in_epoll: false };
        assert_eq!(threads.pass_on(polled), Attention::Accepting);
        let in_epoll = Watched { polled: false, in_epoll: true };
        assert_eq!(threads.pass_on(in_epoll), Attention::Busy);
        assert_eq!(threads.begin(), Some(Attention::Accepting));
    }

    #[test]
    fn who_serves_a_client_at_a_time_is_busy_with_it() {
        let mut worker = Attendance::inherited();
        assert_eq!(worker.begin(), None);
        assert_eq!(worker.end(true, true), Some(Attention::Busy));
        assert_eq!(worker.begin(), Some(Attention::Accepting));
        // Another thread goes on to accept.
        assert_eq!(worker.begin(), None);
        assert_eq!(worker.end(true, true), None);
        assert_eq!(worker.end(true, true), Some(Attention::Busy));
        // It polls, and does not wait in accept.
        assert_eq!(worker.poll(), Some(Attention::Accepting));
        assert_eq!((worker.begin(), worker.end(true, false)), (None, None));
    }
}
