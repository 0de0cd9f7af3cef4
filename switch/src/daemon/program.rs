//! Programs: connections to the switch, and what came over them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{getsockopt, sockopt};

use super::Daemon;
use super::events::Token;
use crate::channel::Outlet;
use crate::ledger::LedgerReader;
use crate::protocol::{
    MAX_MESSAGE, Message, Question, Refusal, Refused, Reply, Request, Serve, encode,
};
use crate::registry::{AddressId, ListenerId, ProcessId};
use crate::sys;
use quicket_udp::Sender;

/// Messages that are read of one program before others get their turn.
const MESSAGES_PER_TURN: usize = 16;

/// Messages of one that has ended, in which it may have said that it goes.
const LAST_WORDS: usize = 1024;
/// Empty ones among them.
const EMPTY_LAST_WORDS: usize = 16;
/// Connections that are taken before others get their turn.
const CONNECTIONS_PER_TURN: usize = 16;
/// Messages that wait for a program. One that is told more does not listen.
pub const MAX_QUEUED: usize = 4096;

/// A program, or somebody who asks.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) connection: OwnedFd,
    pub(super) uid: u32,
    /// All groups of who connected, where that matters.
    pub(super) gids: Vec<u32>,
    pub(super) pid: i32,
    /// Readable once the process has ended.
    pub(super) life: Option<OwnedFd>,
    pub(super) seat: Option<Seat>,
    since: Instant,
    /// Whether it has said anything yet.
    has_asked: bool,
    /// It has said that it goes.
    has_left: bool,
    /// What it is told once there is room, the oldest first. Meanwhile it is not heard.
    pub(super) queue: VecDeque<Vec<u8>>,
    /// Watched for room, and not for what it says.
    pub(super) waits_for_room: bool,
}

/// A program's share of an address.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) address: AddressId,
    pub(super) listener: ListenerId,
    pub(super) outlets: Vec<Outlet>,
    /// What it notes the clients in that the kernel brings it.
    pub(super) ledger: Option<LedgerReader>,
    /// What sends for a program that has no socket of the address. A burst that the system refuses costs this one
    /// its offload, and nobody else.
    pub(super) sender: Option<Sender>,
    /// Whether it wants to be told to start its next generation.
    pub(super) upgrades: bool,
    /// How long it keeps its connections once it is replaced.
    pub(super) drain: Option<quicket_engine::time::Duration>,
}

impl Seat {
    /// What a program says beside what it serves.
    pub(super) fn heed(&mut self, serve: &Serve) {
        self.upgrades = serve.upgrades;
        let seconds = serve.drain_seconds.map(u64::from);
        self.drain = seconds.map(quicket_engine::time::Duration::from_secs);
    }
}

impl Program {
    pub(super) fn new(connection: OwnedFd, uid: u32, pid: i32) -> Self {
        Self {
            connection,
            uid,
            gids: Vec::new(),
            pid,
            life: None,
            seat: None,
            since: Instant::now(),
            has_asked: false,
            has_left: false,
            queue: VecDeque::new(),
            waits_for_room: false,
        }
    }

    /// Since when it is there, if it has said nothing.
    pub(super) fn is_silent_since(&self) -> Option<Instant> {
        (!self.has_asked).then_some(self.since)
    }

    /// It goes in good order.
    pub(super) fn leave(&mut self) {
        self.has_left = true;
    }
}

impl Request {
    /// Whether it takes the switch much longer than it takes to ask. A word of attention may have all be looked at that
    /// waits at the address.
    const fn costs_much(&self) -> bool {
        matches!(
            self,
            Self::Join(_)
                | Self::Serve(_)
                | Self::Status
                | Self::Mint(_)
                | Self::Attention(_)
                | Self::Bequeath(_)
                | Self::Cease
        )
    }

    /// Whether nothing comes of it once the program that asks has ended.
    const fn is_void_at_the_end(&self) -> bool {
        matches!(self, Self::Serve(_) | Self::Status | Self::Mint(_))
    }
}

