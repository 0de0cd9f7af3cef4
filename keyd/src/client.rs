//! The side of who terminates TLS: asks for signatures, and has threads that wait for them.

use std::fmt;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::pool::{self, Job, Pool};
use crate::protocol::{Answer, Code, Request, TranscriptHash};
use crate::stream::{Inbox, Stream, Timed};
use crate::{Address, KeyId};

/// How long a key process that is away is left alone at first, and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];

/// How often the log is told of another reason, at most.
const TELL: Duration = Duration::from_secs(1);

/// How a key process is used.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Signatures that are waited for at once, each by a thread with a connection of its own: 1 to 256.
    pub threads: usize,
    /// Handshakes that wait for one of these threads.
    pub queue: usize,
    /// How long a handshake waits, in the queue and for its signature.
    pub timeout: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { threads: 16, queue: 1024, timeout: Duration::from_secs(1) }
    }
}

/// By what both sides of a connection over TCP know each other: files of PEM.
#[derive(Clone, Debug)]
pub struct MutualTls(Arc<ClientConfig>);

impl MutualTls {
    /// The client's certificate chain and key, and the authorities of the key process.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or is not what it should be.
    pub fn of_files(chain: &Path, key: &Path, ca: &Path) -> Result<Self, String> {
        let (chain, key, roots) = (certificates(chain)?, private_key(key)?, roots(ca)?);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map(|builder| builder.with_root_certificates(roots))
            .and_then(|builder| builder.with_client_auth_cert(chain, key));
        config.map(|config| Self(Arc::new(config))).map_err(|error| error.to_string())
    }
}

pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let all: Vec<_> = read.map_err(|error| format!("{}: {error}", path.display()))?;
    match all.is_empty() {
        true => Err(format!("{}: there is no certificate", path.display())),
        false => Ok(all),
    }
}

pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| format!("{}: {error}", path.display()))
}

pub(crate) fn roots(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(roots)
}

/// Why there is no signature, or no key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignError {
    /// The key process cannot be reached.
    Away(String),
    /// It has not answered in time.
    Slow,
    /// It says no.
    Refused(Code, String),
    /// It says what makes no sense.
    Wrong(String),
}

impl SignError {
    /// Why a key process is not to be believed that says this.
    fn malformed(error: impl fmt::Display) -> Self {
        Self::Wrong(error.to_string())
    }
}

impl fmt::Display for SignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Away(why) => write!(f, "the key process is away: {why}"),
            Self::Slow => f.write_str("the key process has not answered in time"),
            Self::Refused(_, why) => write!(f, "the key process refuses: {why}"),
            Self::Wrong(what) => write!(f, "the key process answers with {what}"),
        }
    }
}

impl std::error::Error for SignError {}

/// What has become of signatures that were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Signatures that came.
    pub signatures: u64,
    /// Those that did not.
    pub failures: u64,
}

/// A key process, and the threads that wait for it. Clones are the same one.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    address: Address,
    tls: Option<MutualTls>,
    timeout: Duration,
    idle: Mutex<Vec<Link>>,
    most_idle: usize,
    reach: Mutex<Reach>,
    pool: Pool,
    signatures: AtomicU64,
    failures: AtomicU64,
}

/// Whether the key process is there.
#[derive(Default)]
struct Reach {
    /// Until when it is not tried, and why.
    away: Option<(Instant, String)>,
    pause: Option<Duration>,
    /// The log knows what was wrong last, since then.
    told: Option<(String, Instant)>,
}

/// One connection.
struct Link {
    stream: Stream,
    inbox: Inbox,
    number: u32,
}

