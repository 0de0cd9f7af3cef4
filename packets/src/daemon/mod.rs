//! The switch for packets: one thread that forwards, and listens to programs in between. It waits for nobody.

mod clerk;
mod connection;
mod devices;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod open;
mod place;
mod reserve;
mod shortage;
mod user;

use std::collections::{HashMap, HashSet};
use std::fmt::Arguments;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use log::Level;
use quicket_clerk::Room;
use quicket_ring::Bell;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, sockopt};
use rustix::process::{Resource, getrlimit};

use crate::counters::Counters;
use crate::evidence;
use crate::forwarder::Forwarder;
use crate::told::Told;
use crate::tuple::Tuple;
use clerk::{Clerk, Desk, Finding};
use connection::Connection;
use devices::Works;
use place::Place;
use reserve::Reserved;
use shortage::Shortage;
use user::{User, has_descriptors, has_room};

pub use reserve::MAX_RESERVED;
pub use user::{
    MAX_CONNECTIONS_PER_USER, MAX_HANDED_OF_OTHERS, MAX_HANDED_PER_USER, MAX_MEMORY,
    MAX_MEMORY_PER_USER, MAX_TUPLES_PER_USER, MAX_USERS, RESERVED_DESCRIPTORS,
};

/// Programs that are connected. A power of two.
pub const MAX_CONNECTIONS: usize = 1024;
/// Turns of forwarding after which programs are listened to, if frames come all the while.
const TURNS_PER_LOOK: u32 = 16;
/// After so much time they are listened to in a turn without frames, as others may have had this core meanwhile.
const LOOK_TIME: Duration = Duration::from_micros(50);
/// What is looked at then.
const EVENTS: usize = 32;
/// Why a port is closed.
const BROKEN: &str = "is closed: what its program left in its rings cannot be, or it has gone or sent descriptors by its bell, or the port \
                      that it watched has gone";

/// What an event is about: the kind above 32 bits of a number.
const STOP: u64 = 0;
const LISTENER: u64 = 1;
const FINDINGS: u64 = 2;
const CONNECTION: u64 = 3;
const PORT: u64 = 4;
const DEVICE: u64 = 5;
const LINKS: u64 = 6;
const ERRORS: u64 = 7;

const fn token(kind: u64, number: usize) -> EventData {
    EventData::new_u64(kind << 32 | number as u64)
}

/// How long programs have not been listened to.
struct Pace {
    turns: u32,
    looked: Instant,
}

impl Pace {
    fn new() -> Self {
        Self { turns: 0, looked: Instant::now() }
    }

    /// Counts a turn. Returns whether it is time to listen, however many frames come.
    const fn turn(&mut self) -> bool {
        self.turns += 1;
        self.turns >= TURNS_PER_LOOK
    }
}

/// Lines of the log that programs without an account cause.
#[derive(Default)]
struct Said {
    nobody_is_let_in: Told,
    one_was_not_let_in: Told,
}

/// The switch for packets.
pub struct Daemon {
    listener: OwnedFd,
    shortage: Shortage,
    events: OwnedFd,
    forwarder: Forwarder,
    connections: Vec<Option<Connection>>,
    users: HashMap<u32, User>,
    /// Tuples that connections have reserved, be they claimed or not.
    reserved: HashSet<Tuple>,
    /// Closes the connections of those who are no users.
    porter: Option<Clerk>,
    /// Descriptors that this process may have.
    limit: usize,
    memory: usize,
    /// Queues of all ports beside their first ones.
    queues: usize,
    serial: u64,
    said: Said,
    desk: Desk,
    findings: Receiver<Finding>,
    bell: Bell,
    works: Works,
    /// Given up last: who comes next must not attach a device before what this one has set is set back.
    _place: Place,
}

impl Daemon {
    /// Listens at a path, for programs of this user, or of all.
    ///
    /// # Errors
    ///
    /// `AddrInUse` when there is a switch at that path; or what the system says.
    pub fn bind(path: &Path, for_all: bool) -> io::Result<Self> {
        let (mut place, listener) = Place::take(path, for_all)?;
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&events, &listener, token(LISTENER, 0), EventFlags::IN)?;
        let (bell, theirs) = Bell::pair()?;
        epoll::add(&events, &bell, token(FINDINGS, 0), EventFlags::IN)?;
        let (sender, findings) = channel();
        let mut seed = [0; 24];
        getrandom::fill(&mut seed).map_err(io::Error::other)?;
        let seed: [u64; 3] = std::array::from_fn(|n| {
            seed[n * 8..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        });
        let namespace = evidence::namespace()?;
        let record = place.record(namespace)?;
        Ok(Self {
            _place: place,
            listener,
            shortage: Shortage::default(),
            events,
            forwarder: Forwarder::new(seed),
            connections: Vec::new(),
            users: HashMap::new(),
            reserved: HashSet::new(),
            porter: None,
            limit: limit(),
            memory: 0,
            queues: 0,
            serial: 0,
            said: Said::default(),
            desk: Desk {
                findings: sender,
                bell: Arc::new(theirs),
                namespace,
                is_awaited: Arc::default(),
                room: Room::default(),
            },
            findings,
            bell,
            works: Works::new(record),
        })
    }

