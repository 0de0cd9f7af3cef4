//! A share of an address, and what keeps it.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd::{Uid, geteuid};
use quicket_udp::spawn_quietly;

use super::connect::{Connection, has_ended};
use super::family::Family;
use super::joining::{Came, Has, join_or_bind, not_handed_over};
use super::minted::{ConnectionIds, Pools};
use super::questions::Questions;
use super::{ONCE, Options, unexpected};
use crate::channel::{Handover, Inlet, channel};
use crate::keep::Keep;
use crate::ledger::Ledger;
use crate::options::SocketOptions;
use crate::protocol::{
    self, Attention, Kin, MAX_MESSAGE, ProtocolError, Receipt, Register, Reply, Request, Secrets,
    Serve, Served, Strike,
};

/// Between attempts to have what another program has for a moment.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a call waits while the switch is away.
const PATIENCE: Duration = Duration::from_secs(10);
/// ... that nothing depends on.
const SHORT_PATIENCE: Duration = Duration::from_secs(1);
/// Octets of a message beside what is served, when a program comes back to the next switch.
const ROOM: usize = 4 << 10;

/// Where a program wants to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The local UDP address; of port 0, any that is free.
    pub address: SocketAddr,
    /// IPV6_V6ONLY.
    pub only_v6: bool,
    /// How many workers: 1 to [`MAX_WORKERS`](crate::protocol::MAX_WORKERS).
    pub workers: usize,
    /// Whether each worker wants a socket of its own, so that the kernel can choose among programs
    /// ([`Inlet::take_socket`]).
    pub steered: bool,
    /// Whether it had the address's socket to itself before, and gets what leads to nobody else: what comes for
    /// connections with connection IDs that the switch cannot read. It has one worker then.
    pub remains: bool,
    /// Options of the address's socket, for where another user's switch has it.
    pub options: SocketOptions,
}

/// How a program sends from its address.
#[derive(Debug)]
pub enum Way {
    /// By a socket of the address.
    Own(UdpSocket),
    /// By its channels: it is of another user than the switch, which keeps the socket of this address to itself.
    Through(SocketAddr),
}

/// What the switch tells without being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A newer generation gets the clients from now on; connections go on.
    Superseded,
    /// Somebody wants the next generation to be started.
    Upgrade,
    /// The time that the program has given its connections, once it was superseded, is over: after
    /// [`DRAIN_GRACE`](crate::registry::DRAIN_GRACE) the switch has their peers reset.
    DrainOver,
    /// Another switch remembers which tickets were used ([`Membership::register`]). No answer of its register comes
    /// before this has been heard.
    Register,
    /// [`Membership::secrets`] are others: what is new is made with them.
    Secrets,
}

type Heed = Box<dyn Fn(Notice) + Send + Sync>;
type Counter = Box<dyn Fn() -> u64 + Send + Sync>;

/// A share of an address. Whoever drops it leaves.
pub struct Membership(Arc<Shared>);

pub(super) struct Shared {
    pub(super) options: Options,
    /// Who joined. A program that has given privileges up starts no switch of that name.
    pub(super) user: Uid,
    pub(super) place: Place,
    /// None where the switch keeps it to itself.
    pub(super) socket: Option<UdpSocket>,
    pub(super) channels: Vec<Handover>,
    /// What keeps the workers' sockets, if they have some, and their places.
    pub(super) keep: Option<Keep>,
    pub(super) sockets: Vec<u16>,
    /// What it notes the clients in that the kernel brings it.
    pub(super) ledger: Option<Arc<Ledger>>,
    pub(super) generation: u8,
    /// Interrupts the thread.
    pub(super) bell: EventFd,
    /// Connection IDs that the switch has made.
    pub(super) minted: Arc<Pools>,
    pub(super) heed: OnceLock<Heed>,
    pub(super) counter: OnceLock<Counter>,
    /// One question at a time.
    asking: Mutex<()>,
    state: Mutex<State>,
    pub(super) changed: Condvar,
}

