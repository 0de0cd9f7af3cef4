//! From a new socket to a connection: bind, listen, accept, connect.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use quicket_engine::ClientConfig;
use quicket_wire::Version;

use super::{Control, Patience, Phase, Session, Socket, State};
use crate::core::{Cell, ConnRef, Follow, Rank, Tap, Waiter};
use crate::message::attendance::Attendance;
use crate::message::bound::{Bound, Wanted};
use crate::message::errno::Errno;
use crate::message::hub::ListenQueue;
use crate::message::ledger::Ledger;
use crate::message::notification::CryptoLevel;
use crate::ops::source_for;

impl Control {
    /// An address as the socket can use it: of its family, or of IPv4 on a socket for both.
    /// None that stands for several hosts, and none of a link that it does not name.
    pub(super) fn accept_address(&self, address: SocketAddr) -> Result<SocketAddr, Errno> {
        let usable = match address {
            SocketAddr::V4(v4) => !v4.ip().is_multicast(),
            SocketAddr::V6(v6) => {
                let ip = v6.ip();
                let is_placed = !ip.is_unicast_link_local() || v6.scope_id() != 0;
                self.is_v6 && !ip.is_multicast() && is_placed
            }
        };
        let canonical = SocketAddr::new(address.ip().to_canonical(), address.port());
        let usable = usable && !(self.settings.only_v6 && canonical.is_ipv4());
        match (usable, address) {
            (false, _) => Err(Errno::EINVAL),
            (true, SocketAddr::V6(_)) if canonical.is_ipv4() => Ok(canonical),
            (true, _) => Ok(address),
        }
    }

    pub(super) fn unspecified(&self) -> SocketAddr {
        if self.is_v6 { ([0u16; 8], 0).into() } else { ([0u8; 4], 0).into() }
    }
}

