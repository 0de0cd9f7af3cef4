//! Who serves what at which address.
//!
//! A *program* has *generations* at an address, one for each of its processes that registered there;
//! each is a *listener*. A listener has [`Names`], workers, and an owner number: its slot is the
//! generation in the connection IDs that its workers issue ([`OWNER_BITS`]).
//!
//! The rules are those of the QUIC module for Linux, with server names added: listeners at one address
//! have different names, or share all of them (SO_REUSEPORT, same user). A program replaces its own
//! generations without a gap: the new one registers, gets ready, and has all first packets from then
//! on. No user takes or replaces what another one has.

mod address;
mod choice;
mod entry;
mod error;
mod listener;
mod names;
mod receipt;
mod registration;
mod slots;
mod spread;
mod status;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use quicket_engine::time::{Duration, Time};
use quicket_steering::Owner;

pub use address::ListenAddress;
pub use error::{ReadyError, RegisterError, UnknownListener};
pub use listener::{ListenerCounters, Phase};
pub use names::{
    MAX_COMBINATIONS, MAX_PROTOCOLS, MAX_SERVER_NAMES, NameError, Names, Protocol, ServerName,
};
pub use receipt::{Deed, Receipt, Receipts};
pub use registration::{
    AddressId, Attention, Claim, Family, ListenerId, Notice, ProcessId, Registered, Registration,
    Standing,
};
pub use slots::{
    MAX_LISTENERS_PER_TENANT, MAX_LISTENERS_PER_USER, OWNER_BITS, RECLAIM_TIME, RECYCLE_AFTER,
    RECYCLE_FOR_OTHERS_AFTER,
};
pub use spread::{Place, Spread};
pub use status::{AddressStatus, ListenerStatus, Status};
pub use table::MAX_OFFERED;

use entry::{Activated, Entry};
use listener::Listener;
use receipt::{Serving, Subject};
use slots::Slot;

/// How many addresses a switch has at most.
pub const MAX_ADDRESSES: usize = 256;
/// How many workers a listener has at most.
pub const MAX_WORKERS: u16 = OWNER_BITS.workers() as u16;
/// The longest name of a program in bytes.
pub const MAX_PROGRAM_NAME: usize = 64;
/// How long a generation may take to end its connections once its deadline has come.
pub const DRAIN_GRACE: Duration = Duration::from_secs(5);

/// All addresses.
#[derive(Debug)]
pub struct Registry {
    addresses: BTreeMap<AddressId, Entry>,
    receipts: Receipts,
    /// Whose claims need no receipt: who runs the switch could take the numbers by other means.
    own_uid: u32,
    /// How many listeners others have at an address at most.
    most_of_others: usize,
    /// Until when numbers are given only to those who had them.
    reclaims_until: Time,
    next_address: u32,
    next_serial: u64,
    /// Deadlines that have not come, or whose grace has not.
    deadlines: BTreeMap<(Time, ListenerId), bool>,
}

impl Registry {
    /// Nobody is registered. `own_uid` is the user that the switch runs as; `takes_over` says that a
    /// switch before it has died, whose programs will come back.
    #[must_use]
    pub fn new(now: Time, own_uid: u32, receipts: Receipts, takes_over: bool) -> Self {
        Self {
            addresses: BTreeMap::new(),
            receipts,
            own_uid,
            most_of_others: MAX_LISTENERS_PER_USER,
            reclaims_until: if takes_over { now + RECLAIM_TIME } else { now },
            next_address: 0,
            next_serial: 0,
            deadlines: BTreeMap::new(),
        }
    }

    /// Users who do not know each other are to have room beside each other.
    pub const fn make_room_for_tenants(&mut self) {
        self.most_of_others = MAX_LISTENERS_PER_TENANT;
    }

    const fn has_tenants(&self) -> bool {
        self.most_of_others == MAX_LISTENERS_PER_TENANT
    }

    fn most_listeners(&self, uid: u32) -> usize {
        if uid == self.own_uid { MAX_LISTENERS_PER_USER } else { self.most_of_others }
    }

    /// Registers a listener. Who claims a number of an address that is not known here had it from a switch
    /// that has died: for a while others who had numbers there come back, and nobody else gets one.
    ///
    /// It reserves its names and has an owner number; [`Self::ready`] has it get
    /// first packets.
    ///
    /// # Errors
    /// See [`RegisterError`]; nothing has changed then.
    pub fn register(&mut self, now: Time, new: Registration) -> Result<Registered, RegisterError> {
        self.register_as(now, new, Phase::Preparing)
    }

