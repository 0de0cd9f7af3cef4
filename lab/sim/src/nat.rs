//! Address translation in front of a host, which now and then rebinds.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use quicket_engine::time::Time;

use crate::rng::SimRng;
use crate::schedule::Schedule;

/// What changes when a NAT forgets its bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rebind {
    /// The external port.
    Port,
    /// The external address, and the port with it.
    Address,
}

impl fmt::Display for Rebind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Port => "port",
            Self::Address => "address",
        })
    }
}

impl FromStr for Rebind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "port" => Ok(Self::Port),
            "address" => Ok(Self::Address),
            _ => {
                Err(format!("`{text}` is not a rebinding: write `rebind=port` or `rebind=address`"))
            }
        }
    }
}

/// A translator that shows internal addresses unchanged until its first rebinding.
///
/// A rebinding shows with the next packet from inside: only that makes the new binding. From then
/// on what is sent to an earlier external address is dropped.
#[derive(Clone, Debug)]
pub struct Nat {
    schedule: Schedule<Rebind>,
    /// Due, and waiting for a packet from inside.
    pending: Option<Rebind>,
    bindings: Vec<Binding>,
    /// External IP in use; `None` while it is the internal one.
    external: Option<u16>,
    port_rebound: bool,
    /// External IPs are unique in a network by this number.
    site: u8,
    chance: SimRng,
    stats: NatStats,
}

#[derive(Clone, Copy, Debug)]
struct Binding {
    internal: SocketAddr,
    external: SocketAddr,
}

/// What a NAT did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NatStats {
    /// Rebindings so far.
    pub rebindings: u64,
    /// Packets for external addresses that have no binding any more.
    pub unknown: u64,
}

impl Nat {
    /// A NAT that rebinds by `schedule`. `site` keeps its external addresses apart from those of
    /// other NATs in the same network.
    pub fn new(schedule: Schedule<Rebind>, site: u8, rng: &SimRng) -> Self {
        Self {
            schedule,
            pending: None,
            bindings: Vec::new(),
            external: None,
            port_rebound: false,
            site,
            chance: rng.stream("nat"),
            stats: NatStats::default(),
        }
    }

    /// The external address of `internal` at `now`; makes a binding if there is none.
    pub fn outbound(&mut self, now: Time, internal: SocketAddr) -> SocketAddr {
        self.apply_changes(now);
        self.forget_bindings();
        if let Some(binding) = self.bindings.iter().find(|b| b.internal == internal) {
            return binding.external;
        }
        let ip = self.external.map_or(internal.ip(), |n| self.external_ip(n, internal.ip()));
        let mut external = SocketAddr::new(ip, internal.port());
        while self.port_rebound
            && (external.port() == internal.port()
                || self.bindings.iter().any(|b| b.external == external))
        {
            external.set_port(self.chance.between(1_024, 65_535) as u16);
        }
        self.bindings.push(Binding { internal, external });
        external
    }

    /// The internal address behind `external` at `now`; `None` drops the packet.
    pub fn inbound(&mut self, now: Time, external: SocketAddr) -> Option<SocketAddr> {
        self.apply_changes(now);
        let binding = self.bindings.iter().find(|b| b.external == external);
        if binding.is_none() {
            self.stats.unknown += 1;
        }
        binding.map(|b| b.internal)
    }

