//! What becomes of a packet from the device: datagrams, an error for its sender, or nothing.

use std::iter;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use quicket_gue::vnet::{Offload, Partial, Vnet};
use quicket_gue::{
    ENCAPSULATION_LIMIT_LEN, Gue, MAX_GRE_LEN, MAX_GUE_LEN, MIN_MTU_V6, Packet, RemoteChecksum,
    Sum, Tos, Ttl, encapsulation_limit, encapsulation_limit_header, flow, fragments, protocol,
};

use crate::config::{Encap, FlowLabel, Tunnel};
use crate::counters::Drop;
use crate::ethernet::{self, ETHERNET_LEN, Link};
use crate::peers::Peers;
use crate::segments::{Malformed, segments};

/// Most bytes of one burst: what a datagram may have, less the headers of IP and UDP.
pub(crate) const MAX_BURST: usize = 65_507 - 20;

/// TTL of outer packets where there is none inside to copy (RFC 1700).
const DEFAULT_TTL: u8 = 64;

/// A datagram: bytes of the arena, followed by bytes of the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) header: Range<usize>,
    pub(crate) payload: Range<usize>,
}

impl Piece {
    pub(crate) fn len(&self) -> usize {
        self.header.len() + self.payload.len()
    }
}

/// What the outer headers of all datagrams have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sending {
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    /// What the outer header says comes next, where that is not UDP.
    pub(crate) protocol: u8,
    /// Which flow it is.
    pub(crate) hash: u32,
    /// The encapsulation limit, where that of the tunnel does not count.
    pub(crate) limit: Option<u8>,
    /// The other end, if there are many.
    pub(crate) peer: Option<IpAddr>,
    /// The flow label that is copied; 0 leaves it to the system.
    pub(crate) label: u32,
    /// Whether the outer packet must not be fragmented.
    pub(crate) dont_fragment: bool,
}

impl Sending {
    /// Whether the outer headers are the same, whatever the flow.
    pub(crate) fn has_headers_of(&self, other: &Self) -> bool {
        Self { hash: 0, ..*self } == Self { hash: 0, ..*other }
    }
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Send(Sending),
    /// Tell the sender that packets may have this many bytes.
    TooBig(u16),
    /// Tell the sender that this byte forbids another tunnel.
    TooDeep(u32),
    Drop(Drop),
}

/// Datagrams made of packets and super-packets; used again for the next ones.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    arena: Vec<u8>,
    pieces: Vec<Piece>,
}

/// What a tunnel needs to know about itself and the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) tunnel: &'a Tunnel,
    /// Keys the hash of flows.
    pub(crate) secret: u64,
    /// The next sequence number of GRE.
    pub(crate) sequence: &'a AtomicU32,
    /// What a packet inside may have, in bytes.
    pub(crate) mtu: u16,
    /// The encapsulation limit of outer packets.
    pub(crate) limit: Option<u8>,
    /// The other ends, if there are many, and that of the packet.
    pub(crate) peers: Option<(&'a Peers, IpAddr)>,
}

impl Outbound {
    /// Forgets all datagrams.
    pub(crate) fn clear(&mut self) {
        self.arena.clear();
        self.pieces.clear();
    }

    /// Makes datagrams of the packet at `place` in a buffer, behind those that are there; or says why
    /// not, and adds none.
    pub(crate) fn build(
        &mut self,
        context: Context<'_>,
        vnet: Vnet,
        buffer: &[u8],
        place: Range<usize>,
    ) -> Verdict {
        let (arena, pieces) = (self.arena.len(), self.pieces.len());
        let verdict = self.append(context, vnet, &buffer[place.clone()]);
        if let Verdict::Send(_) = verdict {
            for piece in &mut self.pieces[pieces..] {
                let payload = &mut piece.payload;
                *payload = payload.start + place.start..payload.end + place.start;
            }
        } else {
            self.arena.truncate(arena);
            self.pieces.truncate(pieces);
        }
        verdict
    }