    fn register_as(
        &mut self,
        now: Time,
        new: Registration,
        phase: Phase,
    ) -> Result<Registered, RegisterError> {
        entry::check(&new)?;
        let known = self.addresses.iter().find(|(_, each)| each.address == new.address);
        let known = known.map(|(id, _)| *id);
        if known.is_none() {
            self.check_address(&new)?;
        }
        let fresh = Entry::new(new.address);
        let address = known.and_then(|id| self.addresses.get(&id)).unwrap_or(&fresh);
        let claimed = new.claim.and_then(|claim| self.claimed(address, &new, &claim));
        match new.claim.filter(|claim| claim.draining) {
            None if phase == Phase::Joined => {}
            None => address.check_names(&new)?,
            Some(_) if claimed.is_some() => {}
            Some(_) => return Err(RegisterError::NumberTaken),
        }
        let slot = match claimed {
            Some((slot, _)) => slot,
            None if now < self.reclaims_until.max(address.reclaims_until) => {
                let until = self.reclaims_until.max(address.reclaims_until);
                return Err(RegisterError::Reclaiming(until.since(now)));
            }
            None => address.slots.find(now, new.uid, self.most_listeners(new.uid))?,
        };
        let id = known.unwrap_or_else(|| {
            self.next_address += 1;
            AddressId(self.next_address)
        });
        let displaced = self.find(id, slot).map(|listener| listener.id);
        if let Some(displaced) = displaced {
            self.remove(now, displaced);
        }
        self.next_serial += 1;
        let listener = ListenerId { address: id, slot, serial: self.next_serial };
        let subject = Subject { address: new.address, generation: slot, uid: new.uid };
        let kept = claimed.is_some();
        // It stays who it was: which generation is the newer one is known beyond the life of a switch.
        let receipt = self.receipts.issue(&subject, claimed.and_then(|claimed| claimed.1));
        let entry = self.addresses.entry(id).or_insert(fresh);
        if known.is_none() && kept {
            entry.reclaims_until = now + RECLAIM_TIME;
        }
        entry.add(listener, new, receipt.incarnation, kept, phase);
        Ok(Registered { listener, kept, new_address: known.is_none(), receipt, displaced })
    }

    /// Gives a program an owner number before it says what it serves: what it names does not count, it
    /// reserves nothing and gets no first packets until [`Self::serve`] and [`Self::ready`].
    ///
    /// # Errors
    /// See [`RegisterError`]; nothing has changed then.
    pub fn join(&mut self, now: Time, new: Registration) -> Result<Registered, RegisterError> {
        self.register_as(now, new, Phase::Joined)
    }

    /// Like [`Self::join`], for a program that a switch has served that is gone. If `deed` proves that the
    /// names are those that it served, it has reserved them as well, and is [`Phase::Preparing`]: nobody takes
    /// them between its coming back and its word of what it serves.
    ///
    /// # Errors
    /// See [`RegisterError`]; nothing has changed then.
    pub fn rejoin(
        &mut self,
        now: Time,
        new: Registration,
        deed: Option<&Deed>,
    ) -> Result<Registered, RegisterError> {
        let proved = deed.is_some_and(|deed| self.proves(&new, deed));
        if proved {
            match self.register_as(now, new.clone(), Phase::Preparing) {
                // It comes late, and they have gone to others: it keeps its number and its connections.
                Err(error) if error.is_in_use() => {}
                result => return result,
            }
        }
        self.join(now, new)
    }

    /// Whether a switch with this key wrote `deed` about what the program says that it served.
    fn proves(&self, new: &Registration, deed: &Deed) -> bool {
        let Some(claim) = new.claim.filter(|claim| !claim.draining) else { return false };
        let subject = Subject { address: new.address, generation: claim.generation, uid: new.uid };
        let serving = Serving {
            subject,
            incarnation: claim.receipt.incarnation,
            program: &new.program,
            names: &new.names,
            reuse_port: new.reuse_port,
            replace: new.replace,
        };
        self.receipts.verify_deed(&serving, deed)
    }

    /// What proves to the next switch which names a listener has reserved; `None` if it has none.
    #[must_use]
    pub fn deed(&self, id: ListenerId) -> Option<Deed> {
        let listener = self.listener(id).filter(|listener| listener.reserves())?;
        let address = self.listen_address(id.address)?;
        let subject = Subject { address, generation: id.slot, uid: listener.uid };
        Some(self.receipts.deed(&Serving {
            subject,
            incarnation: listener.incarnation,
            program: &listener.program,
            names: &listener.names,
            reuse_port: listener.reuse_port,
            replace: listener.replace,
        }))
    }

