//! Listeners that a process has from another one over fork(2), for bindings to C. `docs/switch.md` says what they
//! go through.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use quicket_engine::random::Random;
use quicket_handshake::SystemRandom;
use quicket_switch::client::{Family, Hold, Options as SwitchOptions};

use super::{Control, Phase, Socket};
use crate::message::attendance::{Attendance, Watched};
use crate::message::bound::{Bound, Wanted};
use crate::message::errno::Errno;
use crate::message::hub::ListenQueue;
use crate::message::ledger::Ledger;
use crate::message::settings::Settings;

/// A listener as a child has it that has not used it yet.
pub(super) struct Inherited {
    address: SocketAddr,
    backlog: AtomicUsize,
    ticket_secret: [u8; 32],
}

impl Inherited {
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
    descriptors: [RawFd; 2],
}

impl Socket {
    /// Passes a listener on to a child: to be called before the process forks. From now on this process gets
    /// no clients until it accepts again or [polls](Self::attend), unless it does so now. `None` for what is
    /// no listener, or one that does not [share](Self::set_switch) its address: state of that is here alone.
    #[must_use]
    pub fn bequeath(&self, watched: Watched) -> Option<Heir> {
        let mut control = self.control();
        let mut settings = control.settings.clone();
        let listener = match &control.phase {
            Phase::Inherited(inherited) => Inherited {
                address: inherited.address,
                backlog: AtomicUsize::new(inherited.backlog.load(Ordering::Relaxed)),
                ticket_secret: inherited.ticket_secret,
            },
            Phase::Listening(_) => {
                let (listener, options) = control.pass_on(watched)?;
                // The child finds the same switch, and takes nobody's place.
                settings.switch = settings.switch.map(|switch| switch.for_heirs(options));
                listener
            }
            Phase::Idle | Phase::Connection(_) => return None,
        };
        let (name, lifeline, hold) = {
            let inheritance = control.inheritance.as_ref()?;
            let (name, lifeline) = inheritance.family.parts();
            (name, lifeline.as_raw_fd(), inheritance.hold.as_fd().as_raw_fd())
        };
        Some(Heir {
            settings,
            is_v6: control.is_v6,
            nonblocking: self.is_nonblocking(),
            interruptible: self.shared.interruptible.load(Ordering::Relaxed),
            wanted: self.ledger().lock().inbox.wanted(),
            listener,
            name,
            descriptors: [lifeline, hold],
        })
    }

    /// The program polls the socket: a listener that the process has inherited listens from now on, and waits for
    /// the switch. That it cannot is told by [`Socket::accept`].
    pub fn attend(&self) {
        if self.listen_as_heir().is_err() {
            return;
        }
        let control = self.control();
        if let (Phase::Listening(listener), Some(bound)) = (&control.phase, &control.bound) {
            listener.attend(bound.core.core(), Attendance::poll);
        }
    }

    /// Has a listener that the process has inherited be one of its own, with an endpoint of its own, if it is
    /// not yet.
    pub(super) fn listen_as_heir(&self) -> Result<(), Errno> {
        if !matches!(self.control().phase, Phase::Inherited(_)) {
            return Ok(());
        }
        let turn = self.shared.turn();
        let (inherited, wanted) = {
            let control = self.control();
            let Phase::Inherited(inherited) = &control.phase else { return Ok(()) };
            let settings = &control.settings;
            let wanted = Wanted {
                only_v6: settings.only_v6,
                options: settings.udp_options.clone(),
                workers: settings.workers,
                switch: settings.switch.clone(),
                ticket_secret: Some(inherited.ticket_secret),
            };
            (Arc::clone(inherited), wanted)
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

    /// Tells the switch that a listener is passed on.
    fn pass_on(&mut self, watched: Watched) -> Option<(Inherited, SwitchOptions)> {
        let Phase::Listening(listener) = &self.phase else { return None };
        // Another generation of the program has its clients.
        let listener = Some(Arc::clone(listener)).filter(|listener| !listener.is_retired())?;
        let bound = self.bound.clone()?;
        let core = bound.core.core();
        let options = core.switch_options()?;
        let is_new = self.inheritance.is_none();
        if is_new {
            let mut name = [0; 16];
            SystemRandom::new().fill(&mut name);
            let made = Family::new(name);
            let made = made.inspect_err(|error| log::warn!("a listener is not passed on: {error}"));
            let (family, hold) = made.ok()?;
            self.inheritance = Some(Inheritance { family, hold });
        }
        let family = self.inheritance.as_ref().map(|inheritance| inheritance.family.clone())?;
        listener.pass_on(core, watched, is_new.then_some(&family));
        let inherited = Inherited {
            address: bound.core.local_addr(),
            backlog: AtomicUsize::new(listener.backlog()),
            ticket_secret: bound.hub.ticket_secret(),
        };
        Some((inherited, options))
    }
}

impl Heir {
    /// What the child has of the parent for the listener, by number; the rest of the parent's it closes.
    #[must_use]
    pub const fn descriptors(&self) -> [RawFd; 2] {
        self.descriptors
    }

    /// The socket in the child, which owns these descriptors. Nothing of the parent is touched, and nobody is
    /// asked, until the child accepts or polls.
    #[must_use]
    pub fn inherit(self, [lifeline, hold]: [OwnedFd; 2]) -> Socket {
        let Self { mut settings, is_v6, listener, name, .. } = self;
        let (family, hold) = Family::inherited(name, lifeline, hold);
        if let Some(switch) = &mut settings.switch {
            switch.family = Some(family.clone());
        }
        let phase = Phase::Inherited(Arc::new(listener));
        let ledger = Arc::new(Ledger::default());
        ledger.lock().inbox.set_wanted(self.wanted);
        let socket = Socket::with(settings, is_v6, (None, phase), ledger);
        socket.control().inheritance = Some(Inheritance { family, hold });
        socket.set_nonblocking(self.nonblocking);
        socket.set_interruptible(self.interruptible);
        socket
    }
}

impl std::fmt::Debug for Heir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heir").field("address", &self.listener.address).finish_non_exhaustive()
    }
}
