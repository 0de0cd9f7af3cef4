//! A program's connection: its requests, and what it has.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::clerk::Finding;
use super::reserve::Reserved;
use super::{CONNECTION, Daemon, token};
use crate::protocol::{Answer, MAX_MESSAGE, Request};
use crate::registry::{Owner, Refusal};
use crate::tuple::Tuple;
use crate::{hold, local};

/// Requests of a program that are answered before others have their turn.
const REQUESTS: usize = 4;

/// Bits of the place in the number of an event; those above are of the serial number.
const PLACE_BITS: u32 = super::MAX_CONNECTIONS.ilog2();

/// A connection. A port lives as long as it.
pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    pub(super) user: u32,
    /// Tells it from another that had its place.
    pub(super) serial: u64,
    pub(super) port: Option<Owner>,
    /// The queues of its port beside the first one.
    pub(super) queues: Vec<Owner>,
    /// Octets of its port, with all queues.
    pub(super) memory: usize,
    /// The tuples of its port, with what keeps others from binding them.
    pub(super) sockets: HashMap<Tuple, OwnedFd>,
    /// Tuples that it had before it had a port.
    pub(super) reserved: Vec<Reserved>,
    /// The socket that is being looked into is for one of those.
    is_reserving: bool,
    /// It is for a program that may do no more than what concerns this port, whoever has opened it.
    pub(super) is_confined: bool,
    /// A socket of its is being looked into: meanwhile nothing is read.
    is_waiting: bool,
    /// It is shown another one's frames, and so has no tuples.
    pub(super) watches: bool,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, user: u32, serial: u64) -> Self {
        Self {
            socket,
            user,
            serial,
            port: None,
            queues: Vec::new(),
            memory: 0,
            sockets: HashMap::new(),
            reserved: Vec::new(),
            is_reserving: false,
            is_confined: false,
            is_waiting: false,
            watches: false,
        }
    }

    /// How many tuples it has, those that it has not claimed among them.
    pub(super) fn tuples(&self) -> usize {
        self.sockets.len() + self.reserved.iter().filter(|reserved| reserved.is_left()).count()
    }

    /// Whether it is that of a port, or of a queue of one.
    pub(super) fn has(&self, port: Owner) -> bool {
        self.port == Some(port) || self.queues.contains(&port)
    }

    /// What its events carry: an event of one that had its place is told from its own.
    pub(super) const fn token(&self, at: usize) -> EventData {
        token(CONNECTION, at | ((self.serial as u32 as usize) << PLACE_BITS & u32::MAX as usize))
    }
}

