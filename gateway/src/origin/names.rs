//! The addresses of a server.
//!
//! The system resolves names, as for every other program: by its hosts file, its DNS, and what else it is
//! set up with. It does not tell how long an answer holds, so that names are resolved again after a time
//! that the file says.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long an address may take before the next one is tried beside it (RFC 8305, Section 5).
const HEAD_START: Duration = Duration::from_millis(250);
/// How soon a name is asked for again of which no address is known.
const RETRY: Duration = Duration::from_secs(1);
/// The most addresses of a name that count.
const MAX_ADDRESSES: usize = 64;

/// A host and its addresses.
#[derive(Debug)]
pub(super) struct Names {
    host: String,
    port: u16,
    /// How long an answer counts.
    valid: Duration,
    known: Mutex<Known>,
    /// Changes with each answer of the system.
    answered: watch::Sender<()>,
    /// Which address comes first, in turns.
    turn: AtomicUsize,
    #[cfg(test)]
    asked: AtomicUsize,
}

#[derive(Debug, Default)]
struct Known {
    addresses: Vec<SocketAddr>,
    since: Option<Instant>,
    /// Why the last answer brought no addresses.
    error: Option<String>,
    /// The system is asked just now: once, however many requests wait.
    is_asked: bool,
}

impl Known {
    /// Whether what is known counts still. What failed is tried again sooner.
    fn is_fresh(&self, valid: Duration) -> bool {
        let valid = if self.addresses.is_empty() { valid.min(RETRY) } else { valid };
        self.since.is_some_and(|since| since.elapsed() < valid)
    }
}

impl Names {
    pub(super) fn new(host: &str, port: u16, valid: Duration) -> Arc<Self> {
        let known = host
            .parse::<IpAddr>()
            .map(|ip| Known { addresses: vec![SocketAddr::new(ip, port)], ..Known::default() });
        let known = Mutex::new(known.unwrap_or_default());
        Arc::new(Self {
            host: host.to_owned(),
            port,
            valid,
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
    pub(super) fn leads_to(self: &Arc<Self>, address: SocketAddr) -> bool {
        let mut known = self.lock();
        if known.since.is_some() && !known.is_fresh(self.valid) {
            self.ask(&mut known);
        }
        known.addresses.contains(&address)
    }

    /// Has the system asked, unless it is already. Whoever waits may go away: the question stays, so that a
    /// resolver that is slow holds one thread and no more.
    fn ask(self: &Arc<Self>, known: &mut Known) {
        if !std::mem::replace(&mut known.is_asked, true) {
            #[cfg(test)]
            self.asked.fetch_add(1, Ordering::Relaxed);
            let names = Arc::clone(self);
            tokio::spawn(async move {
                let found = tokio::net::lookup_host((names.host.as_str(), names.port)).await;
                names.learn(found.map(|found| found.take(MAX_ADDRESSES).collect()));
                names.answered.send_replace(());
            });
        }
    }

    /// Where the system finds nothing, what was known before counts for another time.
    fn learn(&self, found: io::Result<Vec<SocketAddr>>) {
        let mut known = self.lock();
        (known.is_asked, known.since, known.error) = (false, Some(Instant::now()), None);
        match found {
            Ok(found) if !found.is_empty() => known.addresses = found,
            Ok(_) => known.error = Some("the name has no address".to_owned()),
            Err(error) => known.error = Some(error.to_string()),
        }
        if let Some(error) = &known.error
            && !known.addresses.is_empty()
        {
            log::warn!("{}: {error}; the addresses from before count", self.host);
        }
    }

    /// What is known, once it is not too old.
    async fn known(self: &Arc<Self>) -> io::Result<Vec<SocketAddr>> {
        let told = |known: &Known| match &known.error {
            Some(error) if known.addresses.is_empty() => {
                Err(io::Error::new(io::ErrorKind::NotFound, error.clone()))
            }
            _ => Ok(known.addresses.clone()),
        };
        let mut answered = self.answered.subscribe();
        {
            let mut known = self.lock();
            if self.is_address() || known.is_fresh(self.valid) {
                return told(&known);
            }
            self.ask(&mut known);
        }
        // It ends with `self`, which is here.
        let _ = answered.changed().await;
        told(&self.lock())
    }

    /// All addresses, another one first each time.
    async fn addresses(self: &Arc<Self>) -> io::Result<Vec<SocketAddr>> {
        let mut addresses = self.known().await?;
        let turn = self.turn.fetch_add(1, Ordering::Relaxed).checked_rem(addresses.len());
        addresses.rotate_left(turn.unwrap_or(0));
        Ok(addresses)
    }

    /// Connects to one of the addresses: the next one is tried when one has failed, or takes long.
    pub(super) async fn connect(self: &Arc<Self>) -> io::Result<TcpStream> {
        self.connect_by(TcpStream::connect).await
    }

    /// The same for connections of any kind. An attempt that loses is dropped.
    pub(super) async fn connect_by<T, F>(
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
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    fn names(addresses: Vec<SocketAddr>) -> Arc<Names> {
        let names = Names::new("a.invalid", 1, Duration::from_secs(60));
        *names.lock() = Known { addresses, since: Some(Instant::now()), ..Known::default() };
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
        let address = Names::new("127.0.0.1", 9, Duration::ZERO);
        assert_eq!(address.addresses().await.unwrap(), ["127.0.0.1:9".parse().unwrap()]);
        assert!(address.leads_to("127.0.0.1:9".parse().unwrap()));

        let names = Names::new("localhost", 9, Duration::from_millis(50));
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
        let names = Names::new("localhost", 9, Duration::from_secs(60));
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
        names.lock().since = Instant::now().checked_sub(Duration::from_secs(120));
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
        let names = Names::new("nowhere.invalid", 9, Duration::from_secs(60));
        let begun = Instant::now();
        for _ in 0..10 {
            let error = names.addresses().await.unwrap_err();
            assert_ne!(error.to_string(), "");
        }
        let asked = names.asked.load(Ordering::Relaxed);
        assert!(asked as u64 <= 1 + begun.elapsed().as_secs(), "{asked} times");
        names.lock().since = Instant::now().checked_sub(RETRY);
        assert!(names.addresses().await.is_err());
        assert_eq!(names.asked.load(Ordering::Relaxed), asked + 1);
    }

    #[tokio::test]
    async fn a_resolver_that_fails_costs_no_addresses() {
        let known: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let names = names(vec![known]);
        names.lock().since = Instant::now().checked_sub(Duration::from_secs(120));
        assert_eq!(names.addresses().await.unwrap(), [known]);
    }
}
