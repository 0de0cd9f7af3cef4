//! What becomes of a packet from the device: datagrams, an error for its sender, or nothing.

use std::iter;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use quicket_gue::{
    ENCAPSULATION_LIMIT_LEN, Gue, MAX_GRE_LEN, MAX_GUE_LEN, Packet, RemoteChecksum, Sum, Tos, Ttl,
    encapsulation_limit, encapsulation_limit_header, flow, fragments, protocol,
};

use crate::config::{Encap, Tunnel};
use crate::counters::Drop;
use crate::ethernet::{self, ETHERNET_LEN, Link};
use crate::segments::{Malformed, segments};
use crate::vnet::{Offload, Partial, Vnet};

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

/// Datagrams made of one packet or super-packet; used again for the next.
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
}

impl Outbound {
    /// Makes datagrams of a packet, or says why not.
    pub(crate) fn build(&mut self, context: Context<'_>, vnet: Vnet, bytes: &[u8]) -> Verdict {
        self.arena.clear();
        self.pieces.clear();
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
        if is_own(tunnel, &packet) {
            return Verdict::Drop(Drop::Loop);
        }
        let limit = match encapsulation_limit(&packet) {
            // Over IPv4 nothing says how deep it is, and the limit inside remains as it is.
            Some((at, 0)) if tunnel.kind.is_v6() => return Verdict::TooDeep(at as u32),
            Some((_, limit)) if tunnel.kind.is_v6() => Some(limit - 1),
            _ => None,
        };
        // The MTU has room for a header without tags.
        let tags = link.len().saturating_sub(ETHERNET_LEN) as u16;
        let context = Context {
            mtu: context.mtu.saturating_sub(tags),
            limit: limit.or(tunnel.encaplimit),
            ..context
        };
        let mtu = if limit.is_some() && tunnel.encaplimit.is_none() && tunnel.pmtudisc {
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
        if frame.len() > usize::from(context.mtu) + ETHERNET_LEN {
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
                Verdict::Send(Sending { tos, ttl, protocol, hash: 0, limit: None })
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

    /// What can go out in one call: pieces of one length, of which the last may be shorter.
    pub(crate) fn bursts(&self, max_segments: usize) -> impl Iterator<Item = &[Piece]> {
        let mut rest = &self.pieces[..];
        iter::from_fn(move || {
            let size = rest.first()?.len();
            let mut bytes = 0;
            let mut count = 0;
            for piece in rest.iter().take(max_segments.max(1)) {
                if piece.len() > size || (count > 0 && bytes + piece.len() > MAX_BURST) {
                    break;
                }
                bytes += piece.len();
                count += 1;
                if piece.len() < size {
                    break;
                }
            }
            let (burst, tail) = rest.split_at(count);
            rest = tail;
            Some(burst)
        })
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
fn is_own(tunnel: &Tunnel, packet: &Packet<'_>) -> bool {
    let local = |source: IpAddr| tunnel.local.is_none_or(|local| local == source);
    let carried = || match tunnel.encap {
        Encap::None => [true, false].iter().any(|v4| tunnel.protocol(*v4) == packet.protocol),
        _ => {
            let port = packet.ports().map(|(_, port)| port);
            packet.protocol == protocol::UDP
                && (packet.later_fragment || port == Some(tunnel.dport))
        }
    };
    packet.destination == tunnel.remote && local(packet.source) && carried()
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
mod tests {
    use super::*;
    use crate::testing::{ip, is_intact, tcp, tunnel, udp};
    use quicket_gue::{EcnIngress, Gre, Kind, decode};

    const ENDS: &str = "remote 192.0.2.2 local 192.0.2.1";

    fn build(
        words: &str,
        vnet: Vnet,
        bytes: &[u8],
        mtu: u16,
    ) -> (Verdict, Vec<Vec<u8>>, Vec<usize>) {
        let tunnel = tunnel(words);
        let sequence = AtomicU32::new(5);
        let context = Context {
            tunnel: &tunnel,
            secret: 1,
            sequence: &sequence,
            mtu,
            limit: tunnel.encaplimit,
        };
        let mut outbound = Outbound::default();
        let verdict = outbound.build(context, vnet, bytes);
        let datagrams = outbound.pieces().iter().map(|piece| {
            let mut whole = outbound.arena()[piece.header.clone()].to_vec();
            whole.extend(&bytes[piece.payload.clone()]);
            assert_eq!(whole.len(), piece.len());
            whole
        });
        let datagrams = datagrams.collect();
        (verdict, datagrams, outbound.bursts(64).map(<[Piece]>::len).collect())
    }

    fn super_packet(size: u16) -> Vnet {
        let partial = Some(Partial { start: 20, offset: 16 });
        Vnet { partial, offload: Some((Offload::Tcp, size)) }
    }

    #[test]
    fn each_encapsulation_has_its_header() {
        let packet = udp(true, b"hello");
        for (words, protocol, header) in [
            (format!("a type ipip {ENDS} encap fou encap-dport 7"), 4, 0),
            (format!("a type ipip {ENDS} encap gue"), 4, 4),
            (format!("a type ipip {ENDS} encap gue encap-version 1"), 4, 0),
            (format!("a type gre {ENDS} encap gue"), 47, 8),
            (format!("a type gre {ENDS} encap fou"), 47, 4),
            ("a type ip6tnl remote 2001:db8::2 encap gue".to_owned(), 4, 4),
            (format!("a type sit {ENDS}"), 4, 0),
            (format!("a type gre {ENDS} encap none"), 47, 4),
            ("a type ip6tnl remote 2001:db8::2".to_owned(), 4, 0),
            ("a type ip6tnl remote 2001:db8::2 encaplimit 7".to_owned(), 60, 8),
        ] {
            let (verdict, datagrams, _) = build(&words, Vnet::default(), &packet, 1400);
            let Verdict::Send(sending) = verdict else { panic!("{words}: {verdict:?}") };
            if !words.contains("encap fou") && !words.contains("encap gue") {
                assert_eq!(sending.protocol, protocol, "{words}");
            }
            if protocol == 60 {
                assert_eq!(datagrams[0][..8], [4, 0, 4, 1, 7, 1, 1, 0]);
            }
            assert_eq!(datagrams.len(), 1);
            assert_eq!(datagrams[0].len(), packet.len() + header, "{words}");
            assert_eq!(datagrams[0][header..], packet);
            if words.contains("gue") {
                assert_eq!(decode(&datagrams[0]).unwrap().kind, Kind::Data(protocol));
            }
        }
    }

    #[test]
    fn a_super_packet_becomes_one_burst_of_whole_segments() {
        let packet = tcp(true, 1, 0x18, &[9; 10_000]);
        let words = format!("a type gre {ENDS} encap gue key 7 seq csum");
        let (verdict, datagrams, bursts) = build(&words, super_packet(1400), &packet, 1440);
        assert!(matches!(verdict, Verdict::Send(_)));
        assert_eq!((datagrams.len(), bursts), (8, vec![8]));
        for (index, datagram) in datagrams.iter().enumerate() {
            let (gre, inner) = Gre::decode(decode(datagram).unwrap().payload).unwrap();
            assert_eq!((gre.key, gre.sequence), (Some(7), Some(5 + index as u32)));
            assert!(gre.checksum && is_intact(inner));
        }
    }

    #[test]
    fn bursts_end_at_the_systems_limits() {
        let packet = tcp(true, 1, 0x18, &[9; 64_000]);
        let words = format!("a type ipip {ENDS} encap gue");
        let (_, datagrams, bursts) = build(&words, super_packet(500), &packet, 1440);
        assert_eq!((datagrams.len(), bursts), (128, vec![64, 64]));
        let (_, datagrams, bursts) = build(&words, super_packet(1400), &packet, 1440);
        assert_eq!(bursts.iter().sum::<usize>(), datagrams.len());
        assert_eq!(bursts.len(), 2, "{bursts:?}");
    }

    #[test]
    fn open_checksums_are_left_to_the_other_end_on_request() {
        let packet = tcp(true, 1, 0x18, &[9; 3000]);
        for (words, start) in [("ipip", 20), ("gre", 24)] {
            let words = format!("a type {words} {ENDS} encap gue encap-remcsum");
            let (_, datagrams, _) = build(&words, super_packet(1400), &packet, 1440);
            for datagram in &datagrams {
                let decoded = decode(datagram).unwrap();
                let option = decoded.remote_checksum.unwrap();
                assert_eq!((option.start, option.offset), (start, start + 16));
                let mut payload = decoded.payload.to_vec();
                option.apply(&mut payload).unwrap();
                assert!(is_intact(&payload[usize::from(start) - 20..]));
            }
            let whole = udp(true, b"no open checksum");
            let (_, datagrams, _) = build(&words, Vnet::default(), &whole, 1440);
            assert_eq!(decode(&datagrams[0]).unwrap().remote_checksum, None);
        }
    }

    #[test]
    fn what_is_too_long_is_split_or_its_sender_is_told() {
        let words = format!("a type ipip {ENDS} encap gue");
        let mut long = udp(true, &[3; 2000]);
        let told = build(&words, Vnet::default(), &long, 1000);
        assert_eq!(told.0, Verdict::TooBig(1000));
        assert!(told.1.is_empty());
        long[6] = 0;
        let (verdict, datagrams, _) = build(&words, Vnet::default(), &long, 1000);
        assert!(matches!(verdict, Verdict::Send(_)));
        assert_eq!(datagrams.len(), 3);
        assert!(datagrams.iter().all(|datagram| datagram.len() <= 1004));
        let segments = tcp(true, 1, 0x18, &[9; 3000]);
        assert_eq!(build(&words, super_packet(1400), &segments, 1000).0, Verdict::TooBig(1000));
        let mut segments = segments;
        segments[6] = 0;
        let (_, datagrams, _) = build(&words, super_packet(1400), &segments, 1000);
        assert!(datagrams.len() == 4 && datagrams.iter().all(|all| all.len() <= 1004));
    }

    #[test]
    fn packets_of_the_tunnel_itself_and_of_other_families_do_not_enter() {
        let words = format!("a type ipip {ENDS} encap gue");
        let mut own = udp(true, b"x");
        own[12..16].copy_from_slice(&[192, 0, 2, 1]);
        own[16..20].copy_from_slice(&[192, 0, 2, 2]);
        own[22..24].copy_from_slice(&6080u16.to_be_bytes());
        assert_eq!(build(&words, Vnet::default(), &own, 1400).0, Verdict::Drop(Drop::Loop));
        let raw = format!("a type ipip {ENDS}");
        assert!(matches!(build(&raw, Vnet::default(), &own, 1400).0, Verdict::Send(_)));
        let mut nested = own.clone();
        nested[9] = 4;
        assert_eq!(build(&raw, Vnet::default(), &nested, 1400).0, Verdict::Drop(Drop::Loop));
        assert!(matches!(build(&words, Vnet::default(), &nested, 1400).0, Verdict::Send(_)));
        own[23] ^= 1;
        assert!(matches!(build(&words, Vnet::default(), &own, 1400).0, Verdict::Send(_)));
        let v6 = udp(false, b"x");
        assert_eq!(build(&words, Vnet::default(), &v6, 1400).0, Verdict::Drop(Drop::Family));
        let sit = format!("a type sit {ENDS} encap fou encap-dport 7");
        let v4 = udp(true, b"x");
        assert_eq!(build(&sit, Vnet::default(), &v4, 1400).0, Verdict::Drop(Drop::Family));
        let junk = build(&words, Vnet::default(), &[0x15; 40], 1400).0;
        assert_eq!(junk, Verdict::Drop(Drop::Malformed));
    }

    #[test]
    fn frames_keep_their_headers_in_each_segment() {
        let link = [&[7; 12][..], &[0x81, 0, 0, 5, 8, 0]].concat();
        let segments = [&link[..], &tcp(true, 1, 0x18, &[9; 3000])].concat();
        let partial = Some(Partial { start: 38, offset: 16 });
        let vnet = Vnet { partial, offload: Some((Offload::Tcp, 1396)) };
        let words = format!("a type gretap {ENDS} encap gue csum");
        let (verdict, datagrams, _) = build(&words, vnet, &segments, 1440);
        assert!(matches!(verdict, Verdict::Send(_)));
        assert_eq!(datagrams.len(), 3);
        for datagram in &datagrams {
            let (gre, frame) = Gre::decode(decode(datagram).unwrap().payload).unwrap();
            assert!(gre.checksum && gre.protocol == Gre::ETHERNET);
            assert!(frame[..18] == link && is_intact(&frame[18..]));
        }
        assert_eq!(build(&words, vnet, &segments, 1439).0, Verdict::TooBig(1435), "a tag of 4");
        let arp = [&[7; 12][..], &[8, 6], &[1; 28]].concat();
        let (verdict, datagrams, _) = build(&words, Vnet::default(), &arp, 1440);
        let Verdict::Send(sending) = verdict else { panic!("{verdict:?}") };
        assert_eq!((sending.ttl, sending.tos), (64, 0));
        assert!(datagrams[0].ends_with(&arp));
        let cut = build(&words, Vnet::default(), &[7; 13], 1440).0;
        assert_eq!(cut, Verdict::Drop(Drop::Malformed));
        let long = [&arp[..], &[0; 1440]].concat();
        assert_eq!(build(&words, Vnet::default(), &long, 1440).0, Verdict::Drop(Drop::TooBig));
    }

    #[test]
    fn packets_enter_as_many_tunnels_as_they_say() {
        let with_limit = |limit: u8| {
            let options = [&[17, 0, 4, 1, limit, 1, 1, 0][..], &[0; 8]].concat();
            ip(false, 60, 0, &options)
        };
        let send = |words: &str, limit| build(words, Vnet::default(), &with_limit(limit), 1400).0;
        let words = "a type ip6tnl remote 2001:db8::9 encap gue";
        assert_eq!(send(words, 0), Verdict::TooDeep(44));
        for (words, limit, expected) in [
            (words.to_owned(), 7, Some(6)),
            (format!("{words} encaplimit 2"), 7, Some(6)),
            (format!("a type sit {ENDS} encap gue"), 0, None),
        ] {
            let Verdict::Send(sending) = send(&words, limit) else { panic!("{words}") };
            assert_eq!(sending.limit, expected, "{words}");
        }
        let mut long = with_limit(1);
        long.resize(1396, 0);
        long[4..6].copy_from_slice(&1356u16.to_be_bytes());
        assert_eq!(build(words, Vnet::default(), &long, 1400).0, Verdict::TooBig(1392));
    }

    #[test]
    fn outer_fields_follow_the_inner_ones() {
        let inner = ip(true, 17, 0xb8 | 3, &[0; 8]);
        let sending = |words: &str| match build(words, Vnet::default(), &inner, 1400).0 {
            Verdict::Send(sending) => (sending.tos, sending.ttl),
            other => panic!("{other:?}"),
        };
        let words = format!("a type ipip {ENDS} encap gue");
        assert_eq!(sending(&words), (3, 64));
        assert_eq!(sending(&format!("{words} tos inherit ttl 9")), (0xb8 | 3, 9));
        assert_eq!(sending(&format!("{words} tos 10 ecn reset-ce")), (0x12, 64));
        assert_eq!(sending(&format!("{words} ecn none")), (0, 64));
        assert_eq!(tunnel(&words).ecn, EcnIngress::Normal);
    }
}
