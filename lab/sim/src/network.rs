//! Hosts connected by paths, in virtual time.

use std::fmt;
use std::net::IpAddr;

use quicket_engine::time::Time;

use crate::datagram::Datagram;
use crate::link::{Link, LinkStats};
use crate::log::{LogEntry, Outcome, PacketLog};
use crate::nat::{Nat, NatStats};
use crate::rng::SimRng;
use crate::scenario::{Scenario, Way};

/// Packets that the log of a network keeps.
const LOG_CAPACITY: usize = 4_096;

/// A host of a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub usize);

/// A path of a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub usize);

/// A datagram that arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Where.
    pub host: HostId,
    /// What, with the addresses that the host sees.
    pub datagram: Datagram,
}

/// Looks at every datagram before the network takes it, may change it, and says whether it goes on
/// (true) or vanishes (false).
pub type Tap = Box<dyn FnMut(Time, &mut Datagram) -> bool>;

/// Hosts with addresses, and paths between pairs of addresses. Datagrams are routed by their
/// addresses alone; the sender's are not checked, so that a test can forge them.
pub struct Network {
    rng: SimRng,
    hosts: Vec<Vec<IpAddr>>,
    paths: Vec<Path>,
    tap: Option<Tap>,
    log: PacketLog,
}

#[derive(Debug)]
struct Path {
    near: IpAddr,
    far: IpAddr,
    nat: Nat,
    up: Link,
    down: Link,
}