    /// Forwards until `stop` is readable. Returns what became of all frames.
    ///
    /// # Errors
    ///
    /// When the system cannot wait any more.
    pub fn run(mut self, stop: BorrowedFd<'_>) -> io::Result<Counters> {
        epoll::add(&self.events, stop, token(STOP, 0), EventFlags::IN)?;
        let mut events = Vec::with_capacity(EVENTS);
        let mut pace = Pace::new();
        while !self.turn(&mut events, &mut pace, None)? {}
        Ok(self.end())
    }

    /// Forwards, and listens to programs once in a while. Where nothing is to be forwarded, it waits for some time, or without
    /// end. Returns whether it is to stop.
    fn turn(
        &mut self,
        events: &mut Vec<epoll::Event>,
        pace: &mut Pace,
        time: Option<&Timespec>,
    ) -> io::Result<bool> {
        let frames = self.forwarder.turn();
        self.remove_broken();
        if self.forwarder.is_active() {
            let is_look = pace.turn();
            if frames == 0 || is_look {
                // A program that shares this core has its turn, to send or to receive, also where frames never end.
                std::thread::yield_now();
            }
            if !(is_look || frames == 0 && pace.looked.elapsed() > LOOK_TIME) {
                return Ok(false);
            }
            *pace = Pace::new();
        }
        self.forwarder.network().watch(self.events.as_fd(), token(DEVICE, 0));
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let patience = [self.forwarder.network().patience(), self.shortage.patience()];
        let owed = patience.into_iter().flatten().min().and_then(|time| time.try_into().ok());
        let time = match self.forwarder.is_active() {
            true => Some(&at_once),
            false => time.or(owed.as_ref()),
        };
        events.clear();
        match epoll::wait(&self.events, spare_capacity(events), time) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        self.try_again();
        for event in events {
            let (data, flags) = (event.data.u64(), event.flags);
            let number = data as u32;
            match data >> 32 {
                STOP => return Ok(true),
                LISTENER => self.accept(),
                FINDINGS => {
                    self.hear_findings();
                    self.hear_works();
                    self.listen_again();
                }
                CONNECTION => self.hear(number, flags),
                DEVICE => self.forwarder.network().rouse(),
                LINKS => self.forwarder.network().hear(),
                ERRORS => self.forwarder.hear_errors(number),
                _ => self.forwarder.rouse(number),
            }
        }
        self.remove_broken();
        Ok(false)
    }

