//! The outside: a socket for each client, and others after a rebinding.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use quicket_engine::time::Time;
use quicket_sim::nat::Rebind;
use quicket_sim::scenario::{Action, Change};
use quicket_sim::schedule::Schedule;

use super::namespace::Namespace;
use super::socket::Socket;
use super::{LinkError, Options};

/// The most clients at once.
const MAX_CLIENTS: usize = 1024;
/// Sockets without a client that stay open, so that what is sent to them vanishes as behind a NAT
/// and is not answered by this system; the oldest is closed.
const MAX_FORMER: usize = 256;

/// A socket on the outside. Its number is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct OutsideId(pub(super) u64);

/// Clients and their sockets on the outside.
#[derive(Debug)]
pub(super) struct Nat {
    schedule: Schedule<Rebind>,
    /// Due, and waiting for a datagram from a client: only that makes a new binding.
    pending: Option<Rebind>,
    namespace: Namespace,
    addresses: Addresses,
    clients: HashMap<SocketAddr, OutsideId>,
    outsides: BTreeMap<OutsideId, Outside>,
    next_id: u64,
    pub(super) tally: NatTally,
    pub(super) wish: Wish,
}

/// A rebinding that somebody on another thread asks for.
#[derive(Clone, Debug, Default)]
pub(super) struct Wish(Arc<Mutex<Option<Rebind>>>);

impl Wish {
    pub(super) fn set(&self, rebind: Rebind) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(rebind);
    }

    fn take(&self) -> Option<Rebind> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[derive(Debug)]
struct Outside {
    socket: Socket,
    /// `None` once it was rebound.
    client: Option<SocketAddr>,
}

/// What the NAT did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NatTally {
    /// Sockets that were made: one for each client, and again after a rebinding.
    pub(super) bindings: u64,
    pub(super) rebindings: u64,
    /// Datagrams for sockets that have no client any more.
    pub(super) unknown: u64,
    /// Datagrams of clients for whom there was no socket.
    pub(super) turned_away: u64,
    /// Datagrams that the kernel dropped before the link could take them.
    pub(super) kernel_drops: u64,
}

impl Nat {
    pub(super) fn new(options: &Options) -> Result<Self, LinkError> {
        let nat = Self {
            addresses: Addresses::new(options)?,
            schedule: options.scenario.rebindings(Time::ZERO),
            pending: None,
            namespace: Namespace::open(options.send_in.as_deref())?,
            clients: HashMap::new(),
            outsides: BTreeMap::new(),
            next_id: 0,
            tally: NatTally::default(),
            wish: Wish::default(),
        };
        // That there can be sockets is better known now than when the first client comes.
        nat.bind()?;
        Ok(nat)
    }

    /// The socket for a datagram of `client` at `now`, and whether it is a new one; `None` if
    /// there are too many.
    pub(super) fn outbound(
        &mut self,
        now: Time,
        client: SocketAddr,
    ) -> Result<Option<(OutsideId, bool)>, LinkError> {
        while let Some((_, rebind)) = self.schedule.next_due(now) {
            // Of a port and an address that are due together, the address includes the port.
            if self.pending != Some(Rebind::Address) {
                self.pending = Some(rebind);
            }
        }
        if let Some(rebind) = self.wish.take().or(self.pending.take()) {
            self.forget_clients(rebind);
        }
        if let Some(&id) = self.clients.get(&client) {
            return Ok(Some((id, false)));
        }
        if self.clients.len() >= MAX_CLIENTS {
            return Ok(None);
        }
        let socket = self.bind()?;
        let id = OutsideId(self.next_id);
        self.next_id += 1;
        self.outsides.insert(id, Outside { socket, client: Some(client) });
        self.clients.insert(client, id);
        self.tally.bindings += 1;
        Ok(Some((id, true)))
    }

    /// The client behind a socket.
    pub(super) fn client(&self, id: OutsideId) -> Option<SocketAddr> {
        self.outsides.get(&id)?.client
    }

    /// A socket, which may have lost its client.
    pub(super) fn socket(&self, id: OutsideId) -> Option<&Socket> {
        self.outsides.get(&id).map(|outside| &outside.socket)
    }

    /// Adds what the kernel dropped at the sockets that are open.
    pub(super) fn count_kernel_drops(&mut self) -> Result<(), LinkError> {
        let drops = || self.outsides.values().map(|outside| outside.socket.kernel_drops()).sum();
        let drops: u64 = self.namespace.inside(drops)?;
        self.tally.kernel_drops += drops;
        Ok(())
    }

    fn forget_clients(&mut self, rebind: Rebind) {
        self.tally.rebindings += 1;
        self.clients.clear();
        for outside in self.outsides.values_mut() {
            outside.client = None;
        }
        if rebind == Rebind::Address {
            self.addresses.advance();
        }
        // The clients of this moment get sockets later; those of before are the oldest.
        while self.outsides.len() > MAX_FORMER {
            self.outsides.pop_first();
        }
    }

    fn bind(&self) -> Result<Socket, LinkError> {
        let address = SocketAddr::new(self.addresses.current(), 0);
        self.namespace.inside(|| Socket::bind(address))?.map_err(|error| {
            LinkError::new(format!(
                "cannot make a socket at {} to reach the server from: {error}; `--outside` names \
                 addresses that this system has",
                address.ip()
            ))
        })
    }
}

/// The addresses on the outside, one after the other.
#[derive(Debug)]
struct Addresses {
    list: Vec<IpAddr>,
    /// The list is only the first; others of the IPv4 loopback follow.
    generated: bool,
    index: usize,
}

