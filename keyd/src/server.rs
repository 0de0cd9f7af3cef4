//! The side of who has the keys: a thread for each connection answers what comes there, in its order.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustls::{ServerConnection, StreamOwned};

use crate::counters::Counters;
use crate::protocol::{Answer, Code, Malformed, Request};
use crate::rate::{Asker, Rates};
use crate::seats::Seats;
use crate::stream::{Inbox, Stream, Timed, keep_alive};
use crate::told::Told;
use crate::{Keys, ServerTls, key_id};

/// How long a client over TCP may take for TLS, and any client for the rest of a message, or to take an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait where the system has no descriptors or threads left.
const SHORTAGE: Duration = Duration::from_millis(100);
/// How long a connection over TCP may be without a question: longer than gateways keep one.
const IDLE: Duration = Duration::from_secs(120);
/// How long a question waits for its turn: the longest that a gateway waits for a signature.
const TURN: Duration = Duration::from_secs(10);
/// Connections over TCP that have not shown a certificate yet. With one more, the oldest of them ends.
const MAX_STRANGERS: usize = 64;
/// The stack of a connection's thread, in bytes, where keys are in files.
const STACK: usize = 256 << 10;

/// What bounds a key process.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Signatures that are made at once: with keys of files, and as many with keys of a token.
    pub threads: usize,
    /// Connections at once: at Unix sockets, and as many over TCP.
    pub connections: usize,
    /// Signatures for a client in a second; no limit without it.
    pub rate: Option<u32>,
    /// The stack of the thread of a connection, in bytes. A token's library runs there.
    pub stack: usize,
}

impl Default for ServerOptions {
    fn default() -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        Self { threads, connections: 1024, rate: None, stack: STACK }
    }
}

/// Which users may ask at a Unix socket. Root and the own user may.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// Users by number.
    pub users: Vec<u32>,
    /// Groups by number: of the peer's process when it connects.
    pub groups: Vec<u32>,
}

impl Allowed {
    /// Who is at the other end, if that one may ask.
    fn admit(&self, stream: &UnixStream) -> Result<Asker, String> {
        let peer = rustix::net::sockopt::socket_peercred(stream);
        let peer = peer.map_err(|error| format!("it is not known who asks: {error}"))?;
        let (user, group) = (peer.uid.as_raw(), peer.gid.as_raw());
        let own = rustix::process::geteuid().as_raw();
        let may =
            user == 0 || user == own || self.users.contains(&user) || self.groups.contains(&group);
        match may {
            true => Ok(Asker::User(user)),
            false => Err(format!("user {user} (group {group}) may not ask here")),
        }
    }
}

/// A key process. It answers until it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    /// Closed when it ends: those who take connections look at the other end.
    end: Option<UnixStream>,
    ended: UnixStream,
    takers: Vec<JoinHandle<()>>,
}

struct Shared {
    keys: RwLock<Arc<Keys>>,
    counters: Counters,
    rates: Rates,
    most_connections: usize,
    stack: usize,
    /// For keys of files.
    seats: Seats,
    seats_of_token: Seats,
    /// Of connections that are open, to end them.
    open: Mutex<HashMap<u64, (Class, Socket)>>,
    numbers: AtomicU64,
    /// What clients over TCP are shown, and have to show.
    tls: RwLock<Option<ServerTls>>,
    told: Told,
    /// The same, of keys that cannot be used.
    told_failed: Told,
}

/// What connections are counted apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Unix,
    /// Over TCP, before it has shown a certificate: anybody's.
    Stranger,
    Tcp,
}