    fn end(mut self) -> Counters {
        for at in 0..self.connections.len() {
            self.close(at);
        }
        self.forwarder.total()
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match rustix::net::accept_with(&self.listener, flags) {
            Ok(socket) => socket,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                let line = "no program can connect for now: no descriptors or memory left";
                self.said.nobody_is_let_in.say(Level::Warn, format_args!("{line}"));
                return self.be_deaf();
            }
            // Gone again.
            Err(_) => return,
        };
        if let Err(why) = self.welcome(socket) {
            self.said
                .one_was_not_let_in
                .say(Level::Info, format_args!("a program was not let in: {why}"));
        }
    }

    /// Enters a connection. If that is not done it is closed, which its program sees.
    fn welcome(&mut self, socket: OwnedFd) -> io::Result<()> {
        let user = match sockopt::socket_peercred(&socket) {
            Ok(credentials) => credentials.uid.as_raw(),
            Err(error) => {
                self.turn_away(socket, None);
                return Err(error.into());
            }
        };
        self.enter_user(user, socket).map_err(|(socket, error)| {
            self.turn_away(socket, Some(user));
            error
        })
    }

    /// Closes a connection of nobody here. Its program may have sent something already, so that closing it may wait.
    fn turn_away(&mut self, socket: OwnedFd, user: Option<u32>) {
        if let Some(user) = user.and_then(|user| self.users.get(&user))
            && !user.is_flooding(0, || true)
        {
            return user.clerk(0).end([socket]);
        }
        if self.porter.is_none() {
            self.porter = Clerk::start(self.desk.clone()).ok();
        }
        // Without a thread it is closed here.
        let Some(porter) = &self.porter else { return };
        porter.end([socket]);
        if porter.handed() >= MAX_HANDED_OF_OTHERS {
            let line = "no program can connect: others have sent what cannot be closed yet";
            self.said.nobody_is_let_in.say(Level::Warn, format_args!("{line}"));
            self.be_deaf();
            // It may have been closed just before.
            self.listen_again();
        }
    }

    fn enter_user(&mut self, user: u32, socket: OwnedFd) -> Result<(), (OwnedFd, io::Error)> {
        let full = |what: &str| io::Error::other(format!("there are as many {what} as may be"));
        let refuse = |socket, what: &str| Err((socket, full(what)));
        let free = self.connections.iter().position(Option::is_none);
        let at = free.unwrap_or(self.connections.len());
        if at >= MAX_CONNECTIONS {
            return refuse(socket, "connections");
        }
        if !self.users.contains_key(&user) {
            self.users.retain(|_, user| !user.is_idle());
            if self.users.len() >= MAX_USERS {
                return refuse(socket, "users");
            }
            match Clerk::start(self.desk.clone()) {
                Ok(clerk) => self.users.insert(user, User::new(clerk)),
                Err(error) => return Err((socket, error)),
            };
        }
        let has_descriptors = has_descriptors(&self.users, self.limit, user);
        let Some(account) = self.users.get_mut(&user) else { return refuse(socket, "users") };
        if account.connections + account.queues >= MAX_CONNECTIONS_PER_USER {
            return refuse(socket, "connections of this user");
        }
        if account.is_flooding(0, || true) || !has_descriptors {
            return refuse(socket, "descriptors of this user");
        }
        let connection = Connection::new(socket, user, self.serial + 1);
        let (socket, token) = (&connection.socket, connection.token(at));
        if let Err(error) = epoll::add(&self.events, socket, token, EventFlags::IN) {
            return Err((connection.socket, error.into()));
        }
        account.connections += 1;
        self.serial += 1;
        match free {
            Some(at) => self.connections[at] = Some(connection),
            None => self.connections.push(Some(connection)),
        }
        Ok(())
    }

    /// Whether the connection of that serial number is to be closed.
    fn is_flooding(&self, user: u32, serial: u64) -> bool {
        let account = self.users.get(&user);
        account.is_some_and(|account| account.is_flooding(serial, || self.has_descriptors(user)))
    }

    /// Whether a user may have another descriptor.
    fn has_descriptors(&self, user: u32) -> bool {
        has_descriptors(&self.users, self.limit, user)
    }

    /// Receives a message; none if it brings descriptors for which this process has no room.
    fn receive(
        &self,
        socket: &OwnedFd,
        buffer: &mut [u8],
    ) -> Option<Result<(usize, Vec<OwnedFd>), Errno>> {
        let reading = self.desk.room.read();
        if !has_room(&self.users, self.limit, self.porter.as_ref(), &reading) {
            match quicket_clerk::brings_descriptors(socket.as_fd()) {
                Ok(false) => {}
                // One that comes by now is looked at before it is read.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Some(Err(Errno::AGAIN));
                }
                // Behind another error there may be some.
                Ok(true) | Err(_) => return None,
            }
        }
        Some(quicket_clerk::receive_message(socket.as_fd(), buffer))
    }

    /// Ends a connection, with its port and tuples.
    fn close(&mut self, at: usize) {
        let Some(connection) = self.connections.get_mut(at).and_then(Option::take) else { return };
        self.unwatch(&connection.socket);
        let tuples = connection.tuples();
        let Connection { socket, user, serial, port, queues, sockets, reserved, memory, .. } =
            connection;
        for queue in port.iter().chain(&queues) {
            if let Some(bell) = self.forwarder.bell(*queue) {
                self.unwatch(bell);
            }
        }
        let bells = match port {
            Some(port) => self.forwarder.remove(port, sockets.keys().copied()),
            None => Vec::new(),
        };
        for reserved in &reserved {
            self.reserved.remove(&reserved.tuple());
        }
        self.memory -= memory;
        self.queues -= queues.len();
        if let Some(user) = self.users.get_mut(&user) {
            user.connections -= 1;
            user.memory -= memory;
            user.queues -= queues.len();
            user.tuples -= tuples;
            let clerk = user.clerk(serial);
            clerk.free(sockets.into_values());
            clerk.free(reserved.into_iter().filter_map(Reserved::into_socket));
            clerk.end(bells.into_iter().map(OwnedFd::from).chain([socket]));
            user.retire(serial);
        }
        self.listen_again();
    }

    /// Hears nothing of a descriptor any more. Closing it is not enough: a child of this process that has not called
    /// exec yet has it too, and events of it would be taken for those of whoever has its number next.
    fn unwatch(&self, descriptor: impl AsFd) {
        // It may not be watched.
        let _ = epoll::delete(&self.events, descriptor);
    }

    /// Says something of a user, who can have it said again and again.
    fn say_of(&mut self, number: u32, line: Arguments<'_>) {
        if let Some(user) = self.users.get_mut(&number) {
            user.told.say(Level::Warn, format_args!("user {number}: {line}"));
        }
    }

    /// Closes connections whose ports have lied or gone.
    fn remove_broken(&mut self) {
        while let Some(port) = self.forwarder.take_broken() {
            let has = |c: &Option<Connection>| c.as_ref().is_some_and(|c| c.has(port));
            match self.connections.iter().position(has) {
                Some(at) => {
                    if let Some(user) = self.connections[at].as_ref().map(|c| c.user) {
                        self.say_of(user, format_args!("the port with queue {port} {BROKEN}"));
                    }
                    self.close(at);
                }
                // There is no port without one.
                None => drop(self.forwarder.remove(port, [])),
            }
        }
        self.remove_broken_devices();
    }
}

/// Descriptors that this process may have.
fn limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

#[cfg(test)]
#[path = "strangers_tests.rs"]
mod tests;
