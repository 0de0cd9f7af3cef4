//! What programs ask, and what becomes of it.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::epoll::{EpollEvent, EpollFlags};
use quicket_engine::time::Duration;

use super::address::{Address, reader};
use super::program::{Seat, refused};
use super::{Daemon, Token};
use crate::channel::Outlet;
use crate::protocol::{Join, Refusal, Reply, Request, Secrets, Serve, VERSION};
use crate::registry::{
    AddressId, Claim, ListenAddress, Names, Phase, ProcessId, Protocol, ReadyError, Receipt,
    RegisterError, Registration, ServerName,
};

/// How long a generation that was replaced may keep its connections, unless its program ends before.
/// It may end them itself sooner.
const DRAIN: Option<Duration> = None;
/// The length of a part of a report, in bytes.
const PART: usize = 32 << 10;

impl Daemon {
    pub(super) fn answer(&mut self, process: ProcessId, request: Request, came: Vec<OwnedFd>) {
        let reply = match request {
            Request::Join(join) => match self.join(process, &join, came) {
                Ok(()) => return,
                Err(reply) => reply,
            },
            Request::Serve(serve) => self.serve(process, &serve).unwrap_or_else(|reply| reply),
            Request::Cease => self.cease(process),
            Request::Status => return self.tell_status(process),
            Request::Upgrade => self.tell_all_to_upgrade(process),
        };
        if let Some(program) = self.programs.get(&process) {
            program.tell(&reply);
        }
    }

    fn join(&mut self, process: ProcessId, join: &Join, came: Vec<OwnedFd>) -> Result<(), Reply> {
        let invalid = |text: &str| refused(Refusal::Invalid, text);
        let program = self.programs.get(&process).ok_or_else(|| invalid("no such program"))?;
        if join.version != VERSION {
            let text = format!(
                "the switch speaks version {VERSION}, and the program {}: end the older one",
                join.version
            );
            return Err(refused(Refusal::Version, text));
        }
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
            // Of the user that runs the switch nothing is to be proved.
            receipt: Receipt { incarnation: 0, proof: [0; 16] },
            draining: false,
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
        if claim.is_some() && self.addresses.is_empty() {
            self.registry.take_over(now);
        }
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
        let reply =
            Reply::Joined { generation: listener.generation(), secrets: address.secrets.clone() };
        let handle = [address.socket.as_fd()];
        let handles = if join.has_socket { &[][..] } else { &handle[..] };
        let Some(program) = self.programs.get_mut(&process) else { return Ok(()) };
        log::info!("{} (process {}) is at {listen}", join.label, program.pid);
        program.seat = Some(Seat { address: id, listener, outlets, upgrades: false });
        program.tell_with(&reply, handles);
        self.seats.insert(listener, process);
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

    /// Stops reading an address that nobody is at.
    pub(super) fn close_if_unused(&mut self, id: AddressId) {
        if self.registry.forget(id)
            && let Some(address) = self.addresses.remove(&id)
        {
            let _ = self.epoll.delete(&address.socket);
            self.router.remove_address(id);
        }
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
        let replaced = self.registry.ready(now, listener, DRAIN);
        for earlier in replaced.map_err(|error| not_ready(&error))? {
            let program = self.seats.get(&earlier).and_then(|process| self.programs.get(process));
            if let Some(program) = program {
                program.tell(&Reply::Superseded);
            }
        }
        let program = self.programs.get_mut(&process);
        if let Some(seat) = program.and_then(|program| program.seat.as_mut()) {
            seat.upgrades = serve.upgrades;
        }
        Ok(Reply::Done)
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

    fn tell_status(&self, process: ProcessId) {
        let Some(program) = self.programs.get(&process) else { return };
        let text = self.report().to_string();
        let mut rest = text.as_str();
        loop {
            let at = rest.floor_char_boundary_at(PART);
            let (part, more) = rest.split_at(at);
            program.tell(&Reply::Status { text: part.to_owned(), last: more.is_empty() });
            if more.is_empty() {
                return;
            }
            rest = more;
        }
    }

    fn tell_all_to_upgrade(&self, process: ProcessId) -> Reply {
        let mut told = 0;
        for (id, program) in &self.programs {
            let active = program
                .seat
                .as_ref()
                .filter(|seat| seat.upgrades)
                .is_some_and(|seat| self.registry.phase(seat.listener) == Some(Phase::Active));
            if *id != process && active {
                program.tell(&Reply::Upgrade);
                told += 1;
            }
        }
        if told == 0 {
            return refused(
                Refusal::Invalid,
                "no program that serves something here can start its next generation: quicket serve \
                        --switch can, and programs with SwitchConfig::on_upgrade",
            );
        }
        Reply::Done
    }
}

/// [`str::floor_char_boundary`], which is younger than the Rust that is asked for.
trait Floor {
    fn floor_char_boundary_at(&self, at: usize) -> usize;
}

impl Floor for str {
    fn floor_char_boundary_at(&self, at: usize) -> usize {
        let mut at = at.min(self.len());
        while !self.is_char_boundary(at) {
            at -= 1;
        }
        at
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