    fn append(&mut self, context: Context<'_>, vnet: Vnet, bytes: &[u8]) -> Verdict {
        let tunnel = context.tunnel;
        let link = match ethernet::look(bytes) {
            _ if !tunnel.kind.is_ethernet() => 0,
            Some(Link::Ip { len, .. }) => len,
            Some(Link::Other) => return self.opaque(context, bytes),
            None => return Verdict::Drop(Drop::Malformed),
        };
        let (link, inner) = bytes.split_at(link);
        let Some(vnet) = vnet.behind(link.len()) else { return Verdict::Drop(Drop::Malformed) };
        let Ok(packet) = Packet::parse(inner) else { return Verdict::Drop(Drop::Malformed) };
        if !tunnel.carries(packet.is_v4()) {
            return Verdict::Drop(Drop::Family);
        }
        if is_own(context, &packet) {
            return Verdict::Drop(Drop::Loop);
        }
        let limit = match encapsulation_limit(&packet) {
            // Over IPv4 nothing says how deep it is, and the limit inside remains as it is.
            Some((at, 0)) if tunnel.kind.is_v6() => return Verdict::TooDeep(at as u32),
            Some((_, limit)) if tunnel.kind.is_v6() => Some(limit - 1),
            _ => None,
        };
        let v4 = packet.is_v4();
        let dont_fragment = tunnel.dont_fragment(v4, packet.dont_fragment, context.mtu);
        let narrow = tunnel.pmtudisc && !dont_fragment;
        let context = Context {
            mtu: match dont_fragment {
                true => context.mtu,
                // What is longer is what the sender has to hear of.
                false if narrow => MIN_MTU_V6,
                false => u16::MAX,
            },
            ..context
        };
        // The MTU has room for a header without tags.
        let tags = link.len().saturating_sub(ETHERNET_LEN) as u16;
        let context = Context {
            mtu: context.mtu.saturating_sub(tags),
            limit: limit.or(tunnel.encaplimit),
            ..context
        };
        let mtu = if limit.is_some() && tunnel.encaplimit.is_none() && dont_fragment {
            // See `path`: without a checksum it is counted twice.
            let len =
                if tunnel.csum { ENCAPSULATION_LIMIT_LEN } else { 2 * ENCAPSULATION_LIMIT_LEN };
            context.mtu.saturating_sub(len as u16)
        } else {
            context.mtu
        };
        let sending = Sending {
            limit,
            protocol: match limit.or(tunnel.encaplimit) {
                Some(_) => protocol::DESTINATION_OPTIONS,
                None => tunnel.protocol(packet.is_v4()),
            },
            tos: tunnel.tos.outer(&packet, tunnel.ecn),
            ttl: tunnel.ttl.outer(&packet),
            hash: flow::hash(&packet, context.secret),
            peer: context.peers.map(|(_, peer)| peer),
            label: match tunnel.flowlabel {
                FlowLabel::Inherit => packet.flow_label,
                _ => 0,
            },
            dont_fragment,
        };
        let built = match fitting(&packet, vnet, mtu) {
            Fit::Whole(vnet) => {
                // A checksum of GRE covers what remote checksum offload changes.
                let keep = tunnel.remcsum && !tunnel.ocsum;
                let v4 = packet.is_v4();
                segments(&packet, vnet, keep, |segment| {
                    let Range { start, end } = segment.payload;
                    let parts = [link, segment.headers, &packet.bytes[start..end]];
                    self.push(context, v4, parts, segment.partial, false)?;
                    if let Some(piece) = self.pieces.last_mut() {
                        piece.payload = link.len() + start..link.len() + end;
                    }
                    Ok(())
                })
            }
            Fit::Fragments => self.fragments(Context { mtu, ..context }, link, &packet, vnet),
            Fit::No => return Verdict::TooBig(mtu),
        };
        match built {
            Ok(()) => Verdict::Send(sending),
            Err(Malformed) => Verdict::Drop(Drop::Malformed),
        }
    }