pub(super) struct State {
    /// None while the switch is away.
    pub(super) connection: Option<Arc<Connection>>,
    /// What was asked for and granted.
    pub(super) serve: Option<Serve>,
    /// A newer generation has the clients, or it serves no more.
    pub(super) draining: Option<Draining>,
    /// What proves the generation to the next switch.
    pub(super) receipt: Receipt,
    /// ... and what was served.
    pub(super) served: Option<Served>,
    /// The family in which the listener is passed on over fork(2), and its lifeline.
    pub(super) kin: Option<(Kin, Arc<OwnedFd>)>,
    /// What the programs at the address have in common.
    pub(super) secrets: Secrets,
    /// Who remembers which tickets were used.
    pub(super) register: Register,
    /// The switch forwards every datagram; so shall one that is started in its place.
    pub(super) forwards: bool,
    pub(super) questions: Questions,
    pub(super) leaving: bool,
}

/// That a program gets no more clients.
#[derive(Clone, Copy)]
pub(super) struct Draining {
    /// Until when it may keep its connections, if there is such a time.
    pub(super) until: Option<Instant>,
}

impl Membership {
    /// Gets a share of an address: the inlets of its workers, in order, and the address's socket to send
    /// by. `bind` makes the socket if nobody has it.
    ///
    /// # Errors
    ///
    /// When there is no switch and none can be started; when the address cannot be had, which is what
    /// `bind` says; when the switch refuses.
    pub fn join(
        options: &Options,
        place: Place,
        bind: impl FnMut() -> io::Result<UdpSocket>,
    ) -> io::Result<(Self, Vec<Inlet>, UdpSocket)> {
        let (this, inlets, way) = Self::join_as(options, place, None, bind)?;
        match way {
            Way::Own(socket) => Ok((this, inlets, socket)),
            Way::Through(_) => {
                let text =
                    "the switch is another user's, and this program wants a socket of the address";
                Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
            }
        }
    }

    /// The same for a process that shares a listener with others over fork(2), as [`Self::bequeath`] has told the
    /// switch: it may have the same names as they, and is so far from accepting. Where the switch is another user's, who lets this one
    /// in, there is no socket to send by.
    ///
    /// # Errors
    ///
    /// As [`Self::join`].
    pub fn join_as(
        options: &Options,
        place: Place,
        family: Option<(&Family, Attention)>,
        mut bind: impl FnMut() -> io::Result<UdpSocket>,
    ) -> io::Result<(Self, Vec<Inlet>, Way)> {
        let kin = family.map(|(family, said)| (family.kin(said), &family.lifeline));
        let options = &options.clone().resolved()?;
        let (mut inlets, mut channels) = (Vec::new(), Vec::new());
        for _ in 0..place.workers {
            let (inlet, handover) = channel()?;
            inlets.push(inlet);
            channels.push(handover);
        }
        // Without one all first packets come by the switch.
        let ledger = place.steered.then(Ledger::new).and_then(|made| {
            made.inspect_err(|error| log::debug!("no memory to note clients in: {error}")).ok()
        });
        let ledger = ledger.map(Arc::new);
        let begun = Instant::now();
        let mut place = place;
        let mut bound = None;
        let mut lost = false;
        loop {
            if place.address.port() == 0 && bound.is_none() && !is_anothers(options) {
                bound = Some(bind()?);
            }
            if let Some(socket) = &bound {
                place.address.set_port(UdpSocket::local_addr(socket)?.port());
            }
            let own = kin.map(|(kin, lifeline)| (kin, lifeline.as_fd()));
            let has = Has {
                socket: bound.as_ref(),
                channels: &channels,
                keep: None,
                kin: own,
                ledger: ledger.as_deref().filter(|_| !is_anothers(options)),
                forwards: false,
            };
            match join_or_bind(options, place, has, &mut bind) {
                Ok((connection, had, came, own)) => {
                    let ours = bound.or(own);
                    let Came { socket, keep, sockets } = came.sort(ours.is_some(), &had)?;
                    let way = match (&had.tenancy, ours.or(socket)) {
                        (Some(tenancy), _) => Way::Through(tenancy.address),
                        (None, Some(socket)) => Way::Own(socket),
                        (None, None) => return Err(not_handed_over()),
                    };
                    if place.address.port() == 0 {
                        place.address.set_port(way.port()?);
                    }
                    for (inlet, socket) in inlets.iter_mut().zip(sockets) {
                        inlet.set_socket(socket);
                    }
                    // What comes by channels the switch counts and pins itself.
                    let ledger = ledger.filter(|_| !had.sockets.is_empty());
                    let at = (place, channels, keep, ledger);
                    let shared = Shared::new(options, at, &way, *had, connection)?;
                    shared.state().kin = kin.map(|(kin, lifeline)| (kin, Arc::clone(lifeline)));
                    let keeper = Arc::clone(&shared);
                    spawn_quietly("quicket-switch", move || keeper.keep())?;
                    return Ok((Self(shared), inlets, way));
                }
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && begun.elapsed() < PATIENCE =>
                {
                    std::thread::sleep(PAUSE);
                }
                // It has ended since it was found, for want of work.
                Err(error) if has_ended(&error) && !lost => lost = true,
                Err(error) => return Err(error),
            }
        }
    }