impl Client {
    /// A key process at a place. Nothing is connected before something is asked for.
    ///
    /// # Errors
    ///
    /// If it is one over TCP and `tls` is missing, or the other way round.
    pub fn new(
        address: Address,
        tls: Option<MutualTls>,
        options: &ClientOptions,
    ) -> Result<Self, String> {
        match (&address, &tls) {
            (Address::Tcp { .. }, None) => {
                return Err(format!("{address} needs a certificate, a key and an authority"));
            }
            (Address::Unix(_), Some(_)) => {
                return Err(format!("{address} has no TLS: the system says who is there"));
            }
            _ => {}
        }
        let threads = options.threads.clamp(1, 256);
        Ok(Self(Arc::new(Inner {
            address,
            tls,
            timeout: options.timeout,
            idle: Mutex::default(),
            most_idle: threads,
            reach: Mutex::default(),
            pool: Pool::new(threads, options.queue, options.timeout),
            signatures: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        })))
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.0.address
    }

    /// Has a thread do what waits for a signature. A job that is not begun in time is dropped.
    ///
    /// # Errors
    ///
    /// If too many wait already; the job is dropped.
    pub fn run(&self, job: Box<dyn FnOnce() + Send>) -> Result<(), String> {
        let job: Job = job;
        self.0.pool.run(job).inspect_err(|why| self.0.failed(why))
    }

