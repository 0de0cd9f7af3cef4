//! A name and its addresses, which are asked for again when they have held for as long as was said.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Found, Resolve};

/// How long an address may take before the next one is tried beside it (RFC 8305, Section 5).
const HEAD_START: Duration = Duration::from_millis(250);
/// How soon a name is asked for again after an answer without addresses.
const RETRY: Duration = Duration::from_secs(1);
/// The shortest and the longest that an answer of DNS counts, whatever it says.
const MIN_TTL: Duration = Duration::from_secs(1);
const MAX_TTL: Duration = Duration::from_secs(3600);
/// How long an answer counts that says nothing of it.
const WITHOUT_TTL: Duration = Duration::from_secs(30);
/// How long whoever needs an address waits for an answer where there are older ones (RFC 8767, Section 5).
const GRACE: Duration = Duration::from_millis(500);
/// The most addresses of a name that count.
pub(super) const MAX_ADDRESSES: usize = 64;

/// A host and its addresses.
pub(crate) struct Names {
    host: String,
    port: u16,
    resolve: Resolve,
    known: Mutex<Known>,
    /// Changes with each answer.
    answered: watch::Sender<()>,
    /// Which address comes first, in turns.
    turn: AtomicUsize,
    #[cfg(test)]
    asked: AtomicUsize,
}

#[derive(Debug, Default)]
struct Known {
    addresses: Vec<SocketAddr>,
    /// Until when they count; nothing was asked yet if there is no time.
    until: Option<Instant>,
    /// Why the last answer brought no addresses.
    error: Option<String>,
    /// It is asked for just now: once, however many requests wait.
    is_asked: bool,
    /// The answer takes so long that nobody waits for it who has older addresses.
    is_slow: bool,
}

impl Known {
    /// Whether what is known counts still.
    fn is_fresh(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }

    fn told(&self) -> io::Result<Vec<SocketAddr>> {
        match &self.error {
            Some(error) if self.addresses.is_empty() => {
                Err(io::Error::new(io::ErrorKind::NotFound, error.clone()))
            }
            _ => Ok(self.addresses.clone()),
        }
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").field("host", &self.host).finish_non_exhaustive()
    }
}

