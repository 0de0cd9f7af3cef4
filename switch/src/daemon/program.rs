//! Programs: connections to the switch, and what came over them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::epoll::{EpollEvent, EpollFlags};
use nix::sys::socket::{getsockopt, sockopt};

use super::{Daemon, MAX_PROGRAMS, Token};
use crate::channel::Outlet;
use crate::protocol::{MAX_MESSAGE, Refusal, Reply, Request, encode};
use crate::registry::{AddressId, ListenerId, ProcessId};
use crate::sys;

/// Messages that are read of one program before others get their turn.
const MESSAGES_PER_TURN: usize = 16;

/// Connections that are taken before others get their turn.
const CONNECTIONS_PER_TURN: usize = 16;
/// How long nobody is taken after one could not be.
pub(super) const DEAF: Duration = Duration::from_millis(100);

/// A program, or somebody who asks.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) connection: OwnedFd,
    pub(super) uid: u32,
    pub(super) pid: i32,
    pub(super) seat: Option<Seat>,
    since: Instant,
    /// Whether it has said anything yet.
    pub(super) has_asked: bool,
}

/// A program's share of an address.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) address: AddressId,
    pub(super) listener: ListenerId,
    pub(super) outlets: Vec<Outlet>,
    /// Whether it wants to be told to start its next generation.
    pub(super) upgrades: bool,
}

impl Program {
    /// Since when it is there, if it has said nothing.
    pub(super) fn is_silent_since(&self) -> Option<Instant> {
        (!self.has_asked).then_some(self.since)
    }

    /// Says something; who does not listen does not hear it.
    pub(super) fn tell(&self, reply: &Reply) {
        self.tell_with(reply, &[]);
    }

    pub(super) fn tell_with(&self, reply: &Reply, descriptors: &[std::os::fd::BorrowedFd<'_>]) {
        let sent = encode(reply).map_err(io::Error::from);
        let sent =
            sent.and_then(|bytes| sys::send_with(self.connection.as_fd(), &bytes, descriptors));
        if let Err(error) = sent {
            log::debug!("process {} was not told: {error}", self.pid);
        }
    }
}

/// An answer that is a refusal.
pub(super) fn refused(why: Refusal, text: impl Into<String>) -> Reply {
    Reply::Refused { why, text: text.into() }
}

impl Daemon {
    /// Takes those who connect.
    pub(super) fn welcome(&mut self) {
        for _ in 0..CONNECTIONS_PER_TURN {
            match sys::accept(self.listener.as_fd()) {
                Ok(connection) => {
                    if let Err(error) = self.admit(connection) {
                        log::warn!("a program is not heard: {error}");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => return self.turn_away(&error),
            }
        }
    }

    /// Nobody can be taken for now, such as for want of descriptors: those who connect wait.
    fn turn_away(&mut self, error: &io::Error) {
        self.complaints.warn(format_args!(
            "programs that connect have to wait: {error}; allow the switch more descriptors"
        ));
        if self.epoll.delete(&self.listener).is_ok() {
            self.deaf_until = Some(Instant::now() + DEAF);
        }
    }

    /// Takes those again who connect, when it is time.
    pub(super) fn hear_again(&mut self) {
        if self.deaf_until.is_some_and(|until| until <= Instant::now()) {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, Token::Listener.pack());
            let added = self.epoll.add(&self.listener, event);
            self.deaf_until = added.is_err().then(|| Instant::now() + DEAF);
        }
    }

    fn admit(&mut self, connection: OwnedFd) -> io::Result<()> {
        let peer = getsockopt(&connection, sockopt::PeerCredentials)?;
        let process = ProcessId(self.next_process);
        let token = u32::try_from(self.next_process).map_err(io::Error::other)?;
        let program = Program {
            connection,
            uid: peer.uid(),
            pid: peer.pid(),
            seat: None,
            since: Instant::now(),
            has_asked: false,
        };
        if program.uid != self.own_uid && program.uid != 0 {
            let text = format!(
                "this switch is that of user {}: start one of your own, quicket switch",
                self.own_uid
            );
            program.tell(&refused(Refusal::Denied, text));
            return Ok(());
        }
        if self.programs.len() >= MAX_PROGRAMS {
            let text = format!("the switch has {MAX_PROGRAMS} programs: end some");
            program.tell(&refused(Refusal::Full, text));
            return Ok(());
        }
        let event = EpollEvent::new(EpollFlags::EPOLLIN, Token::Program(token).pack());
        self.epoll.add(&program.connection, event)?;
        self.next_process += 1;
        self.programs.insert(process, program);
        Ok(())
    }

    /// Reads what a program says.
    pub(super) fn hear(&mut self, process: ProcessId, events: EpollFlags) {
        let mut buffer = vec![0; MAX_MESSAGE + 1];
        for _ in 0..MESSAGES_PER_TURN {
            let Some(program) = self.programs.get_mut(&process) else { return };
            let (len, descriptors) =
                match sys::receive_with(program.connection.as_fd(), &mut buffer) {
                    Ok((0, _)) => return self.dismiss(process),
                    Ok(received) => received,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        program.tell(&refused(Refusal::Invalid, error.to_string()));
                        return self.dismiss(process);
                    }
                    Err(_) => return self.dismiss(process),
                };
            program.has_asked = true;
            match Request::decode(buffer.get(..len).unwrap_or_default()) {
                Ok(request) => self.answer(process, request, descriptors),
                Err(error) => {
                    program.tell(&refused(Refusal::Invalid, error.to_string()));
                    return self.dismiss(process);
                }
            }
        }
        if events.contains(EpollFlags::EPOLLHUP) {
            self.dismiss(process);
        }
    }

    /// A program has gone, and all that it had with it.
    pub(super) fn dismiss(&mut self, process: ProcessId) {
        let Some(program) = self.programs.remove(&process) else { return };
        let _ = self.epoll.delete(&program.connection);
        if let Some(seat) = program.seat {
            let now = self.now();
            self.registry.remove(now, seat.listener);
            self.forget(seat.listener);
            for outlet in seat.outlets.iter().filter(|outlet| outlet.is_full()) {
                let _ = self.epoll.delete(outlet.as_fd());
            }
            log::info!("process {} has left", program.pid);
            self.close_if_unused(seat.address);
        }
    }

    /// A listener is gone from the registry.
    pub(super) fn forget(&mut self, listener: ListenerId) {
        self.router.remove_listener(listener);
        if self.seats.remove(&listener).is_some() {
            self.empty_since = Instant::now();
        }
    }
}
