//! What becomes of a received datagram: a packet for a device, or nothing.

use std::collections::HashSet;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use quicket_gue::vnet::{Offload, Partial};
use quicket_gue::{
    Arrival, DecodeError, Ecn, Gre, GreMismatch, Kind, Packet, RemoteChecksum, Sum, decode,
    protocol, pseudo_header, set_ecn,
};

use crate::config::{Encap, Port, PortKind, Tunnel};
use crate::counters::Drop;
use crate::ethernet::{self, Link};
use crate::peers::Peers;
use crate::registry::{Ends, Registry};

/// A packet that a device should get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    /// The tunnel it came through.
    pub(crate) tunnel: usize,
    /// Where it is in the datagram.
    pub(crate) range: Range<usize>,
    /// Bytes of its Ethernet header, which are before the range.
    pub(crate) link: usize,
    /// A checksum that is still open, and that the outer one or the system has vouched for.
    pub(crate) partial: Option<Partial>,
    /// What the packet stands for, if the system has joined several.
    pub(crate) joined: Option<Joined>,
    /// Whether its ECN fields should not have been.
    pub(crate) suspicious: bool,
}

/// Segments that the system's receive offload has joined, and of which it said nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Joined {
    /// Bytes of all headers.
    pub(crate) headers: u16,
    pub(crate) offload: (Offload, u16),
}

/// By which way a datagram came.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way<'a> {
    /// To a port of UDP.
    Port(&'a Port),
    /// Without UDP, to the socket that a tunnel has for this protocol. All such sockets with the same
    /// addresses get a copy.
    Raw { tunnel: usize, protocol: u8 },
}

/// Why there is none; and through which tunnel it would have come, if that was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) Option<usize>, pub(crate) Drop);

/// All that received datagrams are compared with.
#[derive(Debug)]
pub(crate) struct Inbound<'a> {
    pub(crate) tunnels: &'a [Tunnel],
    pub(crate) registry: &'a Registry,
    /// Addresses of this host.
    pub(crate) own: &'a HashSet<IpAddr>,
    /// The sequence number of GRE that each tunnel expects.
    pub(crate) expected: &'a [AtomicU32],
    /// The other ends of tunnels that have many.
    pub(crate) peers: &'a [Option<Arc<Peers>>],
    /// In seconds.
    pub(crate) now: u32,
}

/// Outer fields of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outer {
    pub(crate) source: IpAddr,
    pub(crate) destination: Option<IpAddr>,
    pub(crate) tos: u8,
}

