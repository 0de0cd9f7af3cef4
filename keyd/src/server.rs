//! The side of who has the keys: a thread for each connection answers what comes there, in its order.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustls::server::WebPkiClientVerifier;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::client::{certificates, private_key, roots};
use crate::counters::Counters;
use crate::protocol::{Answer, Code, Malformed, Request};
use crate::rate::{Asker, Rates};
use crate::stream::{Inbox, Stream, Timed};
use crate::{Keys, key_id};

/// How long a client over TCP may take for TLS, and any client for the rest of a message, or to take an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait where the system has no descriptors or threads left.
const SHORTAGE: Duration = Duration::from_millis(100);
/// How often the log is told of connections that are refused, at most: whoever may connect could fill it.
const TELL: Duration = Duration::from_secs(1);
/// The stack of a connection's thread, in bytes.
const STACK: usize = 256 << 10;

/// What bounds a key process.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Signatures that are made at once.
    pub threads: usize,
    /// Connections at once.
    pub connections: usize,
    /// Signatures for a client in a second; no limit without it.
    pub rate: Option<u32>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        Self { threads, connections: 1024, rate: None }
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

/// How clients over TCP are known: TLS 1.3, with a certificate on either side.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<ServerConfig>);

impl ServerTls {
    /// The own certificate chain and key, and the authorities of clients: files of PEM.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or is not what it should be.
    pub fn of_files(chain: &Path, key: &Path, client_ca: &Path) -> Result<Self, String> {
        let (chain, key, roots) = (certificates(chain)?, private_key(key)?, roots(client_ca)?);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let verifier = verifier.build().map_err(|error| error.to_string())?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map(|builder| builder.with_client_cert_verifier(verifier))
            .and_then(|builder| builder.with_single_cert(chain, key));
        config.map(|config| Self(Arc::new(config))).map_err(|error| error.to_string())
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
    most_connections: u64,
    /// How many more signatures may be made at once.
    free: Mutex<usize>,
    freed: Condvar,
    /// Of connections that are open, to end them.
    open: Mutex<HashMap<u64, Socket>>,
    numbers: AtomicU64,
    /// When the log was told last.
    told: Mutex<Option<Instant>>,
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
            most_connections: options.connections as u64,
            free: Mutex::new(options.threads.max(1)),
            freed: Condvar::new(),
            open: Mutex::default(),
            numbers: AtomicU64::new(0),
            told: Mutex::default(),
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
            shared.hold(socket, move || Ok((stream, asker)))
        };
        self.take(listener, take)
    }

    /// Answers clients over TCP who show a certificate.
    ///
    /// # Errors
    ///
    /// If the system has no threads or descriptors left.
    pub fn listen_tcp(&mut self, listener: TcpListener, tls: ServerTls) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let shared = Arc::clone(&self.shared);
        let take = move |listener: &TcpListener| {
            let (stream, _) = listener.accept()?;
            stream.set_nonblocking(false)?;
            stream.set_nodelay(true)?;
            let socket = Socket::Tcp(stream.try_clone()?);
            let config = Arc::clone(&tls.0);
            let shared_here = Arc::clone(&shared);
            shared.hold(socket, move || {
                secure(stream, config).inspect_err(|error| {
                    Counters::add(&shared_here.counters.not_allowed);
                    shared_here.tell(format_args!("a connection over TCP is refused: {error}"));
                })
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
        self.shared.open().values().for_each(Socket::end);
    }
}

/// The TLS of a client over TCP, who has a certificate.
fn secure(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<(Stream, Asker)> {
    let tls = ServerConnection::new(config).map_err(io::Error::other)?;
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

impl Shared {
    fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Socket>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the log. Counters know of all.
    fn tell(&self, what: fmt::Arguments<'_>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|at| at.elapsed() >= TELL) {
            *told = Some(Instant::now());
            drop(told);
            log::warn!("{what}");
        }
    }

    /// Has a thread answer a connection, if there are not too many.
    fn hold(
        self: &Arc<Self>,
        socket: Socket,
        begin: impl FnOnce() -> io::Result<(Stream, Asker)> + Send + 'static,
    ) -> io::Result<()> {
        let mut open = self.open();
        if open.len() as u64 >= self.most_connections {
            drop(open);
            Counters::add(&self.counters.not_allowed);
            let most = self.most_connections;
            self.tell(format_args!("a connection is refused: there are {most} already"));
            return Ok(());
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        open.insert(number, socket);
        self.counters.open.store(open.len() as u64, Ordering::Relaxed);
        drop(open);
        Counters::add(&self.counters.connections);
        let held = Held { shared: Arc::clone(self), number };
        let answer = move || {
            if let Ok((stream, asker)) = begin() {
                held.shared.answer(stream, asker);
            }
            drop(held);
        };
        // If there is no thread, the connection ends here.
        thread::Builder::new()
            .name("quicket-keyd".to_owned())
            .stack_size(STACK)
            .spawn(answer)
            .map(drop)
    }

    /// Answers until the client goes, or says what makes no sense.
    fn answer(&self, mut stream: Stream, asker: Asker) {
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
                    let deadline = (!inbox.is_empty()).then(|| Instant::now() + PATIENCE);
                    stream.set_deadline(deadline);
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
        let seat = Seat::take(self);
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
                log::error!("the key {} cannot be used: {error}", key.name());
                refused(&self.counters.failed, Code::Failed, &"the key cannot be used now")
            }
        }
    }
}

/// The right to make a signature now.
struct Seat<'a>(&'a Shared);

impl<'a> Seat<'a> {
    fn take(shared: &'a Shared) -> Self {
        let free = shared.free.lock().unwrap_or_else(PoisonError::into_inner);
        let free = shared.freed.wait_while(free, |free| *free == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        Self(shared)
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

/// A connection that is open.
struct Held {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut open = self.shared.open();
        open.remove(&self.number);
        self.shared.counters.open.store(open.len() as u64, Ordering::Relaxed);
    }
}
