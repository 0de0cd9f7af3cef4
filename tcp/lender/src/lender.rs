//! The thread that has all of it.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use quicket_tcp::{ORPHAN_TIME, Stack, Watch};
use quicket_tcp_protocol::{Accepted, Answer, Call, Names, Request};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, bind, listen, recv,
    socket_with,
};
use rustix::process::{Resource, getrlimit};

use crate::addresses::Taken;
use crate::calls::{Place, accepted};
use crate::errors;
use crate::pump::{Next, PIECE, Pump};
use crate::requests::{Did, MAX_VISITORS, Visitors};
use crate::socket::{Connecting, Ready, Socket, State};

/// Sockets that programs have at once, those with errors that nobody has asked for among them, of which the oldest makes room.
/// Where the process may have few descriptors, a quarter as many as that.
pub const MAX_SOCKETS: usize = 65_536;
/// Connections that a listener hands over before others have their turn.
const MAX_ACCEPTED: usize = 64;
/// How long nobody is let in when there are no descriptors or no memory for it.
const DEAF_TIME: Duration = Duration::from_millis(100);
/// Events that are taken at once.
const EVENTS: usize = 256;

/// Where requests come.
const DOOR: u64 = 0;
const WATCH: u64 = 1;
/// The program has ended.
const END: u64 = 2;
/// The first number of a socket or visitor.
const FIRST: u64 = 3;
/// Marks the numbers of visitors among events.
const VISITOR: u64 = 1 << 63;

/// Lends sockets of a stack to programs.
pub struct Lender {
    stack: Stack,
    names: Names,
    epoll: OwnedFd,
    door: OwnedFd,
    watch: Watch,
    next: u64,
    sockets: HashMap<u64, Socket>,
    /// Those of them that were bound when somebody looked last.
    bound: HashSet<u64>,
    /// Sockets at once.
    most: usize,
    visitors: Visitors,
    /// Those that have something to do.
    due: VecDeque<u64>,
    /// When sockets are to be looked at.
    deadlines: BTreeSet<(Instant, u64)>,
    /// Those that have ended with an error, the oldest first.
    failed: BTreeSet<(Instant, u64)>,
    /// When the door is listened at again.
    deaf_until: Option<Instant>,
    orphan_time: Duration,
    scratch: Vec<u8>,
}