impl Daemon {
    /// Reads requests, or sees that the program has gone.
    pub(super) fn hear(&mut self, number: u32, flags: EventFlags) {
        let at = number as usize % super::MAX_CONNECTIONS;
        let is_of =
            |connection: &Connection| connection.token(at) == token(CONNECTION, number as usize);
        if !self.connections.get(at).and_then(Option::as_ref).is_some_and(is_of) {
            return;
        }
        if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            return self.close(at);
        }
        for _ in 0..REQUESTS {
            let Some(Some(connection)) = self.connections.get(at) else { return };
            if connection.is_waiting {
                return;
            }
            let (user, serial) = (connection.user, connection.serial);
            let is_confined = connection.is_confined;
            if self.is_flooding(user, serial) {
                let line = "a connection of his is closed: he hands over more than is closed";
                self.say_of(user, format_args!("{line}"));
                return self.close(at);
            }
            let Some(Some(connection)) = self.connections.get(at) else { return };
            let mut buffer = [0; MAX_MESSAGE];
            let Some(received) = self.receive(&connection.socket, &mut buffer) else {
                return self.be_patient(at, serial);
            };
            let (len, mut descriptors) = match received {
                Ok((0, descriptors)) => {
                    self.put_away(user, serial, descriptors);
                    return self.close(at);
                }
                Ok(received) => received,
                Err(Errno::AGAIN) => return,
                Err(_) => return self.close(at),
            };
            let first = if descriptors.is_empty() { None } else { Some(descriptors.remove(0)) };
            let is_stray = is_confined && !descriptors.is_empty();
            self.put_away(user, serial, descriptors);
            if is_stray {
                // Those who share the account are not to pay for what waits to be closed.
                return self.close(at);
            }
            let request = buffer.get(..len).and_then(Request::decode);
            let answer = match (request, first) {
                (Some(request @ (Request::Register | Request::Reserve)), socket) => {
                    match self.register(at, socket, request == Request::Reserve) {
                        Some(answer) => answer,
                        // It comes later.
                        None => return,
                    }
                }
                (request, descriptor) => {
                    self.put_away(user, serial, descriptor);
                    match request {
                        Some(request) if self.is_beyond(at, request) => {
                            let why = "this connection was handed to a program that may have a port by it, and nothing else";
                            Answer::refuse(Errno::PERM, why)
                        }
                        Some(Request::Open { version, sizes }) => {
                            match self.open(at, version, sizes) {
                                Some(answer) => answer,
                                None => continue,
                            }
                        }
                        Some(Request::AddQueue(sizes)) => match self.add_queue(at, sizes) {
                            Some(answer) => answer,
                            None => continue,
                        },
                        Some(Request::Remove(tuple)) => self.remove(at, tuple),
                        Some(Request::Count) => self.count(at),
                        Some(Request::Watch(tuple)) => self.watch(at, tuple),
                        Some(Request::Confine) => self.confine(at),
                        Some(Request::Reserved { at: n }) => self.tell_reserved(at, n),
                        Some(Request::Claim(tuple)) => self.claim(at, tuple),
                        request => match self.administer(at, request) {
                            Some(answer) => answer,
                            None => return,
                        },
                    }
                }
            };
            self.answer(at, &answer);
        }
    }

    /// Has the clerk of a connection close what has come by it and nobody wanted.
    fn put_away(&self, user: u32, serial: u64, descriptors: impl IntoIterator<Item = OwnedFd>) {
        if let Some(user) = self.users.get(&user) {
            user.clerk(serial).close(descriptors);
        }
    }

    /// Answers. Who sends requests and reads no answers loses his connection.
    pub(super) fn answer(&mut self, at: usize, answer: &Answer) {
        let Some(Some(connection)) = self.connections.get(at) else { return };
        if local::send(connection.socket.as_fd(), &answer.encode(), &[]).is_err() {
            self.close(at);
        }
    }

    /// Has the user's clerk look into a socket, whose tuple is the port's, or is reserved for it. None if it is on its way.
    fn register(&mut self, at: usize, socket: Option<OwnedFd>, reserves: bool) -> Option<Answer> {
        let connection = self.connections.get(at)?.as_ref()?;
        let user = self.users.get(&connection.user)?;
        let Some(socket) = socket else {
            let why = "no socket came: hand one over; or the switch for packets has no room for more descriptors";
            return Some(Answer::refuse(Errno::BADF, why));
        };
        let refused = match connection.port {
            None if !reserves => Some(Answer::refuse(Errno::NOTCONN, "open a port first")),
            _ if reserves && !connection.may_reserve() => Some(Reserved::refuse()),
            Some(_) if connection.watches => {
                Some(Answer::refuse(Errno::INVAL, "a port that watches another one has no tuples"))
            }
            _ if !user.may_register() => {
                Some(Answer::refuse(Errno::DQUOT, "this user has as many tuples as he may"))
            }
            _ if !self.has_descriptors(connection.user) => Some(too_few_descriptors()),
            _ => None,
        };
        if refused.is_some() {
            user.clerk(connection.serial).close([socket]);
            return refused;
        }
        let serial = connection.serial;
        user.clerk(serial).check(at, serial, connection.user, socket);
        if let Some(Some(connection)) = self.connections.get_mut(at) {
            connection.is_reserving = reserves;
        }
        self.suspend(at);
        None
    }

    /// Reads nothing of a program until [`Daemon::resume`]: it waits for an answer.
    pub(super) fn suspend(&mut self, at: usize) {
        let Some(Some(connection)) = self.connections.get_mut(at) else { return };
        connection.is_waiting = true;
        // Else requests that wait would wake the switch again and again.
        let data = connection.token(at);
        if epoll::modify(&self.events, &connection.socket, data, EventFlags::empty()).is_err() {
            self.close(at);
        }
    }

    /// Reads again what the program of that serial number sends. Returns whether it is still there.
    pub(super) fn resume(&mut self, at: usize, serial: u64) -> bool {
        let here = self.connections.get_mut(at).and_then(Option::as_mut);
        let Some(connection) = here.filter(|connection| connection.serial == serial) else {
            return false;
        };
        connection.is_waiting = false;
        let data = connection.token(at);
        if epoll::modify(&self.events, &connection.socket, data, EventFlags::IN).is_err() {
            self.close(at);
            return false;
        }
        true
    }

    /// Takes up what clerks have found.
    pub(super) fn hear_findings(&mut self) {
        // This side has the other end.
        let _ = self.bell.hush();
        while let Ok(Finding { connection: at, serial, user, result }) = self.findings.try_recv() {
            if !self.resume(at, serial) {
                if let (Some(user), Ok((_, socket))) = (self.users.get(&user), result) {
                    user.clerk(serial).free([socket]);
                }
                continue;
            }
            let answer = match result {
                Ok((tuple, socket)) => self.enter(at, tuple, socket),
                Err(answer) => answer,
            };
            self.answer(at, &answer);
        }
    }

    /// Gives a port the tuple that a socket has proved.
    fn enter(&mut self, at: usize, tuple: Tuple, socket: OwnedFd) -> Answer {
        let gone = || Answer::refuse(Errno::NOTCONN, "the port has gone");
        let Some(Some(connection)) = self.connections.get_mut(at) else { return gone() };
        let Some(user) = self.users.get_mut(&connection.user) else { return gone() };
        let is_reserving = std::mem::take(&mut connection.is_reserving);
        // The system keeps two sockets apart, but not what one proves twice.
        if self.reserved.contains(&tuple) || is_reserving && self.forwarder.has(tuple) {
            user.clerk(connection.serial).free([socket]);
            return Answer::refuse(Errno::BUSY, format!("{tuple} has an owner"));
        }
        if is_reserving {
            user.tuples += 1;
            self.reserved.insert(tuple);
            connection.reserved.push(Reserved::new(tuple, socket));
            return Answer::Registered(tuple);
        }
        let Some(port) = connection.port else { return gone() };
        let why = match self.forwarder.register(port, tuple) {
            Ok(()) => {
                user.tuples += 1;
                if let Some(former) = connection.sockets.insert(tuple, socket) {
                    user.clerk(connection.serial).free([former]);
                }
                return Answer::Registered(tuple);
            }
            Err(Refusal::Taken) => Answer::refuse(Errno::BUSY, format!("{tuple} has an owner")),
            Err(Refusal::Full) => {
                Answer::refuse(Errno::NOSPC, "there are as many tuples as there may be")
            }
        };
        user.clerk(connection.serial).free([socket]);
        why
    }

    fn remove(&mut self, at: usize, tuple: Tuple) -> Answer {
        let not_his = || Answer::refuse(Errno::NOENT, format!("{tuple} is not this port's"));
        let Some(Some(connection)) = self.connections.get_mut(at) else { return not_his() };
        let Some(port) = connection.port else { return not_his() };
        let Some(socket) = connection.sockets.remove(&tuple) else { return not_his() };
        self.forwarder.unregister(port, tuple);
        // What was reserved stays so.
        let Err(socket) = Reserved::put_back(&mut connection.reserved, tuple, socket) else {
            return Answer::Done;
        };
        if let Some(user) = self.users.get_mut(&connection.user) {
            user.tuples -= 1;
            match tuple.port {
                // A raw socket is the program's own, and closing it may wait.
                0 => user.clerk(connection.serial).free([socket]),
                // This one the switch has made. Whoever has the answer can bind the address.
                _ => hold::release(socket),
            }
        }
        Answer::Done
    }

    /// Has a port shown the frames of the one that owns a tuple, if that is of the same user; root may see all.
    fn watch(&mut self, at: usize, tuple: Tuple) -> Answer {
        let refuse = |code, why: &str| Answer::refuse(code, why);
        let Some(Some(connection)) = self.connections.get(at) else {
            return refuse(Errno::NOTCONN, "the port has gone");
        };
        let (Some(watcher), user) = (connection.port, connection.user) else {
            return refuse(Errno::NOTCONN, "open a port first");
        };
        if connection.watches || !connection.sockets.is_empty() {
            return refuse(
                Errno::INVAL,
                "a port that has tuples, or watches one, cannot watch another",
            );
        }
        if !connection.queues.is_empty() {
            let why =
                "a port with several queues cannot watch another: what is shown comes to one queue";
            return refuse(Errno::INVAL, why);
        }
        let is_owner = |other: &&Connection| other.sockets.contains_key(&tuple);
        // Others do not learn from this whether there is one.
        let found = self.connections.iter().flatten().find(is_owner);
        let Some(port) =
            found.filter(|other| user == 0 || other.user == user).and_then(|other| other.port)
        else {
            return Answer::refuse(Errno::NOENT, format!("no port of this user has {tuple}"));
        };
        if !self.forwarder.watch(port, watcher) {
            return refuse(Errno::BUSY, "somebody watches that port already");
        }
        if let Some(Some(connection)) = self.connections.get_mut(at) {
            connection.watches = true;
        }
        Answer::Done
    }

    fn count(&self, at: usize) -> Answer {
        let connection = self.connections.get(at).and_then(Option::as_ref);
        let port = connection.and_then(|connection| connection.port);
        match port.and_then(|port| self.forwarder.counters(port)) {
            Some(counters) => Answer::Counted(counters.into()),
            None => Answer::refuse(Errno::NOTCONN, "open a port first"),
        }
    }
}

pub(super) fn too_few_descriptors() -> Answer {
    let why = "the switch for packets has no more descriptors for this user: give tuples or ports back, or start it with a \
               higher limit (ulimit -n)";
    Answer::refuse(Errno::DQUOT, why)
}