/// Another descriptor of a connection.
enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    fn end(&self) {
        // Who has gone already has nothing to end.
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Server {
    /// A process with these keys.
    ///
    /// # Errors
    ///
    /// If the system has no descriptors left.
    pub fn new(keys: Keys, options: &ServerOptions) -> io::Result<Self> {
        let (end, ended) = UnixStream::pair()?;
        let shared = Arc::new(Shared {
            keys: RwLock::new(Arc::new(keys)),
            counters: Counters::default(),
            rates: Rates::new(options.rate),
            most_connections: options.connections,
            stack: options.stack,
            seats: Seats::new(options.threads),
            seats_of_token: Seats::new(options.threads),
            open: Mutex::default(),
            numbers: AtomicU64::new(0),
            tls: RwLock::default(),
            told: Told::default(),
            told_failed: Told::default(),
        });
        Ok(Self { shared, end: Some(end), ended, takers: Vec::new() })
    }

    /// Answers who may ask at a Unix socket.
    ///
    /// # Errors
    ///
    /// If the system has no threads or descriptors left.
    pub fn listen_unix(&mut self, listener: UnixListener, allowed: Allowed) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let shared = Arc::clone(&self.shared);
        let take = move |listener: &UnixListener| {
            let (stream, _) = listener.accept()?;
            stream.set_nonblocking(false)?;
            let asker = match allowed.admit(&stream) {
                Ok(asker) => asker,
                Err(why) => {
                    Counters::add(&shared.counters.not_allowed);
                    shared.tell(format_args!("a connection is refused: {why}"));
                    return Ok(());
                }
            };
            let socket = Socket::Unix(stream.try_clone()?);
            let stream = Stream::Unix(Timed::new(stream));
            shared.hold(Class::Unix, socket, move |held| held.shared.answer(stream, asker, None))
        };
        self.take(listener, take)
    }

    /// Answers clients over TCP who show a certificate. What they are shown is the same at all listeners: the last one
    /// given.
    ///
    /// # Errors
    ///
    /// If the system has no threads or descriptors left.
    pub fn listen_tcp(&mut self, listener: TcpListener, tls: ServerTls) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        self.shared.set_tls(tls);
        let shared = Arc::clone(&self.shared);
        let take = move |listener: &TcpListener| {
            let (stream, _) = listener.accept()?;
            stream.set_nonblocking(false)?;
            stream.set_nodelay(true)?;
            keep_alive(&stream)?;
            let socket = Socket::Tcp(stream.try_clone()?);
            shared.hold(Class::Stranger, socket, move |held| {
                let shared = &held.shared;
                match shared.secure(stream).and_then(|secure| held.is_known().map(|()| secure)) {
                    Ok((stream, asker)) => shared.answer(stream, asker, Some(IDLE)),
                    Err(error) => {
                        Counters::add(&shared.counters.not_allowed);
                        shared.tell(format_args!("a connection over TCP is refused: {error}"));
                    }
                }
            })
        };
        self.take(listener, take)
    }

    /// Has a thread take connections until the end.
    fn take<L: AsFd + Send + 'static>(
        &mut self,
        listener: L,
        take: impl Fn(&L) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let ended = self.ended.try_clone()?;
        let run = move || {
            loop {
                let mut fds =
                    [PollFd::new(&listener, PollFlags::IN), PollFd::new(&ended, PollFlags::IN)];
                let polled = poll(&mut fds, None);
                if !fds[1].revents().is_empty() {
                    return;
                }
                match polled.map_err(io::Error::from).and_then(|_| take(&listener)) {
                    Err(error)
                        if !matches!(
                            error.kind(),
                            io::ErrorKind::WouldBlock
                                | io::ErrorKind::Interrupted
                                | io::ErrorKind::ConnectionAborted
                        ) =>
                    {
                        log::warn!("cannot take a connection: {error}");
                        thread::sleep(SHORTAGE);
                    }
                    _ => {}
                }
            }
        };
        let taker = thread::Builder::new().name("quicket-keyd".to_owned()).spawn(run)?;
        self.takers.push(taker);
        Ok(())
    }

    /// Answers with other keys from now on.
    pub fn replace(&self, keys: Keys) {
        *self.shared.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    /// Shows clients over TCP another certificate from now on, and asks for those of other authorities. Connections over
    /// TCP end: who is still a client comes again.
    pub fn replace_tls(&self, tls: ServerTls) {
        self.shared.set_tls(tls);
        // One that is not there yet looks at what is new.
        let open = self.shared.open();
        let over_tcp = open.values().filter(|(class, _)| *class != Class::Unix);
        over_tcp.for_each(|(_, socket)| socket.end());
    }

    /// The keys of now.
    pub fn keys(&self) -> Arc<Keys> {
        self.shared.keys()
    }

    /// What was done.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("counters", self.counters()).finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.end.take());
        for taker in self.takers.drain(..) {
            // It has told of a panic.
            let _ = taker.join();
        }
        self.shared.open().values().for_each(|(_, socket)| socket.end());
    }
}

