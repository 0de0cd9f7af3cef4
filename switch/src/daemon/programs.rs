//! The programs that the switch hears, and whose the listeners are.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;

use super::MAX_QUEUED;
use super::events::{Events, Token};
use super::program::{Program, Seat};
use crate::channel::Outlet;
use crate::protocol::{Message, encode};
use crate::registry::{AddressId, ListenerId, ProcessId};
use crate::rule::Who;
use crate::sys;

/// Those that are there, with their seats.
#[derive(Debug, Default)]
pub(super) struct Programs {
    all: BTreeMap<ProcessId, Program>,
    /// Whose a listener is that the registry knows.
    listeners: BTreeMap<ListenerId, ProcessId>,
    last_number: u32,
}

impl Programs {
    /// A number that no program has.
    pub(super) fn free_number(&mut self) -> u32 {
        loop {
            self.last_number = self.last_number.wrapping_add(1);
            // There are less programs than numbers.
            if !self.all.contains_key(&ProcessId(self.last_number.into())) {
                return self.last_number;
            }
        }
    }

    pub(super) fn insert(&mut self, process: ProcessId, program: Program) {
        self.all.insert(process, program);
    }

    pub(super) fn remove(&mut self, process: ProcessId) -> Option<Program> {
        self.all.remove(&process)
    }

    pub(super) fn get(&self, process: ProcessId) -> Option<&Program> {
        self.all.get(&process)
    }

    pub(super) fn get_mut(&mut self, process: ProcessId) -> Option<&mut Program> {
        self.all.get_mut(&process)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ProcessId, &Program)> {
        self.all.iter().map(|(process, program)| (*process, program))
    }

    /// Those of a user.
    pub(super) fn of_user(&self, uid: u32) -> impl Iterator<Item = &Program> {
        self.all.values().filter(move |program| program.uid == uid)
    }

    /// Users that have programs here.
    pub(super) fn users(&self) -> BTreeSet<u32> {
        self.all.values().map(|program| program.uid).collect()
    }

    /// Whose a program is.
    pub(super) fn uid(&self, process: ProcessId) -> Option<u32> {
        Some(self.get(process)?.uid)
    }

    /// The same with his groups.
    pub(super) fn who(&self, process: ProcessId) -> Option<Who> {
        self.get(process).map(Program::who)
    }

    /// A program's share of an address, if it is at one.
    pub(super) fn seat(&self, process: ProcessId) -> Option<&Seat> {
        self.get(process)?.seat.as_ref()
    }

    pub(super) fn seat_mut(&mut self, process: ProcessId) -> Option<&mut Seat> {
        self.get_mut(process)?.seat.as_mut()
    }

    /// Those of all programs.
    pub(super) fn seats(&self) -> impl Iterator<Item = (ProcessId, &Seat)> {
        self.iter().filter_map(|(process, program)| Some((process, program.seat.as_ref()?)))
    }

    /// Those at an address.
    pub(super) fn seats_at(&self, id: AddressId) -> impl Iterator<Item = (ProcessId, &Seat)> {
        self.seats().filter(move |(_, seat)| seat.address == id)
    }

    /// A program has a listener from now on.
    pub(super) fn give(&mut self, listener: ListenerId, process: ProcessId) {
        self.listeners.insert(listener, process);
    }

    /// ... and no more; false if nobody had it.
    pub(super) fn take(&mut self, listener: ListenerId) -> bool {
        self.listeners.remove(&listener).is_some()
    }

    /// Whose a listener is.
    pub(super) fn owner(&self, listener: ListenerId) -> Option<ProcessId> {
        self.listeners.get(&listener).copied()
    }

    /// Whether nobody has a listener.
    pub(super) fn have_no_listeners(&self) -> bool {
        self.listeners.is_empty()
    }

    /// All listeners, and whose they are.
    pub(super) fn listeners(&self) -> impl Iterator<Item = (ListenerId, ProcessId)> {
        self.listeners.iter().map(|(listener, process)| (*listener, *process))
    }

