//! Programs that come to an address, and come back to it.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::epoll::EpollFlags;
use quicket_engine::time::Duration;

use super::Daemon;
use super::address::Address;
use super::events::Token;
use super::family::is_lifeline;
use super::program::{Seat, refused};
use super::serve::{names_of, refusal};
use super::tenant::TENANT_BACKLOG;
use crate::channel::{Outlet, Word};
use crate::keep::Keep;
use crate::ledger::LedgerReader;
use crate::protocol::{
    self, Hex, Join, Joined, Message, Refusal, Refused, Reply, Resume, Secrets, Served, encode,
};
use crate::registry::{
    AddressId, Claim, Deed, ListenAddress, ListenerId, Names, Phase, Place, ProcessId, Receipt,
    Registered, Registration,
};
use crate::sys;

/// What a program brings beside channels, and what ends with a family.
struct Brought {
    socket: Option<UdpSocket>,
    keep: Option<Keep>,
    ledger: Option<LedgerReader>,
}

impl Daemon {
    /// Has a program be at an address, and answers it; the error is an answer, too.
    pub(super) fn join(
        &mut self,
        process: ProcessId,
        number: u32,
        join: &Join,
        came: &mut Vec<OwnedFd>,
    ) -> Result<(), Reply> {
        let uid = self.may_join(process)?;
        let tenant = self.users.is_tenant(uid);
        let mut listen = ListenAddress::new(join.address, join.only_v6);
        if tenant {
            self.check_tenant(process, join, listen.socket_addr())?;
        }
        if join.remains && (tenant || join.workers != 1) {
            let text =
                "who has an address's socket to itself is of the switch's user, and has one worker";
            return Err(refused(Refusal::Invalid, text));
        }
        let Brought { socket, keep, ledger } = self.unpack(process, join, &listen, came)?;
        let socket = match self.registry.address_id(&listen).is_none() {
            true if tenant => {
                let (socket, bound) = self.bind_for(process, listen)?;
                listen = bound;
                Some(socket)
            }
            true => socket.or_else(|| self.store.take(&listen)),
            false => socket,
        };
        let joined = self.register(process, uid, join, listen);
        let joined = joined.inspect_err(|_| {
            // Nobody reads what was kept, and so nobody has it.
            if self.registry.address_id(&listen).is_none() && socket.is_some() {
                self.store.release(&listen);
            }
        })?;
        if let Some(displaced) = joined.displaced {
            self.displace(displaced);
        }
        let (listener, now) = (joined.listener, self.now());
        let resume = join.resume.as_deref();
        let settled = self.settle(&joined, resume, listen, (socket, keep), uid);
        let settled = settled.and_then(|()| match tenant {
            true => self.set_options(listener.address(), &join.options, joined.new_address),
            false => Ok(()),
        });
        let settled = settled.map(|()| {
            let is_new = resume.is_none() && join.steered && !tenant;
            if is_new { self.give_sockets(listener, join.workers) } else { Vec::new() }
        });
        let settled = settled.and_then(|sockets| Ok((sockets, self.sender_for(listener, uid)?)));
        let (sockets, sender) = match settled {
            Ok(settled) => settled,
            Err(reply) => {
                self.registry.remove(now, listener);
                if !self.addresses.contains_key(&listener.address()) {
                    self.registry.forget(listener.address());
                }
                self.close_if_unused(listener.address());
                return Err(reply);
            }
        };
        self.binding.end(process);
        let mut outlets: Vec<_> =
            came.drain(..usize::from(join.workers)).map(Outlet::new).collect();
        let who = self.programs.who(process);
        if let Some((kin, who)) = join.kin.zip(who) {
            self.know_family(listener.address(), who, kin.family.0, came.swap_remove(0));
        }
        if let Some(clerk) = self.users.clerk(uid) {
            outlets.iter_mut().for_each(|outlet| outlet.set_clerk(clerk.clone()));
        }
        let Some(program) = self.programs.get_mut(process) else { return Ok(()) };
        log::info!("{} (process {}) is at {listen}", join.label, program.pid);
        if tenant {
            outlets.iter_mut().for_each(|outlet| outlet.set_backlog(TENANT_BACKLOG));
        }
        let (address, upgrades, drain) = (listener.address(), false, None);
        let resumed = resume.is_some_and(|resume| !resume.sockets.is_empty());
        if resume.is_some() {
            // The switch before this one may have lent it the address's socket.
            outlets.iter_mut().for_each(|outlet| outlet.say_for_sure(Word::Recall));
        }
        let ledger = ledger.filter(|_| !tenant && (resumed || !sockets.is_empty()));
        let mut seat = Seat { address, listener, outlets, ledger, sender, upgrades, drain };
        let served = resume.and_then(|resume| resume.served.as_ref());
        served.iter().for_each(|served| seat.heed(&served.serve));
        program.seat = Some(seat);
        self.programs.give(listener, process);
        if join.remains {
            self.take_back(address);
            self.try_to_shut(address);
            self.traffic.router.set_remainder(address, Place { listener, worker: 0 });
        }
        // Who remains hands over the first packets that have waited there; who comes back may have been lent the address's
        // socket, and has handed back what was another's.
        if tenant || resume.is_some() || join.remains || !sockets.is_empty() {
            self.programs.hear_channels(&self.events, process);
        }
        // What it had reserved it serves again; unless a newer generation has come back first, which it hears
        // behind the answer.
        let served = self.registry.phase(listener) == Some(Phase::Preparing);
        let deed = served.then(|| self.registry.deed(listener)).flatten();
        if served {
            self.try_to_shut(address);
        }
        let replaced = served.then(|| self.registry.ready(now, listener, None));
        let left = join.resume.as_deref().filter(|resume| resume.draining);
        if let Some(left) = left.and_then(|resume| resume.drain_seconds_left) {
            // It is there: it has joined.
            let _ = self.registry.drain(listener, Some(now + Duration::from_secs(left.into())));
        }
        let has_socket = join.has_socket || tenant;
        if !self.say_joined((process, number), &joined, deed, (&sockets, has_socket)) {
            self.dismiss(process);
        }
        if let Some(Ok(replaced)) = replaced {
            self.supersede(&replaced);
        }
        self.settle_family_of(listener, None);
        self.unpark(listener.address());
        if !self.programs.watch(&self.events, process) {
            self.dismiss(process);
        }
        Ok(())
    }

