//! The side of who terminates TLS: asks for signatures, and has threads that wait for them.

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::names::Names;
use crate::pool::{self, Job, Pool};
use crate::protocol::{Answer, Code, Request, TranscriptHash};
use crate::stream::{Inbox, Stream, Timed, keep_alive};
use crate::told::TELL;
use crate::{Address, KeyId, MutualTls};

/// How long a key process that is away is left alone at first, and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];
/// How long a connection is kept that nothing is asked on: the key process ends it later than that.
const KEEP: Duration = Duration::from_secs(60);

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
    names: Option<Names>,
    timeout: Duration,
    /// With the moment of the last answer: the oldest is first.
    idle: Mutex<Vec<(Instant, Link)>>,
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
    /// What is wrong, as far as the log knows.
    wrong: Option<String>,
    /// When the log was told of that, and when of signatures that came again.
    told: [Option<Instant>; 2],
}

/// Whether the log may hear of it again, and if so, notes that it does.
fn may_tell(told: &mut Option<Instant>) -> bool {
    let may = told.is_none_or(|at| at.elapsed() >= TELL);
    if may {
        *told = Some(Instant::now());
    }
    may
}

/// One connection.
struct Link {
    stream: Stream,
    inbox: Inbox,
    number: u32,
}

impl Client {
    /// A key process at a place. Nothing is connected before something is asked for; the addresses of a host are.
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
        let names = match &address {
            Address::Unix(_) => None,
            Address::Tcp { host, port } => Some(Names::new(host, *port)),
        };
        Ok(Self(Arc::new(Inner {
            address,
            tls,
            names,
            timeout: options.timeout,
            idle: Mutex::default(),
            most_idle: threads,
            reach: Mutex::default(),
            pool: Pool::new(threads, options.queue, options.timeout),
            signatures: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        })))
    }

    /// Names these threads, and those of clones, among all clients that there are now.
    pub fn number(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
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
            Ok(_) => self.0.signed(),
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
            let kept = inner.kept();
            let was_kept = kept.is_some();
            let mut link = match kept {
                Some(link) => link,
                None => inner.connect(deadline)?,
            };
            match link.ask(request, deadline) {
                Ok(answer) => {
                    inner.keep(link);
                    inner.reached();
                    return Ok(answer);
                }
                Err(Lost::Io(error)) if error.kind() == io::ErrorKind::TimedOut => {
                    // Nobody may be there any more, without a word: then the others lead nowhere, too.
                    if was_kept {
                        inner.forget();
                    }
                    return Err(SignError::Slow);
                }
                // It was started again perhaps: the others have ended, too. Asking twice does no harm.
                Err(Lost::Io(_)) if was_kept => inner.forget(),
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
    fn idle(&self) -> MutexGuard<'_, Vec<(Instant, Link)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that was used lately.
    fn kept(&self) -> Option<Link> {
        let last = self.idle().pop();
        last.filter(|(at, _)| at.elapsed() < KEEP).map(|(_, link)| link)
    }

    fn keep(&self, link: Link) {
        let mut idle = self.idle();
        let old = idle.iter().take_while(|(at, _)| at.elapsed() >= KEEP).count();
        let old: Vec<_> = idle.drain(..old).collect();
        if idle.len() < self.most_idle {
            idle.push((Instant::now(), link));
        }
        drop(idle);
        drop(old);
    }

    /// Ends connections that are kept.
    fn forget(&self) {
        let all = std::mem::take(&mut *self.idle());
        drop(all);
    }

    fn reach(&self) -> MutexGuard<'_, Reach> {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says so in the log, when it is another reason than before, and not more often than [`TELL`].
    fn failed(&self, why: &str) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let mut reach = self.reach();
        if reach.wrong.as_deref() != Some(why) && may_tell(&mut reach.told[0]) {
            reach.wrong = Some(why.to_owned());
            drop(reach);
            log::warn!("{}: a handshake has no signature: {why}", self.address);
        }
    }

    /// A signature came: an answer may be a refusal. What is wrong stays so until the log may hear that it is not.
    fn signed(&self) {
        self.signatures.fetch_add(1, Ordering::Relaxed);
        let mut reach = self.reach();
        if reach.wrong.is_some() && may_tell(&mut reach.told[1]) {
            reach.wrong = None;
            drop(reach);
            log::warn!("{}: the key process answers again", self.address);
        }
    }

    fn reached(&self) {
        let mut reach = self.reach();
        (reach.away, reach.pause) = (None, None);
    }

    fn is_away(&self, why: &str) -> SignError {
        let mut reach = self.reach();
        // Of threads that fail at once, the first one counts.
        if reach.away.as_ref().is_some_and(|(until, _)| *until > Instant::now()) {
            return SignError::Away(why.to_owned());
        }
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
            Address::Tcp { host, .. } => self.tcp(host, deadline),
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

    fn tcp(&self, host: &str, deadline: Instant) -> io::Result<Stream> {
        let (Some(MutualTls(config)), Some(names)) = (&self.tls, &self.names) else {
            return Err(io::Error::other("there is no certificate for it"));
        };
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let addresses = names.get(deadline)?;
        let mut failed = io::Error::other("its name has no address");
        for (number, address) in addresses.iter().enumerate() {
            // One that does not answer leaves time for the others.
            let share = left(deadline)? / (addresses.len() - number) as u32;
            match TcpStream::connect_timeout(address, share.max(Duration::from_millis(1))) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    keep_alive(&stream)?;
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
        names.doubt();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What can be had from a process that refuses each time is a line, not two for each handshake.
    #[test]
    fn the_log_is_told_of_changes_and_threads_that_fail_at_once_count_once() {
        let address = "unix:/nowhere/keyd.sock".parse().unwrap();
        let client = Client::new(address, None, &ClientOptions::default()).unwrap();
        let inner = &*client.0;
        let told = || {
            let reach = inner.reach();
            (reach.wrong.clone(), reach.told)
        };
        inner.failed("it refuses");
        let first = told();
        assert!(first.0.as_deref() == Some("it refuses") && first.1[0].is_some(), "{first:?}");
        inner.reached();
        inner.failed("it refuses");
        inner.failed("it refuses otherwise");
        assert_eq!(told(), first, "an answer is no signature, and the second has not passed");
        inner.signed();
        let second = told();
        assert!(second.0.is_none() && second.1[1].is_some(), "{second:?}");
        inner.failed("it refuses");
        assert_eq!(told(), second, "that waits for its second, too");
        for _ in 0..8 {
            inner.is_away("nobody listens");
        }
        assert_eq!(inner.reach().pause, Some(PAUSES[0]));
        let stats = client.stats();
        assert_eq!((stats.signatures, stats.failures), (1, 4));
    }
}