/// An answer that is a refusal.
pub(super) fn refused(why: Refusal, text: impl Into<String>) -> Reply {
    Reply::Refused(Refused { why, text: text.into() })
}

/// It ended without reading all that it was told, of which the system tells first, and once.
fn is_unread(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionReset
}

/// Tells somebody who is not heard why.
pub(super) fn turn_off(connection: &OwnedFd, refused: Refused) {
    let sent = encode(&Message::Refused(refused)).map_err(io::Error::from);
    let sent = sent.and_then(|bytes| sys::send_with(connection.as_fd(), &bytes, &[]));
    if let Err(error) = sent {
        log::debug!("somebody was not told why he is not heard: {error}");
    }
}

impl Daemon {
    /// Takes those who connect.
    pub(super) fn welcome(&mut self) {
        for _ in 0..CONNECTIONS_PER_TURN {
            if self.users.clerks.is_door_blocked() {
                let error = io::Error::other("those who are not let in have not gone yet");
                return self.turn_away(&error);
            }
            match self.entrance.accept() {
                Ok(connection) => {
                    if let Err(error) = self.admit(connection) {
                        log::warn!("a program is not heard: {error}");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    let text = format!("{error}; allow the switch more descriptors");
                    return self.turn_away(&io::Error::new(error.kind(), text));
                }
            }
        }
    }

    /// Nobody can be taken for now, such as for want of descriptors: those who connect wait.
    fn turn_away(&mut self, error: &io::Error) {
        self.complaints.warn(format_args!("programs that connect have to wait: {error}"));
        self.entrance.turn_away(&self.events);
    }

    fn admit(&mut self, connection: OwnedFd) -> io::Result<()> {
        let peer = getsockopt(&connection, sockopt::PeerCredentials)?;
        let token = self.programs.free_number();
        let process = ProcessId(token.into());
        let mut program = Program::new(connection, peer.uid(), peer.pid());
        if self.users.has_clerk(program.uid) {
            program.gids = vec![peer.gid()];
            program.gids.extend(sys::peer_groups(program.connection.as_fd()));
        }
        if let Err(refused) = self.users.admit(&program, &self.programs) {
            self.users.turn_out(program.connection, refused);
            return Ok(());
        }
        let events = EpollFlags::EPOLLIN;
        if let Err(error) = self.events.add(&program.connection, events, Token::Program(token)) {
            self.users.end_connection(program.uid, program.connection);
            return Err(error);
        }
        self.programs.insert(process, program);
        Ok(())
    }

    /// Something happens on a program's connection.
    pub(super) fn attend(&mut self, process: ProcessId, events: EpollFlags) {
        if events.contains(EpollFlags::EPOLLOUT) {
            self.programs.post(&self.events, process);
        }
        let has_ended = events.contains(EpollFlags::EPOLLHUP);
        self.hear(process, has_ended);
        if has_ended {
            self.hear_last_words(process);
            self.dismiss(process);
        }
    }

    /// What is left of a program that has ended: it may have said that it goes.
    fn hear_last_words(&mut self, process: ProcessId) {
        let mut buffer = vec![0; MAX_MESSAGE + 1];
        let mut empty = 0;
        for _ in 0..LAST_WORDS {
            let Some(program) = self.programs.get_mut(process) else { return };
            let received = match sys::receive_all(program.connection.as_fd(), &mut buffer) {
                Ok(received) => received,
                Err(error) if is_unread(&error) => continue,
                Err(_) => return,
            };
            let question = Question::decode(buffer.get(..received.len).unwrap_or_default());
            if question.is_ok_and(|question| matches!(question.request, Request::Leave)) {
                program.leave();
            }
            empty += usize::from(received.len == 0);
            let uid = program.uid;
            self.users.put_down(uid, received.rights.descriptors);
            // The end looks like an empty message. What is left is the clerk's, with the connection.
            if empty > EMPTY_LAST_WORDS || self.users.clerks.have_too_much(uid) {
                return;
            }
        }
    }

    /// Reads what a program says. What costs much ends its turn, but for one that has ended.
    fn hear(&mut self, process: ProcessId, has_ended: bool) {
        let mut buffer = vec![0; MAX_MESSAGE + 1];
        for _ in 0..MESSAGES_PER_TURN {
            let Some(program) = self.programs.get_mut(process) else { return };
            if program.waits_for_room {
                return;
            }
            let uid = program.uid;
            let received = match sys::receive_all(program.connection.as_fd(), &mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if is_unread(&error) => continue,
                Err(_) => return self.dismiss(process),
            };
            program.has_asked = true;
            let question = match received.len {
                0 => None,
                _ if received.is_too_much() => {
                    let (why, text) = (Refusal::Invalid, sys::TOO_MUCH.to_owned());
                    Some(Err(Refused { why, text }))
                }
                len => {
                    let question = Question::decode(buffer.get(..len).unwrap_or_default());
                    Some(question.map_err(|error| Refused::from(&error)))
                }
            };
            let mut came = received.rights.descriptors;
            let is_over = match &question {
                Some(Ok(question)) => !has_ended && question.request.costs_much(),
                _ => true,
            };
            match question {
                Some(Ok(question)) if has_ended && question.request.is_void_at_the_end() => {}
                Some(Ok(question)) => self.answer(process, question, &mut came),
                Some(Err(refused)) => {
                    turn_off(&program.connection, refused);
                    self.dismiss(process);
                }
                None => self.dismiss(process),
            }
            self.users.put_down(uid, came);
            if self.users.clerks.have_too_much(uid) {
                log::warn!("user {uid} hands over more descriptors than can be closed");
                self.dismiss(process);
            }
            if is_over {
                return;
            }
        }
    }

    /// A program has gone, and all that it had with it.
    pub(super) fn dismiss(&mut self, process: ProcessId) {
        if let Some(listener) = self.programs.seat(process).map(|seat| seat.listener) {
            // As long as there is a channel in which to say so: its process may be there for longer.
            self.end_loan_of(listener);
        }
        let Some(program) = self.programs.remove(process) else { return };
        let _ = self.events.remove(&program.connection);
        self.users.end_connection(program.uid, program.connection);
        if let Some(life) = &program.life {
            let _ = self.events.remove(life);
        }
        self.count_no_more(process);
        self.binding.end(process);
        if let Some(seat) = program.seat {
            let now = self.now();
            if !program.has_left && self.is_steered(seat.listener) {
                // What came to its own sockets nobody has counted: its peers are to be reset.
                self.registry.mark_used(seat.listener);
            }
            let left = self.legacy_of(seat.listener);
            let family = self.registry.family(seat.listener);
            self.registry.remove(now, seat.listener);
            self.forget(seat.listener);
            if let Some(family) = family {
                self.settle_family(seat.address, family, left);
            }
            self.unpark(seat.address);
            if !program.has_left {
                self.mourn(seat.address, program.uid);
            }
            // The program, or who hands this end over for it, may keep them open.
            for outlet in seat.outlets.iter().filter(|outlet| !outlet.watched.is_empty()) {
                let _ = self.events.remove(outlet.as_fd());
            }
            self.users.put_down(program.uid, seat.outlets.into_iter().map(Outlet::into_channel));
            log::info!("process {} has left", program.pid);
            self.close_if_unused(seat.address);
        }
    }

    /// A listener is gone from the registry.
    pub(super) fn forget(&mut self, listener: ListenerId) {
        self.end_loan_of(listener);
        self.traffic.router.remove_listener(listener);
        self.release_sockets(listener);
        if self.programs.take(listener) {
            self.lifetime.note_leave();
        }
    }
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
