//! What programs ask, and what becomes of it.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::epoll::{EpollEvent, EpollFlags};
use quicket_engine::time::Duration;

use super::address::{Address, reader};
use super::program::{Seat, refused};
use super::{Daemon, Token, time_of_day};
use crate::channel::Outlet;
use crate::protocol::{
    self, Hex, Join, Joined, Message, Notice, Question, Refusal, Reply, Request, Secrets, Serve,
    Strike, encode,
};
use crate::registry::{
    AddressId, Claim, ListenAddress, ListenerId, Names, Phase, ProcessId, Protocol, ReadyError,
    Receipt, RegisterError, Registration, ServerName,
};
use crate::sys;

impl Daemon {
    pub(super) fn answer(&mut self, process: ProcessId, question: Question, came: Vec<OwnedFd>) {
        let Question { number, request, .. } = question;
        let reply = match request {
            Request::Join(join) => match self.join(process, number, &join, came) {
                Ok(()) => return,
                Err(reply) => reply,
            },
            Request::Serve(serve) => self.serve(process, &serve).unwrap_or_else(|reply| reply),
            Request::Cease => self.cease(process),
            Request::Leave => {
                // At once: children that it has forked may have the connection, too, and keep it open.
                if let Some(program) = self.programs.get_mut(&process) {
                    program.leave();
                }
                return self.dismiss(process);
            }
            Request::Connections(count) => return self.on_connections(process, count),
            Request::Strike(Strike { register, ticket }) => {
                let now = time_of_day().as_secs();
                Reply::Struck(self.strikes.is_first_use(now, &register.0, &ticket.0))
            }
            Request::Status => return self.ask_for_status(process, number),
            Request::Upgrade => self.tell_all_to_upgrade(process),
        };
        self.tell(process, &Message::Answer { number, reply });
    }

    fn join(
        &mut self,
        process: ProcessId,
        number: u32,
        join: &Join,
        came: Vec<OwnedFd>,
    ) -> Result<(), Reply> {
        let invalid = |text: &str| refused(Refusal::Invalid, text);
        let program = self.programs.get(&process).ok_or_else(|| invalid("no such program"))?;
        if program.seat.is_some() {
            return Err(invalid("a program is at one address for each connection"));
        }
        let workers = usize::from(join.workers);
        if came.len() != workers + usize::from(join.has_socket) {
            return Err(invalid("there is a channel for each worker, and then the socket"));
        }
        let uid = program.uid;
        if uid != self.own_uid {
            let text = format!(
                "this switch is that of user {}: root may ask it, and has one of its own to join",
                self.own_uid
            );
            return Err(refused(Refusal::Denied, text));
        }
        let mut came = came.into_iter();
        let outlets = came.by_ref().take(workers).map(Outlet::new).collect::<io::Result<Vec<_>>>();
        let outlets = outlets.map_err(|error| invalid(&error.to_string()))?;
        let listen = ListenAddress::new(join.address, join.only_v6);
        let socket = came.next().map(UdpSocket::from);
        if let Some(socket) = &socket {
            check_socket(socket, &listen).map_err(|text| invalid(&text))?;
        } else if self.registry.address_id(&listen).is_none() {
            return Err(Reply::Bind);
        }
        let claim = join.resume.as_ref().map(|resume| Claim {
            generation: resume.generation,
            receipt: Receipt {
                incarnation: resume.receipt.incarnation,
                proof: resume.receipt.proof.0,
            },
            draining: resume.draining,
        });
        let registration = Registration {
            address: listen,
            uid,
            process,
            program: join.label.clone(),
            names: Names::default(),
            workers: join.workers,
            reuse_port: false,
            replace: false,
            claim,
        };
        let now = self.now();
        let joined = self.registry.join(now, registration).map_err(|error| refusal(&error))?;
        let listener = joined.listener;
        let id = listener.address();
        if claim.is_some() && !joined.kept {
            self.registry.remove(now, listener);
            self.close_if_unused(id);
            let text = "another program has the connection IDs of this one by now";
            return Err(refused(Refusal::InUse, text));
        }
        let resumed = join.resume.as_ref().map(|resume| resume.secrets.clone());
        let known = self.addresses.get(&id).map(|address| &address.secrets);
        if let (Some(known), Some(resumed)) = (known, &resumed)
            && known != resumed
        {
            self.registry.remove(now, listener);
            self.close_if_unused(id);
            let text =
                "the address has other keys by now: connection IDs of this program lead nowhere";
            return Err(refused(Refusal::InUse, text));
        }
        if joined.new_address
            && let Err(error) = self.open(id, listen, socket, resumed)
        {
            self.registry.remove(now, listener);
            self.registry.forget(id);
            return Err(refused(
                Refusal::Invalid,
                format!("cannot read the address's socket: {error}"),
            ));
        }
        let Some(address) = self.addresses.get(&id) else {
            self.registry.remove(now, listener);
            return Err(invalid("the address has no socket"));
        };
        let receipt = protocol::Receipt {
            incarnation: joined.receipt.incarnation,
            proof: Hex(joined.receipt.proof),
        };
        let reply = Reply::Joined(Box::new(Joined {
            generation: listener.generation(),
            receipt,
            register: self.strikes.register(),
            secrets: address.secrets.clone(),
        }));
        let handle = [address.socket.as_fd()];
        let handles = if join.has_socket { &[][..] } else { &handle[..] };
        let Some(program) = self.programs.get_mut(&process) else { return Ok(()) };
        log::info!("{} (process {}) is at {listen}", join.label, program.pid);
        let sent = encode(&Message::Answer { number, reply }).map_err(io::Error::from);
        let sent =
            sent.and_then(|bytes| sys::send_with(program.connection.as_fd(), &bytes, handles));
        program.seat = Some(Seat { address: id, listener, outlets, upgrades: false, drain: None });
        self.seats.insert(listener, process);
        let left = join.resume.as_ref().filter(|resume| resume.draining);
        if let Some(left) = left.and_then(|resume| resume.drain_seconds_left) {
            // It is there: it has joined.
            let _ = self.registry.drain(listener, Some(now + Duration::from_secs(left.into())));
        }
        if let Err(error) = sent {
            log::debug!("process {} was not told where it is: {error}", program.pid);
            self.dismiss(process);
        }
        self.watch(process);
        Ok(())
    }

