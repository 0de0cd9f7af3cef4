//! Lending the address's socket: where the kernel does not bring datagrams to their programs, and all that comes is for one
//! worker for a while, that worker reads the socket itself, and hands back what is another's. Otherwise each train
//! would wake this process, and then that one. `docs/switch.md` says what holds meanwhile.
//!
//! Reading twice harms nobody but the order of datagrams, so that nothing here waits for an answer: the switch stops to read
//! when it lends, and reads again when it wants to. Nor does it believe anything: whether the worker reads it sees by what
//! is the first to wait in the socket.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{MsgFlags, recv};
use quicket_engine::time::{Duration, Time};

use super::Daemon;
use super::address::Address;
use super::events::Token;
use super::route::Source;
use crate::channel::Word;
use crate::registry::{AddressId, ListenerId, Place};
use crate::sys::{self, SocketMemory};

/// How many trains in a row, and nothing else, have to come for one worker.
const RUN: u32 = 32;
/// ... and within which time.
const RUN_TIME: Duration = Duration::from_millis(20);
/// How often it is looked after a socket that is lent.
const LOOK: Duration = Duration::from_millis(5);
/// How long one datagram may be the first that waits in it.
const PATIENCE: Duration = Duration::from_millis(20);
/// After so many looks in a row at which nothing waited, and the worker had not read anything since the one before, it is not
/// lent any more.
const MOST_IDLE: u32 = 20;
/// At so many looks in a row it may be full by half, if others are at the address: the worker is so slow that they would wait
/// for long. (By a quarter is not enough: the system counts as much that was read already, `udp_rmem_release` in Linux.)
const MOST_FULL: u32 = 4;
/// When it is tried again to watch a socket that the system did not let be watched.
const AGAIN: Duration = Duration::from_millis(100);
/// So many octets tell one datagram of QUIC from another.
const BEGINNING: usize = 64;
/// How many trains its worker may hand back between two looks.
const MOST_STRAYS: u32 = 16;
/// How long nothing is lent after that was not worth it; each time twice as long.
const PAUSE: Duration = Duration::from_millis(250);
/// ... at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(16);
/// A loan that lasted so long was worth it.
const WORTH: Duration = Duration::from_secs(1);

/// Whether an address's socket is lent, and to whom it may be.
#[derive(Debug, Default)]
pub(super) struct Lending {
    run: Option<Run>,
    loan: Option<Loan>,
    pause: Option<Duration>,
    not_before: Time,
    /// The system does not let the socket be watched as it is to be: when to try again.
    unwatched: Option<Time>,
    /// How often it was lent.
    pub(super) count: u64,
}

/// Trains that came for one worker, one after the other.
#[derive(Debug)]
struct Run {
    to: Place,
    since: Time,
    trains: u32,
}

#[derive(Debug)]
struct Loan {
    to: Place,
    since: Time,
    look_at: Time,
    /// The first datagram that waited at the last look, and since when it is seen.
    first: Option<(Beginning, Time)>,
    idle: u32,
    full: u32,
    strays: u32,
    /// What the socket had dropped at the last look.
    dropped: u32,
}

/// What comes of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// It stays lent.
    Stay,
    /// It is not needed any more.
    End,
    /// It is not worth it, or does harm.
    Fail(&'static str),
}

/// The beginning of a datagram.
type Beginning = [u8; BEGINNING];

/// What is seen at a look.
#[derive(Clone, Copy, Debug)]
struct Seen {
    now: Time,
    /// The first that waits in the socket.
    first: Option<Beginning>,
    /// What it holds and has dropped.
    memory: SocketMemory,
    /// The worker has said that it has read something since the last look.
    read: bool,
    /// Others may have connections at the address.
    others: bool,
    declined: bool,
}

impl Lending {
    /// To whom it is lent.
    pub(super) fn to(&self) -> Option<Place> {
        self.loan.as_ref().map(|loan| loan.to)
    }

    /// Trains were read from the socket: so many, all for one worker, or some others. True if it is to be lent to that
    /// worker.
    fn on_trains(&mut self, now: Time, to: Option<Place>, trains: u32) -> bool {
        let Some(to) = to.filter(|_| self.loan.is_none()) else {
            self.run = None;
            return false;
        };
        let fresh = |run: &Run| run.to == to && now.since(run.since) < RUN_TIME;
        let before = self.run.take().filter(fresh);
        let run = before.unwrap_or(Run { to, since: now, trains: 0 });
        let trains = run.trains.saturating_add(trains);
        self.run = Some(Run { trains, ..run });
        trains >= RUN && now >= self.not_before
    }