    /// What all programs of this user at the address have in common now ([`Notice::Secrets`]).
    #[must_use]
    pub fn secrets(&self) -> Secrets {
        self.0.state().secrets.clone()
    }

    /// Connection IDs that lead to a worker and that the switch makes: for a program of another user, which has no
    /// key for that.
    #[must_use]
    pub fn connection_ids(&self, worker: u16) -> ConnectionIds {
        ConnectionIds::new(Arc::downgrade(&self.0), Arc::clone(&self.0.minted), worker)
    }

    /// In what the program notes each client that begins a connection past the switch; `None` if none does: its workers
    /// have no sockets of their own.
    #[must_use]
    pub fn ledger(&self) -> Option<Arc<Ledger>> {
        self.0.ledger.clone()
    }

    /// The generation for connection IDs.
    #[must_use]
    pub fn generation(&self) -> u8 {
        self.0.generation
    }

    /// Who hears of notices: on a thread that does little else. The first one given stays. A panic ends
    /// there.
    pub fn heed(&self, heed: impl Fn(Notice) + Send + Sync + 'static) {
        let _ = self.0.heed.set(Box::new(heed));
    }

    /// Who says how many connections the program has, when somebody asks for the status: on the same
    /// thread. The first one given stays. One that panics does not know.
    pub fn count_with(&self, count: impl Fn() -> u64 + Send + Sync + 'static) {
        let _ = self.0.counter.set(Box::new(count));
    }

    /// The switch's register of session tickets that brought early data. Another switch has another one.
    #[must_use]
    pub fn register(&self) -> Register {
        self.0.state().register
    }

    /// Asks that register whether it is the first time that a ticket brings early data, and does not wait:
    /// `answer` is called once, on the thread that hears the switch or on this one. It gets false, too, if
    /// the switch has gone; and nothing as long as that is there and says nothing.
    pub fn strike(&self, ticket: [u8; 12], answer: impl FnOnce(bool) + Send + 'static) {
        let mut state = self.0.state();
        let register = state.register.name;
        let Some(connection) = state.connection.clone() else {
            drop(state);
            return answer(false);
        };
        let number = match state.questions.ask_of_ticket(Box::new(answer)) {
            Ok(number) => number,
            Err(answer) => {
                drop(state);
                return answer(false);
            }
        };
        drop(state);
        let strike = Strike { register, ticket: protocol::Hex(ticket) };
        if connection.send(number, Request::Strike(strike), &[]).is_err() {
            let unasked = self.0.state().questions.take_struck(number);
            if let Some(answer) = unasked {
                answer(false);
            }
        }
    }