    /// A frame that is not IP: it has nothing that outer fields could follow.
    fn opaque(&mut self, context: Context<'_>, frame: &[u8]) -> Verdict {
        if context.tunnel.pmtudisc && frame.len() > usize::from(context.mtu) + ETHERNET_LEN {
            return Verdict::Drop(Drop::TooBig);
        }
        let ttl = match context.tunnel.ttl {
            Ttl::Fixed(ttl) => ttl,
            Ttl::Inherit => DEFAULT_TTL,
        };
        let tos = match context.tunnel.tos {
            Tos::Fixed(tos) => tos,
            Tos::Inherit => 0,
        };
        match self.push(context, false, [frame, &[], &[]], None, true) {
            Ok(()) => {
                let protocol = match context.limit {
                    Some(_) => protocol::DESTINATION_OPTIONS,
                    None => protocol::GRE,
                };
                Verdict::Send(Sending {
                    tos,
                    ttl,
                    protocol,
                    hash: 0,
                    limit: None,
                    peer: None,
                    label: 0,
                    dont_fragment: context.tunnel.pmtudisc,
                })
            }
            Err(Malformed) => Verdict::Drop(Drop::Malformed),
        }
    }

    /// Splits a packet of IPv4 that is too long and may be split.
    fn fragments(
        &mut self,
        context: Context<'_>,
        link: &[u8],
        packet: &Packet<'_>,
        vnet: Vnet,
    ) -> Result<(), Malformed> {
        let mut whole = packet.bytes.to_vec();
        if let Some(Partial { start, offset }) = vnet.partial {
            let offset = start.checked_add(offset).ok_or(Malformed)?;
            RemoteChecksum { start, offset }.apply(&mut whole).map_err(|_| Malformed)?;
        }
        let packet = Packet::parse(&whole).map_err(|_| Malformed)?;
        let parts = fragments(&packet, usize::from(context.mtu)).ok_or(Malformed)?;
        for part in parts {
            self.push(context, true, [link, part.header(), part.payload], None, true)?;
        }
        Ok(())
    }

    /// Writes the headers of one datagram, and its payload too if `copy`.
    fn push(
        &mut self,
        context: Context<'_>,
        v4: bool,
        [link, headers, payload]: [&[u8]; 3],
        partial: Option<Partial>,
        copy: bool,
    ) -> Result<(), Malformed> {
        let tunnel = context.tunnel;
        let start = self.arena.len();
        let mut shim = [0; MAX_GUE_LEN + MAX_GRE_LEN];
        let mut len = 0;
        if let (Encap::None, Some(limit)) = (tunnel.encap, context.limit) {
            // The system counts the bytes of an option that it writes twice.
            let mut header = encapsulation_limit_header(limit);
            header[0] = tunnel.protocol(v4);
            shim[..ENCAPSULATION_LIMIT_LEN].copy_from_slice(&header);
            len = ENCAPSULATION_LIMIT_LEN;
        }
        let number = if tunnel.oseq { context.sequence.fetch_add(1, Ordering::Relaxed) } else { 0 };
        let gre = tunnel.gre_header(v4, number);
        if tunnel.encap == Encap::Gue {
            let before = (gre.map_or(0, |gre| gre.len()) + link.len()) as u16;
            let remote_checksum = partial.map(|partial| RemoteChecksum {
                start: partial.start.saturating_add(before),
                offset: partial.start.saturating_add(before).saturating_add(partial.offset),
            });
            let gue = Gue { remote_checksum, ..Gue::data(tunnel.protocol(v4)) };
            len = gue.encode(&mut shim).map_err(|_| Malformed)?;
        }
        if let Some(gre) = gre {
            let sum = match gre.checksum {
                // The length of link headers is even.
                true => Sum::new().bytes(link).plus(sum(headers, payload)),
                false => Sum::new(),
            };
            len += gre.encode(&mut shim[len..], sum).map_err(|_| Malformed)?;
        }
        self.arena.extend_from_slice(&shim[..len]);
        self.arena.extend_from_slice(link);
        self.arena.extend_from_slice(headers);
        if copy {
            self.arena.extend_from_slice(payload);
        }
        self.pieces.push(Piece { header: start..self.arena.len(), payload: 0..0 });
        Ok(())
    }