    /// True if `ip` is an address that this NAT gives out or may have given out.
    pub fn owns(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => {
                let [a, b, _, _] = ip.octets();
                (a, b) == (100, 64 + (self.site & 63))
            }
            IpAddr::V6(ip) => ip.segments()[..3] == [0x2001, 0xdb8, u16::from(self.site)],
        }
    }

    /// Rebinds with the next packet from inside, beside what the schedule says.
    pub fn rebind(&mut self, rebind: Rebind) {
        // Of a port and an address that are due together, the address includes the port.
        if self.pending != Some(Rebind::Address) {
            self.pending = Some(rebind);
        }
    }

    fn forget_bindings(&mut self) {
        let Some(rebind) = self.pending.take() else { return };
        self.stats.rebindings += 1;
        self.bindings.clear();
        self.port_rebound = true;
        if rebind == Rebind::Address {
            self.external = Some(self.external.map_or(1, |n| n.wrapping_add(1)));
        }
    }

    /// What happened so far.
    pub fn stats(&self) -> &NatStats {
        &self.stats
    }

    fn apply_changes(&mut self, now: Time) {
        while let Some((_, rebind)) = self.schedule.next_due(now) {
            self.rebind(rebind);
        }
    }

    /// The `n`-th external address, of the family of `internal`: in the shared address space of
    /// RFC 6598, or the documentation prefix of RFC 3849.
    fn external_ip(&self, n: u16, internal: IpAddr) -> IpAddr {
        let [high, low] = n.to_be_bytes();
        match internal {
            IpAddr::V4(_) => Ipv4Addr::new(100, 64 + (self.site & 63), high, low).into(),
            IpAddr::V6(_) => {
                Ipv6Addr::new(0x2001, 0xdb8, u16::from(self.site), 0, 0, 0, 0, n).into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::When;
    use quicket_engine::time::Duration;

    const INSIDE: &str = "10.0.0.1:4433";

    fn nat(changes: &[(u64, Rebind)]) -> Nat {
        let changes = changes.iter().map(|(ms, r)| (When::At(Duration::from_millis(*ms)), *r));
        Nat::new(Schedule::new(Time::ZERO, changes), 3, &SimRng::new(1))
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn addresses_pass_unchanged_before_the_first_rebinding() {
        let inside = INSIDE.parse().unwrap();
        let mut nat = nat(&[]);
        assert_eq!(nat.outbound(at(0), inside), inside);
        assert_eq!(nat.inbound(at(0), inside), Some(inside));
    }

    #[test]
    fn port_rebinding_changes_the_port_only() {
        let inside: SocketAddr = INSIDE.parse().unwrap();
        let mut nat = nat(&[(10, Rebind::Port)]);
        let before = nat.outbound(at(9), inside);
        assert_eq!(nat.inbound(at(10), before), Some(inside), "nothing came from inside yet");
        let after = nat.outbound(at(10), inside);
        assert_eq!(before.ip(), after.ip());
        assert_ne!(before.port(), after.port());
        assert_eq!(nat.inbound(at(10), after), Some(inside));
        assert_eq!(nat.inbound(at(10), before), None, "the old binding is gone");
        assert_eq!(*nat.stats(), NatStats { rebindings: 1, unknown: 1 });
    }

    #[test]
    fn address_rebinding_takes_an_address_of_the_site() {
        for inside in [INSIDE, "[fd00::1]:4433"] {
            let inside: SocketAddr = inside.parse().unwrap();
            let mut nat = nat(&[(10, Rebind::Address), (20, Rebind::Address)]);
            let first = nat.outbound(at(10), inside);
            let second = nat.outbound(at(20), inside);
            assert!(nat.owns(first.ip()) && nat.owns(second.ip()) && !nat.owns(inside.ip()));
            assert_ne!(first.ip(), second.ip());
            assert_eq!(first.is_ipv4(), inside.is_ipv4());
        }
    }

    #[test]
    fn two_sockets_behind_one_nat_stay_apart() {
        let mut nat = nat(&[(1, Rebind::Address)]);
        let inside: Vec<SocketAddr> =
            (0..50).map(|i| format!("10.0.0.1:{}", 5_000 + i).parse().unwrap()).collect();
        let outside: Vec<SocketAddr> = inside.iter().map(|a| nat.outbound(at(2), *a)).collect();
        for (a, b) in inside.iter().zip(&outside) {
            assert_eq!(nat.inbound(at(2), *b), Some(*a));
        }
    }
}