    /// Those that have said nothing for so long.
    pub(super) fn silent_for(&self, time: Duration) -> Vec<ProcessId> {
        let is_silent = |program: &Program| {
            program.is_silent_since().is_some_and(|since| since.elapsed() > time)
        };
        self.iter().filter(|(_, each)| is_silent(each)).map(|(process, _)| process).collect()
    }

    /// The channel of a worker.
    pub(super) fn outlet(&self, process: ProcessId, worker: u16) -> Option<&Outlet> {
        self.seat(process)?.outlets.get(usize::from(worker))
    }

    pub(super) fn outlet_mut(&mut self, process: ProcessId, worker: u16) -> Option<&mut Outlet> {
        self.seat_mut(process)?.outlets.get_mut(usize::from(worker))
    }

    /// Waits for what there is to wait for in a channel.
    pub(super) fn watch_channel(&mut self, events: &Events, process: ProcessId, worker: u16) {
        let Some(outlet) = self.outlet_mut(process, worker) else { return };
        let (wants, before) = (outlet.wants(), outlet.watched);
        let token = Token::Channel(process.0 as u32, worker);
        let watched = match (before.is_empty(), wants.is_empty()) {
            _ if wants == before => Ok(()),
            (true, _) => events.add(outlet.as_fd(), wants, token),
            (false, true) => events.remove(outlet.as_fd()),
            (false, false) => events.change(outlet.as_fd(), wants, token),
        };
        match watched {
            Ok(()) => outlet.watched = wants,
            Err(error) => log::debug!("a channel is not watched: {error}"),
        }
    }

    /// A program's workers have sockets of their own, and hand back what is another's.
    pub(super) fn hear_channels(&mut self, events: &Events, process: ProcessId) {
        let Some(seat) = self.seat_mut(process) else { return };
        seat.outlets.iter_mut().for_each(|outlet| outlet.set_hears(true));
        let count = seat.outlets.len();
        (0..).take(count).for_each(|worker| self.watch_channel(events, process, worker));
    }

    /// Workers at an address whose datagrams wait for room in its socket.
    pub(super) fn stuck_at(&self, id: AddressId) -> Vec<(ProcessId, u16)> {
        let mut stuck = Vec::new();
        for (process, seat) in self.seats_at(id) {
            let waits = (0..).zip(&seat.outlets).filter(|(_, outlet)| outlet.is_stuck());
            stuck.extend(waits.map(|(worker, _)| (process, worker)));
        }
        stuck
    }

    /// Tells a program something; it waits if there is no room.
    pub(super) fn tell(&mut self, events: &Events, process: ProcessId, message: &Message) {
        let Some(program) = self.get_mut(process) else { return };
        if program.queue.len() >= MAX_QUEUED {
            log::debug!("process {} does not listen and was not told", program.pid);
            return;
        }
        match encode(message) {
            Ok(bytes) => program.queue.push_back(bytes),
            Err(error) => return log::warn!("process {} was not told: {error}", program.pid),
        }
        self.post(events, process);
    }

    /// Says what waits for a program, as far as there is room.
    pub(super) fn post(&mut self, events: &Events, process: ProcessId) {
        let Some(program) = self.get_mut(process) else { return };
        while let Some(bytes) = program.queue.front() {
            match sys::send_with(program.connection.as_fd(), bytes, &[]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    log::debug!("process {} was not told: {error}", program.pid);
                    program.queue.clear();
                }
                Ok(()) => drop(program.queue.pop_front()),
            }
        }
        let waits = !program.queue.is_empty();
        if waits == program.waits_for_room {
            return;
        }
        program.waits_for_room = waits;
        let wanted = if waits { EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
        let token = Token::Program(process.0 as u32);
        if let Err(error) = events.change(&program.connection, wanted, token) {
            log::warn!("process {} is not heard any more: {error}", program.pid);
        }
    }

