//! Listeners that processes have from one another over fork(2). `docs/switch.md` says what they go through.
//!
//! As long as any process has the listener open, its names stay reserved and the address stays open: also
//! where the one that began to listen has closed it or was killed, and those that it has forked have not
//! accepted yet. What tells is a *lifeline*: the other end of a pair of sockets that all of them have.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::EpollFlags;
use quicket_udp::Complaints;

use super::Daemon;
use super::events::{Events, Token};
use super::tenant::{MAX_FAMILIES_OF_TENANT, part};
use super::users::Users;
use crate::protocol::{self, Kin};
use crate::registry::{
    AddressId, Attention, Family, ListenerId, Phase, ProcessId, Registration, Registry,
};
use crate::rule::Who;
use crate::sys;

/// How many families the switch knows.
pub const MAX_FAMILIES: usize = 1024;

/// Those that are known, each at one address. Each has a member there, or processes that have yet to join:
/// programs bound them, and what they may hold open.
#[derive(Debug, Default)]
pub(super) struct Families {
    known: Vec<Known>,
    next_number: u32,
    /// How many stand-ins there have been.
    next_stand_in: u64,
}

#[derive(Debug)]
struct Known {
    number: u32,
    address: AddressId,
    who: Who,
    family: Family,
    lifeline: OwnedFd,
    /// What has the names while no process does.
    stand_in: Option<ListenerId>,
}

/// What is known of one at first.
struct New {
    address: AddressId,
    who: Who,
    family: Family,
    lifeline: OwnedFd,
}

impl Known {
    /// Whether a process has the listener.
    fn lives(&self) -> bool {
        let mut fds = [PollFd::new(self.lifeline.as_fd(), PollFlags::empty())];
        let polled = poll(&mut fds, PollTimeout::ZERO);
        let ended = PollFlags::POLLHUP | PollFlags::POLLERR;
        let said = fds.first().and_then(|fd| fd.revents()).unwrap_or(PollFlags::empty());
        polled.is_ok() && !said.intersects(ended)
    }
}

impl From<protocol::Attention> for Attention {
    fn from(said: protocol::Attention) -> Self {
        match said {
            protocol::Attention::Accepting => Self::Accepting,
            protocol::Attention::Busy => Self::Busy,
            protocol::Attention::Away => Self::Away,
        }
    }
}

impl Families {
    fn find(&mut self, address: AddressId, family: Family) -> Option<&mut Known> {
        self.known.iter_mut().find(|each| each.address == address && each.family == family)
    }

    /// A family has a member at an address, and is looked after from now on. Returns its lifeline if it is not, or was
    /// already.
    fn know(
        &mut self,
        events: &Events,
        complaints: &Complaints,
        new: New,
        is_tenant: bool,
    ) -> Option<OwnedFd> {
        let New { address, who, family, lifeline } = new;
        if self.find(address, family).is_some() {
            return Some(lifeline);
        }
        let uid = who.uid;
        let of_user = self.known.iter().filter(|known| known.who.uid == uid).count();
        if is_tenant && of_user >= MAX_FAMILIES_OF_TENANT {
            complaints.warn(format_args!(
                "a listener that is passed on is not looked after: user {uid} has \
                 {MAX_FAMILIES_OF_TENANT} already"
            ));
            return Some(lifeline);
        }
        let most = if is_tenant { part(MAX_FAMILIES) } else { MAX_FAMILIES };
        if self.known.len() >= most {
            complaints.warn(format_args!(
                "a listener that is passed on is not looked after: there are {most} already"
            ));
            return Some(lifeline);
        }
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        match events.add(&lifeline, EpollFlags::empty(), Token::Family(number)) {
            Ok(()) => {
                self.known.push(Known { number, address, who, family, lifeline, stand_in: None });
                None
            }
            Err(error) => {
                log::warn!("a listener that is passed on is not looked after: {error}");
                Some(lifeline)
            }
        }
    }

    /// Addresses at which nothing but names is kept for processes of a user that were forked.
    pub(super) fn kept_for(&self, uid: u32) -> impl Iterator<Item = AddressId> {
        let known = self.known.iter().filter(move |known| known.who.uid == uid);
        known.filter(|known| known.stand_in.is_some()).map(|known| known.address)
    }

    /// Those that have what the rule does not allow.
    fn refused(&self, users: &Users, registry: &Registry) -> Vec<u32> {
        let Some(tenants) = users.tenants() else { return Vec::new() };
        let is_refused = |known: &&Known| {
            if !users.is_tenant(known.who.uid) {
                return false;
            }
            let Some(address) = registry.listen_address(known.address) else { return true };
            let address = address.socket_addr();
            let names = known.stand_in.and_then(|stand_in| registry.names(stand_in));
            !tenants.rule.allows(&known.who, address)
                || names.is_some_and(|names| {
                    tenants.rule.refused_name(&known.who, address, names).is_some()
                })
        };
        self.known.iter().filter(is_refused).map(|known| known.number).collect()
    }

