//! The listeners of one address.

use quicket_engine::time::Time;

use super::address::ListenAddress;
use super::error::{ReadyError, RegisterError, UnknownListener};
use super::listener::{Listener, ListenerCounters, Phase};
use super::names::Names;
use super::slots::{Slot, Slots};
use super::status::{AddressStatus, ListenerStatus};
use super::table::Table;
use super::{ListenerId, MAX_PROGRAM_NAME, MAX_WORKERS, Registration};

/// One address.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) address: ListenAddress,
    pub(super) slots: Slots,
    pub(super) table: Table,
    /// All that get first packets have the same names. Known beforehand: strangers ask all the time.
    pub(super) undivided: bool,
    /// Until when numbers are given only to those who had them.
    pub(super) reclaims_until: Time,
}

/// What came of it that a listener is ready.
#[derive(Debug, Default)]
pub(super) struct Activated {
    pub(super) own: Vec<ListenerId>,
    pub(super) replaced: Vec<ListenerId>,
}

/// What depends on nobody else.
pub(super) fn check(new: &Registration) -> Result<(), RegisterError> {
    if new.address.socket_addr().port() == 0 {
        return Err(RegisterError::NoPort);
    }
    if !(1..=MAX_WORKERS).contains(&new.workers) {
        return Err(RegisterError::Workers(new.workers));
    }
    if !(1..=MAX_PROGRAM_NAME).contains(&new.program.len()) {
        return Err(RegisterError::ProgramName(new.program.len()));
    }
    Ok(())
}

impl Entry {
    pub(super) fn new(address: ListenAddress) -> Self {
        Self {
            address,
            slots: Slots::new(),
            table: Table::default(),
            undivided: true,
            reclaims_until: Time::ZERO,
        }
    }

    /// Whether nobody else has any of the names.
    pub(super) fn check_names(&self, new: &Registration) -> Result<(), RegisterError> {
        self.check_names_of(new, new.claim.map(|claim| claim.receipt.incarnation))
    }

    /// The same for one that `comes_back`, with this incarnation, if it does.
    fn check_names_of(
        &self,
        new: &Registration,
        comes_back: Option<u64>,
    ) -> Result<(), RegisterError> {
        for key in new.names.keys() {
            let holders = self.table.holders(&key).iter();
            let mut holders = holders.filter_map(|slot| self.slots.listener(*slot));
            // A generation that comes back may find one that is newer.
            let replaces = |other: &Listener| {
                let newer = comes_back.is_some_and(|incarnation| incarnation < other.incarnation);
                let theirs = other.is_of(new.uid, &new.program) && other.process != new.process;
                theirs && (new.replace || newer)
            };
            if let Some(other) = holders.find(|other| !replaces(other) && !other.shares_with(new)) {
                let by = (other.uid == new.uid).then(|| other.program.clone());
                return Err(RegisterError::NamesInUse { names: key.to_string(), by });
            }
        }
        Ok(())
    }

    pub(super) fn add(
        &mut self,
        id: ListenerId,
        new: Registration,
        incarnation: u64,
        kept: bool,
        phase: Phase,
    ) {
        let phase = match new.claim {
            Some(claim) if kept && claim.draining => Phase::Draining { deadline: None },
            _ => phase,
        };
        if phase == Phase::Preparing {
            self.table.add(&new.names, id.slot);
        }
        let listener = Listener {
            id,
            uid: new.uid,
            process: new.process,
            program: new.program,
            names: new.names,
            workers: new.workers,
            reuse_port: new.reuse_port,
            replace: new.replace,
            phase,
            family: new.family,
            attention: new.attention,
            incarnation,
            kept,
            used: kept,
            counters: ListenerCounters::default(),
        };
        if let Some(slot) = self.slots.get_mut(id.slot) {
            *slot = Slot::Held(Box::new(listener));
        }
    }

    /// Has a listener say what it serves, as if it registered anew.
    pub(super) fn serve(
        &mut self,
        id: ListenerId,
        names: Names,
        reuse_port: bool,
        replace: bool,
    ) -> Result<(), ReadyError> {
        let before = self.listener(id).ok_or(UnknownListener)?.phase;
        // Its own names are no obstacle.
        self.set_phase(id, Phase::Joined);
        let listener = self.listener(id).ok_or(UnknownListener)?;
        let mut new = listener.as_replacement(self.address);
        (new.names, new.reuse_port, new.replace) = (names, reuse_port, replace);
        let comes_back = listener.kept.then_some(listener.incarnation);
        let comes_back = comes_back.filter(|_| before == Phase::Joined);
        if let Err(error) = self.check_names_of(&new, comes_back) {
            self.set_phase(id, before);
            return Err(error.into());
        }
        if let Some(listener) = self.slots.listener_mut(id.slot) {
            (listener.names, listener.reuse_port) = (new.names, new.reuse_port);
            listener.replace = new.replace;
        }
        self.set_phase(id, Phase::Preparing);
        Ok(())
    }