impl Shared {
    fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, (Class, Socket)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_tls(&self, tls: ServerTls) {
        *self.tls.write().unwrap_or_else(PoisonError::into_inner) = Some(tls);
    }

    /// Tells the log. Counters know of all.
    fn tell(&self, what: fmt::Arguments<'_>) {
        if self.told.may() {
            log::warn!("{what}");
        }
    }

    /// The TLS of a client over TCP, who has a certificate.
    fn secure(&self, stream: TcpStream) -> io::Result<(Stream, Asker)> {
        let tls = self.tls.read().unwrap_or_else(PoisonError::into_inner).clone();
        let tls = tls.ok_or_else(|| io::Error::other("there is no certificate to show"))?;
        let tls = ServerConnection::new(tls.config).map_err(io::Error::other)?;
        let mut tls = StreamOwned::new(tls, Timed::new(stream));
        tls.sock.set_deadline(Some(Instant::now() + PATIENCE));
        while tls.conn.is_handshaking() {
            tls.conn.complete_io(&mut tls.sock)?;
        }
        let own = tls.conn.peer_certificates().and_then(|chain| chain.first());
        let own = own.ok_or_else(|| io::Error::other("no certificate"))?;
        // The hash of a certificate names its holder.
        let asker = Asker::Certificate(key_id(own).0);
        Ok((Stream::Server(Box::new(tls)), asker))
    }

    /// Makes room for one more of a class; false if there is none.
    fn make_room(&self, open: &mut HashMap<u64, (Class, Socket)>, class: Class) -> bool {
        let count = open.values().filter(|(other, _)| *other == class).count();
        if class != Class::Stranger {
            return count < self.most_connections;
        }
        let strangers = open.iter().filter(|(_, (other, _))| *other == class);
        let oldest = strangers.map(|(number, _)| *number).min();
        if let Some(oldest) = oldest.filter(|_| count >= MAX_STRANGERS)
            && let Some((_, socket)) = open.remove(&oldest)
        {
            socket.end();
        }
        true
    }