impl Socket {
    /// Binds the socket to an address. Sockets of one process may share an address; those of several
    /// may through the switch ([`Socket::set_switch`]), which this finds or starts.
    ///
    /// # Errors
    ///
    /// EINVAL if it is bound already or the address is of another family, though a socket for
    /// IPv6 takes addresses of IPv4; else what the system says, or the switch
    /// ([`Socket::failure`] has its words).
    pub fn bind(&self, address: SocketAddr) -> Result<(), Errno> {
        let address = self.control().accept_address(address)?;
        if self.bind_where(true, |_| address)? { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// Binds the socket, unless it is bound: false. An address that this process has just given up
    /// is waited for, and so is the switch if the address `may_be_shared`: `Control` is not held
    /// meanwhile.
    fn bind_where(
        &self,
        may_be_shared: bool,
        address: impl FnOnce(&Control) -> SocketAddr,
    ) -> Result<bool, Errno> {
        let (address, wanted) = {
            let control = self.control();
            if control.is_bound() {
                return Ok(false);
            }
            let settings = &control.settings;
            let wanted = Wanted {
                only_v6: settings.only_v6,
                options: settings.udp_options.clone(),
                workers: settings.workers,
                switch: settings.switch.clone().filter(|_| may_be_shared),
                ticket_secret: None,
                socket: None,
            };
            (address(&control), wanted)
        };
        let bound = Bound::to(address, &wanted).map_err(|error| self.refused(&error))?;
        let mut control = self.control();
        let first = control.bound.is_none();
        if first {
            control.bound = Some(bound);
            control.refusal = None;
        } else {
            // Another thread was faster. Its end may take a moment.
            drop(control);
            drop(bound);
        }
        Ok(first)
    }

    /// What the call fails with. Where others than the system said so, their words are kept.
    pub(super) fn refused(&self, error: &io::Error) -> Errno {
        let in_words = error.raw_os_error().is_none();
        self.control().refusal = in_words.then(|| error.to_string());
        Errno::from(error)
    }

    /// Listens for clients that want one of the socket's protocols; 0 stops listening. A
    /// listener that is asked again only takes the new backlog. Where the address is shared
    /// ([`Socket::set_switch`]) the switch is waited for: ten seconds at most to begin, one to stop.
    ///
    /// # Errors
    ///
    /// EINVAL if the socket has a connection, or with 0 does not listen; also if a newer generation of the
    /// program has taken its place at the switch, until it stops listening. EADDRINUSE if another
    /// listener of the address, of any program that shares it ([`Socket::set_switch`]), has some of
    /// the protocols, or all of them and not both share the port ([`Socket::set_reuse_port`]).
    pub fn listen(&self, backlog: usize) -> Result<(), Errno> {
        let turn = self.shared.turn();
        let control = self.control();
        match (&control.phase, backlog) {
            (Phase::Connection(_), _) | (Phase::Idle, 0) => return Err(Errno::EINVAL),
            (Phase::Listening(_) | Phase::Inherited(_), 0) => {
                drop(control);
                self.shared.stop_listening(turn);
                return Ok(());
            }
            // What waits there can still be accepted, and nothing else will come.
            (Phase::Listening(listener), _) if listener.is_retired() => return Err(Errno::EINVAL),
            (Phase::Listening(listener), _) => {
                listener.set_backlog(backlog);
                return Ok(());
            }
            (Phase::Inherited(inherited), _) => {
                inherited.set_backlog(backlog);
                return Ok(());
            }
            (Phase::Idle, _) => {}
        }
        drop(control);
        self.bind_where(true, Control::unspecified)?;
        let mut control = self.control();
        control.refusal = None;
        if !matches!(control.phase, Phase::Idle) {
            return Err(Errno::EINVAL);
        }
        let settings = &control.settings;
        let listener = Arc::new(ListenQueue::new(
            settings.alpn.clone(),
            settings.reuse_port,
            settings.config.validate_peer_address != 0,
            backlog,
        ));
        let bound = control.bound.clone().ok_or(Errno::EINVAL)?;
        bound.hub.listen(&listener)?;
        control.phase = Phase::Listening(Arc::clone(&listener));
        drop(control);
        bound.hub.register(&listener).map_err(|error| {
            self.shared.stop_listening(turn);
            self.refused(&error)
        })
    }

    /// Waits for a client and returns a socket for it, with the settings of this one, except that
    /// it waits whether this one does or not. Its handshake is still to be performed.
    ///
    /// # Errors
    ///
    /// EINVAL if the socket does not listen (any more), also because a newer generation of the program
    /// has taken its place at the switch; EAGAIN if no client comes in time. For a listener that the process
    /// has [inherited](Socket::bequeath), the first time also what [`Socket::bind`] and [`Socket::listen`] fail with.
    ///
    /// # Waiting
    ///
    /// A listener that was inherited becomes this process's on a thread of its own when the program first accepts or
    /// [polls](Socket::attend): in milliseconds where the switch is there, and in 10 s at most where the parent has to
    /// start it and does not answer (ETIMEDOUT). Until then it has no clients.
    pub fn accept(&self) -> Result<Self, Errno> {
        let timeout = self.control().settings.receive_timeout;
        let patience = Patience::new(self.is_nonblocking(), timeout);
        self.claim(patience)?;
        let (listener, bound) = {
            let control = self.control();
            let Phase::Listening(listener) = &control.phase else { return Err(Errno::EINVAL) };
            let bound = control.bound.clone().ok_or(Errno::EINVAL)?;
            (Arc::clone(listener), bound)
        };
        let poll = |waiter: Option<Waiter<'_>>| loop {
            match listener.pop(waiter) {
                Ok(Some(greeted)) if is_alive(&greeted.cell) => return Poll::Ready(Ok(greeted)),
                // It ended while it waited.
                Ok(Some(_)) => {}
                Ok(None) => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        };
        let core = bound.core.core();
        listener.attend(&bound, Attendance::begin);
        let accepted = match patience {
            Patience::None => match poll(None) {
                Poll::Ready(result) => result,
                Poll::Pending => Err(Errno::EAGAIN),
            },
            Patience::Until(deadline) => {
                self.wait_for(core, Rank::Patient, deadline, |waiter| poll(Some(waiter)))
            }
        };
        let waits = matches!(patience, Patience::Until(_));
        // It may have left its socket to the switch meanwhile.
        let bound = self.control().bound.clone().unwrap_or(bound);
        listener.attend(&bound, |attendance| attendance.end(accepted.is_ok(), waits));
        let greeted = accepted?;
        // Workers end together, and the connection holds its own.
        Ok(self.accepted(greeted.bound().ok_or(Errno::EINVAL)?, greeted.cell))
    }

    /// A socket for a connection of this listener.
    fn accepted(&self, bound: Bound, cell: Arc<Cell>) -> Self {
        let (settings, is_v6) = {
            let control = self.control();
            (control.settings.clone(), control.is_v6)
        };
        let ledger = Arc::new(Ledger::default());
        let wanted = self.ledger().lock().inbox.wanted();
        ledger.lock().inbox.set_wanted(wanted);
        let conn = ConnRef::new(bound.core.clone(), cell);
        conn.look(|conn| {
            let hello = conn.engine.held_client_hello().unwrap_or_default().to_vec();
            ledger.mailbox.set_shown(hello.len());
            let initial = CryptoLevel::Initial.number();
            ledger.lock().inbox.push_handshake(initial, hello);
            conn.engine.follow_streams(true);
            conn.tap = Some(Arc::clone(&ledger) as Arc<dyn Tap>);
        });
        let session = Session { conn, is_server: true, begun: false, preferred: None };
        let phase = Phase::Connection(session);
        Self::with(settings, is_v6, (Some(bound), phase), ledger)
    }

    /// Begins a connection. Its handshake is still to be performed; nothing is sent before.
    ///
    /// # Errors
    ///
    /// EINVAL if the socket listens or is connected, or the address cannot be reached; else what
    /// the system says.
    pub fn connect(&self, remote: SocketAddr) -> Result<(), Errno> {
        let is_idle = |control: &Control| matches!(control.phase, Phase::Idle);
        let remote = {
            let control = self.control();
            let remote = control.accept_address(remote)?;
            let is_target = remote.port() != 0 && !remote.ip().is_unspecified();
            if is_target && is_idle(&control) { remote } else { return Err(Errno::EINVAL) }
        };
        let source = source_for(remote).map_err(|error| Errno::from(&error))?;
        // Nobody need find this address, so that the socket is one of its own.
        let is_unbound = self.bind_where(false, |_| SocketAddr::new(source, 0))?;
        let mut control = self.control();
        if !is_idle(&control) {
            return Err(Errno::EINVAL);
        }
        let settings = &control.settings;
        let mut config = ClientConfig::new(Arc::new(self.ledger().mailbox.clone()));
        config.transport = settings.transport();
        config.version = settings.version().unwrap_or(Version::V1);
        config.versions = settings.versions();
        config.hold = true;
        let bound = control.bound.as_ref().ok_or(Errno::EINVAL)?;
        let address = bound.core.local_addr();
        // The route settles what binding left open.
        let settled = SocketAddr::new(source, address.port());
        let local = Some(if address.ip().is_unspecified() { settled } else { address });
        let follows = settings.follow_network && is_unbound && bound.core.hears_of_network();
        let follow = follows.then(|| Follow::new(true));
        let conn = bound.core.begin(config, remote, local, "", follow);
        let conn = conn.map_err(|_| Errno::EINVAL)?;
        // What has changed between the look and now was not heard of by this connection.
        if follows && source_for(remote).ok() != Some(source) {
            bound.core.look_at_network_again();
        }
        let ledger = Arc::clone(self.ledger());
        conn.act(|conn, _| {
            conn.engine.follow_streams(true);
            conn.tap = Some(ledger);
        });
        let session = Session { conn, is_server: false, begun: false, preferred: None };
        control.phase = Phase::Connection(session);
        Ok(())
    }

    /// Dissolving an association, as connect(2) with AF_UNSPEC would: QUIC has no such thing.
    ///
    /// # Errors
    ///
    /// Always EOPNOTSUPP.
    pub const fn disconnect(&self) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// True once the handshake is complete and while the connection lives.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.control().state() == State::Established
    }
}

fn is_alive(cell: &Cell) -> bool {
    cell.lock().ended.is_none()
}
