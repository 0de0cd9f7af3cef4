//! The door of an address: while one program is alone there, the kernel brings it clients' first packets past the
//! switch. `docs/switch.md` says what holds when it opens and when it shuts.
//!
//! It is shut before another listener gets clients, and opens once nothing here leads first packets to others.

use std::io;

use quicket_bpf::Door;
use quicket_engine::time::{Duration, Time};

use super::Daemon;
use super::route::Source;
use crate::registry::{AddressId, ListenerId, Place};

/// How long clients that nobody knows wait when a door has been shut: what its program has read by then it has noted. It
/// reads up to 32 datagrams at a time, and each may begin a connection, which takes a signature.
pub const QUIET: Duration = Duration::from_millis(30);
/// How long a socket is read in the place of a program. What is there still then the program reads and notes.
const EMPTYING: Duration = Duration::from_millis(5);
/// How often it is looked whether a door can be opened, beside what programs bring about.
const LOOK: Duration = Duration::from_millis(250);

/// That clients that nobody knows wait for the last words of programs.
#[derive(Debug)]
pub(super) struct Quiet {
    until: Time,
    /// How many clients these had noted when their ledgers were read last.
    noted: Vec<(ListenerId, u64)>,
}

/// When it is looked which doors may be open, and whether any may be.
#[derive(Debug, Default)]
pub(super) struct Doors {
    /// No kernel is to help: none is opened.
    forwards: bool,
    due: Time,
    /// One waits for time to pass.
    one_waits: bool,
}

impl Doors {
    /// Has every datagram go through the switch.
    pub(super) const fn keep_shut(&mut self) {
        self.forwards = true;
    }

    /// Whether every datagram goes through the switch.
    pub(super) const fn are_kept_shut(&self) -> bool {
        self.forwards
    }

    /// Programs have come, gone, or said something: doors are looked at next time.
    pub(super) const fn mind(&mut self) {
        self.due = Time::ZERO;
    }

    /// Whether it is time to look, which is then done.
    fn begin_to_look(&mut self, now: Time) -> bool {
        let is_due = now >= self.due;
        if is_due {
            (self.due, self.one_waits) = (now + LOOK, false);
        }
        is_due
    }

    /// When it is to be looked, if nothing happens until then.
    pub(super) fn next_look(&self) -> Option<Time> {
        self.one_waits.then_some(self.due)
    }
}

impl Daemon {
    /// Opens and shuts doors, as far as it is time to look; and lets those in who have waited for that.
    pub(super) fn tend_doors(&mut self) {
        let now = self.now();
        self.end_quiet(now);
        if !self.doors.begin_to_look(now) {
            return;
        }
        let steered = self.addresses.iter().filter(|(_, address)| address.steering.is_on());
        for id in steered.map(|(id, _)| *id).collect::<Vec<_>>() {
            let open = self.door_of(id);
            let noting = self.who_could_have_door(now, id);
            let wanted = noting.filter(|listener| self.traffic.is_clear_for(*listener));
            self.doors.one_waits |= noting.is_some() && wanted.is_none();
            if open.is_some() && open != wanted {
                self.try_to_shut(id);
            } else if let (None, Some(listener)) = (open, wanted) {
                self.open_door(listener);
            }
        }
    }

    /// Until when clients wait for the last words of a program.
    pub(super) fn next_end_of_quiet(&self) -> Option<Time> {
        self.addresses.values().filter_map(|address| Some(address.quiet.as_ref()?.until)).min()
    }

    /// Through whose door first packets go.
    pub(super) fn door_of(&self, id: AddressId) -> Option<ListenerId> {
        let address = self.addresses.get(&id)?;
        address.steering.door().map(|(listener, _)| listener)
    }

    /// Who is alone and notes its clients.
    fn who_could_have_door(&self, now: Time, id: AddressId) -> Option<ListenerId> {
        let address = self.addresses.get(&id)?;
        if self.doors.are_kept_shut() || address.steering.inherited {
            return None;
        }
        let listener = self.registry.lone(now, id)?;
        let process = self.programs.owner(listener)?;
        let notes = self.programs.seat(process)?.ledger.is_some();
        notes.then_some(listener)
    }

    fn open_door(&mut self, listener: ListenerId) {
        let key = *self.traffic.router.spread_key();
        let Some(address) = self.addresses.get_mut(&listener.address()) else { return };
        let mut places = address.steering.places_of(listener);
        let Some(first) = places.next() else { return };
        let workers = 1 + places.zip(first + 1..).take_while(|(at, next)| at == next).count();
        if self.registry.workers(listener).map(usize::from) != Some(workers) {
            return;
        }
        let door = Door { first, workers: workers as u16, key };
        if let Err(error) = address.steering.open(&address.socket, listener, door) {
            log::debug!("{}: first packets come to the switch: {error}", address.listen);
        }
        if self.door_of(listener.address()) == Some(listener) {
            self.registry.mark_used(listener);
        }
    }