    /// Has a thread serve a connection, if there are not too many.
    fn hold(
        self: &Arc<Self>,
        class: Class,
        socket: Socket,
        serve: impl FnOnce(&Held) + Send + 'static,
    ) -> io::Result<()> {
        let mut open = self.open();
        if !self.make_room(&mut open, class) {
            drop(open);
            Counters::add(&self.counters.not_allowed);
            self.tell(format_args!("a connection is refused: {}", self.too_many()));
            return Ok(());
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        open.insert(number, (class, socket));
        self.counters.open.store(open.len() as u64, Ordering::Relaxed);
        drop(open);
        Counters::add(&self.counters.connections);
        let held = Held { shared: Arc::clone(self), number };
        // If there is no thread, the connection ends here.
        thread::Builder::new()
            .name("quicket-keyd".to_owned())
            .stack_size(self.stack)
            .spawn(move || serve(&held))
            .map(drop)
    }

    fn too_many(&self) -> String {
        format!("there are {} already", self.most_connections)
    }

    /// Answers until the client goes, says what makes no sense, or asks nothing for too long.
    fn answer(&self, mut stream: Stream, asker: Asker, patience: Option<Duration>) {
        let mut inbox = Inbox::default();
        let mut out = Vec::new();
        loop {
            let next = inbox.frame().map(|frame| frame.map(|f| (f.number, f.request())));
            match next {
                Ok(Some((number, Ok(request)))) => {
                    out.clear();
                    self.do_as_told(&request, asker).encode(number, &mut out);
                    stream.set_deadline(Some(Instant::now() + PATIENCE));
                    if stream.send(&out).is_err() {
                        return;
                    }
                }
                Ok(Some((number, Err(error)))) => return self.end(stream, number, error),
                Err(error) => return self.end(stream, 0, error),
                Ok(None) => {
                    let patience = if inbox.is_empty() { patience } else { Some(PATIENCE) };
                    stream.set_deadline(patience.map(|patience| Instant::now() + patience));
                    if !matches!(inbox.fill(&mut stream), Ok(true)) {
                        return;
                    }
                }
            }
        }
    }

    /// Tells a client that it makes no sense, and ends the connection.
    fn end(&self, mut stream: Stream, number: u32, error: Malformed) {
        Counters::add(&self.counters.malformed);
        self.tell(format_args!("a connection ends: {error} came"));
        let code = match error {
            Malformed::Version(_) => Code::Version,
            _ => Code::Malformed,
        };
        let mut out = Vec::new();
        Answer::refused(code, error).encode(number, &mut out);
        // Whether it hears of that is its business.
        stream.set_deadline(Some(Instant::now() + PATIENCE));
        let _ = stream.send(&out);
    }

    fn do_as_told(&self, request: &Request, asker: Asker) -> Answer {
        let refused = |counter, code, why: &dyn fmt::Display| {
            Counters::add(counter);
            Answer::refused(code, why)
        };
        let keys = self.keys();
        let (Request::Sign { key: id, .. } | Request::Find { key: id }) = request;
        let Some(key) = keys.get(id) else {
            let why = format!("there is no key {id}");
            return refused(&self.counters.unknown_key, Code::UnknownKey, &why);
        };
        let Request::Sign { scheme, hash, .. } = request else {
            Counters::add(&self.counters.found);
            return Answer::Key(key.spki().to_vec());
        };
        if !key.has_scheme(*scheme) {
            let why = format!("a key of {} makes no signatures {scheme:#06x}", key.kind().name());
            return refused(&self.counters.other_scheme, Code::Scheme, &why);
        }
        if !self.rates.take(asker, Instant::now()) {
            let why = "the client has had its signatures of this second";
            return refused(&self.counters.too_many, Code::TooMany, &why);
        }
        let seats = if key.is_on_token() { &self.seats_of_token } else { &self.seats };
        let Some(seat) = seats.take(TURN) else {
            let why = "other signatures take all the time that there is";
            return refused(&self.counters.busy, Code::Failed, &why);
        };
        let begun = Instant::now();
        let signed = key.sign(*scheme, hash);
        let took = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        drop(seat);
        match signed {
            Ok(signature) => {
                Counters::add(&self.counters.signatures);
                self.counters.microseconds.fetch_add(took, Ordering::Relaxed);
                Answer::Signature(signature)
            }
            Err(error) => {
                if self.told_failed.may() {
                    log::error!("the key {} cannot be used: {error}", key.name());
                }
                refused(&self.counters.failed, Code::Failed, &"the key cannot be used now")
            }
        }
    }
}

/// A connection that is open.
struct Held {
    shared: Arc<Shared>,
    number: u64,
}

impl Held {
    /// Counts a stranger among clients from now on.
    fn is_known(&self) -> io::Result<()> {
        let mut open = self.shared.open();
        if !self.shared.make_room(&mut open, Class::Tcp) {
            return Err(io::Error::other(self.shared.too_many()));
        }
        match open.get_mut(&self.number) {
            Some((class, _)) => *class = Class::Tcp,
            None => return Err(io::Error::other("it has taken its time, and others came")),
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut open = self.shared.open();
        open.remove(&self.number);
        self.shared.counters.open.store(open.len() as u64, Ordering::Relaxed);
    }
}