    /// A program that joined, or drains, says what it serves: reserves its names, as
    /// [`Self::register`] does.
    ///
    /// # Errors
    /// The listener is gone; or its names are somebody else's; or programs come back to a switch that has taken
    /// over, and these names may be theirs. What it served before is kept then.
    pub fn serve(
        &mut self,
        now: Time,
        id: ListenerId,
        names: Names,
        reuse_port: bool,
        replace: bool,
    ) -> Result<(), ReadyError> {
        let reclaims_until = self.reclaims_until;
        let address = self.addresses.get_mut(&id.address).ok_or(UnknownListener)?;
        let until = reclaims_until.max(address.reclaims_until);
        if now < until && !address.has_reserved(id, &names) {
            return Err(RegisterError::Reclaiming(until.since(now)).into());
        }
        address.serve(id, names, reuse_port, replace)?;
        self.deadlines.retain(|(_, each), _| *each != id);
        Ok(())
    }

    /// Whether a listener gets clients by just these names already.
    #[must_use]
    pub fn serves(&self, id: ListenerId, names: &Names, reuse_port: bool, replace: bool) -> bool {
        self.listener(id).is_some_and(|listener| {
            let same = (listener.reuse_port, listener.replace) == (reuse_port, replace);
            listener.is_active() && same && listener.names == *names
        })
    }

    fn check_address(&self, new: &Registration) -> Result<(), RegisterError> {
        if self.addresses.len() >= MAX_ADDRESSES {
            return Err(RegisterError::TooManyAddresses);
        }
        let mut others = self.addresses.values();
        match others.find(|each| each.address.overlaps(&new.address)) {
            Some(other) => Err(RegisterError::AddressInUse(other.address)),
            None => Ok(()),
        }
    }

    /// The number that a program claims, and since which incarnation it is its. Nobody else may have
    /// it, or only with an older receipt; and the program must have had it: the switch that is gone
    /// wrote so, or it runs as the user of the switch, who could have had its way otherwise.
    fn claimed(
        &self,
        address: &Entry,
        new: &Registration,
        claim: &Claim,
    ) -> Option<(u8, Option<u64>)> {
        let Claim { generation, receipt, .. } = *claim;
        let subject = Subject { address: new.address, generation, uid: new.uid };
        let proved = self.receipts.verify(&subject, &receipt);
        let is_good = match address.slots.get(generation) {
            Slot::Free => proved || new.uid == self.own_uid,
            Slot::Dead { uid, .. } => *uid == new.uid,
            Slot::Held(other) => proved && other.incarnation < receipt.incarnation,
        };
        let believed = proved || new.uid == self.own_uid;
        is_good.then_some((generation, believed.then_some(receipt.incarnation)))
    }

    /// The listener gets first packets from now on, and with it all else that its process has registered
    /// for the program at this address; generations that it replaces get none any more. They keep
    /// their connections, until `drain` is over if there is such a time. Returns which ones. If a newer
    /// generation has got ready before it, that is the listener itself.
    ///
    /// A generation that drains can be made ready again: it replaces those after it.
    ///
    /// # Errors
    /// The listener is gone; or it drained, and its names are somebody else's by now.
    pub fn ready(
        &mut self,
        now: Time,
        id: ListenerId,
        drain: Option<Duration>,
    ) -> Result<Vec<ListenerId>, ReadyError> {
        let address = self.addresses.get_mut(&id.address).ok_or(UnknownListener)?;
        let Activated { own, replaced } = address.activate(id)?;
        self.deadlines.retain(|(_, each), _| !own.contains(each));
        let deadline = drain.map(|time| now + time);
        for each in &replaced {
            self.begin_drain(*each, deadline);
        }
        Ok(replaced)
    }

    /// The listener gets no more first packets, and keeps its connections until `deadline`.
    ///
    /// # Errors
    /// It is gone.
    pub fn drain(&mut self, id: ListenerId, deadline: Option<Time>) -> Result<(), UnknownListener> {
        self.listener(id).ok_or(UnknownListener)?;
        self.begin_drain(id, deadline);
        Ok(())
    }

