//! Connections to servers, whatever address of theirs answers.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quicket::tokio::{Connection, Endpoint};
use quicket::{ClientConfig, ConnectError, EarlyData, EndpointConfig};
use tokio::task::JoinSet;

use crate::Error;
use crate::origin::Origin;

/// How long an address has before the next one is tried beside it (RFC 8305, Section 5, Connection Attempt Delay).
pub(crate) const HEAD_START: Duration = Duration::from_millis(250);
/// Addresses of a name that are tried.
const MAX_ADDRESSES: usize = 8;

/// How to connect.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    pub(crate) endpoint: EndpointConfig,
    pub(crate) hosts: Arc<HashMap<String, Vec<IpAddr>>>,
    pub(crate) client: ClientConfig,
}

impl Dialer {
    /// A connection with a complete handshake; or with one that is under way, if `early`, and requests can be sent at
    /// once.
    pub(crate) async fn dial(&self, origin: &Origin, early: bool) -> Result<Connection, Error> {
        let addresses = self.addresses(origin).await?;
        self.dial_one_of(&origin.host, addresses, early).await
    }

    async fn dial_one_of(
        &self,
        host: &str,
        mut addresses: Vec<SocketAddr>,
        early: bool,
    ) -> Result<Connection, Error> {
        let mut begun = None;
        if early && let Some(&first) = addresses.first() {
            match self.begin(first, host).await {
                Ok(connection) if connection.early_data() == EarlyData::Offered => {
                    return Ok(connection);
                }
                // Nothing can be sent yet: it is the first in the race.
                Ok(connection) => {
                    addresses.remove(0);
                    begun = Some(connection);
                }
                // The race says what is wrong, or finds another one.
                Err(error) => log::debug!("no early connection to {first}: {error}"),
            }
        }
        Ok(self.race(host, begun, addresses).await?.0)
    }

    async fn begin(&self, remote: SocketAddr, host: &str) -> Result<Connection, ConnectError> {
        self.endpoint(remote).await?.connect_early(remote, host, &self.client)
    }

    /// After a while in which a connection that has begun was not answered: one to another address, or none if that one is
    /// answered first.
    pub(crate) async fn instead_of(
        &self,
        origin: &Origin,
        begun: Connection,
    ) -> Result<Option<Connection>, Error> {
        let remote = begun.remote_addr();
        let mut addresses = self.addresses(origin).await.unwrap_or_default();
        addresses.retain(|address| *address != remote);
        let (connection, is_begun) = self.race(&origin.host, Some(begun), addresses).await?;
        Ok((!is_begun).then_some(connection))
    }

    /// The addresses of a server, in the order in which they are tried: at least one.
    async fn addresses(&self, origin: &Origin) -> Result<Vec<SocketAddr>, Error> {
        let resolve = |error| Error::Resolve { host: origin.host.clone(), error };
        let addresses = match self.hosts.get(&origin.host) {
            Some(known) => {
                let known = known.iter().take(MAX_ADDRESSES);
                known.map(|ip| SocketAddr::new(*ip, origin.port)).collect()
            }
            None => {
                let found = tokio::net::lookup_host((origin.host.as_str(), origin.port)).await;
                alternating(found.map_err(resolve)?)
            }
        };
        if addresses.is_empty() {
            return Err(resolve(io::ErrorKind::NotFound.into()));
        }
        Ok(addresses)
    }