    /// Somebody has come back whose number it is by right: who had it meanwhile is served no more.
    fn displace(&mut self, displaced: ListenerId) {
        let Some(process) = self.programs.owner(displaced) else {
            return self.forget(displaced);
        };
        let text = "another program has come back that had these connection IDs later".to_owned();
        self.expel(process, Refused { why: Refusal::InUse, text });
    }

    /// Whose the program is, if it may be at an address.
    fn may_join(&self, process: ProcessId) -> Result<u32, Reply> {
        let invalid = |text: &str| refused(Refusal::Invalid, text);
        let program = self.programs.get(process).ok_or_else(|| invalid("no such program"))?;
        if program.seat.is_some() {
            return Err(invalid("a program is at one address for each connection"));
        }
        if program.uid != self.users.own() && self.users.tenants().is_none() {
            let text = format!(
                "this switch is that of user {}: root may ask it, and has one of its own to join",
                self.users.own()
            );
            return Err(refused(Refusal::Denied, text));
        }
        Ok(program.uid)
    }

    /// Looks at what came with a message: a channel for each worker, and then the socket. The channels, and what ends with
    /// a family, stay there, in this order, until nothing can fail any more: they are closed by who answers.
    fn unpack(
        &mut self,
        process: ProcessId,
        join: &Join,
        listen: &ListenAddress,
        came: &mut Vec<OwnedFd>,
    ) -> Result<Brought, Reply> {
        let invalid = |text: &str| refused(Refusal::Invalid, text);
        let workers = usize::from(join.workers);
        let more = usize::from(join.has_socket)
            + 2 * usize::from(join.has_keep)
            + usize::from(join.kin.is_some())
            + usize::from(join.has_ledger);
        if came.len() != workers + more {
            return Err(invalid("there is a channel for each worker, and then the sockets"));
        }
        let own_sockets = usize::from(join.has_socket) + 2 * usize::from(join.has_keep);
        let channels = came.iter().take(workers).try_for_each(|each| Outlet::check(each.as_fd()));
        channels.map_err(|error| invalid(&error.to_string()))?;
        let lifeline = came.get(workers + own_sockets).filter(|_| join.kin.is_some());
        if lifeline.is_some_and(|lifeline| !is_lifeline(lifeline.as_fd())) {
            return Err(invalid("what ends with a family is no local socket (SOCK_STREAM)"));
        }
        // Programs of other users have none of these, and no ledger of theirs is read.
        let mut own = came.drain(workers..workers + own_sockets);
        let socket = own.by_ref().take(join.has_socket.into()).next().map(UdpSocket::from);
        let keep = own.next().zip(own.next()).map(|(put, look)| Keep::from_ends(put, look));
        drop(own);
        let reads = join.has_ledger && !self.is_tenant_process(process);
        let ledger = reads.then(|| came.pop()).flatten().map(LedgerReader::new).transpose();
        let ledger = ledger.map_err(|error| invalid(&error.to_string()))?;
        if let Some(socket) = &socket {
            check_socket(socket, listen).map_err(|text| invalid(&text))?;
        } else if self.store.has(listen) {
            // Nobody has to bind it.
        } else if !self.is_tenant_process(process) && self.registry.address_id(listen).is_none() {
            return Err(self.have_bound(process, *listen));
        }
        Ok(Brought { socket, keep, ledger })
    }