    fn begin_drain(&mut self, id: ListenerId, deadline: Option<Time>) {
        let Some(address) = self.addresses.get_mut(&id.address) else { return };
        address.set_phase(id, Phase::Draining { deadline });
        self.deadlines.retain(|(_, each), _| *each != id);
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, id), false);
        }
    }

    /// The listener is gone: closed, or its process has ended. Its owner number stays known dead if
    /// peers may know it.
    pub fn remove(&mut self, now: Time, id: ListenerId) -> bool {
        let Some(address) = self.addresses.get_mut(&id.address) else { return false };
        let removed = address.remove(now, id);
        if removed {
            self.deadlines.retain(|(_, each), _| *each != id);
        }
        removed
    }

    /// A process has ended: all that it had is gone. Returns what that was.
    pub fn remove_process(&mut self, now: Time, process: ProcessId) -> Vec<ListenerId> {
        let all = self.addresses.values().flat_map(|address| address.slots.listeners());
        let gone: Vec<_> = all.filter(|each| each.process == process).map(|each| each.id).collect();
        for id in &gone {
            self.remove(now, *id);
        }
        gone
    }

    /// Forgets an address that no listener has, and with it which numbers are known dead. False if
    /// there is one.
    pub fn forget(&mut self, id: AddressId) -> bool {
        let unused = |address: &Entry| address.slots.listeners().next().is_none();
        self.addresses.get(&id).is_some_and(unused) && self.addresses.remove(&id).is_some()
    }

    /// What time has brought about; ask again until there is nothing.
    pub fn poll(&mut self, now: Time) -> Option<Notice> {
        let (&(deadline, id), &told) = self.deadlines.first_key_value()?;
        if deadline > now {
            return None;
        }
        self.deadlines.remove(&(deadline, id));
        if told {
            self.remove(now, id);
            return Some(Notice::Removed(id));
        }
        self.deadlines.insert((now + DRAIN_GRACE, id), true);
        Some(Notice::DrainOver(id))
    }

    /// When [`Self::poll`] has something to say.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.keys().next().map(|(deadline, _)| *deadline)
    }

    /// The address as it is known here.
    #[must_use]
    pub fn address_id(&self, address: &ListenAddress) -> Option<AddressId> {
        let found = self.addresses.iter().find(|(_, each)| each.address == *address);
        found.map(|(id, _)| *id)
    }

    /// Where an address is.
    #[must_use]
    pub fn listen_address(&self, id: AddressId) -> Option<ListenAddress> {
        self.addresses.get(&id).map(|address| address.address)
    }

    /// The addresses without a listener.
    pub fn unused(&self) -> impl Iterator<Item = AddressId> + '_ {
        let unused = |address: &Entry| address.slots.listeners().next().is_none();
        self.addresses.iter().filter(move |(_, each)| unused(each)).map(|(id, _)| *id)
    }

    /// To whom an owner in a connection ID leads.
    #[must_use]
    pub fn standing(&self, id: AddressId, owner: Owner) -> Standing {
        let Some(address) = self.addresses.get(&id) else { return Standing::Nobody };
        match address.slots.get(owner.generation) {
            Slot::Held(listener) if owner.worker < listener.workers => {
                Standing::Living(listener.id)
            }
            Slot::Dead { uid, .. } => Standing::Dead { uid: *uid },
            _ => Standing::Nobody,
        }
    }

    /// Whether all are there who were at an address: programs come back to a switch that has taken over,
    /// and until then it is too early to say that nobody serves a name.
    #[must_use]
    pub fn is_settled(&self, now: Time, id: AddressId) -> bool {
        let own = self.addresses.get(&id).map_or(Time::ZERO, |address| address.reclaims_until);
        now >= self.reclaims_until.max(own)
    }

    /// Whether anybody takes first packets at an address.
    #[must_use]
    pub fn is_served(&self, id: AddressId) -> bool {
        let address = self.addresses.get(&id);
        address.is_some_and(|address| address.slots.listeners().any(Listener::is_active))
    }

    /// Whether somebody of a family is at an address. Who comes in its name is about to serve.
    #[must_use]
    pub fn has_family(&self, id: AddressId) -> bool {
        let address = self.addresses.get(&id);
        address.is_some_and(|address| address.slots.listeners().any(|each| each.family.is_some()))
    }

    /// Whether no listener is at an address.
    #[must_use]
    pub fn is_vacant(&self, id: AddressId) -> bool {
        let address = self.addresses.get(&id);
        address.is_none_or(|address| address.slots.listeners().next().is_none())
    }

    /// Whether an address has numbers whose listeners are gone, and whose peers may not know.
    #[must_use]
    pub fn has_dead(&self, id: AddressId) -> bool {
        self.addresses.get(&id).is_some_and(|address| address.slots.dead() > 0)
    }

    /// How many connections a listener has, as it says itself.
    pub fn set_connections(&mut self, id: ListenerId, connections: Option<u64>) {
        if let Some(listener) = self.listener_mut(id) {
            listener.counters.connections = connections;
        }
    }

    /// Peers may have connection IDs that lead to the listener, though the switch has given it nothing: the kernel
    /// brings it datagrams.
    pub fn mark_used(&mut self, id: ListenerId) {
        self.note(id, |_| ());
    }

    /// The listener was given something: peers may have connection IDs that lead to it.
    pub fn note(&mut self, id: ListenerId, note: impl FnOnce(&mut ListenerCounters)) {
        if let Some(listener) = self.listener_mut(id) {
            listener.used = true;
            note(&mut listener.counters);
        }
    }

    /// A listener is passed on to processes that its own one forks, as one of this family; `None`: it is
    /// not any more.
    pub fn set_family(&mut self, id: ListenerId, family: Option<Family>) {
        if let Some(listener) = self.listener_mut(id) {
            listener.family = family;
        }
    }

    /// How far a listener is from accepting a client. False if that is not new.
    pub fn set_attention(&mut self, id: ListenerId, attention: Attention) -> bool {
        let Some(listener) = self.listener_mut(id) else { return false };
        std::mem::replace(&mut listener.attention, attention) != attention
    }

    /// Whether a listener may never accept a client.
    #[must_use]
    pub fn is_away(&self, id: ListenerId) -> bool {
        self.listener(id).is_some_and(|listener| listener.attention == Attention::Away)
    }

    /// The family of a listener, if it has one and gets first packets, or did.
    #[must_use]
    pub fn family(&self, id: ListenerId) -> Option<Family> {
        self.listener(id)?.family
    }

    /// Who of a family has names reserved.
    #[must_use]
    pub fn members(&self, address: AddressId, family: Family) -> Vec<ListenerId> {
        let listeners = self.addresses.get(&address).map(|address| address.slots.listeners());
        let members = listeners.into_iter().flatten();
        members
            .filter(|each| each.reserves() && each.family == Some(family))
            .map(|each| each.id)
            .collect()
    }

    /// What the first member of a family that has names reserved is registered as; `None` if there is none.
    #[must_use]
    pub fn member_of(&self, address: AddressId, family: Family) -> Option<Registration> {
        let address = self.addresses.get(&address)?;
        let mut members = address.slots.listeners().filter(|each| each.family == Some(family));
        let member = members.find(|each| each.reserves())?;
        Some(Registration { replace: false, ..member.as_replacement(address.address) })
    }

    /// How many workers a listener has; `None` if it is gone.
    #[must_use]
    pub fn workers(&self, id: ListenerId) -> Option<u16> {
        self.listener(id).map(|listener| listener.workers)
    }

    /// Where in its life a listener is; `None` if it is gone.
    #[must_use]
    pub fn phase(&self, id: ListenerId) -> Option<Phase> {
        self.listener(id).map(|listener| listener.phase)
    }

    /// What a listener serves, or asked for when it joined; `None` if it is gone.
    #[must_use]
    pub fn names(&self, id: ListenerId) -> Option<&Names> {
        self.listener(id).map(|listener| &listener.names)
    }

    /// What a listener's program is called; `None` if it is gone.
    #[must_use]
    pub fn program(&self, id: ListenerId) -> Option<&str> {
        self.listener(id).map(|listener| &*listener.program)
    }

    /// The process of a listener; `None` if it is gone.
    #[must_use]
    pub fn process(&self, id: ListenerId) -> Option<ProcessId> {
        self.listener(id).map(|listener| listener.process)
    }

    /// All that there is.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status_of(None, usize::MAX)
    }

    /// The same with so many server names of each listener; of those of one user alone, if one is named.
    #[must_use]
    pub fn status_of(&self, uid: Option<u32>, servers: usize) -> Status {
        let status = |entry: &Entry| entry.status(uid, servers);
        Status { addresses: self.addresses.values().map(status).collect() }
    }

    fn find(&self, id: AddressId, slot: u8) -> Option<&Listener> {
        self.addresses.get(&id)?.slots.listener(slot)
    }

    fn listener(&self, id: ListenerId) -> Option<&Listener> {
        self.find(id.address, id.slot).filter(|listener| listener.id == id)
    }

    fn listener_mut(&mut self, id: ListenerId) -> Option<&mut Listener> {
        let slots = &mut self.addresses.get_mut(&id.address)?.slots;
        slots.listener_mut(id.slot).filter(|listener| listener.id == id)
    }
}
