//! The address of an origin over UDP. Whoever receives asks for it and cannot wait: what is known counts, and what has held for as long as
//! was said is asked for again beside.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;

use crate::protocol::Authority;

/// A host and its address.
#[derive(Debug)]
pub(crate) struct Address {
    authority: Authority,
    chosen: Mutex<Option<SocketAddr>>,
}

impl Address {
    pub(crate) fn new(authority: Authority) -> Arc<Self> {
        Arc::new(Self { authority, chosen: Mutex::default() })
    }

    /// Who it is, as the file says.
    pub(crate) const fn authority(&self) -> &Authority {
        &self.authority
    }

    /// What is known now. Names are asked for by a task of `runtime`.
    pub(crate) fn get(&self, runtime: &Handle) -> Option<SocketAddr> {
        let known = self.authority.known(runtime);
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        // An address that the name still leads to stays: connections move without need otherwise.
        if chosen.is_none_or(|address| !known.contains(&address)) {
            *chosen = known.first().copied();
        }
        *chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::Resolve;
    use std::time::Duration;

    fn address(text: &str) -> Arc<Address> {
        let resolver = Resolve::default().resolver;
        Address::new(Authority::parse(text, "udp", &resolver).unwrap())
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