    /// Whether a listener has these names already.
    pub(super) fn has_reserved(&self, id: ListenerId, names: &Names) -> bool {
        self.listener(id).is_some_and(|listener| listener.reserves() && listener.names == *names)
    }

    fn listener(&self, id: ListenerId) -> Option<&Listener> {
        self.slots.listener(id.slot).filter(|listener| listener.id == id)
    }

    /// Has a listener get first packets, and what belongs to it. Returns all of those, and whom they
    /// replace; only the latter, if that is the listener itself.
    pub(super) fn activate(&mut self, id: ListenerId) -> Result<Activated, ReadyError> {
        let listener = self.listener(id).ok_or(UnknownListener)?;
        if listener.is_active() {
            return Ok(Activated::default());
        }
        let comes_back = !listener.reserves();
        let is_newer = |other: &Listener| other.incarnation > listener.incarnation;
        let of_program = |other: &&Listener| other.is_of(listener.uid, &listener.program);
        // What one process serves belongs together.
        let (own, others): (Vec<_>, Vec<_>) = self
            .slots
            .listeners()
            .filter(of_program)
            .partition(|other| other.process == listener.process);
        let mut others = others.into_iter().filter(|other| other.is_active());
        let own = own.into_iter().filter(|own| {
            let same = own.phase == Phase::Preparing && (listener.replace || !own.replace);
            own.id == id || if comes_back { !own.reserves() } else { same }
        });
        let own: Vec<&Listener> = own.collect();
        if comes_back {
            for own in &own {
                self.check_names(&own.as_replacement(self.address))?;
            }
        } else if others
            .clone()
            .any(|other| other.replace && is_newer(other) && !other.is_beside(listener))
        {
            return Ok(Activated { own: Vec::new(), replaced: vec![id] });
        }
        let replaces = |other: &&Listener| comes_back || listener.replace && !is_newer(other);
        let replaced = others.by_ref().filter(replaces).map(|other| other.id).collect();
        let own: Vec<_> = own.into_iter().map(|own| own.id).collect();
        for own in &own {
            self.set_phase(*own, Phase::Active);
        }
        Ok(Activated { own, replaced })
    }

    /// Changes the phase, and what follows for who has which names.
    pub(super) fn set_phase(&mut self, id: ListenerId, phase: Phase) {
        let Some(listener) = self.slots.listener_mut(id.slot).filter(|each| each.id == id) else {
            return;
        };
        let before = listener.reserves();
        listener.phase = phase;
        match (before, listener.reserves()) {
            (false, true) => self.table.add(&listener.names, id.slot),
            (true, false) => self.table.remove(&listener.names, id.slot),
            _ => {}
        }
        self.compare_names();
    }

    fn compare_names(&mut self) {
        let mut active = self.slots.listeners().filter(|each| each.is_active());
        let first = active.next();
        self.undivided = first.is_none_or(|first| active.all(|each| each.names == first.names));
    }

    /// Removes a listener. Its number is free if no peer can know it.
    pub(super) fn remove(&mut self, now: Time, id: ListenerId) -> bool {
        let Some(slot) = self.slots.get_mut(id.slot) else { return false };
        let Slot::Held(listener) = slot else { return false };
        if listener.id != id {
            return false;
        }
        if listener.reserves() {
            self.table.remove(&listener.names, id.slot);
        }
        *slot = match listener.used {
            true => Slot::Dead { uid: listener.uid, since: now },
            false => Slot::Free,
        };
        self.compare_names();
        true
    }

    pub(super) fn status(&self, uid: Option<u32>, servers: usize) -> AddressStatus {
        let listener = |each: &Listener| ListenerStatus {
            listener: each.id,
            program: each.program.clone(),
            uid: each.uid,
            process: each.process,
            generation: each.id.slot,
            workers: each.workers,
            phase: each.phase,
            attention: each.attention,
            protocols: each.names.protocols().iter().map(ToString::to_string).collect(),
            servers: each.names.servers().iter().take(servers).map(ToString::to_string).collect(),
            more_servers: each.names.servers().len().saturating_sub(servers),
            counters: each.counters,
        };
        let is_meant = |each: &&Listener| uid.is_none_or(|uid| each.uid == uid);
        let of_user = self.slots.listeners().filter(is_meant);
        AddressStatus {
            address: self.address,
            listeners: of_user.map(listener).collect(),
            dead: self.slots.dead(),
            free: self.slots.free(),
        }
    }
}

impl Listener {
    /// As if it registered again, to take the place of the generations after it.
    pub(super) fn as_replacement(&self, address: ListenAddress) -> Registration {
        Registration {
            address,
            uid: self.uid,
            process: self.process,
            program: self.program.clone(),
            names: self.names.clone(),
            workers: self.workers,
            reuse_port: self.reuse_port,
            replace: true,
            claim: None,
            family: self.family,
            attention: self.attention,
        }
    }
}