    /// What a stand-in has in place of a program's number: that of none.
    fn number_of_stand_in(&mut self) -> ProcessId {
        self.next_stand_in += 1;
        ProcessId(u64::from(u32::MAX) + self.next_stand_in)
    }

    /// One is not looked after any more.
    fn remove(&mut self, events: &Events, number: u32) -> Option<Known> {
        let at = self.known.iter().position(|known| known.number == number)?;
        let known = self.known.swap_remove(at);
        let _ = events.remove(&known.lifeline);
        Some(known)
    }

    /// The same for all at an address.
    fn remove_at(&mut self, events: &Events, address: AddressId) -> Vec<Known> {
        let all = std::mem::take(&mut self.known);
        let (there, others): (Vec<_>, _) =
            all.into_iter().partition(|known| known.address == address);
        self.known = others;
        for known in &there {
            let _ = events.remove(&known.lifeline);
        }
        there
    }
}

impl Daemon {
    /// A program is about to fork: who comes with the name of this family is of its blood.
    pub(super) fn bequeath(&mut self, process: ProcessId, kin: Kin, came: &mut Vec<OwnedFd>) {
        let Some(seat) = self.programs.seat(process) else { return };
        let (address, listener) = (seat.address, seat.listener);
        let serves = self.registry.phase(listener) == Some(Phase::Active);
        // It was replaced this moment: it has no names to pass on.
        if !serves || !came.first().is_some_and(|lifeline| is_lifeline(lifeline.as_fd())) {
            return;
        }
        let lifeline = came.swap_remove(0);
        if self.registry.family(listener).is_none() {
            self.try_to_shut(address);
            self.registry.set_family(listener, Some(kin.family.0));
        }
        let Some(who) = self.programs.who(process) else { return };
        self.know_family(address, who, kin.family.0, lifeline);
        self.attend_to(process, kin.attention);
    }

    /// A program says how far it is from accepting.
    pub(super) fn attend_to(&mut self, process: ProcessId, attention: protocol::Attention) {
        let Some(seat) = self.programs.seat(process) else { return };
        let (address, listener) = (seat.address, seat.listener);
        // Who was never passed on shares with nobody.
        let kin = self.registry.family(listener).is_some();
        let was_away = self.registry.is_away(listener);
        let is_new = kin && self.registry.set_attention(listener, attention.into());
        // First packets wait for who was away alone.
        if is_new && was_away {
            self.unpark(address);
        }
    }

    /// A family has a member at an address.
    pub(super) fn know_family(
        &mut self,
        address: AddressId,
        who: Who,
        family: Family,
        lifeline: OwnedFd,
    ) {
        let uid = who.uid;
        let new = New { address, who, family, lifeline };
        let is_tenant = self.users.is_tenant(uid);
        let left = self.families.know(&self.events, &self.complaints, new, is_tenant);
        self.users.put_down(uid, left);
    }

    /// There is another rule: what it refuses is not kept for anybody.
    pub(super) fn end_refused_families(&mut self) {
        for number in self.families.refused(&self.users, &self.registry) {
            self.end_family(number);
        }
    }

    /// As what a listener's names go on to be reserved if it gives them up, should it be of a family.
    pub(super) fn legacy_of(&self, listener: ListenerId) -> Option<Registration> {
        let family = self.registry.family(listener)?;
        self.registry.member_of(listener.address(), family)
    }

    /// The same as [`Self::settle_family`] for a listener, if it is of one.
    pub(super) fn settle_family_of(&mut self, listener: ListenerId, left: Option<Registration>) {
        if let Some(family) = self.registry.family(listener) {
            self.settle_family(listener.address(), family, left);
        }
    }

    /// A member has come or gone: without one something stands in for it that has its names, as long as
    /// there are processes that may join yet.
    pub(super) fn settle_family(
        &mut self,
        address: AddressId,
        family: Family,
        left: Option<Registration>,
    ) {
        let Some(known) = self.families.find(address, family) else { return };
        let (lives, number, stand_in) = (known.lives(), known.number, known.stand_in);
        if !lives {
            return self.end_family(number);
        }
        let others = self.registry.members(address, family);
        let has_members = others.into_iter().any(|member| Some(member) != stand_in);
        match (stand_in, left) {
            (Some(stand_in), _) if has_members => {
                known.stand_in = None;
                self.dismiss_stand_in(stand_in);
            }
            (None, Some(left)) if !has_members => {
                let stand_in = self.stand_in(left);
                if let Some(known) = self.families.find(address, family) {
                    known.stand_in = stand_in;
                }
            }
            _ => {}
        }
    }

    /// Has names reserved for processes that may join yet.
    fn stand_in(&mut self, left: Registration) -> Option<ListenerId> {
        let process = self.families.number_of_stand_in();
        let now = self.now();
        let attention = Attention::Away;
        let registered =
            self.registry.register(now, Registration { process, workers: 1, attention, ..left });
        let listener = match registered {
            Ok(registered) => registered.listener,
            Err(error) => {
                log::warn!("names are not kept for processes that were forked: {error}");
                return None;
            }
        };
        self.try_to_shut(listener.address());
        // It replaces nobody.
        let _ = self.registry.ready(now, listener, None);
        Some(listener)
    }