impl Names {
    pub(crate) fn new(host: &str, port: u16, resolve: Resolve) -> Arc<Self> {
        let known = host
            .parse::<IpAddr>()
            .map(|ip| Known { addresses: vec![SocketAddr::new(ip, port)], ..Known::default() });
        let known = Mutex::new(known.unwrap_or_default());
        Arc::new(Self {
            host: host.to_owned(),
            port,
            resolve,
            known,
            answered: watch::Sender::new(()),
            turn: AtomicUsize::new(0),
            #[cfg(test)]
            asked: AtomicUsize::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_address(&self) -> bool {
        self.host.parse::<IpAddr>().is_ok()
    }

    /// False if the name does not lead to this address any more, as far as is known. What is known for too
    /// long is asked for again, beside.
    pub(crate) fn leads_to(self: &Arc<Self>, address: SocketAddr) -> bool {
        let mut known = self.lock();
        if known.until.is_some() && !known.is_fresh() {
            self.ask(&mut known, &Handle::current());
        }
        known.addresses.contains(&address)
    }

    /// What is known now, for those who cannot wait. What is known for too long is asked for again by a task of `runtime`.
    pub(crate) fn now(self: &Arc<Self>, runtime: &Handle) -> Vec<SocketAddr> {
        let mut known = self.lock();
        if !self.is_address() && !known.is_fresh() {
            self.ask(&mut known, runtime);
        }
        known.addresses.clone()
    }

    /// Asks for the name, unless that is done already. Whoever waits may go away: the question stays, so that a
    /// resolver that is slow holds one thread and no more.
    fn ask(self: &Arc<Self>, known: &mut Known, runtime: &Handle) {
        if !std::mem::replace(&mut known.is_asked, true) {
            #[cfg(test)]
            self.asked.fetch_add(1, Ordering::Relaxed);
            let names = Arc::clone(self);
            runtime.spawn(async move {
                let asking = Arc::clone(&names);
                let asking = async move { asking.resolve.resolver.find(&asking.host).await };
                // What an answer does to the resolver costs the answer, and no more.
                let found = tokio::spawn(asking).await;
                names.learn(found.unwrap_or_else(|error| Err(io::Error::other(error))));
                names.answered.send_replace(());
            });
        }
    }

    /// Where nothing is found, what was known before counts on.
    fn learn(&self, found: io::Result<Found>) {
        let mut known = self.lock();
        (known.is_asked, known.is_slow) = (false, false);
        let (valid, error) = match found {
            Ok(Found { addresses, ttl }) => {
                let all = addresses.into_iter().take(MAX_ADDRESSES);
                known.addresses = all.map(|address| self.at_port(address)).collect();
                (self.valid(ttl), None)
            }
            Err(error) => (RETRY.min(self.valid(None)), Some(error.to_string())),
        };
        known.until = Some(Instant::now() + valid);
        let before = std::mem::replace(&mut known.error, error);
        // What stays as it is, is told once.
        if let Some(error) = known.error.as_ref().filter(|_| known.error != before) {
            match known.addresses.is_empty() {
                true => log::warn!("{}: {error}", self.host),
                false => log::warn!("{}: {error}; the addresses from before count", self.host),
            }
        }
    }

    const fn at_port(&self, mut address: SocketAddr) -> SocketAddr {
        address.set_port(self.port);
        address
    }

    /// How long an answer counts.
    fn valid(&self, ttl: Option<Duration>) -> Duration {
        let most = self.resolve.most;
        match ttl {
            Some(ttl) => ttl.max(MIN_TTL).min(most.unwrap_or(MAX_TTL)),
            None => most.unwrap_or(WITHOUT_TTL),
        }
    }

    /// What is known, once it is not too old. Older addresses are better than none, and than a long wait.
    async fn known(self: &Arc<Self>) -> io::Result<Vec<SocketAddr>> {
        let mut answered = self.answered.subscribe();
        let has_older = {
            let mut known = self.lock();
            if self.is_address() || known.is_fresh() {
                return known.told();
            }
            self.ask(&mut known, &Handle::current());
            let has_older = !known.addresses.is_empty();
            if has_older && (known.is_slow || known.error.is_some()) {
                return known.told();
            }
            has_older
        };
        // It ends with `self`, which is here.
        if !has_older {
            let _ = answered.changed().await;
        } else if tokio::time::timeout(GRACE, answered.changed()).await.is_err() {
            let mut known = self.lock();
            known.is_slow = known.is_asked;
        }
        self.lock().told()
    }

    /// All addresses, as the answer had them: for those who cannot tell whether one serves, and should all come to the same.
    pub(crate) async fn in_order(self: &Arc<Self>) -> io::Result<Vec<SocketAddr>> {
        self.known().await
    }

    /// All addresses, another one first each time.
    pub(crate) async fn addresses(self: &Arc<Self>) -> io::Result<Vec<SocketAddr>> {
        let mut addresses = self.known().await?;
        let turn = self.turn.fetch_add(1, Ordering::Relaxed).checked_rem(addresses.len());
        addresses.rotate_left(turn.unwrap_or(0));
        Ok(addresses)
    }

    /// Connects to one of the addresses: the next one is tried when one has failed, or takes long.
    pub(crate) async fn connect(self: &Arc<Self>) -> io::Result<TcpStream> {
        self.connect_by(TcpStream::connect).await
    }

    /// The same for connections of any kind. An attempt that loses is dropped.
    pub(crate) async fn connect_by<T, F>(
        self: &Arc<Self>,
        connect: impl Fn(SocketAddr) -> F,
    ) -> io::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = io::Result<T>> + Send + 'static,
    {
        let mut left = self.addresses().await?.into_iter();
        // Attempts that lose end with this set.
        let mut attempts = JoinSet::new();
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        loop {
            if let Some(address) = left.next() {
                attempts.spawn(connect(address));
            } else if attempts.is_empty() {
                return Err(last);
            }
            let ended = match left.as_slice() {
                [] => attempts.join_next().await,
                _ => match tokio::time::timeout(HEAD_START, attempts.join_next()).await {
                    Ok(ended) => ended,
                    Err(_) => continue,
                },
            };
            match ended {
                Some(Ok(Ok(stream))) => return Ok(stream),
                Some(Ok(Err(error))) => last = error,
                Some(Err(error)) => last = io::Error::other(error),
                None => {}
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Resolver;
    use super::*;
    use tokio::net::TcpListener;

    /// A name at port 9.
    pub(in crate::resolve) fn names_of(
        host: &str,
        resolver: &Arc<Resolver>,
        most: Option<Duration>,
    ) -> Arc<Names> {
        Names::new(host, 9, Resolve { resolver: Arc::clone(resolver), most })
    }

    impl Names {
        /// Whether the last answer brought nothing, or none comes.
        pub(in crate::resolve) fn has_failed(&self) -> bool {
            let known = self.lock();
            known.error.is_some() || known.is_slow
        }
    }

    fn plain(host: &str, most: Duration) -> Arc<Names> {
        names_of(host, &Resolve::default().resolver, Some(most))
    }

    fn names(addresses: Vec<SocketAddr>) -> Arc<Names> {
        let names = plain("a.invalid", Duration::from_secs(60));
        let until = Some(Instant::now() + Duration::from_secs(60));
        *names.lock() = Known { addresses, until, ..Known::default() };
        names
    }

    #[tokio::test]
    async fn all_addresses_are_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let well = listener.local_addr().unwrap();
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let names = names(vec![gone, well, gone]);
        for _ in 0..3 {
            assert_eq!(names.connect().await.unwrap().peer_addr().unwrap(), well);
        }
        assert!(super::tests::names(vec![gone]).connect().await.is_err());
    }

    #[tokio::test]
    async fn a_name_is_asked_for_again_and_an_address_never() {
        let address = plain("127.0.0.1", Duration::ZERO);
        assert_eq!(address.addresses().await.unwrap(), ["127.0.0.1:9".parse().unwrap()]);
        assert!(address.leads_to("127.0.0.1:9".parse().unwrap()));

        let names = plain("localhost", Duration::from_millis(50));
        let found = names.addresses().await.unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback()));
        // What a name leads to no more is found out beside requests.
        let other: SocketAddr = "192.0.2.1:9".parse().unwrap();
        names.lock().addresses = vec![other];
        assert!(names.leads_to(other), "it is not old yet");
        tokio::time::sleep(Duration::from_millis(60)).await;
        let begun = std::time::Instant::now();
        while names.leads_to(other) {
            assert!(begun.elapsed() < Duration::from_secs(10));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(names.leads_to(found[0]));
    }

    #[tokio::test]
    async fn requests_that_come_at_once_ask_once() {
        let names = plain("localhost", Duration::from_secs(60));
        let mut all = JoinSet::new();
        for _ in 0..100 {
            let names = Arc::clone(&names);
            all.spawn(async move { names.addresses().await.unwrap().len() });
        }
        while let Some(found) = all.join_next().await {
            assert!(found.unwrap() > 0);
        }
        assert_eq!(names.asked.load(Ordering::Relaxed), 1);
        // Who goes away meanwhile takes nothing away from others.
        names.lock().until = Some(Instant::now());
        tokio::select! {
            biased;
            _ = names.addresses() => panic!("it has not been answered yet"),
            () = std::future::ready(()) => {}
        }
        assert!(!names.addresses().await.unwrap().is_empty());
        assert_eq!(names.asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_name_that_is_not_found_is_asked_for_again_soon_and_not_at_once() {
        let names = plain("nowhere.invalid", Duration::from_secs(60));
        let begun = Instant::now();
        for _ in 0..10 {
            let error = names.addresses().await.unwrap_err();
            assert_ne!(error.to_string(), "");
        }
        let asked = names.asked.load(Ordering::Relaxed);
        assert!(asked as u64 <= 1 + begun.elapsed().as_secs(), "{asked} times");
        names.lock().until = Some(Instant::now());
        assert!(names.addresses().await.is_err());
        assert_eq!(names.asked.load(Ordering::Relaxed), asked + 1);
    }

    #[tokio::test]
    async fn a_resolver_that_fails_costs_no_addresses() {
        let known: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let names = names(vec![known]);
        names.lock().until = Some(Instant::now());
        assert_eq!(names.addresses().await.unwrap(), [known]);
    }
}
