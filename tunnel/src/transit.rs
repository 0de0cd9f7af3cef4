//! A packet on its way out or in, counted; where it came from, or where it goes, is for others to say.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use quicket_gue::Probe;

use crate::config::{Port, PortKind};
use crate::counters::{Counters, Drop};
use crate::inbound::{Inbound, Opened, Outer, Refused, Way, joined};
use crate::ledger::Ledger;
use crate::outbound::{Context, Outbound, Verdict};
use crate::path::Sent;
use crate::vnet::Vnet;
use crate::world::World;

/// How long the addresses of this host are believed.
const OWN_LIFETIME: Duration = Duration::from_secs(1);

/// Why a packet does not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No other end is known for where it goes.
    Unreachable,
    /// Packets may have this many bytes.
    TooBig(u16),
    /// This byte forbids another tunnel.
    TooDeep(u32),
    /// Its sender need not hear of it.
    Dropped(Drop),
}

/// Sends a packet or super-packet by a tunnel.
pub(crate) fn outward(
    world: &World,
    ledger: &Ledger,
    outbound: &mut Outbound,
    index: usize,
    (vnet, bytes): (Vnet, &[u8]),
    now: u32,
) -> Result<(), Refusal> {
    let counters = &ledger.counters[index];
    let refuse = |why, refusal| {
        counters.dropped_out(why);
        Err(refusal)
    };
    let (tunnel, path) = (&world.setup.tunnels[index], &world.paths[index]);
    let peers = match world.other_end(index, bytes, now) {
        Ok(peers) => peers,
        Err(why) => return refuse(why, Refusal::Unreachable),
    };
    let peer = peers.map(|(_, peer)| peer);
    let context = Context {
        tunnel,
        secret: ledger.secret,
        sequence: &ledger.sequence[index],
        mtu: path.inner_mtu_to(peer),
        limit: tunnel.encaplimit,
        peers,
    };
    let sending = match outbound.build(context, vnet, bytes) {
        Verdict::Send(sending) => sending,
        Verdict::TooBig(mtu) => return refuse(Drop::TooBig, Refusal::TooBig(mtu)),
        Verdict::TooDeep(at) => return refuse(Drop::Loop, Refusal::TooDeep(at)),
        Verdict::Drop(why) => return refuse(why, Refusal::Dropped(why)),
    };
    match path.send(outbound, bytes, sending) {
        Sent::All { calls } => {
            Counters::add(&counters.tx_packets, outbound.pieces().len() as u64);
            Counters::add(&counters.tx_bytes, bytes.len() as u64);
            Counters::add(&counters.tx_bursts, calls);
            Ok(())
        }
        Sent::TooBig => refuse(Drop::TooBig, Refusal::TooBig(path.inner_mtu_to(peer))),
        Sent::Refused => refuse(Drop::Refused, Refusal::Dropped(Drop::Refused)),
    }
}

/// What a datagram is looked at by.
#[derive(Debug)]
pub(crate) struct Gate<'a> {
    pub(crate) world: &'a World,
    pub(crate) ledger: &'a Ledger,
    /// Addresses of this host.
    pub(crate) own: &'a Own,
    /// In seconds.
    pub(crate) now: u32,
}

impl Gate<'_> {
    /// The packet in a datagram, if it may come in. Its ECN field and an open checksum are changed in
    /// place.
    pub(crate) fn inward(&self, way: Way<'_>, outer: Outer, datagram: &mut [u8]) -> Option<Opened> {
        let Self { world, ledger, .. } = *self;
        if let Some(probe) = probe(way, datagram) {
            self.answer(outer, probe);
            return None;
        }
        let inbound = Inbound {
            tunnels: &world.setup.tunnels,
            registry: &world.registry,
            own: &self.own.addresses,
            expected: &ledger.expected,
            peers: &world.peers,
            now: self.now,
        };
        let opened = match inbound.open(way, outer, datagram) {
            Ok(opened) => opened,
            Err(Refused(tunnel, why)) => {
                ledger.of(tunnel).dropped_in(why);
                return None;
            }
        };
        let counters = &ledger.counters[opened.tunnel];
        if opened.suspicious {
            Counters::add(&counters.rx_ecn_suspicious, 1);
        }
        let (Way::Raw { tunnel, .. }, Some(_)) = (way, opened.partial) else { return Some(opened) };
        match joined(&datagram[opened.range.clone()], world.paths[tunnel].inner_mtu()) {
            Ok(joined) => Some(Opened { joined, ..opened }),
            Err(why) => {
                counters.dropped_in(why);
                None
            }
        }
    }

    /// Takes a control message.
    fn answer(&self, outer: Outer, probe: Probe) {
        let Self { world, ledger, .. } = *self;
        let mut all = world.gue_tunnels(outer.source, outer.destination).peekable();
        let first = all.peek().copied();
        let now = Instant::now();
        let hear = |tunnel: &usize| world.paths[*tunnel].hear(probe, outer.source, now);
        let heard = match probe {
            // The first one answers, or has answered enough.
            Probe::Ask(_) => first.filter(hear),
            // An answer is for the one that has asked.
            Probe::Answer(_) => all.find(hear),
        };
        let counters = ledger.of(heard.or(first));
        match (heard, first) {
            (Some(_), _) => Counters::add(&counters.rx_probes, 1),
            (None, Some(_)) => counters.dropped_in(Drop::Control),
            (None, None) => counters.dropped_in(Drop::Peer),
        }
    }
}

/// A control message that is known.
fn probe(way: Way<'_>, datagram: &[u8]) -> Option<Probe> {
    match way {
        Way::Port(Port { kind: PortKind::Gue, .. }) => Probe::decode(datagram),
        _ => None,
    }
}

/// Sends probes of paths that are due; when the next one may be, if there are any.
pub(crate) fn discover(world: &World, ledger: &Ledger, now: Instant) -> Option<Instant> {
    let mut soonest: Option<Instant> = None;
    for (path, counters) in world.paths.iter().zip(&ledger.counters) {
        if let Some((next, sent)) = path.discover(now) {
            Counters::add(&counters.tx_probes, u64::from(sent));
            soonest = Some(soonest.map_or(next, |known| known.min(next)));
        }
    }
    soonest
}

/// Addresses of this host.
#[derive(Debug, Default)]
pub(crate) struct Own {
    addresses: HashSet<IpAddr>,
    until: Option<Instant>,
}

impl Own {
    /// Looks at them, if it is time.
    pub(crate) fn refresh(&mut self, now: Instant) {
        if self.until.is_some_and(|until| now < until) {
            return;
        }
        self.until = Some(now + OWN_LIFETIME);
        // Without the list the system's own checks remain.
        let Ok(addresses) = nix::ifaddrs::getifaddrs() else { return };
        self.addresses.clear();
        self.addresses.extend(addresses.filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
        }));
    }
}