impl Path {
    fn link(&mut self, way: Way) -> &mut Link {
        match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        }
    }

    /// The direction of a datagram that this path carries.
    fn way_of(&self, src: IpAddr, dst: IpAddr) -> Option<Way> {
        let is_near = |ip| ip == self.near || self.nat.owns(ip);
        if src == self.near && dst == self.far {
            Some(Way::Up)
        } else if src == self.far && is_near(dst) {
            Some(Way::Down)
        } else {
            None
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl Network {
    /// An empty network, all of whose chances come from `rng`.
    pub fn new(rng: &SimRng) -> Self {
        Self {
            rng: rng.stream("network"),
            hosts: Vec::new(),
            paths: Vec::new(),
            tap: None,
            log: PacketLog::new(LOG_CAPACITY),
        }
    }

    /// Adds a host with these addresses.
    pub fn add_host(&mut self, addresses: impl IntoIterator<Item = IpAddr>) -> HostId {
        self.hosts.push(addresses.into_iter().collect());
        HostId(self.hosts.len() - 1)
    }

    /// Lays a path from the host at `near`, which is behind the path's NAT, to the one at `far`. The
    /// times of `scenario` count from `start`.
    ///
    /// # Panics
    /// If there are more than 64 paths: NATs of later ones would share addresses.
    pub fn add_path(
        &mut self,
        near: IpAddr,
        far: IpAddr,
        scenario: &Scenario,
        start: Time,
    ) -> PathId {
        let index = self.paths.len();
        assert!(index < 64, "a network has at most 64 paths");
        let rng = self.rng.stream(&format!("path {index}"));
        let (up, down) = scenario.links(start, &rng);
        let nat = scenario.nat(start, index as u8, &rng);
        self.paths.push(Path { near, far, nat, up, down });
        PathId(index)
    }

    /// Sets what looks at datagrams before they enter the network.
    pub fn set_tap(&mut self, tap: impl FnMut(Time, &mut Datagram) -> bool + 'static) {
        self.tap = Some(Box::new(tap));
    }

    /// Sends a datagram along the path between its addresses.
    pub fn send(&mut self, now: Time, mut datagram: Datagram) -> Outcome {
        let mut entry = LogEntry {
            at: now,
            src: datagram.src,
            dst: datagram.dst,
            len: datagram.payload.len(),
            ecn: datagram.ecn,
            first_byte: datagram.payload.first().copied().unwrap_or(0),
            outcome: Outcome::Tapped,
        };
        if self.tap.as_mut().is_none_or(|tap| tap(now, &mut datagram)) {
            entry.outcome = self.route(now, datagram);
        }
        self.log.push(entry);
        entry.outcome
    }

    /// When the next datagram arrives somewhere; `None` if none is on its way.
    pub fn next_delivery_time(&self) -> Option<Time> {
        let links = self.paths.iter().flat_map(|path| [&path.up, &path.down]);
        links.filter_map(Link::next_delivery_time).min()
    }

    /// All datagrams that have arrived by `now`: by time, then by path, then up before down.
    pub fn poll(&mut self, now: Time) -> Vec<Delivery> {
        let mut arrived = Vec::new();
        while let Some((at, index, way)) = self.next_arrival(now) {
            let path = &mut self.paths[index];
            let Some(mut datagram) = path.link(way).poll(now) else { break };
            if way == Way::Down {
                match path.nat.inbound(at, datagram.dst) {
                    Some(internal) => datagram.dst = internal,
                    None => continue,
                }
            }
            if let Some(host) = self.host_at(datagram.dst.ip()) {
                arrived.push(Delivery { host, datagram });
            }
        }
        arrived
    }

    /// What happened to the latest packets.
    pub fn log(&self) -> &PacketLog {
        &self.log
    }

    /// What a link did so far.
    pub fn link_stats(&self, path: PathId, way: Way) -> &LinkStats {
        let path = &self.paths[path.0];
        match way {
            Way::Up => path.up.stats(),
            Way::Down => path.down.stats(),
        }
    }

    /// What the NAT of a path did so far.
    pub fn nat_stats(&self, path: PathId) -> &NatStats {
        self.paths[path.0].nat.stats()
    }

    /// The NAT of a path, to rebind it now.
    pub fn nat_mut(&mut self, path: PathId) -> &mut Nat {
        &mut self.paths[path.0].nat
    }

    /// The number of datagrams on their way.
    pub fn in_flight(&self) -> usize {
        self.paths.iter().map(|path| path.up.in_flight() + path.down.in_flight()).sum()
    }

    fn route(&mut self, now: Time, mut datagram: Datagram) -> Outcome {
        let (src, dst) = (datagram.src.ip(), datagram.dst.ip());
        for path in &mut self.paths {
            let Some(way) = path.way_of(src, dst) else { continue };
            if way == Way::Up {
                datagram.src = path.nat.outbound(now, datagram.src);
            }
            return Outcome::Link(path.link(way).offer(now, datagram));
        }
        Outcome::Unroutable
    }

    fn next_arrival(&self, now: Time) -> Option<(Time, usize, Way)> {
        let heads = self.paths.iter().enumerate().flat_map(|(index, path)| {
            let head = move |link: &Link, way| Some((link.next_delivery_time()?, index, way));
            [head(&path.up, Way::Up), head(&path.down, Way::Down)]
        });
        heads.flatten().filter(|(at, _, _)| *at <= now).min_by_key(|(at, _, _)| *at)
    }

    fn host_at(&self, ip: IpAddr) -> Option<HostId> {
        self.hosts.iter().position(|addresses| addresses.contains(&ip)).map(HostId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quicket_engine::time::Duration;
    use quicket_wire::EcnCodepoint;
    use std::net::SocketAddr;

    const A: &str = "10.0.0.1";
    const B: &str = "10.0.0.2";

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn datagram(src: SocketAddr, dst: SocketAddr) -> Datagram {
        Datagram { src, dst, ecn: EcnCodepoint::NotEct, payload: vec![0x40; 10] }
    }

    fn two_hosts(scenario: &str) -> (Network, PathId) {
        let mut network = Network::new(&SimRng::new(1));
        network.add_host([ip(A)]);
        network.add_host([ip(B)]);
        let path = network.add_path(ip(A), ip(B), &scenario.parse().unwrap(), Time::ZERO);
        (network, path)
    }

    #[test]
    fn datagrams_go_there_and_back() {
        let (mut network, path) = two_hosts("up delay=1ms; down delay=2ms");
        let (a, b) = (SocketAddr::new(ip(A), 1), SocketAddr::new(ip(B), 2));
        network.send(Time::ZERO, datagram(a, b));
        network.send(Time::ZERO, datagram(b, a));
        let first = network.next_delivery_time().unwrap();
        assert_eq!(first, Time::ZERO + Duration::from_millis(1));
        assert!(network.poll(Time::ZERO).is_empty());
        let arrived = network.poll(Time::ZERO + Duration::from_millis(2));
        let hosts: Vec<HostId> = arrived.iter().map(|d| d.host).collect();
        assert_eq!(hosts, [HostId(1), HostId(0)]);
        assert_eq!(network.next_delivery_time(), None);
        assert_eq!(network.link_stats(path, Way::Down).delivered, 1);
    }

    #[test]
    fn replies_reach_a_rebound_host_and_old_ones_do_not() {
        let (mut network, path) = two_hosts("at 10ms rebind=address");
        let (a, b) = (SocketAddr::new(ip(A), 1), SocketAddr::new(ip(B), 2));
        let later = Time::ZERO + Duration::from_millis(10);
        network.send(later, datagram(a, b));
        let seen = network.poll(later).pop().unwrap().datagram.src;
        assert_ne!(seen, a);
        network.send(later, datagram(b, seen));
        network.send(later, datagram(b, a));
        let arrived = network.poll(later);
        assert_eq!(arrived, [Delivery { host: HostId(0), datagram: datagram(b, a) }]);
        assert_eq!(*network.nat_stats(path), NatStats { rebindings: 1, unknown: 1 });
    }

    #[test]
    fn what_has_no_path_is_logged_and_gone() {
        let (mut network, _) = two_hosts("");
        let nowhere = SocketAddr::new(ip("10.9.9.9"), 1);
        let outcome = network.send(Time::ZERO, datagram(SocketAddr::new(ip(A), 1), nowhere));
        assert_eq!(outcome, Outcome::Unroutable);
        assert_eq!(network.log().entries().count(), 1);
        assert_eq!(network.in_flight(), 0);
    }

    #[test]
    fn tap_may_drop_and_change() {
        let (mut network, _) = two_hosts("");
        let (a, b) = (SocketAddr::new(ip(A), 1), SocketAddr::new(ip(B), 2));
        let mut count = 0;
        network.set_tap(move |_, datagram| {
            count += 1;
            datagram.payload.push(9);
            count > 1
        });
        assert_eq!(network.send(Time::ZERO, datagram(a, b)), Outcome::Tapped);
        network.send(Time::ZERO, datagram(a, b));
        let arrived = network.poll(Time::ZERO);
        assert_eq!(arrived.len(), 1);
        assert_eq!(arrived[0].datagram.payload.len(), 11);
    }

    #[test]
    fn arrivals_at_the_same_time_have_a_fixed_order() {
        let mut network = Network::new(&SimRng::new(1));
        let addresses: Vec<IpAddr> = (1..=5).map(|i| ip(&format!("10.0.0.{i}"))).collect();
        for address in &addresses {
            network.add_host([*address]);
        }
        let scenario = "delay=1ms".parse().unwrap();
        for near in &addresses[1..] {
            network.add_path(*near, addresses[0], &scenario, Time::ZERO);
        }
        for near in addresses[1..].iter().rev() {
            let (src, dst) = (SocketAddr::new(*near, 1), SocketAddr::new(addresses[0], 2));
            network.send(Time::ZERO, datagram(src, dst));
        }
        let arrived = network.poll(Time::ZERO + Duration::from_millis(1));
        let sources: Vec<IpAddr> = arrived.iter().map(|d| d.datagram.src.ip()).collect();
        assert_eq!(sources, addresses[1..], "by path, not by order of sending");
    }
}