    /// The bytes that pieces begin with.
    pub(crate) fn arena(&self) -> &[u8] {
        &self.arena
    }

    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }
}

/// What can go out in one call: pieces of one length, of which the last may be shorter.
pub(crate) fn bursts(pieces: &[Piece], max_segments: usize) -> impl Iterator<Item = &[Piece]> {
    let mut rest = pieces;
    iter::from_fn(move || {
        let mut burst = Length::of(rest.first()?.len());
        let more = rest.iter().skip(1).take(max_segments.saturating_sub(1));
        let count = 1 + more.take_while(|piece| burst.take(piece.len())).count();
        let (burst, tail) = rest.split_at(count);
        rest = tail;
        Some(burst)
    })
}

/// How long a burst is, and whether another datagram may follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Length {
    size: usize,
    bytes: usize,
    closed: bool,
}

impl Length {
    /// One datagram.
    pub(crate) fn of(size: usize) -> Self {
        Self { size, bytes: size, closed: false }
    }

    /// Takes another one if it fits: none is longer than the first, and behind a shorter one comes none.
    pub(crate) fn take(&mut self, len: usize) -> bool {
        if self.closed || len > self.size || self.bytes + len > MAX_BURST {
            return false;
        }
        self.bytes += len;
        self.closed = len < self.size;
        true
    }
}

/// The sum of two parts, of which the first may have an odd length.
fn sum(first: &[u8], second: &[u8]) -> Sum {
    let rest = Sum::new().bytes(second);
    let rest =
        if first.len() % 2 == 1 { Sum::new().add_u16(rest.folded().swap_bytes()) } else { rest };
    Sum::new().bytes(first).plus(rest)
}

/// Whether a packet is one of the tunnel's own datagrams: its other end is routed into it.
fn is_own(Context { tunnel, peers, .. }: Context<'_>, packet: &Packet<'_>) -> bool {
    let local = |source: IpAddr| tunnel.local.is_none_or(|local| local == source);
    let carried = || match tunnel.encap {
        Encap::None => [true, false].iter().any(|v4| tunnel.protocol(*v4) == packet.protocol),
        _ => {
            let port = packet.ports().map(|(_, port)| port);
            packet.protocol == protocol::UDP
                && (packet.later_fragment || port == Some(tunnel.dport))
        }
    };
    let remote = || match peers {
        Some((peers, _)) => peers.is_peer(packet.destination),
        None => packet.destination == tunnel.remote,
    };
    local(packet.source) && carried() && remote()
}

enum Fit {
    /// As it is, or as smaller segments.
    Whole(Vnet),
    Fragments,
    No,
}

/// How a packet gets through a path.
fn fitting(packet: &Packet<'_>, vnet: Vnet, mtu: u16) -> Fit {
    let mtu = usize::from(mtu);
    let Some((offload, size)) = vnet.offload else {
        return match packet.bytes.len() <= mtu {
            true => Fit::Whole(vnet),
            false if packet.dont_fragment => Fit::No,
            false => Fit::Fragments,
        };
    };
    let transport_len = match offload {
        Offload::Tcp => packet.payload().get(12).map_or(0, |byte| usize::from(byte >> 4) * 4),
        Offload::Udp => 8,
    };
    let headers = packet.transport + transport_len;
    if (headers + usize::from(size)).min(packet.bytes.len()) <= mtu {
        Fit::Whole(vnet)
    } else if offload == Offload::Tcp && !packet.dont_fragment && mtu > headers {
        // Smaller segments spare the fragments.
        Fit::Whole(Vnet { offload: Some((offload, (mtu - headers) as u16)), ..vnet })
    } else {
        Fit::No
    }
}

#[cfg(test)]
#[path = "outbound_tests.rs"]
mod tests;