    /// Gets clients from now on, in place of what was served before.
    ///
    /// # Errors
    ///
    /// `AddrInUse` when others have some of the names.
    pub fn serve(&self, serve: Serve) -> io::Result<()> {
        if protocol::encode(&serve)?.len() > MAX_MESSAGE - ROOM {
            return Err(ProtocolError::TooLong(MAX_MESSAGE).into());
        }
        let turn = self.0.turn();
        // Noted before it is asked for: that a newer generation has it may be heard before the answer.
        let mut state = self.0.state();
        let draining = state.draining.take();
        let before = state.serve.replace(serve.clone());
        drop(state);
        self.0.ask_for_clients(&turn, &serve).inspect_err(|_| {
            let mut state = self.0.state();
            if state.serve.as_ref() == Some(&serve) {
                (state.serve, state.draining) = (before, draining);
            }
        })
    }

    /// Whether it wants clients, drains, and can prove what it serves.
    #[cfg(test)]
    pub(crate) fn remembers(&self) -> (bool, bool, bool) {
        let state = self.0.state();
        (state.serve.is_some(), state.draining.is_some(), state.served.is_some())
    }

    /// How the switch was found: a child that is forked finds the same one.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// The process is about to fork, and passes its listener on: those who [join as](Self::join_as) of this family
    /// share what it serves. Waits for nothing; [`Self::await_heard`] does.
    pub fn bequeath(&self, family: &Family, attention: Attention) {
        let kin = family.kin(attention);
        // What is noted last is said last: under one lock.
        let mut state = self.0.state();
        state.kin = Some((kin, Arc::clone(&family.lifeline)));
        if let Some(connection) = &state.connection {
            // Who has gone says so to the thread, and the next one is told.
            let _ = connection.send(ONCE, Request::Bequeath(kin), &[family.lifeline.as_fd()]);
        }
    }

    /// Says how far the process is from accepting a client, if the listener was passed on. Waits for nothing.
    pub fn attend(&self, attention: Attention) {
        let mut state = self.0.state();
        let Some((kin, _)) = &mut state.kin else { return };
        kin.attention = attention;
        if let Some(connection) = &state.connection {
            let _ = connection.send(ONCE, Request::Attention(attention), &[]);
        }
    }

    /// Waits until the switch has heard that the listener was passed on, and has the kernel bring this process no more
    /// clients past it; until `until` at most. Does not wait for other questions, and says nothing that others may have
    /// said anew meanwhile.
    pub fn await_heard(&self, until: Instant) {
        if self.0.state().kin.is_none() {
            return;
        }
        if let Err(error) = self.0.ask_until(&Request::Heard, until, |_, _| {}) {
            log::warn!(
                "clients may still come to a process that has passed its listener on: {error}"
            );
        }
    }

    /// Gets no more clients. Connections go on.
    pub fn cease(&self) {
        let turn = self.0.turn();
        let mut state = self.0.state();
        if state.serve.take().is_some() {
            state.draining = Some(Draining { until: None });
        }
        // The names are others' from now on, also with the next switch.
        state.served = None;
        state.kin = None;
        drop(state);
        if let Err(error) = self.0.ask(&turn, &Request::Cease, SHORT_PATIENCE, |_, _| {}) {
            log::debug!("the switch was not told that there is no listener: {error}");
        }
    }
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership").field("place", &self.0.place).finish_non_exhaustive()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.leaving = true;
        if let Some(connection) = state.connection.take() {
            // Not killed: no peer needs to be reset for want of somebody who knows it. The thread has the
            // connection, too, and lets go of it at once.
            let _ = connection.send(ONCE, Request::Leave, &[]);
        }
        drop(state);
        self.0.changed.notify_all();
        let _ = self.0.bell.write(1);
    }
}

impl Way {
    fn port(&self) -> io::Result<u16> {
        match self {
            Self::Own(socket) => Ok(socket.local_addr()?.port()),
            Self::Through(address) => Ok(address.port()),
        }
    }
}