impl Inbound<'_> {
    /// Takes a datagram apart. Its ECN field and an open checksum are changed in place.
    pub(crate) fn open(
        &self,
        way: Way<'_>,
        outer: Outer,
        datagram: &mut [u8],
    ) -> Result<Opened, Refused> {
        let raw = matches!(way, Way::Raw { .. });
        let ends = Ends { source: outer.source, destination: outer.destination, raw };
        let opened = self.take_apart(way, ends, outer.tos, datagram);
        let opened = opened.and_then(|opened| {
            self.admit(opened.tunnel, ends.source, &datagram[opened.range.clone()])?;
            Ok(opened)
        });
        match (way, opened) {
            // What is for nobody is counted once.
            (Way::Raw { tunnel, protocol }, Err(Refused(None, _)))
                if self.registry.find_any(ends, protocol) != Some(tunnel) =>
            {
                Err(Refused(None, Drop::Copy))
            }
            (_, opened) => opened,
        }
    }

    /// Whether a packet may come from one of many other ends.
    fn admit(&self, tunnel: usize, peer: IpAddr, bytes: &[u8]) -> Result<(), Refused> {
        let Some(Some(peers)) = self.peers.get(tunnel) else { return Ok(()) };
        let refused = |why| match why {
            // As if there were no tunnel for it.
            Drop::Peer => Refused(None, why),
            _ => Refused(Some(tunnel), why),
        };
        // It was parsed before.
        let packet = Packet::parse(bytes).map_err(|_| refused(Drop::Malformed))?;
        // From no address yet (RFC 4862, Section 5.4): there is nobody to be answered.
        match packet.source.is_unspecified() {
            true => Err(refused(Drop::Source)),
            false => peers.admit(peer, packet.source, self.now).map_err(refused),
        }
    }

    fn take_apart(
        &self,
        way: Way<'_>,
        ends: Ends,
        tos: u8,
        datagram: &mut [u8],
    ) -> Result<Opened, Refused> {
        let malformed = |error| match error {
            DecodeError::Checksum => Refused(None, Drop::Checksum),
            _ => Refused(None, Drop::Malformed),
        };
        let (carried, start, option) = match way {
            Way::Port(port) if port.peer.is_some_and(|peer| peer != ends.source) => {
                return Err(Refused(None, Drop::Peer));
            }
            Way::Raw { protocol, .. } => (protocol, 0, None),
            Way::Port(Port { kind: PortKind::Direct(protocol), .. }) => (*protocol, 0, None),
            Way::Port(Port { kind: PortKind::Gue, .. }) => {
                let decoded = decode(datagram).map_err(malformed)?;
                let Kind::Data(protocol) = decoded.kind else {
                    return Err(Refused(None, Drop::Control));
                };
                (protocol, datagram.len() - decoded.payload.len(), decoded.remote_checksum)
            }
        };
        if carried == protocol::GRE {
            if let Some(option) = option {
                option.apply(&mut datagram[start..]).map_err(malformed)?;
            }
            if let Way::Raw { .. } = way {
                complete_gre(datagram);
            }
            let (gre, payload) = Gre::decode(&datagram[start..]).map_err(malformed)?;
            let inner = datagram.len() - payload.len();
            let tunnel = self.gre(way, ends, &gre)?;
            if gre.protocol == Gre::ETHERNET {
                return self.frame(tunnel, tos, inner, datagram);
            }
            let v4 = match gre.protocol {
                Gre::IPV4 => true,
                Gre::IPV6 => false,
                _ => return Err(Refused(Some(tunnel), Drop::Family)),
            };
            return self.packet(tunnel, tos, v4, inner, None, datagram);
        }
        let tunnel = whose(way, self.registry.find(ends, carried))?;
        self.packet(tunnel, tos, carried == protocol::IPIP, start, option, datagram)
    }

    /// The tunnel of a packet with GRE.
    fn gre(&self, way: Way<'_>, ends: Ends, gre: &Gre) -> Result<usize, Refused> {
        let tunnel = whose(way, self.registry.find_gre(ends, gre))?;
        let (rules, expected) = (&self.tunnels[tunnel].gre, &self.expected[tunnel]);
        let why = match rules.check(gre, expected.load(Ordering::Relaxed)) {
            Ok(()) => {
                if let (true, Some(number)) = (rules.sequence, gre.sequence) {
                    expected.store(number.wrapping_add(1), Ordering::Relaxed);
                }
                return Ok(tunnel);
            }
            Err(GreMismatch::Key) => Drop::Peer,
            Err(GreMismatch::Checksum) => Drop::Checksum,
            Err(GreMismatch::Sequence) => Drop::Sequence,
        };
        Err(Refused(Some(tunnel), why))
    }

    /// Checks the frame inside, which begins at `start`. What is not IP has nothing to be checked.
    fn frame(
        &self,
        tunnel: usize,
        tos: u8,
        start: usize,
        datagram: &mut [u8],
    ) -> Result<Opened, Refused> {
        match ethernet::look(&datagram[start..]) {
            Some(Link::Ip { len, v4 }) => {
                let opened = self.packet(tunnel, tos, v4, start + len, None, datagram)?;
                Ok(Opened { link: len, ..opened })
            }
            Some(Link::Other) => {
                let range = start..datagram.len();
                let (partial, joined) = (None, None);
                Ok(Opened { tunnel, range, link: 0, partial, joined, suspicious: false })
            }
            None => Err(Refused(Some(tunnel), Drop::Malformed)),
        }
    }

    /// Checks the packet inside, which begins at `start`.
    fn packet(
        &self,
        tunnel: usize,
        tos: u8,
        v4: bool,
        start: usize,
        option: Option<RemoteChecksum>,
        datagram: &mut [u8],
    ) -> Result<Opened, Refused> {
        let refuse = |why| Err(Refused(Some(tunnel), why));
        let bytes = &mut datagram[start..];
        let Ok(packet) = Packet::parse(bytes) else { return refuse(Drop::Malformed) };
        if packet.is_v4() != v4 {
            return refuse(Drop::Malformed);
        }
        if !self.source_is_fine(&self.tunnels[tunnel], &packet) {
            return refuse(Drop::Source);
        }
        let inner = Ecn::from_bits(packet.tos);
        let Arrival::Forward { ecn, suspicious } = inner.decapsulate(Ecn::from_bits(tos)) else {
            return refuse(Drop::Congestion);
        };
        let len = packet.bytes.len();
        let partial = match option {
            Some(option) => as_partial(option, &packet),
            None if self.tunnels[tunnel].encap == Encap::None => left_open(&packet),
            None => None,
        };
        if ecn != inner {
            set_ecn(bytes, ecn);
        }
        if let (Some(option), None) = (option, partial) {
            // Not where the transport has its checksum: the bytes are what counts.
            let Ok(()) = option.apply(bytes) else { return refuse(Drop::Malformed) };
        }
        let range = start..start + len;
        Ok(Opened { tunnel, range, link: 0, partial, joined: None, suspicious })
    }

    /// Whether a packet with this source may come through the tunnel: not from this host itself,
    /// not from addresses that no host has, and only from those that the tunnel is for.
    fn source_is_fine(&self, tunnel: &Tunnel, packet: &Packet<'_>) -> bool {
        let (source, destination) = (packet.source, packet.destination);
        let nobody = match source {
            // An interface that looks for its address speaks to a group (RFC 4862, Section 5.4).
            IpAddr::V6(source) => source.is_unspecified() && !destination.is_multicast(),
            IpAddr::V4(source) => source.is_unspecified() || source.is_broadcast(),
        };
        let allowed =
            tunnel.allow.is_empty() || tunnel.allow.iter().any(|prefix| prefix.contains(source));
        !nobody
            && allowed
            && !source.is_multicast()
            && !source.is_loopback()
            && !destination.is_loopback()
            && !self.own.contains(&source)
    }
}