    async fn endpoint(&self, remote: SocketAddr) -> Result<Endpoint, ConnectError> {
        let any: SocketAddr = match remote {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        Ok(Endpoint::bind_with(any, self.endpoint.clone()).await?)
    }

    /// Whichever answers first; each after the first begins a while after the one before, or when that has failed.
    /// `begun` is the first, if there is one; whether that one has won is said, too.
    async fn race(
        &self,
        host: &str,
        begun: Option<Connection>,
        addresses: Vec<SocketAddr>,
    ) -> Result<(Connection, bool), Error> {
        let mut attempts = JoinSet::new();
        if let Some(connection) = begun {
            attempts.spawn(async move {
                connection.wait_established().await?;
                Ok((connection, true))
            });
        }
        let mut last = ConnectError::Resolve(io::ErrorKind::NotFound.into());
        let mut left = addresses.into_iter();
        loop {
            let has_more = left.len() > 0;
            if attempts.is_empty() && !has_more {
                return Err(Error::Connect(last));
            }
            if !attempts.is_empty() {
                tokio::select! {
                    Some(ended) = attempts.join_next() => match ended {
                        Ok(Ok(won)) => return Ok(won),
                        Ok(Err(error)) => last = error,
                        Err(error) => last = ConnectError::Resolve(io::Error::other(error)),
                    },
                    () = tokio::time::sleep(HEAD_START), if has_more => {}
                }
            }
            if let Some(remote) = left.next() {
                let (this, host) = (self.clone(), host.to_owned());
                attempts.spawn(async move {
                    let endpoint = this.endpoint(remote).await?;
                    Ok((endpoint.connect(remote, &host, &this.client).await?, false))
                });
            }
        }
    }
}

/// Addresses of the two families in turn, as RFC 8305, Section 4, has it: the first decides which family is first.
fn alternating(found: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let all: Vec<_> = found.take(2 * MAX_ADDRESSES).collect();
    let v6_first = all.first().is_some_and(SocketAddr::is_ipv6);
    let (v6, v4): (Vec<_>, Vec<_>) = all.into_iter().partition(SocketAddr::is_ipv6);
    let (first, second) = if v6_first { (v6, v4) } else { (v4, v6) };
    let len = first.len().max(second.len());
    let pairs = (0..len).flat_map(|at| [first.get(at), second.get(at)]);
    pairs.flatten().copied().take(MAX_ADDRESSES).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use quicket::{ClientTls, Decision, Identity, MemorySessionStore, ServerConfig, ServerTls};

    use super::*;

    #[test]
    fn families_take_turns() {
        let all = ["[::1]:1", "[::2]:1", "[::3]:1", "192.0.2.1:1"].map(|a| a.parse().unwrap());
        let order: Vec<_> = alternating(all.into_iter()).iter().map(ToString::to_string).collect();
        assert_eq!(order, ["[::1]:1", "192.0.2.1:1", "[::2]:1", "[::3]:1"]);
        let many = (1..=40).map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        assert_eq!(alternating(many).len(), MAX_ADDRESSES);
    }

    /// A server, how many connections to it were begun, an address where nobody answers, and how to connect.
    async fn two_addresses() -> (SocketAddr, Arc<AtomicUsize>, std::net::UdpSocket, Dialer) {
        let identity = Identity::self_signed(["localhost"]).unwrap();
        let pin = identity.fingerprint();
        let tls = ServerTls::builder(identity).alpn(["a"]).build().unwrap();
        let server = Endpoint::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        // Asked for one attempt after the other, as they come, before the handshake goes on.
        let config = ServerConfig::new(tls).admission(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            Decision::Accept
        });
        let listener = server.listen(config).unwrap();
        tokio::spawn(async move {
            let mut all = Vec::new();
            while let Ok(connection) = listener.accept().await {
                all.push(connection);
            }
        });
        let tls = ClientTls::builder().pinned([pin]).alpn(["a"]).build().unwrap();
        let sessions = Arc::new(MemorySessionStore::default());
        let client = ClientConfig::new(tls).sessions(sessions);
        let hole = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let dialer = Dialer { endpoint: EndpointConfig::default(), hosts: Arc::default(), client };
        (address, count, hole, dialer)
    }

    #[tokio::test]
    async fn the_next_address_is_tried_where_the_first_does_not_answer() {
        let (address, count, hole, dialer) = two_addresses().await;
        for early in [false, true] {
            let all = vec![hole.local_addr().unwrap(), address];
            let connection = dialer.dial_one_of("localhost", all, early).await.unwrap();
            assert_eq!(connection.remote_addr(), address, "{early}");
        }
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn who_has_no_session_makes_one_connection() {
        let (address, count, hole, dialer) = two_addresses().await;
        let all = vec![address, hole.local_addr().unwrap()];
        let connection = dialer.dial_one_of("localhost", all, true).await.unwrap();
        assert_eq!(connection.remote_addr(), address);
        // Whatever was begun before it has reached the server by now.
        dialer.dial_one_of("localhost", vec![address], false).await.unwrap();
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }
}
