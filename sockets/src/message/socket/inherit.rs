//! Listeners that a process has from another one over fork(2), for bindings to C. `docs/switch.md` says what they
//! go through.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use quicket_engine::random::Random;
use quicket_handshake::SystemRandom;
use quicket_switch::client::{Family, Hold, Options as SwitchOptions};
use quicket_switch::protocol::Attention;

use super::claim::Claim;
use super::steward::{Steward, Summons};
use super::{Control, Phase, Socket};
use crate::message::attendance::Watched;
use crate::message::bound::{Bound, Wanted};
use crate::message::errno::Errno;
use crate::message::hub::ListenQueue;
use crate::message::ledger::Ledger;
use crate::message::settings::Settings;
use crate::switched::SwitchConfig;

/// A listener as a child has it that has not used it yet.
pub(super) struct Inherited {
    address: SocketAddr,
    backlog: AtomicUsize,
    ticket_secret: [u8; 32],
    /// None if the parent shares the address.
    summons: Option<Summons>,
    pub(super) claim: Claim,
}

impl Inherited {
    /// The same for a child of the child.
    fn for_heirs(&self) -> Self {
        Self {
            address: self.address,
            backlog: AtomicUsize::new(self.backlog.load(Ordering::Relaxed)),
            ticket_secret: self.ticket_secret,
            summons: self.summons.clone(),
            claim: Claim::default(),
        }
    }