    fn dismiss_stand_in(&mut self, stand_in: ListenerId) {
        let now = self.now();
        self.registry.remove(now, stand_in);
        self.forget(stand_in);
    }

    /// No process has the listener any more.
    pub(super) fn end_family(&mut self, number: u32) {
        let Some(known) = self.families.remove(&self.events, number) else { return };
        self.users.put_down(known.who.uid, [known.lifeline]);
        if let Some(stand_in) = known.stand_in {
            self.dismiss_stand_in(stand_in);
            self.lifetime.note_leave();
            self.unpark(known.address);
            self.close_if_unused(known.address);
        }
    }

    /// The address is closed.
    pub(super) fn forget_families(&mut self, address: AddressId) {
        for known in self.families.remove_at(&self.events, address) {
            self.users.put_down(known.who.uid, [known.lifeline]);
        }
    }
}

/// Whether what a program has handed over can end with a family: a local socket. Anything else may have who watches it
/// wait.
pub(super) fn is_lifeline(descriptor: BorrowedFd<'_>) -> bool {
    sys::kind(descriptor).is_ok_and(|kind| kind == (libc::AF_UNIX, libc::SOCK_STREAM))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::{Duration, Instant};

    use nix::sys::epoll::EpollEvent;

    use super::*;
    use crate::client;
    use crate::daemon::testing::System;
    use crate::options::SocketOptions;
    use crate::protocol::{Attention as Said, Octets, Serve};

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn who_forks_waits_out_of_turn_and_no_longer_than_it_wants() {
        let mut system = System::plain("heard");
        let (program, inlets, _) = system.join(SocketOptions::default()).unwrap();
        let program = Arc::new(program);
        let serve = Serve { protocols: vec![Octets(b"a".to_vec())], ..Serve::default() };
        let its = Arc::clone(&program);
        let serves = thread::spawn(move || its.serve(serve));
        // It is asked, and not answered: another thread has the turn.
        let begun = Instant::now();
        loop {
            let mut events = [EpollEvent::empty(); 16];
            let count = system.daemon.events.wait(&mut events, 20_u8).unwrap_or(0);
            let asks =
                |event: &EpollEvent| matches!(Token::unpack(event.data()), Token::Program(_));
            if events.iter().take(count).any(asks) {
                break;
            }
            assert!(begun.elapsed() < LONG);
        }
        let (family, hold) = client::Family::new([7; 16]).unwrap();
        program.bequeath(&family, Said::Away);
        let begun = Instant::now();
        program.await_heard(begun + Duration::from_millis(50));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        // Another thread accepts meanwhile. Who waits for the switch does not say anything else.
        program.attend(Said::Accepting);
        let its = Arc::clone(&program);
        let heard = thread::spawn(move || its.await_heard(Instant::now() + LONG));
        while !serves.is_finished() || !heard.is_finished() {
            system.daemon.step();
        }
        assert!(begun.elapsed() < LONG);
        serves.join().unwrap().unwrap();
        heard.join().unwrap();
        let listener = system.daemon.programs.listeners().next().unwrap().0;
        assert_eq!(system.daemon.registry.family(listener), Some([7; 16]));
        assert!(!system.daemon.registry.is_away(listener));
        drop((program, inlets, hold));
    }

    #[test]
    fn so_many_of_a_user_are_looked_after_each_until_it_ends() {
        let (events, complaints) = (Events::new().unwrap(), Complaints::default());
        let mut families = Families::default();
        let address = ListenerId::for_test(0).address();
        let mut others = Vec::new();
        let mut know = |families: &mut Families, uid, family: u16| {
            let (lifeline, other) = std::os::unix::net::UnixStream::pair().unwrap();
            others.push(other);
            let (who, lifeline) = (Who { uid, gids: Vec::new() }, OwnedFd::from(lifeline));
            let mut name = [0; 16];
            name[..2].copy_from_slice(&family.to_be_bytes());
            let new = New { address, who, family: name, lifeline };
            families.know(&events, &complaints, new, uid != 1000).is_none()
        };
        let most = MAX_FAMILIES_OF_TENANT as u16;
        (0..most).for_each(|family| assert!(know(&mut families, 1001, family)));
        assert!(!know(&mut families, 1001, 0), "it is known");
        assert!(!know(&mut families, 1001, most), "he has as many as he may");
        assert!(know(&mut families, 1000, most) && know(&mut families, 1002, most + 1));
        assert_eq!(families.kept_for(1001).count(), 0, "all have members");
        families.known[0].stand_in = Some(ListenerId::for_test(1));
        assert_eq!(families.kept_for(1001).collect::<Vec<_>>(), [address]);
        let (first, second) = (families.number_of_stand_in(), families.number_of_stand_in());
        assert!(first != second && first.0 > u64::from(u32::MAX));
        let number = families.known[3].number;
        assert_eq!(families.remove(&events, number).map(|known| known.number), Some(number));
        assert!(families.remove(&events, number).is_none());
        assert_eq!(families.remove_at(&events, address).len(), usize::from(most) + 1);
        assert!(families.known.is_empty());
    }
}