    /// Begins to read an address.
    fn open(
        &mut self,
        id: AddressId,
        listen: ListenAddress,
        socket: Option<UdpSocket>,
        secrets: Option<Secrets>,
    ) -> io::Result<()> {
        let socket = socket.ok_or(io::ErrorKind::NotFound)?;
        let random = &mut self.tools.random;
        let secrets = secrets.unwrap_or_else(|| Secrets::draw(&mut |out| random.fill(out)));
        let reader = reader(&secrets, self.tools.aes_128)?;
        let address = Address::new(listen, socket, secrets)?;
        let token = Token::Address(id.number());
        self.epoll.add(&address.socket, EpollEvent::new(EpollFlags::EPOLLIN, token.pack()))?;
        self.router.set_reader(id, reader);
        self.addresses.insert(id, address);
        Ok(())
    }

    fn serve(&mut self, process: ProcessId, serve: &Serve) -> Result<Reply, Reply> {
        let listener = self.seat_of(process)?;
        let invalid = |error: &dyn std::fmt::Display| refused(Refusal::Invalid, error.to_string());
        let protocols: Result<Vec<_>, _> =
            serve.protocols.iter().map(|name| Protocol::new(&name.0)).collect();
        let servers: Result<Vec<_>, _> =
            serve.server_names.iter().map(|name| ServerName::new(name)).collect();
        let names = Names::new(
            protocols.map_err(|error| invalid(&error))?,
            servers.map_err(|error| invalid(&error))?,
        );
        let names = names.map_err(|error| invalid(&error))?;
        let now = self.now();
        let done = self.registry.serve(listener, names, serve.shared, serve.replace);
        done.map_err(|error| not_ready(&error))?;
        let program = self.programs.get_mut(&process);
        if let Some(seat) = program.and_then(|program| program.seat.as_mut()) {
            seat.upgrades = serve.upgrades;
            seat.drain = serve.drain_seconds.map(|time| Duration::from_secs(time.into()));
        }
        let replaced = self.registry.ready(now, listener, None);
        for earlier in replaced.map_err(|error| not_ready(&error))? {
            self.supersede(earlier);
        }
        Ok(Reply::Done)
    }

    /// A newer generation has taken the place of a listener, which keeps its connections for as long as
    /// it has said.
    fn supersede(&mut self, earlier: ListenerId) {
        let Some(process) = self.seats.get(&earlier).copied() else { return };
        let seat = self.programs.get(&process).and_then(|program| program.seat.as_ref());
        if let Some(drain) = seat.and_then(|seat| seat.drain) {
            let deadline = self.now() + drain;
            // It is there: it has a seat.
            let _ = self.registry.drain(earlier, Some(deadline));
        }
        self.tell(process, &Message::Notice(Notice::Superseded));
    }

    fn cease(&mut self, process: ProcessId) -> Reply {
        match self.seat_of(process) {
            Ok(listener) => {
                let served = self.registry.phase(listener) != Some(Phase::Joined);
                if served {
                    let _ = self.registry.drain(listener, None);
                }
                Reply::Done
            }
            Err(reply) => reply,
        }
    }

    fn seat_of(&self, process: ProcessId) -> Result<crate::registry::ListenerId, Reply> {
        let program = self.programs.get(&process);
        let seat = program.and_then(|program| program.seat.as_ref());
        let none = || refused(Refusal::Invalid, "the program is at no address yet");
        seat.map(|seat| seat.listener).ok_or_else(none)
    }

    fn tell_all_to_upgrade(&mut self, process: ProcessId) -> Reply {
        let upgrades = |seat: &Seat| {
            seat.upgrades && self.registry.phase(seat.listener) == Some(Phase::Active)
        };
        let others = self.programs.iter().filter(|(id, _)| **id != process);
        let able = others.filter(|(_, program)| program.seat.as_ref().is_some_and(upgrades));
        let able: Vec<_> = able.map(|(id, _)| *id).collect();
        for id in &able {
            self.tell(*id, &Message::Notice(Notice::Upgrade));
        }
        if able.is_empty() {
            return refused(
                Refusal::Invalid,
                "no program that serves something here can start its next generation: quicket serve \
                        --switch can, and programs with SwitchConfig::on_upgrade",
            );
        }
        Reply::Done
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

fn refusal(error: &RegisterError) -> Reply {
    let why = match error {
        error if error.is_in_use() => Refusal::InUse,
        RegisterError::Reclaiming(_) => Refusal::Later,
        RegisterError::NoPort | RegisterError::Workers(_) | RegisterError::ProgramName(_) => {
            Refusal::Invalid
        }
        _ => Refusal::Full,
    };
    refused(why, error.to_string())
}

fn not_ready(error: &ReadyError) -> Reply {
    match error {
        ReadyError::Names(error) => refusal(error),
        ReadyError::Gone(error) => refused(Refusal::Invalid, error.to_string()),
    }
}