    /// Watches a program's process. A child that it has forked has the connection too, which would
    /// keep what a dead program had. Where a process cannot be watched, the end of the connection counts.
    /// False if the process has ended since it connected.
    pub(super) fn watch(&mut self, events: &Events, process: ProcessId) -> bool {
        let Some(program) = self.get_mut(process) else { return true };
        let token = Token::Process(process.0 as u32);
        let watched = sys::process(program.pid).and_then(|life| {
            events.add(&life, EpollFlags::EPOLLIN, token)?;
            Ok(life)
        });
        match watched {
            Ok(life) => program.life = Some(life),
            Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => return false,
            Err(error) => log::debug!("process {} cannot be watched: {error}", program.pid),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    use super::*;
    use crate::protocol::{MAX_MESSAGE, Notice};

    /// A program, and its end of the connection.
    fn program(uid: u32) -> (Program, OwnedFd) {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
        (Program::new(ours, uid, 1), theirs)
    }

    #[test]
    fn numbers_begin_anew_after_the_last_one() {
        let mut programs = Programs::default();
        let mut numbers = Vec::new();
        let mut ends = Vec::new();
        for last in [0, u32::MAX - 1, u32::MAX, 0] {
            programs.last_number = last;
            let number = programs.free_number();
            let (program, end) = program(1);
            programs.insert(ProcessId(number.into()), program);
            numbers.push(number);
            ends.push(end);
        }
        // The first one is that of somebody who is there.
        assert_eq!(numbers, [1, u32::MAX, 0, 2]);
    }

    #[test]
    fn what_a_program_is_told_waits_in_its_order_until_there_is_room() {
        let mut programs = Programs::default();
        let events = Events::new().unwrap();
        let process = ProcessId(1);
        let (program, theirs) = program(1);
        events.add(&program.connection, EpollFlags::EPOLLIN, Token::Program(1)).unwrap();
        programs.insert(process, program);
        let mut told = 0_u32;
        while !programs.get(process).unwrap().waits_for_room {
            programs.tell(&events, process, &Message::Notice(Notice::Count));
            told += 1;
        }
        programs.tell(&events, process, &Message::Notice(Notice::Upgrade));
        let mut buffer = vec![0; MAX_MESSAGE];
        let mut heard = Vec::new();
        loop {
            while let Ok((len, _)) = sys::receive_with(theirs.as_fd(), &mut buffer) {
                heard.push(Message::decode(&buffer[..len]).unwrap());
            }
            if !programs.get(process).unwrap().waits_for_room {
                break;
            }
            programs.post(&events, process);
        }
        let last = heard.pop();
        assert!(matches!(last, Some(Message::Notice(Notice::Upgrade))), "{last:?}");
        assert_eq!(heard.len(), told as usize);
        // One that does not listen is told no more than so much.
        while programs.get(process).unwrap().queue.len() < MAX_QUEUED {
            programs.tell(&events, process, &Message::Notice(Notice::Count));
        }
        programs.tell(&events, process, &Message::Notice(Notice::Count));
        assert_eq!(programs.get(process).unwrap().queue.len(), MAX_QUEUED);
    }

    #[test]
    fn programs_are_found_by_user_and_by_listener() {
        let mut programs = Programs::default();
        let all = [(1, 1000), (2, 1001), (3, 1000)].map(|(number, uid)| {
            let (program, end) = program(uid);
            programs.insert(ProcessId(number), program);
            end
        });
        assert_eq!(programs.of_user(1000).count(), 2);
        assert_eq!(programs.users(), [1000, 1001].into());
        assert_eq!(programs.uid(ProcessId(2)), Some(1001));
        let listener = ListenerId::for_test(7);
        assert!(programs.have_no_listeners() && programs.owner(listener).is_none());
        programs.give(listener, ProcessId(2));
        assert_eq!(programs.owner(listener), Some(ProcessId(2)));
        assert!(programs.take(listener) && !programs.take(listener));
        assert_eq!(programs.silent_for(Duration::ZERO).len(), 3);
        assert!(programs.silent_for(Duration::from_secs(3600)).is_empty());
        drop(all);
    }
}