/// The open checksum as a device takes it, if it is that of the packet's transport.
fn as_partial(option: RemoteChecksum, packet: &Packet<'_>) -> Option<Partial> {
    let offset = match packet.protocol {
        protocol::TCP => 16,
        protocol::UDP => 6,
        _ => return None,
    };
    let start = u16::try_from(packet.transport).ok()?;
    let matches = !packet.fragment && option == RemoteChecksum { start, offset: start + offset };
    matches.then_some(Partial { start, offset })
}

/// The checksum of a packet that came without UDP, if the system has left it open: it does so for
/// senders on this machine, and where its receive offload has joined packets, and has no way to say so
/// to a raw socket. The field has the sum of the pseudo-header then. Of the right checksums one in
/// 65,536 is that by chance, and is right if it is computed again.
fn left_open(packet: &Packet<'_>) -> Option<Partial> {
    let offset = match packet.protocol {
        protocol::TCP => 16,
        protocol::UDP => 6,
        _ => return None,
    };
    let payload = packet.payload();
    let field = payload.get(usize::from(offset)..)?.first_chunk::<2>()?;
    let len = payload.len() as u32;
    let open = pseudo_header(packet.source, packet.destination, packet.protocol, len).folded();
    let start = u16::try_from(packet.transport).ok()?;
    let matches = !packet.fragment && u16::from_be_bytes(*field) == open;
    matches.then_some(Partial { start, offset })
}

/// Writes the checksum of GRE where the system has left it open, as above: it is zero then.
fn complete_gre(datagram: &mut [u8]) {
    const CHECKSUM: u8 = 0x80;
    if let [flags, _, _, _, 0, 0, ..] = datagram
        && *flags & CHECKSUM != 0
    {
        let checksum = Sum::new().bytes(datagram).checksum();
        datagram[4..6].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// What a packet with an open checksum stands for that is longer than `mtu` bytes: the system has
/// joined several. Of TCP, a device that it is forwarded by has to divide it again. Of UDP nobody can, as
/// nothing says how long the datagrams were.
pub(crate) fn joined(bytes: &[u8], mtu: u16) -> Result<Option<Joined>, Drop> {
    match Packet::parse(bytes) {
        Ok(packet) if packet.bytes.len() <= usize::from(mtu) => Ok(None),
        Ok(packet) if packet.protocol == protocol::UDP => Err(Drop::Joined),
        Ok(packet) if packet.protocol == protocol::TCP => Ok(segments_of(&packet, mtu)),
        _ => Ok(None),
    }
}

fn segments_of(packet: &Packet<'_>, mtu: u16) -> Option<Joined> {
    let transport_len = usize::from(packet.payload().get(12)? >> 4) * 4;
    let headers = u16::try_from(packet.transport + transport_len.max(20)).ok()?;
    let size = mtu.checked_sub(headers).filter(|size| *size > 0)?;
    Some(Joined { headers, offload: (Offload::Tcp, size) })
}

/// The tunnel that a packet is for, if that is the one whose socket it came to.
fn whose(way: Way<'_>, found: Option<usize>) -> Result<usize, Refused> {
    match (way, found) {
        (Way::Raw { tunnel, .. }, Some(other)) if other != tunnel => Err(Refused(None, Drop::Copy)),
        (_, Some(tunnel)) => Ok(tunnel),
        (_, None) => Err(Refused(None, Drop::Peer)),
    }
}

#[cfg(test)]
#[path = "inbound_tests.rs"]
mod tests;