    fn begin(&mut self, now: Time, to: Place, dropped: u32) {
        let (since, look_at, first, idle, full, strays) = (now, now + LOOK, None, 0, 0, 0);
        self.loan = Some(Loan { to, since, look_at, first, idle, full, strays, dropped });
        self.run = None;
        self.count += 1;
    }

    /// A worker has handed something back.
    fn on_strays(&mut self, now: Time, from: Place, trains: u32) {
        if let Some(loan) = self.loan.as_mut().filter(|loan| loan.to == from) {
            loan.strays = loan.strays.saturating_add(trains);
            if loan.strays > MOST_STRAYS {
                loan.look_at = now;
            }
        }
    }

    fn look(&mut self, seen: Seen) -> Look {
        let Seen { now, first, memory, read, others, declined } = seen;
        let Some(loan) = &mut self.loan else { return Look::Stay };
        loan.look_at = now + LOOK;
        let strays = std::mem::take(&mut loan.strays);
        let lost = memory.dropped != std::mem::replace(&mut loan.dropped, memory.dropped);
        loan.full = if memory.held > memory.room / 2 { loan.full + 1 } else { 0 };
        if declined {
            return Look::Fail("its worker does not read it");
        }
        if strays > MOST_STRAYS {
            return Look::Fail("too much is for others");
        }
        if others && (lost || loan.full >= MOST_FULL) {
            return Look::Fail("its worker is too slow for others");
        }
        let Some(first) = first else {
            // A worker that keeps up leaves nothing to be seen.
            (loan.first, loan.idle) = (None, if read { 0 } else { loan.idle + 1 });
            return if loan.idle < MOST_IDLE { Look::Stay } else { Look::End };
        };
        loan.idle = 0;
        let since =
            loan.first.filter(|(before, _)| *before == first).map_or(now, |(_, since)| since);
        loan.first = Some((first, since));
        if now.since(since) < PATIENCE { Look::Stay } else { Look::Fail("its worker stands still") }
    }

    /// The loan is over.
    fn end(&mut self, now: Time, failed: bool) {
        let Some(loan) = self.loan.take() else { return };
        let before = self.pause.filter(|_| now.since(loan.since) < WORTH);
        self.pause = before;
        if failed {
            let pause = before.map_or(PAUSE, |before| before.times(2).min(LONGEST_PAUSE));
            self.pause = Some(pause);
            self.not_before = now + pause;
        }
    }
}

impl Daemon {
    /// Trains were read from a socket, and are on their way to one worker, or elsewhere, too. True if that socket is lent now.
    pub(super) fn consider_lending(
        &mut self,
        id: AddressId,
        source: &Source,
        (to, trains): (Option<Place>, u32),
    ) -> bool {
        let now = self.now();
        let Some(address) = self.addresses.get_mut(&id) else { return false };
        match source {
            Source::Socket(socket) if std::sync::Arc::ptr_eq(socket, &address.socket) => {
                let is_run = address.lending.on_trains(now, to, trains);
                if let Some(to) = to.filter(|_| is_run) {
                    self.lend(now, to);
                }
                self.addresses.get(&id).is_some_and(|address| address.lending.to().is_some())
            }
            Source::Socket(_) => false,
            Source::Channel(process, worker) => {
                if let Some(listener) = self.programs.seat(*process).map(|seat| seat.listener) {
                    address.lending.on_strays(now, Place { listener, worker: *worker }, trains);
                }
                false
            }
        }
    }

    /// Lends a worker the socket of its address, if it may have it.
    fn lend(&mut self, now: Time, to: Place) {
        let id = to.listener.address();
        // Who has sockets of its own has no use for it, and who is of another user may not read it.
        let Some(process) = self.programs.owner(to.listener) else { return };
        let seat = self.programs.seat(process);
        let is_own = seat.is_some_and(|seat| seat.sender.is_none());
        if !is_own || self.is_steered(to.listener) || self.traffic.router.has_remainder(id) {
            return;
        }
        let Some(address) = self.addresses.get(&id) else { return };
        let Ok(memory) = sys::memory(address.socket.as_fd()) else { return };
        let said = self.programs.outlet_mut(process, to.worker).is_some_and(|outlet| {
            // What was said of an earlier loan.
            let _ = (outlet.has_declined(), outlet.has_read());
            outlet.set_hears(true);
            outlet.say(Word::Lend)
        });
        if !said {
            return;
        }
        self.programs.watch_channel(&self.events, process, to.worker);
        if let Some(address) = self.addresses.get_mut(&id) {
            address.lending.begin(now, to, memory.dropped);
        }
        self.watch_address(id);
    }