    /// Has a program bind an address that is not known here.
    fn have_bound(&mut self, process: ProcessId, listen: ListenAddress) -> Reply {
        let Some(patience) = self.binding.begin(self.now(), process, listen) else {
            return refused(Refusal::Later, "another program is binding the address");
        };
        let patience = patience.as_nanos().div_ceil(1_000_000);
        Reply::Bind { patience: u32::try_from(patience).unwrap_or(u32::MAX) }
    }

    /// Gives a program an owner number; and to one that comes back what it had.
    fn register(
        &mut self,
        process: ProcessId,
        uid: u32,
        join: &Join,
        address: ListenAddress,
    ) -> Result<Registered, Reply> {
        let resume = join.resume.as_deref();
        let claim = resume.map(|resume| Claim {
            generation: resume.generation,
            receipt: Receipt {
                incarnation: resume.receipt.incarnation,
                proof: resume.receipt.proof.0,
            },
            draining: resume.draining,
        });
        let mut registration = Registration {
            address,
            uid,
            process,
            program: join.label.clone(),
            names: Names::default(),
            workers: join.workers,
            reuse_port: false,
            replace: false,
            claim,
            family: join.kin.map(|kin| kin.family.0),
            attention: join.kin.map(|kin| kin.attention).unwrap_or_default().into(),
        };
        let now = self.now();
        let joined = match resume.and_then(|resume| resume.served.as_ref()) {
            None => self.registry.join(now, registration),
            // The rule may be another one by now: it comes back without the names, and hears why when it asks.
            Some(Served { serve, .. })
                if self
                    .check_names_at(process, address.socket_addr(), &names_of(serve)?)
                    .is_err() =>
            {
                self.registry.join(now, registration)
            }
            Some(Served { serve, proof }) => {
                registration.names = names_of(serve)?;
                registration.reuse_port = serve.shared;
                registration.replace = serve.replace;
                self.registry.rejoin(now, registration, Some(&proof.0))
            }
        };
        joined.map_err(|error| refusal(&error))
    }

