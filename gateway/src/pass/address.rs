//! The address of an origin over UDP. Whoever receives asks for it and cannot wait: what is known counts, and what is known for
//! long is asked for again beside.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::protocol::Authority;

/// How long an answer counts.
const VALID: Duration = Duration::from_secs(30);
/// How soon a name is asked for again that had no address.
const RETRY: Duration = Duration::from_secs(1);

/// A host and its address.
#[derive(Debug)]
pub(crate) struct Address {
    authority: Authority,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    address: Option<SocketAddr>,
    /// When the system was asked last.
    since: Option<Instant>,
    is_asked: bool,
}

impl Address {
    pub(crate) fn new(authority: Authority) -> Arc<Self> {
        Arc::new(Self { authority, known: Mutex::default() })
    }

    /// Who it is, as the file says.
    pub(crate) const fn authority(&self) -> &Authority {
        &self.authority
    }

    /// What is known now. Names are asked for by a task of `runtime`.
    pub(crate) fn get(self: &Arc<Self>, runtime: &Handle) -> Option<SocketAddr> {
        if let Ok(ip) = self.authority.host.parse() {
            return Some(SocketAddr::new(ip, self.authority.port));
        }
        let mut known = self.lock();
        let valid = if known.address.is_some() { VALID } else { RETRY };
        let is_old = known.since.is_none_or(|since| since.elapsed() >= valid);
        if is_old && !std::mem::replace(&mut known.is_asked, true) {
            let own = Arc::clone(self);
            runtime.spawn(async move { own.ask().await });
        }
        known.address
    }

    async fn ask(&self) {
        let found = self.authority.resolve().await;
        let mut known = self.lock();
        (known.is_asked, known.since) = (false, Some(Instant::now()));
        match found {
            // An address that the name still leads to stays: connections move without need otherwise.
            Ok(all) if known.address.is_some_and(|address| all.contains(&address)) => {}
            Ok(all) => known.address = all.first().copied(),
            Err(error) => log::warn!("udp://{}: {error}", self.authority),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Arc<Address> {
        Address::new(Authority::parse(text, "udp").unwrap())
    }

    #[tokio::test]
    async fn an_address_is_known_at_once_and_a_name_soon() {
        let runtime = Handle::current();
        assert_eq!(address("udp://[::1]:5").get(&runtime), "[::1]:5".parse().ok());
        let named = address("udp://localhost:5");
        assert_eq!(named.get(&runtime), None);
        let known = async {
            loop {
                if let Some(address) = named.get(&runtime) {
                    return address;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let known = tokio::time::timeout(Duration::from_secs(20), known).await.unwrap();
        assert!(known.ip().is_loopback() && known.port() == 5, "{known}");
    }
}