    /// Another listener is about to get clients at an address, or processes are about to have one from another: the
    /// door is shut, unless it is this one's.
    ///
    /// # Errors
    ///
    /// When the kernel refuses: it goes on as before.
    pub(super) fn shut_for(&mut self, id: AddressId, other: Option<ListenerId>) -> io::Result<()> {
        // What a switch before this one has opened is known once its programs are back.
        self.settle_inheritance(id)?;
        match self.door_of(id) {
            Some(listener) if Some(listener) != other => self.shut_door(id, listener),
            _ => Ok(()),
        }
    }

    /// The same where nobody can be refused.
    pub(super) fn try_to_shut(&mut self, id: AddressId) {
        if let Err(error) = self.shut_for(id, None) {
            log::warn!("first packets go on coming to a program past the switch: {error}");
        }
    }

    /// From here on first packets come to the switch. Those that wait in the program's sockets are brought to it as
    /// long as it is alone, and what it has had is pinned to it.
    fn shut_door(&mut self, id: AddressId, listener: ListenerId) -> io::Result<()> {
        let Some(address) = self.addresses.get_mut(&id) else { return Ok(()) };
        address.steering.shut(&address.socket)?;
        self.end_door(id, listener);
        Ok(())
    }

    /// The kernel brings a listener first packets no more.
    pub(super) fn end_door(&mut self, id: AddressId, listener: ListenerId) {
        self.empty_sockets(id, listener);
        self.begin_quiet(id, &[listener]);
    }

    /// Hands over what waits in the sockets of a listener that is still alone.
    fn empty_sockets(&mut self, id: AddressId, listener: ListenerId) {
        let until = self.now() + EMPTYING;
        let Some(address) = self.addresses.get(&id) else { return };
        let sockets = address.steering.sockets_of(listener);
        for socket in sockets {
            let source = Source::Socket(socket);
            // What is for connections goes on coming there; the program reads it, too.
            while self.receive_some(id, &source) && self.now() < until {}
        }
    }

    /// Clients of these listeners are known now that came past the switch, but for those that one is just reading.
    pub(super) fn begin_quiet(&mut self, id: AddressId, noting: &[ListenerId]) {
        let looked = noting.iter().map(|listener| (*listener, self.pin_noted(*listener, 0)));
        let mut noted: Vec<_> = looked.collect();
        let until = self.now() + QUIET;
        self.traffic.router.set_quiet(id, true);
        if let Some(address) = self.addresses.get_mut(&id) {
            noted.extend(address.quiet.take().into_iter().flat_map(|before| before.noted));
            address.quiet = Some(Quiet { until, noted });
        }
    }

    fn end_quiet(&mut self, now: Time) {
        let mut over = Vec::new();
        for (id, address) in &mut self.addresses {
            over.extend(
                address.quiet.take_if(|quiet| quiet.until <= now).map(|quiet| (*id, quiet)),
            );
        }
        for (id, Quiet { noted, .. }) in over {
            for (listener, before) in noted {
                self.pin_noted(listener, before);
            }
            self.traffic.router.set_quiet(id, false);
            self.unpark(id);
        }
    }

    /// Has connection IDs lead to a listener that it has noted after so many others. Returns how many it has noted.
    fn pin_noted(&mut self, listener: ListenerId, before: u64) -> u64 {
        let now = self.now();
        let seat = self.programs.owner(listener).and_then(|process| self.programs.seat(process));
        let Some(seat) = seat else { return before };
        let Some(ledger) = &seat.ledger else { return before };
        let count = ledger.count();
        for (first, worker) in ledger.recent(before) {
            let place = Place { listener, worker };
            if usize::from(worker) < seat.outlets.len() {
                self.traffic.router.pins.add_first(now, listener.address(), first, place);
            }
        }
        count
    }

    /// Who notes clients at an address.
    pub(super) fn noting_at(&self, id: AddressId) -> Vec<ListenerId> {
        let noting = self.programs.seats_at(id).filter(|(_, seat)| seat.ledger.is_some());
        noting.map(|(_, seat)| seat.listener).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_are_looked_at_now_and_then_and_when_programs_have_said_something() {
        let now = Time::ZERO + LOOK;
        let mut doors = Doors::default();
        assert!(doors.begin_to_look(now));
        assert!(!doors.begin_to_look(now + QUIET));
        assert_eq!(doors.next_look(), None);
        doors.one_waits = true;
        assert_eq!(doors.next_look(), Some(now + LOOK));
        doors.mind();
        assert!(doors.begin_to_look(now + QUIET), "something was said");
        assert_eq!(doors.next_look(), None, "none waits any more");
        assert!(doors.begin_to_look(now + QUIET + LOOK));
    }
}
