//! The thread that has all of it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use quicket_tcp::{Stack, Watch};
use quicket_tcp_protocol::{Accepted, Answer, Call, Names, Request};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, bind, listen, recv,
    socket_with,
};
use rustix::process::{Resource, getrlimit};

use crate::calls::{Place, accepted};
use crate::errors;
use crate::pump::{Next, PIECE, Pump};
use crate::requests::{Did, MAX_VISITORS, Visitors};
use crate::socket::{Connecting, Ready, Socket, State};

/// Sockets that programs have at once, those with errors that nobody has asked for among them. Where the process may have
/// few descriptors, half as many as that.
pub const MAX_SOCKETS: usize = 65_536;
/// Connections that a listener hands over before others have their turn.
const MAX_ACCEPTED: usize = 64;
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
    /// Sockets at once.
    most: usize,
    visitors: Visitors,
    /// Those that have something to do.
    due: VecDeque<u64>,
    /// When sockets are to be looked at.
    deadlines: BTreeSet<(Instant, u64)>,
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
            most: MAX_SOCKETS.min(descriptors / 2),
            visitors: Visitors::new(MAX_VISITORS.min(descriptors / 4)),
            due: VecDeque::new(),
            deadlines: BTreeSet::new(),
            scratch: vec![0; PIECE],
        })
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
    /// When events cannot be waited for, and when the switch has gone.
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
                    self.turn(id)?;
                }
            }
        }
        self.sockets.clear();
        Ok(self.stack)
    }

    /// How long nothing is to be done.
    fn timeout(&self) -> Option<Timespec> {
        let time = if self.due.is_empty() {
            self.deadlines.first()?.0.saturating_duration_since(Instant::now())
        } else {
            Duration::ZERO
        };
        Timespec::try_from(time).ok()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
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
            self.schedule(id);
        }
    }

    /// Lets those in who come to ask.
    fn open_door(&mut self) {
        for _ in 0..EVENTS {
            let id = self.number();
            match self.visitors.accept(self.door.as_fd(), id) {
                Ok(()) => self.hear(id),
                Err(Errno::AGAIN) => return,
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
        let answer = match self.sockets.get_mut(&id) {
            None => Ok(Some(Self::of_nobody(request.call))),
            Some(socket) => {
                let place = Place { stack: &self.stack, watch: &self.watch, id };
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
        if let Some(answer) = answer.unwrap_or_else(|error| Some(Answer::error(error))) {
            self.visitors.answer(visitor, &answer, None);
        }
        self.set_deadline(id);
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
        let id = self.number();
        let (socket, theirs) = Socket::new(&self.names, id, is_v6)?;
        self.insert(id, socket)?;
        Ok((id, theirs))
    }

    fn insert(&mut self, id: u64, socket: Socket) -> io::Result<()> {
        if self.sockets.len() >= self.most {
            return Err(Errno::NFILE.into());
        }
        use epoll::EventFlags as Flags;
        let flags = Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET;
        epoll::add(&self.epoll, &socket.end, epoll::EventData::new_u64(id), flags)?;
        self.sockets.insert(id, socket);
        self.schedule(id);
        Ok(())
    }

    fn remove(&mut self, id: u64) {
        if let Some(time) = self.sockets.remove(&id).as_ref().and_then(Socket::deadline) {
            self.deadlines.remove(&(time, id));
        }
    }

    fn set_deadline(&mut self, id: u64) {
        if let Some(time) = self.sockets.get(&id).and_then(Socket::deadline) {
            self.deadlines.insert((time, id));
        }
    }

    /// Does what a socket has to do.
    fn turn(&mut self, id: u64) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(&id) else { return Ok(()) };
        socket.is_due = false;
        match &mut socket.state {
            State::Idle(_) => self.watch_idle(id),
            State::Listening(_) => self.turn_listener(id)?,
            State::Connecting(_) => self.turn_connecting(id),
            State::Connected(_) => self.turn_connected(id),
            State::Failed { until, .. } if *until <= Instant::now() => self.remove(id),
            State::Failed { .. } => {}
        }
        self.set_deadline(id);
        Ok(())
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
        let State::Connecting(Connecting { stream, until, .. }) = &mut socket.state else { return };
        if socket.ready.hung_up {
            let _ = stream.set_reset_on_drop(true);
            return self.remove(id);
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
        let Connecting { stream, filler, waiter, until } = connecting;
        self.deadlines.remove(&(until, id));
        if !socket.discard(filler, &mut self.scratch) {
            return self.remove(id);
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

    fn turn_connected(&mut self, id: u64) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let State::Connected(pump) = &mut socket.state else { return };
        match pump.turn(&socket.end, &mut socket.ready, &mut self.scratch) {
            Next::Wait => {}
            Next::More => self.schedule(id),
            Next::End => {
                if let Some(Socket { state: State::Connected(pump), .. }) = self.sockets.remove(&id)
                {
                    pump.end();
                }
            }
            // An end that is closed with something to read is a reset to who has written that.
            Next::Fail(_) if has_come(&socket.end) == Some(true) => self.remove(id),
            Next::Fail(_) if socket.ready.hung_up => self.remove(id),
            Next::Fail(error) => socket.fail(error),
        }
    }

    fn turn_listener(&mut self, id: u64) -> io::Result<()> {
        for _ in 0..MAX_ACCEPTED {
            let Some(socket) = self.sockets.get_mut(&id) else { return Ok(()) };
            let State::Listening(listening) = &mut socket.state else { return Ok(()) };
            // The program writes nothing to a listener: it has gone, or does not listen any more.
            let is_read = std::mem::take(&mut socket.ready.readable);
            if socket.ready.hung_up || is_read && has_come(&socket.end) != Some(false) {
                self.remove(id);
                return Ok(());
            }
            match listening.hand_over(socket.end.as_fd()) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(_) => {
                    self.remove(id);
                    return Ok(());
                }
            }
            let is_v6 = socket.is_v6;
            match listening.accept() {
                Ok(None) => return Ok(()),
                Ok(Some((stream, remote))) => self.take_accepted(id, is_v6, stream, remote),
                Err(error) => return Err(error),
            }
        }
        self.schedule(id);
        Ok(())
    }

    /// A connection is to be handed over.
    fn take_accepted(
        &mut self,
        listener: u64,
        is_v6: bool,
        stream: quicket_tcp::TcpStream,
        remote: SocketAddr,
    ) {
        let id = self.number();
        let place = Place { stack: &self.stack, watch: &self.watch, id };
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