    /// Looks after the sockets that are lent, as far as it is time to.
    pub(super) fn tend_loans(&mut self) {
        let now = self.now();
        let unwatched = |address: &Address| address.lending.unwatched.is_some_and(|at| at <= now);
        let again = self.addresses.iter().filter(|(_, address)| unwatched(address));
        for id in again.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.watch_address(id);
        }
        let due = self.addresses.iter().filter(|(_, address)| {
            address.lending.loan.as_ref().is_some_and(|loan| loan.look_at <= now)
        });
        for id in due.map(|(id, _)| *id).collect::<Vec<_>>() {
            match self.look_after(now, id) {
                Look::Stay => {}
                Look::End => self.end_loan(id, false),
                Look::Fail(why) => {
                    if let Some(address) = self.addresses.get(&id) {
                        log::debug!("{}: the socket is lent no more: {why}", address.listen);
                    }
                    self.end_loan(id, true);
                }
            }
        }
    }

    /// When it is to be looked after the next one.
    pub(super) fn next_look_at_loan(&self) -> Option<Time> {
        let lendings = || self.addresses.values().map(|address| &address.lending);
        let loans = lendings().filter_map(|lending| lending.loan.as_ref().map(|loan| loan.look_at));
        loans.chain(lendings().filter_map(|lending| lending.unwatched)).min()
    }

    fn look_after(&mut self, now: Time, id: AddressId) -> Look {
        let borrower = self.borrower(id);
        let outlet =
            borrower.and_then(|(process, worker)| self.programs.outlet_mut(process, worker));
        let (declined, read) =
            outlet.map_or((true, false), |outlet| (outlet.has_declined(), outlet.has_read()));
        let its = borrower.map(|(process, _)| process);
        let others = self.programs.seats_at(id).any(|(process, _)| Some(process) != its);
        let Some(address) = self.addresses.get_mut(&id) else { return Look::Stay };
        let socket = address.socket.as_fd();
        let Ok(memory) = sys::memory(socket) else { return Look::End };
        let first = first_waiting(socket);
        address.lending.look(Seen { now, first, memory, read, others, declined })
    }

    /// The channel of the worker that has an address's socket.
    fn borrower(&self, id: AddressId) -> Option<(crate::registry::ProcessId, u16)> {
        let to = self.addresses.get(&id)?.lending.to()?;
        Some((self.programs.owner(to.listener)?, to.worker))
    }

    /// The switch reads an address's socket again.
    fn end_loan(&mut self, id: AddressId, failed: bool) {
        let now = self.now();
        let borrower = self.borrower(id);
        let Some(address) = self.addresses.get_mut(&id) else { return };
        address.lending.end(now, failed);
        if let Some((process, worker)) = borrower
            && let Some(outlet) = self.programs.outlet_mut(process, worker)
        {
            outlet.say_for_sure(Word::Recall);
            self.programs.watch_channel(&self.events, process, worker);
        }
        self.watch_address(id);
    }

    /// A listener has gone, and may have had its address's socket.
    pub(super) fn end_loan_of(&mut self, listener: ListenerId) {
        let id = listener.address();
        let to = self.addresses.get(&id).and_then(|address| address.lending.to());
        if to.is_some_and(|to| to.listener == listener) {
            self.end_loan(id, false);
        }
    }

    /// Somebody comes who must have all that is not another's.
    pub(super) fn take_back(&mut self, id: AddressId) {
        if self.addresses.get(&id).is_some_and(|address| address.lending.to().is_some()) {
            self.end_loan(id, false);
        }
    }

    /// Waits for what there is to wait for at an address's socket.
    pub(super) fn watch_address(&mut self, id: AddressId) {
        let again = self.now() + AGAIN;
        let Some(address) = self.addresses.get_mut(&id) else { return };
        let mut events = EpollFlags::empty();
        events.set(EpollFlags::EPOLLIN, address.lending.to().is_none());
        events.set(EpollFlags::EPOLLOUT, address.is_full);
        let watched = self.events.change(&address.socket, events, Token::Address(id.number()));
        address.lending.unwatched = watched.is_err().then_some(again);
        if let Err(error) = watched {
            self.complaints
                .warn(format_args!("{}: the socket is not watched: {error}", address.listen));
        }
    }
}

/// The beginning of what is the first to wait in a socket.
fn first_waiting(socket: BorrowedFd<'_>) -> Option<Beginning> {
    let mut octets = [0; BEGINNING];
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    recv(socket.as_raw_fd(), &mut octets, flags).ok().map(|_| octets)
}

#[cfg(test)]
#[path = "loan_tests.rs"]
mod tests;
