//! The addresses of a server.
//!
//! The system resolves names, as for every other program: by its hosts file, its DNS, and what else it is
//! set up with. It does not tell how long an answer holds, so that names are resolved again after a time
//! that the file says.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long an address may take before the next one is tried beside it (RFC 8305, Section 5).
const HEAD_START: Duration = Duration::from_millis(250);
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
    /// Which address comes first, in turns.
    turn: AtomicUsize,
}

#[derive(Debug, Default)]
struct Known {
    addresses: Vec<SocketAddr>,
    since: Option<Instant>,
    /// Somebody is asking.
    is_asked: bool,
}

impl Names {
    pub(super) fn new(host: &str, port: u16, valid: Duration) -> Arc<Self> {
        let known = host
            .parse::<IpAddr>()
            .map(|ip| Known { addresses: vec![SocketAddr::new(ip, port)], ..Known::default() });
        let known = Mutex::new(known.unwrap_or_default());
        Arc::new(Self { host: host.to_owned(), port, valid, known, turn: AtomicUsize::new(0) })
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
        let is_old = known.since.is_some_and(|since| since.elapsed() >= self.valid);
        if is_old && !std::mem::replace(&mut known.is_asked, true) {
            let names = Arc::clone(self);
            tokio::spawn(async move {
                if let Err(error) = names.resolve().await {
                    log::warn!("{}: {error}; the addresses from before count", names.host);
                }
            });
        }
        known.addresses.contains(&address)
    }

    /// Asks the system. Where that fails, what was known before counts for another time.
    async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let mut known = self.lock();
        known.is_asked = false;
        known.since = Some(Instant::now());
        let found = found.map(|found| found.take(MAX_ADDRESSES).collect::<Vec<_>>())?;
        if !found.is_empty() {
            known.addresses.clone_from(&found);
        }
        Ok(found)
    }

    /// All addresses, another one first each time.
    async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let (mut addresses, is_fresh) = {
            let known = self.lock();
            let is_fresh = known.since.is_some_and(|since| since.elapsed() < self.valid);
            (known.addresses.clone(), is_fresh || self.is_address())
        };
        if !is_fresh {
            match self.resolve().await {
                Ok(found) => addresses = found,
                Err(error) if addresses.is_empty() => return Err(error),
                Err(_) => {}
            }
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed).checked_rem(addresses.len());
        addresses.rotate_left(turn.unwrap_or(0));
        Ok(addresses)
    }

    /// Connects to one of the addresses: the next one is tried when one has failed, or takes long.
    pub(super) async fn connect(&self) -> io::Result<TcpStream> {
        let mut left = self.addresses().await?.into_iter();
        // Attempts that lose end with this set.
        let mut attempts = JoinSet::new();
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        loop {
            if let Some(address) = left.next() {
                attempts.spawn(TcpStream::connect(address));
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
        *names.lock() = Known { addresses, since: Some(Instant::now()), is_asked: false };
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
    async fn a_resolver_that_fails_costs_no_addresses() {
        let known: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let names = names(vec![known]);
        names.lock().since = Instant::now().checked_sub(Duration::from_secs(120));
        assert_eq!(names.addresses().await.unwrap(), [known]);
    }
}