    /// The signature of a handshake. It waits: until the job of this thread is to be done, or as long as the options say.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn sign(
        &self,
        key: KeyId,
        scheme: u16,
        hash: TranscriptHash,
    ) -> Result<Vec<u8>, SignError> {
        let answer = self.ask(&Request::Sign { key, scheme, hash });
        let signed = answer.and_then(|answer| match answer {
            Answer::Signature(signature) => Ok(signature),
            Answer::Key(_) => Err(SignError::malformed("a key, where a signature was asked for")),
            Answer::Refused { code, reason } => Err(SignError::Refused(code, reason)),
        });
        match &signed {
            Ok(_) => {
                self.0.signatures.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => self.0.failed(&error.to_string()),
        }
        signed
    }

    /// The public half of a key, a SubjectPublicKeyInfo in DER, if the key process has the key. It waits as [`Self::sign`].
    ///
    /// # Errors
    ///
    /// If that cannot be told.
    pub fn find(&self, key: KeyId) -> Result<Option<Vec<u8>>, SignError> {
        match self.ask(&Request::Find { key })? {
            Answer::Key(spki) => Ok(Some(spki)),
            Answer::Signature(_) => Err(SignError::malformed("a signature that nobody wanted")),
            Answer::Refused { code: Code::UnknownKey, .. } => Ok(None),
            Answer::Refused { code, reason } => Err(SignError::Refused(code, reason)),
        }
    }

    /// What has become of signatures that were asked for.
    pub fn stats(&self) -> Stats {
        Stats {
            signatures: self.0.signatures.load(Ordering::Relaxed),
            failures: self.0.failures.load(Ordering::Relaxed),
        }
    }

    fn ask(&self, request: &Request) -> Result<Answer, SignError> {
        let inner = &*self.0;
        let deadline = pool::deadline().unwrap_or_else(|| Instant::now() + inner.timeout);
        loop {
            let kept = inner.idle().pop();
            let was_kept = kept.is_some();
            let mut link = match kept {
                Some(link) => link,
                None => inner.connect(deadline)?,
            };
            match link.ask(request, deadline) {
                Ok(answer) => {
                    let mut idle = inner.idle();
                    if idle.len() < inner.most_idle {
                        idle.push(link);
                    }
                    drop(idle);
                    inner.reached();
                    return Ok(answer);
                }
                Err(Lost::Io(error)) if error.kind() == io::ErrorKind::TimedOut => {
                    return Err(SignError::Slow);
                }
                // It was started again perhaps: the others have ended, too. Asking twice does no harm.
                Err(Lost::Io(_)) if was_kept => inner.idle().clear(),
                Err(Lost::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    let why = "it has ended the connection: it says why, and who may ask";
                    return Err(inner.is_away(why));
                }
                Err(Lost::Io(error)) => return Err(inner.is_away(&error.to_string())),
                Err(Lost::Wrong(what)) => return Err(SignError::malformed(what)),
            }
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", &self.0.address).finish_non_exhaustive()
    }
}

impl Inner {
    fn idle(&self) -> MutexGuard<'_, Vec<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reach(&self) -> MutexGuard<'_, Reach> {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says so in the log, when it is another reason than before, and not more often than [`TELL`].
    fn failed(&self, why: &str) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let mut reach = self.reach();
        let is_told = |(told, at): &(String, Instant)| told == why || at.elapsed() < TELL;
        if !reach.told.as_ref().is_some_and(is_told) {
            reach.told = Some((why.to_owned(), Instant::now()));
            drop(reach);
            log::warn!("{}: a handshake has no signature: {why}", self.address);
        }
    }

    fn reached(&self) {
        let mut reach = self.reach();
        (reach.away, reach.pause) = (None, None);
        if reach.told.take().is_some() {
            drop(reach);
            log::warn!("{}: the key process answers again", self.address);
        }
    }

    fn is_away(&self, why: &str) -> SignError {
        let mut reach = self.reach();
        let pause = reach.pause.map_or(PAUSES[0], |pause| (2 * pause).min(PAUSES[1]));
        reach.pause = Some(pause);
        reach.away = Some((Instant::now() + pause, why.to_owned()));
        SignError::Away(why.to_owned())
    }

    fn connect(&self, deadline: Instant) -> Result<Link, SignError> {
        if let Some((until, why)) = &self.reach().away
            && *until > Instant::now()
        {
            return Err(SignError::Away(why.clone()));
        }
        let connected = match &self.address {
            Address::Unix(path) => unix(path, deadline),
            Address::Tcp { host, port } => self.tcp(host, *port, deadline),
        };
        match connected {
            Ok(stream) => Ok(Link { stream, inbox: Inbox::default(), number: 0 }),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                let _ = self.is_away("it takes no connection in time");
                Err(SignError::Slow)
            }
            Err(error) => Err(self.is_away(&error.to_string())),
        }
    }

    fn tcp(&self, host: &str, port: u16, deadline: Instant) -> io::Result<Stream> {
        let Some(MutualTls(config)) = &self.tls else {
            return Err(io::Error::other("there is no certificate for it"));
        };
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let mut failed = io::Error::other("its name has no address");
        for address in (host, port).to_socket_addrs()? {
            let left = left(deadline)?;
            match TcpStream::connect_timeout(&address, left) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    let tls = ClientConnection::new(Arc::clone(config), name);
                    let tls = tls.map_err(io::Error::other)?;
                    let mut stream =
                        Stream::Client(Box::new(StreamOwned::new(tls, Timed::new(stream))));
                    stream.set_deadline(Some(deadline));
                    return Ok(stream);
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}

fn left(deadline: Instant) -> io::Result<Duration> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

/// A connection to a Unix socket. Where its queue is full, that waits as well.
fn unix(path: &Path, deadline: Instant) -> io::Result<Stream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_write_timeout(Some(left(deadline)?))?;
    socket.connect(&SockAddr::unix(path)?).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    })?;
    Ok(Stream::Unix(Timed::new(UnixStream::from(OwnedFd::from(socket)))))
}

/// Why a connection is of no more use.
enum Lost {
    Io(io::Error),
    Wrong(String),
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Link {
    fn ask(&mut self, request: &Request, deadline: Instant) -> Result<Answer, Lost> {
        self.number = self.number.wrapping_add(1);
        let mut bytes = Vec::with_capacity(96);
        request.encode(self.number, &mut bytes);
        self.stream.set_deadline(Some(deadline));
        self.stream.send(&bytes)?;
        loop {
            let frame = self.inbox.frame().map_err(|error| Lost::Wrong(error.to_string()))?;
            if let Some(frame) = frame {
                // Number 0 is nobody's: what the key process says before it ends the connection.
                if frame.number != self.number && frame.number != 0 {
                    return Err(Lost::Wrong("an answer to another question".to_owned()));
                }
                return frame.answer().map_err(|error| Lost::Wrong(error.to_string()));
            }
            if !self.inbox.fill(&mut self.stream)? {
                return Err(Lost::Io(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }
}
