//! What each client address takes: connections, requests, handshakes. An IPv6 network of /64 counts as one
//! address, for whoever has one address of it has all.

mod table;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::table::Table;
use crate::bucket::Bucket;
use crate::pace::{Flow, Paid};

/// Parts of the table, so that few wait for the same lock.
const SHARDS: usize = 64;

/// What an address may take; all it likes where there is no number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Connections.
    pub connections: Option<u32>,
    /// Requests under way.
    pub requests: Option<u32>,
    /// Requests in a second.
    pub requests_per_second: Option<u32>,
    /// Handshakes in a second.
    pub handshakes_per_second: Option<u32>,
    /// Bytes of bodies in a second, each way.
    pub bytes_per_second: Option<u64>,
}

/// Why an address does not get more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exceeded {
    pub(crate) reason: &'static str,
    /// When it may try again, in seconds.
    pub(crate) retry_after: u32,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl std::error::Error for Exceeded {}

/// What client addresses take now.
#[derive(Debug)]
pub(crate) struct Clients {
    /// Nobody outside knows which part an address is in.
    hasher: RandomState,
    shards: Vec<Mutex<Table>>,
}

#[derive(Debug)]
struct Client {
    connections: u32,
    requests: u32,
    asked: Bucket,
    handshakes: Bucket,
    paid: Paid,
}

impl Client {
    const fn new(now: Instant) -> Self {
        let (asked, handshakes) = (Bucket::full(now), Bucket::full(now));
        Self { connections: 0, requests: 0, asked, handshakes, paid: Paid::new(now) }
    }

    const fn may_connect(&self, most: u32) -> Result<(), Exceeded> {
        if self.connections < most {
            return Ok(());
        }
        Err(Exceeded { reason: "too many connections of one address", retry_after: 1 })
    }

    const fn is_idle(&self) -> bool {
        self.connections == 0 && self.requests == 0
    }
}

/// What counts for an address until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    clients: Arc<Clients>,
    address: IpAddr,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Connection,
    Request,
}

impl Clients {
    pub(crate) fn new() -> Arc<Self> {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Arc::new(Self { hasher: RandomState::new(), shards })
    }

    /// Counts a connection. `is_proven` says that nobody has made the address up.
    pub(crate) fn connect(
        self: &Arc<Self>,
        address: IpAddr,
        allowed: &Allowed,
        is_proven: bool,
    ) -> Result<Option<Held>, Exceeded> {
        let Some(most) = allowed.connections else {
            if is_proven {
                self.prove(address);
            }
            return Ok(None);
        };
        self.with(address, is_proven, |client| {
            client.may_connect(most)?;
            client.connections += 1;
            Ok(())
        })?;
        Ok(Some(self.held(address, What::Connection)))
    }

    /// Says whether an address may have one more connection, and counts none: it may be made up.
    pub(crate) fn may_connect(&self, address: IpAddr, allowed: &Allowed) -> Result<(), Exceeded> {
        let Some(most) = allowed.connections else { return Ok(()) };
        self.with(address, false, |client| client.may_connect(most))
    }

    /// Counts a request until what is returned is dropped.
    pub(crate) fn ask(
        self: &Arc<Self>,
        address: IpAddr,
        allowed: &Allowed,
    ) -> Result<Option<Held>, Exceeded> {
        let Allowed { requests, requests_per_second, bytes_per_second, .. } = allowed;
        if requests.is_none() && requests_per_second.is_none() && bytes_per_second.is_none() {
            return Ok(None);
        }
        // Whether the address is proven, its connection has told.
        self.with(address, false, |client| {
            if allowed.requests.is_some_and(|most| client.requests >= most) {
                return Err(Exceeded {
                    reason: "too many requests of one address",
                    retry_after: 1,
                });
            }
            if let Some(per_second) = allowed.requests_per_second {
                client.asked.take(per_second, Instant::now()).map_err(|wait| Exceeded {
                    reason: "requests of one address come too fast",
                    retry_after: u32::try_from(wait.div_ceil(1000)).unwrap_or(u32::MAX),
                })?;
            }
            client.requests += 1;
            Ok(())
        })?;
        Ok(Some(self.held(address, What::Request)))
    }

    /// Counts a handshake. `is_proven` says that nobody has made the address up.
    pub(crate) fn handshake(
        &self,
        address: IpAddr,
        allowed: &Allowed,
        is_proven: bool,
    ) -> Result<(), Exceeded> {
        let Some(per_second) = allowed.handshakes_per_second else { return Ok(()) };
        let exceeded =
            Exceeded { reason: "handshakes of one address come too fast", retry_after: 1 };
        self.with(address, is_proven, |client| {
            client.handshakes.take(per_second, Instant::now()).map_err(|_| exceeded)
        })
    }