impl Lender {
    /// # Errors
    ///
    /// What the system says if there are no descriptors.
    pub fn new(stack: Stack) -> io::Result<Self> {
        let (mut number, mut token) = ([0; 8], [0; 16]);
        getrandom::fill(&mut number).map_err(io::Error::other)?;
        getrandom::fill(&mut token).map_err(io::Error::other)?;
        let names = Names::new(number, token);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let door = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&door, &SocketAddrUnix::new_abstract_name(names.requests().as_bytes())?)?;
        listen(&door, 4096)?;
        // Who asks is always let in: sockets leave descriptors for that.
        let descriptors = getrlimit(Resource::Nofile).current;
        let descriptors = descriptors.and_then(|most| usize::try_from(most).ok());
        let descriptors = descriptors.unwrap_or(usize::MAX);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watch = Watch::new()?;
        for (fd, token) in [(door.as_fd(), DOOR), (watch.as_fd(), WATCH)] {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?;
        }
        Ok(Self {
            stack,
            names,
            epoll,
            door,
            watch,
            next: FIRST,
            sockets: HashMap::new(),
            bound: HashSet::new(),
            most: MAX_SOCKETS.min(descriptors / 4),
            visitors: Visitors::new(MAX_VISITORS.min(descriptors / 8)),
            due: VecDeque::new(),
            deadlines: BTreeSet::new(),
            failed: BTreeSet::new(),
            deaf_until: None,
            orphan_time: ORPHAN_TIME,
            scratch: vec![0; PIECE],
        })
    }

    /// Gives up after so long that the other side takes what a program has left that has closed a socket, instead of after
    /// [`ORPHAN_TIME`]. The time begins anew with each octet that is taken.
    #[must_use]
    pub const fn with_orphan_time(mut self, time: Duration) -> Self {
        self.orphan_time = time;
        self
    }

    /// What [`quicket_tcp_protocol::VARIABLE`] is to be in the environment of programs.
    #[must_use]
    pub fn variable(&self) -> String {
        self.names.to_variable().iter().copied().map(char::from).collect()
    }

    /// Lends until a descriptor is readable (such as that of a process that has ended), and then until no program has a socket
    /// any more. What they have written may still be on its way: see [`Stack::wait_until_over`].
    ///
    /// # Errors
    ///
    /// When events cannot be waited for. When the switch has gone, connections end, and listeners stay without any.
    pub fn run(mut self, end: BorrowedFd<'_>) -> io::Result<Stack> {
        let flags = epoll::EventFlags::IN;
        epoll::add(&self.epoll, end, epoll::EventData::new_u64(END), flags)?;
        let mut events = Vec::with_capacity(EVENTS);
        let mut has_ended = false;
        while !has_ended || self.sockets.values().any(Socket::is_alive) {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), self.timeout().as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    DOOR => self.open_door(),
                    WATCH => self.take_watched(),
                    END => {
                        has_ended = true;
                        epoll::delete(&self.epoll, end)?;
                    }
                    id if id & VISITOR != 0 => self.hear(id & !VISITOR),
                    id => self.note(id, event.flags),
                }
            }
            self.take_expired();
            for _ in 0..self.due.len() {
                if let Some(id) = self.due.pop_front() {
                    self.turn(id);
                }
            }
        }
        self.sockets.clear();
        Ok(self.stack)
    }

    /// How long nothing is to be done.
    fn timeout(&self) -> Option<Timespec> {
        let time = if self.due.is_empty() {
            let first = self.deadlines.first().map(|(time, _)| *time);
            let first = first.into_iter().chain(self.deaf_until).min()?;
            first.saturating_duration_since(Instant::now())
        } else {
            Duration::ZERO
        };
        Timespec::try_from(time).ok()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A socket's: who could foresee it could have its name before.
    fn socket_number(&mut self) -> u64 {
        let mut octets = [0; 8];
        let drawn = getrandom::fill(&mut octets).map(|()| u64::from_ne_bytes(octets) & !VISITOR);
        match drawn {
            Ok(id) if id >= FIRST && !self.sockets.contains_key(&id) => id,
            _ => self.number(),
        }
    }

    /// A socket has something to do.
    fn schedule(&mut self, id: u64) {
        if let Some(socket) = self.sockets.get_mut(&id)
            && !std::mem::replace(&mut socket.is_due, true)
        {
            self.due.push_back(id);
        }
    }

    fn note(&mut self, id: u64, flags: epoll::EventFlags) {
        use epoll::EventFlags as Flags;
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let Ready { readable, writable, hung_up } = &mut socket.ready;
        *readable |= flags.intersects(Flags::IN | Flags::RDHUP | Flags::HUP | Flags::ERR);
        *writable |= flags.contains(Flags::OUT);
        *hung_up |= flags.contains(Flags::HUP);
        self.schedule(id);
    }

    fn take_watched(&mut self) {
        let mut ids = Vec::new();
        self.watch.take(&mut ids);
        ids.into_iter().for_each(|id| self.schedule(id));
    }

    fn take_expired(&mut self) {
        let now = Instant::now();
        while let Some((time, id)) = self.deadlines.first().copied()
            && time <= now
        {
            self.deadlines.pop_first();
            if let Some(socket) = self.sockets.get_mut(&id) {
                socket.noted = None;
            }
            self.schedule(id);
        }
        if self.deaf_until.is_some_and(|until| until <= now) {
            let (data, flags) = (epoll::EventData::new_u64(DOOR), epoll::EventFlags::IN);
            let is_heard = epoll::add(&self.epoll, &self.door, data, flags).is_ok();
            self.deaf_until = (!is_heard).then(|| now + DEAF_TIME);
        }
    }

    /// Lets those in who come to ask.
    fn open_door(&mut self) {
        for _ in 0..EVENTS {
            let id = self.number();
            match self.visitors.accept(self.door.as_fd(), id) {
                Ok(()) => self.hear(id),
                Err(Errno::AGAIN) => return,
                Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)) => {
                    log::warn!("programs wait until they are heard: {error}");
                    if epoll::delete(&self.epoll, &self.door).is_ok() {
                        self.deaf_until = Some(Instant::now() + DEAF_TIME);
                    }
                    return;
                }
                Err(error) => {
                    log::debug!("a program cannot ask: {error}");
                    return;
                }
            }
            if let Some(end) = self.visitors.end(id) {
                let data = epoll::EventData::new_u64(id | VISITOR);
                let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
                let _ = epoll::add(&self.epoll, end, data, flags);
            }
        }
    }

    fn hear(&mut self, visitor: u64) {
        match self.visitors.hear(visitor, &self.names) {
            Did::Nothing => {}
            Did::Leave => self.visitors.leave(visitor),
            Did::Ask(request) => self.ask(visitor, &request),
        }
    }

    /// Does what a visitor asks for, and answers.
    fn ask(&mut self, visitor: u64, request: &Request) {
        let id = request.socket;
        if let Call::Socket { is_v6 } = request.call {
            return match self.lend(is_v6) {
                Ok((socket, theirs)) => {
                    let answer = Answer { socket, ..Answer::default() };
                    self.visitors.answer(visitor, &answer, Some(theirs.as_fd()));
                }
                Err(error) => {
                    let answer = Answer::error(errors::number(&error));
                    self.visitors.answer(visitor, &answer, None);
                }
            };
        }
        let taken = match request.call {
            Call::Bind(_) | Call::Listen { .. } => self.taken(id),
            _ => Vec::new(),
        };
        let answer = match self.sockets.get_mut(&id) {
            None => Ok(Some(Self::of_nobody(request.call))),
            Some(socket) => {
                let (stack, watch) = (&self.stack, &self.watch);
                let place = Place { stack, watch, id, taken: &taken };
                match request.call {
                    Call::Socket { .. } => return,
                    Call::Bind(address) => socket.bind(&place, address).map(Some),
                    Call::Listen { backlog } => socket.listen(&place, backlog).map(Some),
                    Call::Connect { to, waits } => {
                        socket.connect(&place, to, waits.then_some(visitor))
                    }
                    Call::Names => Ok(Some(socket.names())),
                    Call::Error => Ok(Some(Answer::error(self.take_error(id)))),
                    Call::Set(setting, value) => socket.set(setting, value).map(Some),
                    Call::Get(setting) => {
                        let value = socket.get(setting);
                        Ok(Some(Answer { value, ..Answer::default() }))
                    }
                }
            }
        };
        match answer.unwrap_or_else(|error| Some(Answer::error(error))) {
            Some(answer) => self.visitors.answer(visitor, &answer, None),
            None => self.visitors.keep(visitor),
        }
        let is_bound = self.sockets.get(&id).is_some_and(|socket| socket.taken().is_some());
        if is_bound && !self.stack.reserved().is_empty() {
            self.bound.insert(id);
        }
        self.set_deadline(id);
    }

    /// What others than a socket are bound to, where addresses are reserved for the stack: elsewhere the system knows.
    fn taken(&mut self, id: u64) -> Vec<Taken> {
        let sockets = &self.sockets;
        let taken = |id: &u64| sockets.get(id).and_then(Socket::taken);
        self.bound.retain(|id| taken(id).is_some());
        self.bound.iter().filter(|other| **other != id).filter_map(taken).collect()
    }

    /// The answer for a socket whose connection is over in both ways.
    fn of_nobody(call: Call) -> Answer {
        match call {
            Call::Error | Call::Set(..) | Call::Get(_) => Answer::default(),
            _ => Answer::error(Errno::NOTCONN.raw_os_error()),
        }
    }

    /// The error that a socket has ended with. It is told once, and all is over then.
    fn take_error(&mut self, id: u64) -> i32 {
        match self.sockets.get(&id).map(|socket| &socket.state) {
            Some(State::Failed { error, .. }) => {
                let error = *error;
                self.remove(id);
                error
            }
            _ => 0,
        }
    }

    fn lend(&mut self, is_v6: bool) -> io::Result<(u64, OwnedFd)> {
        let id = self.socket_number();
        let (socket, theirs) = Socket::new(&self.names, id, is_v6)?;
        self.insert(id, socket)?;
        Ok((id, theirs))
    }

    fn insert(&mut self, id: u64, socket: Socket) -> io::Result<()> {
        if self.sockets.len() >= self.most {
            // Errors that nobody may ever ask for make room.
            let Some((_, oldest)) = self.failed.first().copied() else {
                return Err(Errno::NFILE.into());
            };
            self.remove(oldest);
        }
        use epoll::EventFlags as Flags;
        let flags = Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET;
        epoll::add(&self.epoll, &socket.end, epoll::EventData::new_u64(id), flags)?;
        self.sockets.insert(id, socket);
        self.schedule(id);
        Ok(())
    }

    fn remove(&mut self, id: u64) {
        let _ = self.take(id);
    }

    /// Takes a socket away, and with it what is noted of it.
    fn take(&mut self, id: u64) -> Option<Socket> {
        let socket = self.sockets.remove(&id)?;
        if let Some(time) = socket.noted {
            self.deadlines.remove(&(time, id));
        }
        if let State::Failed { until, .. } = socket.state {
            self.failed.remove(&(until, id));
        }
        Some(socket)
    }

    /// Notes when a socket is to be looked at, and that it has failed.
    fn set_deadline(&mut self, id: u64) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        if let State::Failed { until, .. } = socket.state {
            self.failed.insert((until, id));
        }
        let deadline = socket.deadline();
        let noted = std::mem::replace(&mut socket.noted, deadline);
        if noted != deadline {
            noted.map(|time| self.deadlines.remove(&(time, id)));
            deadline.map(|time| self.deadlines.insert((time, id)));
        }
    }

    /// Does what a socket has to do.
    fn turn(&mut self, id: u64) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        socket.is_due = false;
        match &mut socket.state {
            State::Idle(_) => self.watch_idle(id),
            State::Listening(_) => self.turn_listener(id),
            State::Connecting(_) => self.turn_connecting(id),
            State::Connected(_) => self.turn_connected(id),
            State::Failed { until, .. } if *until <= Instant::now() => self.remove(id),
            State::Failed { .. } => {}
        }
        self.set_deadline(id);
    }

    /// One that is not connected may end. What comes is no data.
    fn watch_idle(&mut self, id: u64) {
        let Some(socket) = self.sockets.get(&id) else { return };
        if socket.ready.hung_up {
            self.remove(id);
        }
    }

    fn turn_connecting(&mut self, id: u64) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let State::Connecting(Connecting { stream, until, waiter, .. }) = &mut socket.state else {
            return;
        };
        if socket.ready.hung_up {
            let _ = stream.set_reset_on_drop(true);
            let waiter = waiter.take();
            return self.abandon(id, waiter);
        }
        let outcome = match stream.is_connected() {
            Ok(false) if *until > Instant::now() => return,
            Ok(false) => Err(Errno::TIMEDOUT.raw_os_error()),
            Ok(true) => Ok(()),
            Err(error) => Err(errors::number(&error)),
        };
        let State::Connecting(connecting) = std::mem::replace(&mut socket.state, State::Idle(None))
        else {
            return;
        };
        let Connecting { stream, filler, waiter, .. } = connecting;
        if !socket.discard(filler, &mut self.scratch) {
            return self.abandon(id, waiter);
        }
        let answer = match outcome {
            Ok(()) => {
                socket.apply(&stream);
                socket.state = State::Connected(Pump::new(stream));
                Answer::default()
            }
            Err(error) => {
                if waiter.is_none() {
                    socket.fail(error);
                }
                Answer::error(error)
            }
        };
        if let Some(waiter) = waiter {
            // Who has stopped waiting hears of an error later.
            if self.visitors.end(waiter).is_none()
                && let (Some(socket), Err(error)) = (self.sockets.get_mut(&id), outcome)
            {
                socket.fail(error);
            }
            self.visitors.answer(waiter, &answer, None);
        }
        self.schedule(id);
    }

    /// A socket ends while somebody may wait for its connection: another thread has closed it or shut it down.
    fn abandon(&mut self, id: u64, waiter: Option<u64>) {
        self.remove(id);
        if let Some(waiter) = waiter {
            let answer = Answer::error(Errno::CONNABORTED.raw_os_error());
            self.visitors.answer(waiter, &answer, None);
        }
    }

    fn turn_connected(&mut self, id: u64) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let State::Connected(pump) = &mut socket.state else { return };
        match pump.turn(&socket.end, &mut socket.ready, &mut self.scratch, self.orphan_time) {
            Next::Wait => {}
            Next::More => self.schedule(id),
            Next::End => {
                if let Some(Socket { state: State::Connected(pump), .. }) = self.take(id) {
                    pump.end();
                }
            }
            // An end that is closed with something to read is a reset to who has written that.
            Next::Fail(_) if has_come(&socket.end) == Some(true) => self.remove(id),
            Next::Fail(_) if socket.ready.hung_up => self.remove(id),
            Next::Fail(error) => socket.fail(error),
        }
    }

    fn turn_listener(&mut self, id: u64) {
        for _ in 0..MAX_ACCEPTED {
            let Some(socket) = self.sockets.get_mut(&id) else { return };
            let State::Listening(listening) = &mut socket.state else { return };
            // The program writes nothing to a listener: it has gone, or does not listen any more.
            let is_read = std::mem::take(&mut socket.ready.readable);
            if socket.ready.hung_up || is_read && has_come(&socket.end) != Some(false) {
                return self.remove(id);
            }
            match listening.hand_over(socket.end.as_fd()) {
                Ok(true) if !listening.is_over => {}
                Ok(_) => return,
                Err(_) => return self.remove(id),
            }
            let is_v6 = socket.is_v6;
            match listening.accept() {
                Ok(None) => return,
                Ok(Some((stream, remote))) => self.take_accepted(id, is_v6, stream, remote),
                Err(error) => {
                    // It waits as one that nobody connects to: an end that is hung up is readable for ever, and programs ask
                    // for connections at once, again and again.
                    log::warn!(
                        "no more connections come to a listener: {error} (a program has another when it is started again)"
                    );
                    listening.is_over = true;
                    return;
                }
            }
        }
        self.schedule(id);
    }

    /// A connection is to be handed over.
    fn take_accepted(
        &mut self,
        listener: u64,
        is_v6: bool,
        stream: quicket_tcp::TcpStream,
        remote: SocketAddr,
    ) {
        let id = self.socket_number();
        let place = Place { stack: &self.stack, watch: &self.watch, id, taken: &[] };
        let made = accepted(&place, &self.names, is_v6, stream).and_then(|(mut socket, theirs)| {
            if let Some(from) = self.sockets.get(&listener) {
                socket.settings = from.settings;
            }
            if let State::Connected(pump) = &socket.state {
                socket.apply(&pump.stream);
            }
            self.insert(id, socket)?;
            Ok(theirs)
        });
        match made {
            Ok(theirs) => {
                let accepted = Accepted { remote: crate::addresses::shown(remote, is_v6) };
                if let Some(Socket { state: State::Listening(listening), .. }) =
                    self.sockets.get_mut(&listener)
                {
                    listening.waiting = Some((accepted, theirs));
                }
            }
            Err(error) => log::warn!("a connection is not handed over, and ends: {error}"),
        }
    }
}

impl std::fmt::Debug for Lender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lender").finish_non_exhaustive()
    }
}

/// Whether something of the program has come that was not read. None if there is its end.
fn has_come(end: impl AsFd) -> Option<bool> {
    match recv(end, &mut [0; 1], RecvFlags::DONTWAIT | RecvFlags::PEEK) {
        Ok((_, 0)) | Err(Errno::CONNRESET) => None,
        Ok(_) => Some(true),
        Err(_) => Some(false),
    }
}
