//! Tuples that a connection has before it has a port.
//!
//! A program in a network namespace of its own has no socket that proves an address of the host, and is to have none: that would be
//! the host's network. So somebody on the host opens the connection, proves the tuples that the program is to have, gives up
//! what else he may do by it, and hands the descriptor to the program, which opens the port with rings and queues as it likes.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::Daemon;
use super::connection::Connection;
use crate::protocol::{Answer, Request};
use crate::registry::Refusal;
use crate::tuple::Tuple;

/// Tuples that are reserved for a port.
pub const MAX_RESERVED: usize = 256;

/// A tuple that was proved for a port that is to come.
pub(super) struct Reserved {
    tuple: Tuple,
    /// What keeps others from binding it; none while it is the port's.
    socket: Option<OwnedFd>,
}

impl Reserved {
    pub(super) const fn new(tuple: Tuple, socket: OwnedFd) -> Self {
        Self { tuple, socket: Some(socket) }
    }

    pub(super) const fn tuple(&self) -> Tuple {
        self.tuple
    }

    /// The port has not got it.
    pub(super) const fn is_left(&self) -> bool {
        self.socket.is_some()
    }

    pub(super) fn into_socket(self) -> Option<OwnedFd> {
        self.socket
    }

    /// A tuple is the port's no more. Gives the socket back if it was not reserved.
    pub(super) fn put_back(all: &mut [Self], tuple: Tuple, socket: OwnedFd) -> Result<(), OwnedFd> {
        match all.iter_mut().find(|reserved| reserved.tuple == tuple && !reserved.is_left()) {
            Some(reserved) => {
                reserved.socket = Some(socket);
                Ok(())
            }
            None => Err(socket),
        }
    }

    /// What those hear who may reserve nothing.
    pub(super) fn refuse() -> Answer {
        let why = format!("up to {MAX_RESERVED} tuples are reserved before there is a port");
        Answer::refuse(Errno::INVAL, why)
    }
}

impl Connection {
    pub(super) fn may_reserve(&self) -> bool {
        self.port.is_none() && self.reserved.len() < MAX_RESERVED
    }
}

impl Daemon {
    /// Whether a request is one of those that a connection may not make which was handed on.
    pub(super) fn is_beyond(&self, at: usize, request: Request) -> bool {
        let connection = self.connections.get(at).and_then(Option::as_ref);
        connection.is_some_and(|connection| connection.is_confined)
            && match request {
                Request::Watch(_)
                | Request::Attach { .. }
                | Request::Detach { .. }
                | Request::List { .. }
                | Request::Vlans { .. } => true,
                Request::Open { .. }
                | Request::AddQueue(_)
                | Request::Register
                | Request::Remove(_)
                | Request::Count
                | Request::Reserve
                | Request::Confine
                | Request::Reserved { .. }
                | Request::Claim(_) => false,
            }
    }

    /// From now on that holds. What comes by it is touched by a clerk of its own.
    pub(super) fn confine(&mut self, at: usize) -> Answer {
        let Some(Some(connection)) = self.connections.get_mut(at) else { return Answer::Done };
        let Some(user) = self.users.get_mut(&connection.user) else { return Answer::Done };
        if !connection.is_confined {
            if let Err(error) = user.set_apart(connection.serial, &self.desk) {
                let why = format!("a connection cannot be handed on now: {error}; try again");
                return Answer::refuse(Errno::AGAIN, why);
            }
            connection.is_confined = true;
        }
        Answer::Done
    }

    /// The tuple of that place among those of a connection that are reserved.
    pub(super) fn tell_reserved(&self, at: usize, n: u32) -> Answer {
        let connection = self.connections.get(at).and_then(Option::as_ref);
        match connection.and_then(|connection| connection.reserved.get(n as usize)) {
            Some(reserved) => Answer::Registered(reserved.tuple),
            None => Answer::refuse(Errno::NOENT, "no more tuples are reserved"),
        }
    }

    /// Gives a port one of the tuples that are reserved for it.
    pub(super) fn claim(&mut self, at: usize, tuple: Tuple) -> Answer {
        let refuse = |code, why: &str| Answer::refuse(code, format!("{tuple} {why}"));
        let Some(Some(connection)) = self.connections.get_mut(at) else {
            return refuse(Errno::NOTCONN, "has no port");
        };
        let Some(port) = connection.port else {
            return refuse(Errno::NOTCONN, "has no port: open one first");
        };
        if connection.watches {
            return refuse(Errno::INVAL, "is not for a port that watches another one");
        }
        let mut all = connection.reserved.iter_mut();
        let Some(reserved) = all.find(|reserved| reserved.tuple == tuple) else {
            return refuse(Errno::NOENT, "is not reserved for this port");
        };
        let Some(socket) = reserved.socket.take() else {
            return refuse(Errno::BUSY, "is this port's already");
        };
        let why = match self.forwarder.register(port, tuple) {
            Ok(()) => {
                connection.sockets.insert(tuple, socket);
                return Answer::Registered(tuple);
            }
            // Of a protocol without ports: the system keeps no two apart.
            Err(Refusal::Taken) => refuse(Errno::BUSY, "has an owner"),
            Err(Refusal::Full) => {
                Answer::refuse(Errno::NOSPC, "there are as many tuples as there may be")
            }
        };
        reserved.socket = Some(socket);
        why
    }
}