    /// Pays for bytes of an address; how long they take at this rate. Tunnels and datagrams go on when no request is
    /// under way: where there is no place to note it, they are free. `is_proven` says that nobody has made the address up.
    pub(crate) fn pay(
        &self,
        address: IpAddr,
        flow: Flow,
        bytes: usize,
        per_second: u64,
        is_proven: bool,
    ) -> Duration {
        let mut cost = Duration::ZERO;
        let _ = self.with(address, is_proven, |client| {
            cost = client.paid.pay(flow, bytes, per_second, Instant::now());
            Ok(())
        });
        cost
    }

    fn held(self: &Arc<Self>, address: IpAddr, what: What) -> Held {
        Held { clients: Arc::clone(self), address, what }
    }

    /// An address has answered: nobody has made it up.
    pub(crate) fn prove(&self, address: IpAddr) {
        let address = network(address);
        self.lock(address).prove(address);
    }

    fn with(
        &self,
        address: IpAddr,
        is_proven: bool,
        take: impl FnOnce(&mut Client) -> Result<(), Exceeded>,
    ) -> Result<(), Exceeded> {
        let address = network(address);
        self.lock(address).with(address, is_proven, take)
    }

    /// The part with an address that stands for its network.
    fn lock(&self, address: IpAddr) -> MutexGuard<'_, Table> {
        // As many as there are shards.
        let shard = &self.shards[self.hasher.hash_one(address) as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let address = network(self.address);
        self.clients.lock(address).change(address, |client| {
            let count = match self.what {
                What::Connection => &mut client.connections,
                What::Request => &mut client.requests,
            };
            *count = count.saturating_sub(1);
        });
    }
}

/// What counts as one client.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_given_back_can_be_had_again() {
        let clients = Clients::new();
        let allowed = Allowed { connections: Some(2), ..Allowed::default() };
        let a = address("192.0.2.1");
        let first = clients.connect(a, &allowed, true).unwrap();
        let _second = clients.connect(address("::ffff:192.0.2.1"), &allowed, true).unwrap();
        assert!(clients.connect(a, &allowed, true).is_err());
        assert!(clients.connect(address("192.0.2.2"), &allowed, true).is_ok());
        drop(first);
        assert!(clients.connect(a, &allowed, true).is_ok());
    }

    #[test]
    fn who_only_asks_takes_no_connection() {
        let clients = Clients::new();
        let allowed = Allowed { connections: Some(1), ..Allowed::default() };
        let a = address("192.0.2.1");
        for _ in 0..3 {
            assert_eq!(clients.may_connect(a, &allowed), Ok(()));
        }
        let held = clients.connect(a, &allowed, true).unwrap();
        assert!(clients.may_connect(a, &allowed).is_err());
        drop(held);
        assert_eq!(clients.may_connect(a, &allowed), Ok(()));
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let clients = Clients::new();
        let allowed = Allowed { requests: Some(1), ..Allowed::default() };
        let _held = clients.ask(address("2001:db8::1"), &allowed).unwrap();
        assert!(clients.ask(address("2001:db8::ffff:0:0:1"), &allowed).is_err());
        assert!(clients.ask(address("2001:db8:0:1::1"), &allowed).is_ok());
    }

    #[test]
    fn the_table_is_bounded_and_keeps_who_is_there() {
        let clients = Clients::new();
        let allowed =
            Allowed { connections: Some(1), handshakes_per_second: Some(1), ..Allowed::default() };
        let known = address("192.0.2.1");
        let _held = clients.connect(known, &allowed, true).unwrap();
        for at in 0..300_000_u32 {
            let address = IpAddr::from((at + 0x0a00_0000).to_be_bytes());
            let _ = clients.handshake(address, &allowed, false);
        }
        assert!(clients.connect(known, &allowed, true).is_err(), "it is still counted");
    }

    /// Made-up addresses by the thousand give nobody who is proven a new second.
    #[test]
    fn floods_of_made_up_addresses_refill_nobodys_bucket() {
        let clients = Clients::new();
        let allowed = Allowed { handshakes_per_second: Some(1), ..Allowed::default() };
        let known = address("192.0.2.1");
        let begun = Instant::now();
        assert!(clients.handshake(known, &allowed, true).is_ok());
        for at in 0..200_000_u32 {
            let address = IpAddr::from((at + 0x0a00_0000).to_be_bytes());
            let _ = clients.handshake(address, &allowed, false);
        }
        let again = clients.handshake(known, &allowed, true);
        assert!(again.is_err() || begun.elapsed() >= Duration::from_secs(1));
    }
}