/// Whether the switch is another user's, by its file: it binds what is to be bound, and says so if it does not.
pub(super) fn is_anothers(options: &Options) -> bool {
    let found = std::fs::metadata(&options.name);
    found.is_ok_and(|found| found.uid() != geteuid().as_raw())
}

impl Shared {
    fn new(
        options: &Options,
        (place, channels, keep, ledger): (Place, Vec<Handover>, Option<Keep>, Option<Arc<Ledger>>),
        way: &Way,
        had: protocol::Joined,
        connection: Connection,
    ) -> io::Result<Arc<Self>> {
        let protocol::Joined {
            generation,
            receipt,
            register,
            secrets,
            sockets,
            tenancy,
            forwards,
            ..
        } = had;
        let state = State {
            connection: Some(Arc::new(connection)),
            serve: None,
            draining: None,
            receipt,
            served: None,
            kin: None,
            secrets,
            register,
            forwards,
            questions: Questions::default(),
            leaving: false,
        };
        Ok(Arc::new(Self {
            options: options.clone(),
            user: geteuid(),
            place,
            socket: match way {
                Way::Own(socket) => Some(socket.try_clone()?),
                Way::Through(_) => None,
            },
            minted: Arc::new(Pools::new(place.workers, tenancy)),
            channels,
            keep,
            sockets,
            ledger,
            generation,
            bell: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            heed: OnceLock::new(),
            counter: OnceLock::new(),
            asking: Mutex::default(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody else asks. What is noted of a question is noted in its turn: the next switch is
    /// told what was asked last.
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks to get clients. A switch that has just taken over waits for those who come back: who asks for what
    /// may be theirs waits, too.
    fn ask_for_clients(&self, turn: &MutexGuard<'_, ()>, serve: &Serve) -> io::Result<()> {
        let begun = Instant::now();
        let note = |state: &mut State, reply: &Reply| {
            if let Reply::Served(proof) = reply {
                state.served = Some(Served { serve: serve.clone(), proof: *proof });
            }
        };
        loop {
            match self.ask(turn, &Request::Serve(serve.clone()), PATIENCE, note) {
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && begun.elapsed() < PATIENCE =>
                {
                    std::thread::sleep(PAUSE);
                }
                result => return result,
            }
        }
    }

    /// Asks in one's turn, and waits for the answer; over the end of the switch, too. `note` hears it before anybody
    /// learns that that switch has gone.
    fn ask(
        &self,
        _: &MutexGuard<'_, ()>,
        request: &Request,
        patience: Duration,
        note: impl FnOnce(&mut State, &Reply),
    ) -> io::Result<()> {
        self.ask_until(request, Instant::now() + patience, note)
    }

    /// The same out of turn, of what is not noted.
    fn ask_until(
        &self,
        request: &Request,
        until: Instant,
        note: impl FnOnce(&mut State, &Reply),
    ) -> io::Result<()> {
        let mut asked: Option<(Arc<Connection>, u32)> = None;
        let mut state = self.state();
        loop {
            if state.leaving {
                return Err(io::ErrorKind::NotConnected.into());
            }
            match (&state.connection, &asked) {
                (Some(now), Some((then, number))) if Arc::ptr_eq(now, then) => {
                    if let Some(answer) = state.questions.take(*number) {
                        note(&mut state, &answer);
                        return match answer {
                            Reply::Done | Reply::Served(_) => Ok(()),
                            other => Err(unexpected(&other)),
                        };
                    }
                }
                (Some(now), _) => {
                    let now = Arc::clone(now);
                    if let Some((_, before)) = asked.take() {
                        state.questions.forget(before);
                    }
                    let number = state.questions.ask();
                    // Who has gone says so to the thread.
                    let _ = now.send(number, request.clone(), &[]);
                    asked = Some((now, number));
                }
                (None, _) => {}
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                if let Some((_, number)) = asked {
                    state.questions.forget(number);
                }
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the switch does not answer: see quicket switch status",
                ));
            };
            let wait = self.changed.wait_timeout(state, left);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
