//! A packet on its way out or in, counted; where it came from, or where it goes, is for others to say.

use std::collections::HashSet;
use std::net::IpAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use quicket_gue::Probe;
use quicket_gue::vnet::Vnet;

use crate::config::{Port, PortKind};
use crate::counters::{Counters, Drop};
use crate::departures::{Departures, Group};
use crate::inbound::{Inbound, Opened, Outer, Refused, Way, joined};
use crate::ledger::Ledger;
use crate::outbound::{Context, Verdict};
use crate::path::{Path, Sent};
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

/// Makes datagrams of the packet or super-packet at `place` in a buffer. They wait for [`depart`], with those of
/// other packets for the same tunnel.
pub(crate) fn prepare(
    world: &World,
    ledger: &Ledger,
    departures: &mut Departures,
    index: usize,
    (vnet, buffer, place): (Vnet, &[u8], Range<usize>),
    now: u32,
) -> Result<(), Refusal> {
    let counters = &ledger.counters[index];
    let refuse = |why, refusal| {
        counters.dropped_out(why);
        Err(refusal)
    };
    let (tunnel, path) = (&world.setup.tunnels[index], &world.paths[index]);
    let peers = match world.other_end(index, &buffer[place.clone()], now) {
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
    match departures.add(context, (vnet, buffer, place), |sending| path.lane(sending)) {
        Verdict::Send(_) => Ok(()),
        Verdict::TooBig(mtu) => refuse(Drop::TooBig, Refusal::TooBig(mtu)),
        Verdict::TooDeep(at) => refuse(Drop::Loop, Refusal::TooDeep(at)),
        Verdict::Drop(why) => refuse(why, Refusal::Dropped(why)),
    }
}

/// Sends all packets that wait, by their tunnel. `refused` hears of those that do not leave.
pub(crate) fn depart(
    world: &World,
    ledger: &Ledger,
    departures: &mut Departures,
    index: usize,
    buffer: &[u8],
    mut refused: impl FnMut(&[u8], Refusal),
) {
    let (path, counters) = (&world.paths[index], &ledger.counters[index]);
    departures.leave(|group| {
        if leave_together(path, counters, &group, buffer) {
            return;
        }
        for departure in group.members.iter().map(|member| &group.all[*member]) {
            let pieces = &group.outbound.pieces()[departure.pieces.clone()];
            let (sending, packet) = (departure.sending, &buffer[departure.place.clone()]);
            let mut refuse = |why, refusal| {
                counters.dropped_out(why);
                refused(packet, refusal);
            };
            match path.send(group.outbound, buffer, pieces, sending) {
                Sent::All { calls } => {
                    Counters::add(&counters.tx_packets, pieces.len() as u64);
                    Counters::add(&counters.tx_bytes, packet.len() as u64);
                    Counters::add(&counters.tx_bursts, calls);
                }
                Sent::TooBig => {
                    refuse(Drop::TooBig, Refusal::TooBig(path.inner_mtu_to(sending.peer)));
                }
                Sent::Refused => refuse(Drop::Refused, Refusal::Dropped(Drop::Refused)),
            }
        }
    });
}

/// Sends datagrams of several packets in one call; false if there is one packet only, or if the system does not
/// take them, which it then says of each.
fn leave_together(path: &Path, counters: &Counters, group: &Group<'_>, buffer: &[u8]) -> bool {
    let [first, _, ..] = *group.members else { return false };
    let Some(lane) = group.all[first].lane() else { return false };
    let sending = group.all[first].sending;
    let sent = path.send_together(lane, group.outbound, buffer, group.pieces, sending);
    let Some(calls) = sent else { return false };
    let bytes: usize = group.members.iter().map(|member| group.all[*member].place.len()).sum();
    Counters::add(&counters.tx_packets, group.pieces.len() as u64);
    Counters::add(&counters.tx_bytes, bytes as u64);
    Counters::add(&counters.tx_bursts, calls);
    true
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