    /// Whether a program has what it came back for; and where it is the first, the address is opened. If not, its
    /// registration ends.
    fn settle(
        &mut self,
        joined: &Registered,
        resume: Option<&Resume>,
        listen: ListenAddress,
        (socket, keep): (Option<UdpSocket>, Option<Keep>),
        uid: u32,
    ) -> Result<(), Reply> {
        let id = joined.listener.address();
        // Nothing that another user says decides how connection IDs are read.
        let (own, theirs) = match self.users.is_tenant(uid) {
            true => (None, resume),
            false => (resume, None),
        };
        let in_use = |text: &str| Err(refused(Refusal::InUse, text));
        if resume.is_some() && !joined.kept {
            return in_use("another program has the connection IDs of this one by now");
        }
        let known = |resume: &Resume| {
            let secrets = self.secrets_of(id, uid);
            secrets.is_some_and(|now| {
                resume.secrets.keys.iter().take(1).all(|had| now.keys.contains(had))
            })
        };
        let secrets = self.addresses.get(&id).map(|address| &address.secrets);
        if own.is_some_and(|resume| !self.issuer.may_take_in(secrets, &resume.secrets))
            || theirs.is_some_and(|resume| !known(resume))
        {
            return in_use(
                "the address has other keys by now: connection IDs of this program lead nowhere",
            );
        }
        if joined.new_address {
            let resumed = own.map(|resume| &resume.secrets);
            self.open(id, listen, socket, resumed).map_err(|error| {
                let text = format!("cannot read the address's socket: {error}");
                refused(Refusal::Invalid, text)
            })?;
        }
        if !self.addresses.contains_key(&id) {
            return Err(refused(Refusal::Invalid, "the address has no socket"));
        }
        if let Some(resume) = own
            && !self.take_sockets_back(joined.listener, &resume.sockets, keep)
        {
            return in_use("another program has the sockets of this one by now");
        }
        if let Some(resume) = own {
            self.take_in(id, &resume.secrets);
        }
        Ok(())
    }

    /// Tells a program where it is; false if it does not hear that.
    fn say_joined(
        &mut self,
        (process, number): (ProcessId, u32),
        joined: &Registered,
        deed: Option<Deed>,
        (sockets, has_socket): (&[u16], bool),
    ) -> bool {
        let listener: ListenerId = joined.listener;
        let tenancy = self.tenancy_of(process, listener);
        let Some(address) = self.addresses.get(&listener.address()) else { return false };
        let Some(program) = self.programs.get(process) else { return false };
        let secrets = self.secrets_of(listener.address(), program.uid);
        let Some(secrets) = secrets else { return false };
        let receipt = protocol::Receipt {
            incarnation: joined.receipt.incarnation,
            proof: Hex(joined.receipt.proof),
        };
        let reply = Reply::Joined(Box::new(Joined {
            generation: listener.generation(),
            receipt,
            served: deed.map(Hex),
            register: self.strikes.register(),
            secrets,
            sockets: sockets.to_vec(),
            tenancy,
            forwards: self.doors.are_kept_shut(),
        }));
        let first = Some(address.socket.as_fd()).filter(|_| !has_socket);
        let handles = first.into_iter().chain(self.handles(listener.address(), sockets));
        let handles: Vec<_> = handles.collect();
        let sent = encode(&Message::Answer { number, reply }).map_err(io::Error::from);
        let sent =
            sent.and_then(|bytes| sys::send_with(program.connection.as_fd(), &bytes, &handles));
        if let Err(error) = &sent {
            log::debug!("process {} was not told where it is: {error}", program.pid);
        }
        sent.is_ok()
    }

    /// Begins to read an address.
    fn open(
        &mut self,
        id: AddressId,
        listen: ListenAddress,
        socket: Option<UdpSocket>,
        resumed: Option<&Secrets>,
    ) -> io::Result<()> {
        let socket = socket.ok_or(io::ErrorKind::NotFound)?;
        let secrets = self.issuer.secrets_of_new_address(resumed)?;
        let reader = self.issuer.reader(&secrets)?;
        let configurations = reader.configurations.clone();
        let address = Address::new(listen, socket, secrets, configurations)?;
        self.events.add(&address.socket, EpollFlags::EPOLLIN, Token::Address(id.number()))?;
        self.traffic.router.set_reader(id, reader);
        self.store.keep(&listen, &address.socket);
        self.addresses.insert(id, address);
        Ok(())
    }
}

/// Whether a socket is what the program says.
fn check_socket(socket: &UdpSocket, listen: &ListenAddress) -> Result<(), String> {
    let kind = nix::sys::socket::getsockopt(socket, nix::sys::socket::sockopt::SockType);
    let bound = socket.local_addr().map_err(|error| format!("no UDP socket: {error}"))?;
    if kind != Ok(nix::sys::socket::SockType::Datagram) {
        return Err("the socket is none of datagrams".to_owned());
    }
    if ListenAddress::new(bound, listen.only_v6()) != *listen {
        return Err(format!("the socket is bound to {bound} and not to {listen}"));
    }
    Ok(())
}