impl Addresses {
    fn new(options: &Options) -> Result<Self, LinkError> {
        let to = options.to.ip();
        let rebinds = |change: &Change| change.action == Action::Rebind(Rebind::Address);
        let needed = options.scenario.changes.iter().any(rebinds);
        if let Some(odd) = options.outside.iter().find(|ip| ip.is_ipv4() != to.is_ipv4()) {
            return Err(LinkError::new(format!(
                "the server's address {to} cannot be reached from {odd}: give addresses of the \
                 same family with `--outside`"
            )));
        }
        let generated = options.outside.is_empty() && to.is_ipv4() && to.is_loopback();
        if needed && !generated && options.outside.len() < 2 {
            return Err(LinkError::new(
                "the scenario rebinds the address: name at least two addresses of this system \
                 with `--outside`; for a server on 127.0.0.1 this is not needed",
            ));
        }
        let mut list = options.outside.clone();
        if list.is_empty() {
            list.push(match to {
                _ if to.is_loopback() => to,
                IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            });
        }
        Ok(Self { list, generated, index: 0 })
    }

    fn current(&self) -> IpAddr {
        if self.generated && self.index > 0 {
            // All of 127.0.0.0/8 is this machine. The numbers go round after 65,536 rebindings.
            let [.., high, low] = self.index.to_be_bytes();
            return Ipv4Addr::new(127, 64, high, low).into();
        }
        let index = self.index % self.list.len().max(1);
        self.list.get(index).copied().unwrap_or(Ipv4Addr::LOCALHOST.into())
    }

    fn advance(&mut self) {
        self.index += 1;
    }
}

#[cfg(test)]
mod tests {
    use quicket_engine::time::Duration;
    use quicket_sim::scenario::Scenario;

    use super::*;

    fn options(to: &str, scenario: &str) -> Options {
        let scenario: Scenario = scenario.parse().unwrap();
        Options::new(to.parse().unwrap(), scenario)
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    const SERVER: &str = "127.0.0.1:9";

    fn outbound(nat: &mut Nat, ms: u64, client: &str) -> OutsideId {
        nat.outbound(at(ms), client.parse().unwrap()).unwrap().unwrap().0
    }

    #[test]
    fn each_client_has_a_socket_of_its_own_and_keeps_it() {
        let mut nat = Nat::new(&options(SERVER, "")).unwrap();
        let a = outbound(&mut nat, 0, "127.0.0.1:1001");
        let b = outbound(&mut nat, 0, "127.0.0.1:1002");
        assert_ne!(a, b);
        assert_eq!(outbound(&mut nat, 1, "127.0.0.1:1001"), a);
        assert_eq!(nat.client(b), Some("127.0.0.1:1002".parse().unwrap()));
        assert_ne!(nat.socket(a).unwrap().local(), nat.socket(b).unwrap().local());
        assert_eq!(nat.tally.bindings, 2);
    }

    #[test]
    fn a_rebinding_of_the_port_shows_with_the_next_datagram_from_inside() {
        let mut nat = Nat::new(&options(SERVER, "at 10ms rebind=port")).unwrap();
        let client = "127.0.0.1:1001";
        let before = outbound(&mut nat, 9, client);
        assert!(nat.client(before).is_some());
        let after = outbound(&mut nat, 10, client);
        assert_eq!(nat.client(before), None);
        let [old, new] = [before, after].map(|id| nat.socket(id).unwrap().local());
        assert_eq!(old.ip(), new.ip());
        assert_ne!(old.port(), new.port(), "the old socket is still open");
        assert_eq!(nat.tally.rebindings, 1);
    }

    #[test]
    fn rebindings_of_the_address_go_through_those_there_are() {
        let text = "at 10ms rebind=address; at 20ms rebind=address; at 20ms rebind=port";
        let mut own = options(SERVER, text);
        let addresses = |options: &Options| {
            let mut nat = Nat::new(options).unwrap();
            [0, 10, 20].map(|ms| {
                let id = outbound(&mut nat, ms, "127.0.0.1:1001");
                nat.socket(id).unwrap().local().ip().to_string()
            })
        };
        assert_eq!(addresses(&own), ["127.0.0.1", "127.64.0.1", "127.64.0.2"]);
        own.outside = ["127.0.0.5", "127.0.0.6"].map(|ip| ip.parse().unwrap()).to_vec();
        assert_eq!(addresses(&own), ["127.0.0.5", "127.0.0.6", "127.0.0.5"]);
    }

    #[test]
    fn missing_addresses_are_asked_for_at_once() {
        let error = |options: &Options| Nat::new(options).unwrap_err().to_string();
        let text = "every 5s rebind=address";
        assert!(error(&options("[::1]:9", text)).contains("at least two addresses"));
        Nat::new(&options("[::1]:9", "every 5s rebind=port")).unwrap();
        let mut mixed = options(SERVER, text);
        mixed.outside = vec!["::1".parse().unwrap()];
        assert!(error(&mixed).contains("same family"));
        mixed.outside = vec!["192.0.2.77".parse().unwrap(), "192.0.2.78".parse().unwrap()];
        assert!(error(&mixed).contains("that this system has"));
    }

    #[test]
    fn former_sockets_are_closed_when_there_are_many() {
        let mut nat = Nat::new(&options(SERVER, "every 1ms rebind=port")).unwrap();
        let first = outbound(&mut nat, 0, "127.0.0.1:1001");
        for ms in 1..=300 {
            outbound(&mut nat, ms, "127.0.0.1:1001");
        }
        assert!(nat.socket(first).is_none());
        assert_eq!(nat.outsides.len(), MAX_FORMER + 1);
    }
}
