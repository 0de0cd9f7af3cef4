//! Who may bind which address, and when: one program at a time, so that nobody mistakes another program of the switch for
//! a stranger who has it.

use std::collections::BTreeMap;

use quicket_engine::time::{Duration, Time};

use crate::registry::{ListenAddress, MAX_ADDRESSES, ProcessId, RECLAIM_TIME};

/// How long a program may take to bind an address before another is asked to.
const BINDING_TIME: Duration = Duration::from_secs(2);
/// How long a program may take to let go of an address that it has left.
const CLOSING_TIME: Duration = Duration::from_secs(2);

/// Addresses that the switch does not read yet, and those that it does not read any more.
#[derive(Debug)]
pub(super) struct Binding {
    /// Who is binding which address, and for how long others wait.
    now: BTreeMap<ListenAddress, (ProcessId, Time)>,
    /// Addresses that were closed of late. Their programs may have them for a moment longer, until this time.
    closed: Vec<(ListenAddress, Time)>,
    /// Until when programs of the switch before this one, if it was killed, are expected to come back.
    comes_back_until: Time,
}

impl Binding {
    /// That of a switch that begins, perhaps in the place of one that was killed.
    pub(super) fn new(takes_over: bool) -> Self {
        let comes_back_until = if takes_over { Time::ZERO + RECLAIM_TIME } else { Time::ZERO };
        Self { now: BTreeMap::new(), closed: Vec::new(), comes_back_until }
    }

    /// Whether a program has to wait, as another one is binding the address.
    pub(super) fn is_by_another(
        &self,
        now: Time,
        process: ProcessId,
        listen: &ListenAddress,
    ) -> bool {
        self.now.get(listen).is_some_and(|(other, until)| *other != process && now < *until)
    }

    /// A program is to bind an address. Returns for how long it tries that, as others may yet let go of it; nothing if
    /// another program is binding it.
    pub(super) fn begin(
        &mut self,
        now: Time,
        process: ProcessId,
        listen: ListenAddress,
    ) -> Option<Duration> {
        self.now.retain(|_, (_, until)| now < *until);
        self.closed.retain(|(_, until)| now < *until);
        if self.is_by_another(now, process, &listen) {
            return None;
        }
        self.now.insert(listen, (process, now + BINDING_TIME));
        let closed = self.closed.iter().filter(|(address, _)| address.overlaps(&listen));
        let until = closed.map(|(_, until)| *until).max().unwrap_or(Time::ZERO);
        Some(until.max(self.comes_back_until).since(now))
    }

    /// A program has joined, or gone: it binds nothing any more.
    pub(super) fn end(&mut self, process: ProcessId) {
        self.now.retain(|_, (binds, _)| *binds != process);
    }

    /// The switch has closed an address.
    pub(super) fn note_closed(&mut self, now: Time, listen: ListenAddress) {
        self.closed.push((listen, now + CLOSING_TIME));
        if self.closed.len() > MAX_ADDRESSES {
            self.closed.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ProcessId = ProcessId(1);
    const OTHER: ProcessId = ProcessId(2);

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn listen(address: &str) -> ListenAddress {
        ListenAddress::new(address.parse().unwrap(), false)
    }

    #[test]
    fn one_program_binds_an_address_at_a_time_and_not_for_ever() {
        let mut binding = Binding::new(false);
        let (here, there) = (listen("127.0.0.1:443"), listen("127.0.0.1:444"));
        assert_eq!(binding.begin(at(100), ONE, here), Some(Duration::ZERO));
        assert_eq!(binding.begin(at(100), ONE, here), Some(Duration::ZERO), "it asks again");
        assert_eq!(binding.begin(at(101), OTHER, here), None);
        assert!(binding.is_by_another(at(101), OTHER, &here));
        assert!(!binding.is_by_another(at(101), ONE, &here));
        assert_eq!(binding.begin(at(101), OTHER, there), Some(Duration::ZERO));
        assert!(!binding.is_by_another(at(102), OTHER, &here), "it has had its time");
        assert_eq!(binding.begin(at(102), OTHER, here), Some(Duration::ZERO));
        binding.end(OTHER);
        assert_eq!(binding.begin(at(102), ONE, here), Some(Duration::ZERO));
    }

    #[test]
    fn who_binds_what_others_may_have_still_tries_for_as_long() {
        let mut binding = Binding::new(false);
        binding.note_closed(at(100), listen("127.0.0.1:443"));
        let all = listen("0.0.0.0:443");
        assert_eq!(binding.begin(at(101), ONE, all), Some(Duration::from_secs(1)));
        let other = listen("127.0.0.1:444");
        assert_eq!(binding.begin(at(101), ONE, other), Some(Duration::ZERO));
        assert_eq!(binding.begin(at(102), ONE, all), Some(Duration::ZERO));
        // After a switch that was killed, its programs come back.
        let mut binding = Binding::new(true);
        assert_eq!(binding.begin(Time::ZERO, ONE, all), Some(RECLAIM_TIME));
        // No more are remembered than there are addresses.
        (0..=MAX_ADDRESSES).for_each(|_| binding.note_closed(at(1), all));
        assert_eq!(binding.closed.len(), MAX_ADDRESSES);
    }
}