    pub(super) fn set_backlog(&self, backlog: usize) {
        self.backlog.store(backlog, Ordering::Relaxed);
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// That a process has a listener which it has passed on, or has from another one.
pub(super) struct Inheritance {
    pub(super) family: Family,
    hold: Hold,
    /// For children of a process that has the endpoint, until the address is shared.
    pub(super) summons: Option<Summons>,
}

/// A listener on its way to a child: made [before the process forks](Socket::bequeath), and of use in the
/// child only.
pub struct Heir {
    settings: Settings,
    is_v6: bool,
    nonblocking: bool,
    interruptible: bool,
    /// Notifications that connections begin with.
    wanted: u16,
    listener: Inherited,
    name: [u8; 16],
    descriptors: Vec<RawFd>,
    steward: Option<Steward>,
    /// Of a switch that is told for the first time.
    unheard: Option<Bound>,
}

impl Socket {
    /// Passes a listener on to a child: to be called before the process forks. From now on this process gets
    /// no clients until it accepts again or [polls](Self::attend), unless it does so now. Where it does not
    /// [share](Self::set_switch) its address, that begins when a child first uses the listener, and a
    /// [`Steward`] sees to it. Where it does, the switch is told, and [`Heir::await_switch`] waits until it has heard.
    /// `None` for what is no listener, or one whose clients another program gets.
    #[must_use]
    pub fn bequeath(&self, watched: Watched) -> Option<Heir> {
        let mut control = self.control();
        let mut settings = control.settings.clone();
        let is_first = control.inheritance.is_none();
        let (listener, steward) = match &control.phase {
            Phase::Inherited(inherited) => (inherited.for_heirs(), None),
            Phase::Listening(_) => {
                let (listener, options, steward) = control.pass_on(watched)?;
                // The child finds the same switch, and takes nobody's place.
                settings.switch = match options {
                    Some(options) => settings.switch.map(|switch| switch.for_heirs(options)),
                    None => {
                        settings.local.stateless_reset = 1;
                        Some(SwitchConfig::default())
                    }
                };
                (listener, steward)
            }
            Phase::Idle | Phase::Connection(_) => return None,
        };
        let inheritance = control.inheritance.as_ref()?;
        let (name, lifeline) = inheritance.family.parts();
        let mut descriptors = vec![lifeline.as_raw_fd(), inheritance.hold.as_fd().as_raw_fd()];
        descriptors.extend(listener.summons.iter().flat_map(Summons::descriptors));
        let unheard = control.bound.clone().filter(|_| is_first && listener.summons.is_none());
        Some(Heir {
            settings,
            is_v6: control.is_v6,
            nonblocking: self.is_nonblocking(),
            interruptible: self.shared.interruptible.load(Ordering::Relaxed),
            wanted: self.ledger().lock().inbox.wanted(),
            listener,
            name,
            descriptors,
            steward,
            unheard,
        })
    }

    /// Has a listener that the process has inherited be one of its own, with an endpoint of its own, if it is
    /// not yet. Waits for the parent and the switch: [`Socket::claim`] has it done on a thread of its own.
    pub(super) fn listen_as_heir(&self) -> Result<(), Errno> {
        if !matches!(self.control().phase, Phase::Inherited(_)) {
            return Ok(());
        }
        let turn = self.shared.turn();
        let inherited = match &self.control().phase {
            Phase::Inherited(inherited) => Arc::clone(inherited),
            _ => return Ok(()),
        };
        if let Some(summons) = &inherited.summons {
            summons.call().inspect_err(|errno| {
                let text = format!("the parent cannot share the listener's address: {errno}");
                self.control().refusal = Some(text);
            })?;
        }
        let wanted = {
            let control = self.control();
            let settings = &control.settings;
            Wanted {
                only_v6: settings.only_v6,
                options: settings.udp_options.clone(),
                workers: settings.workers,
                switch: settings.switch.clone(),
                ticket_secret: Some(inherited.ticket_secret),
                socket: inherited.summons.as_ref().map(Summons::socket),
            }
        };
        let bound = Bound::to(inherited.address, &wanted).map_err(|error| self.refused(&error))?;
        let mut control = self.control();
        let settings = &control.settings;
        let listener = ListenQueue::new(
            settings.alpn.clone(),
            settings.reuse_port,
            settings.config.validate_peer_address != 0,
            inherited.backlog.load(Ordering::Relaxed),
        );
        let listener = Arc::new(listener.inherited());
        bound.hub.listen(&listener)?;
        control.refusal = None;
        control.bound = Some(bound.clone());
        control.phase = Phase::Listening(Arc::clone(&listener));
        drop(control);
        bound.hub.register(&listener).map_err(|error| {
            let mut control = self.control();
            control.bound = None;
            control.phase = Phase::Inherited(inherited);
            drop(control);
            let removed = bound.hub.unlisten(&bound.core, &listener);
            drop(turn);
            removed.finish();
            self.refused(&error)
        })
    }
}

impl Control {
    /// Whether the socket has an address, or will have the one that it has inherited.
    pub(super) const fn is_bound(&self) -> bool {
        self.bound.is_some() || matches!(self.phase, Phase::Inherited(_))
    }

    /// Tells the switch that a listener is passed on, if there is one. Returns how that is found.
    fn pass_on(
        &mut self,
        watched: Watched,
    ) -> Option<(Inherited, Option<SwitchOptions>, Option<Steward>)> {
        let Phase::Listening(listener) = &self.phase else { return None };
        // Another generation of the program has its clients.
        let listener = Some(Arc::clone(listener)).filter(|listener| !listener.is_retired())?;
        let bound = self.bound.clone()?;
        let core = bound.core.core();
        let options = core.switch_options();
        let is_new = self.inheritance.is_none();
        if is_new {
            let mut name = [0; 16];
            SystemRandom::new().fill(&mut name);
            let made = Family::new(name);
            let made = made.inspect_err(|error| log::warn!("a listener is not passed on: {error}"));
            let (family, hold) = made.ok()?;
            self.inheritance = Some(Inheritance { family, hold, summons: None });
        }
        let inheritance = self.inheritance.as_mut()?;
        listener.pass_on(&bound, watched, is_new.then_some(&inheritance.family));
        let mut steward = None;
        if options.is_none() && inheritance.summons.is_none() {
            let made = Steward::new(bound.clone());
            let made = made.inspect_err(|error| log::warn!("a listener is not passed on: {error}"));
            let (made, summons) = made.ok()?;
            steward = Some(made);
            inheritance.summons = Some(summons);
        }
        let inherited = Inherited {
            address: bound.core.local_addr(),
            backlog: AtomicUsize::new(listener.backlog()),
            ticket_secret: bound.hub.ticket_secret(),
            summons: inheritance.summons.clone().filter(|_| options.is_none()),
            claim: Claim::default(),
        };
        Some((inherited, options, steward))
    }
}

impl Heir {
    /// What the child has of the parent for the listener, by number; the rest of the parent's it closes.
    #[must_use]
    pub fn descriptors(&self) -> &[RawFd] {
        &self.descriptors
    }

    /// Waits until the switch has heard that the listener is passed on, where it was told so for the first time: until then
    /// the kernel may bring this process clients. Until `until` at most; the log says if that was not long enough, or
    /// the kernel does not hear of it. To be called before the process forks, once all listeners are passed on.
    pub fn await_switch(&mut self, until: Instant) {
        if let Some(bound) = self.unheard.take() {
            bound.core.core().await_switch(until);
        }
    }

    /// What is to be looked after in this process from now on, if there is anything.
    #[must_use]
    pub const fn take_steward(&mut self) -> Option<Steward> {
        self.steward.take()
    }

    /// The socket in the child, which owns these descriptors; `None` if they are not those that it has. Nothing of the
    /// parent is touched, and nobody is asked, until the child accepts or polls.
    #[must_use]
    pub fn inherit(self, descriptors: Vec<OwnedFd>) -> Option<Socket> {
        let Self { mut settings, is_v6, mut listener, name, .. } = self;
        let mut descriptors = descriptors.into_iter();
        let (lifeline, hold) = descriptors.next().zip(descriptors.next())?;
        let (family, hold) = Family::inherited(name, lifeline, hold);
        if let Some(switch) = &mut settings.switch {
            switch.family = Some((family.clone(), Attention::Accepting));
        }
        // The parent's own belong to threads that are not here.
        if let Some(parents) = listener.summons.take() {
            std::mem::forget(parents);
            listener.summons = Some(Summons::inherited(descriptors.next()?, descriptors.next()?));
        }
        let phase = Phase::Inherited(Arc::new(listener));
        let ledger = Arc::new(Ledger::default());
        ledger.lock().inbox.set_wanted(self.wanted);
        let socket = Socket::with(settings, is_v6, (None, phase), ledger);
        socket.control().inheritance = Some(Inheritance { family, hold, summons: None });
        socket.set_nonblocking(self.nonblocking);
        socket.set_interruptible(self.interruptible);
        Some(socket)
    }
}

impl std::fmt::Debug for Heir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heir").field("address", &self.listener.address).finish_non_exhaustive()
    }
}
