//! Frames of Ethernet: whose they are, and whether they are in order.
//!
//! This is stricter than what a tunnel does with packets that it carries (`quicket-gue`): a frame that
//! could be understood in two ways is refused, as another stack would understand it in the other one.

use quicket_gue::Sum;

use crate::counters::Reason;
use crate::tuple::{Key, Tuple};

/// Octets of a header of Ethernet without tags.
pub const ETHERNET_LEN: usize = 14;
/// The shortest frame of Ethernet without its checksum: what is shorter is padded to it.
pub const MIN_FRAME: usize = 60;
/// VLAN tags of a frame that are stepped over (IEEE 802.1ad), all of them without a VLAN: priority tags.
pub const MAX_TAGS: usize = 2;
/// Octets of a tag.
pub(crate) const TAG_LEN: usize = 4;
/// Extension headers of IPv6 that are stepped over.
pub const MAX_EXTENSIONS: usize = 8;

const IPV4: u16 = 0x800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;
/// The number of a VLAN in its tag: beside it is the priority.
const NUMBER_BITS: u16 = 0xfff;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Extension headers of IPv6 (RFC 8200, Section 4). Not among the protocols that a tuple may have.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// Whether a tuple of a raw socket may have that protocol: none whose ports are not seen, none that is a
/// header on the way to another one, and not that of packets as a whole (IPPROTO_RAW).
pub(crate) const fn is_portless(protocol: u8) -> bool {
    // DCCP, SCTP, UDP-Lite have ports.
    !matches!(
        protocol,
        TCP | UDP | 33 | 132 | 136 | HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION | 255
    )
}

/// The number of the VLAN that a frame is of, by a tag before all else (IEEE 802.1Q, Section 9.6); none if that is one of
/// priority, or another one.
#[inline]
pub(crate) fn vlan(frame: &[u8]) -> Option<u16> {
    let Some([0x81, 0x00, high, low]) = frame.get(12..16) else { return None };
    let number = u16::from_be_bytes([*high, *low]) & NUMBER_BITS;
    (number != 0).then_some(number)
}

/// Takes the tag of a VLAN out of a frame, which is shorter by [`TAG_LEN`] then. The packet has to be right behind it.
///
/// # Errors
///
/// When it is not.
#[cold]
pub(crate) fn take_out_tag(frame: &mut [u8]) -> Result<&mut [u8], Reason> {
    let kind = frame.get(16..18).ok_or(Reason::Length)?;
    match u16::from_be_bytes([kind[0], kind[1]]) {
        IPV4 | IPV6 => {}
        VLAN | SERVICE_VLAN => return Err(Reason::Vlan),
        _ => return Err(Reason::NotIp),
    }
    let rest = frame.len() - TAG_LEN;
    frame.copy_within(12 + TAG_LEN.., 12);
    frame.get_mut(..rest).ok_or(Reason::Length)
}

/// Such a tag, without a priority. Frames with tags of their own have no room for it: none.
pub(crate) fn tag(frame: &[u8], number: u16) -> Option<[u8; TAG_LEN]> {
    let [k0, k1] = *frame.get(12..ETHERNET_LEN)?.first_chunk()?;
    let [high, low] = (number & NUMBER_BITS).to_be_bytes();
    matches!(u16::from_be_bytes([k0, k1]), IPV4 | IPV6).then_some([0x81, 0x00, high, low])
}

/// The ends of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) source: Key,
    pub(crate) destination: Key,
}

/// What the switch reads in a frame: source and destination.
///
/// # Errors
///
/// Why it would drop the frame, whoever sent it.
pub fn tuples(frame: &[u8]) -> Result<(Tuple, Tuple), Reason> {
    check(frame).map(|ends| (ends.source.into(), ends.destination.into()))
}

/// The same of a frame that has come by a device, where those of VLANs are not dropped: with the number of its VLAN.
///
/// # Errors
///
/// Why the switch would drop the frame, be this host in that VLAN or not.
pub fn tuples_of_device(frame: &[u8]) -> Result<(Option<u16>, Tuple, Tuple), Reason> {
    let Some(number) = vlan(frame) else {
        return tuples(frame).map(|(source, destination)| (None, source, destination));
    };
    let mut copy = frame.to_vec();
    let (source, destination) = tuples(take_out_tag(&mut copy)?)?;
    Ok((Some(number), source, destination))
}

/// Checks lengths, header chain and checksums of a frame, and says from where it is to where.
#[inline(always)]
pub(crate) fn check(frame: &[u8]) -> Result<Ends, Reason> {
    let kind = frame.get(12..ETHERNET_LEN).ok_or(Reason::Length)?;
    match u16::from_be_bytes([kind[0], kind[1]]) {
        IPV4 => v4(&frame[ETHERNET_LEN..]),
        IPV6 => v6(&frame[ETHERNET_LEN..]),
        VLAN | SERVICE_VLAN => tagged(frame),
        _ => Err(Reason::NotIp),
    }
}

/// The packet in a frame, and whether it is one of IPv4: behind the header of Ethernet and priority tags. What pads the
/// frame is behind it.
#[must_use]
pub fn packet(frame: &[u8]) -> Option<(bool, &[u8])> {
    let mut rest = frame.get(12..)?;
    for _ in 0..=MAX_TAGS {
        let (kind, packet) = rest.split_first_chunk::<2>()?;
        match u16::from_be_bytes(*kind) {
            IPV4 => return Some((true, packet)),
            IPV6 => return Some((false, packet)),
            VLAN | SERVICE_VLAN => rest = packet.get(2..)?,
            _ => return None,
        }
    }
    None
}

/// A frame with tags.
#[cold]
fn tagged(frame: &[u8]) -> Result<Ends, Reason> {
    let mut rest = &frame[12..];
    for _ in 0..MAX_TAGS {
        let (tag, behind) = rest.split_first_chunk::<4>().ok_or(Reason::Length)?;
        // The lower twelve bits are the number of the VLAN (IEEE 802.1Q).
        if (tag[2] & 0xf, tag[3]) != (0, 0) {
            return Err(Reason::Vlan);
        }
        let (kind, packet) = behind.split_first_chunk::<2>().ok_or(Reason::Length)?;
        match u16::from_be_bytes(*kind) {
            IPV4 => return v4(packet),
            IPV6 => return v6(packet),
            VLAN | SERVICE_VLAN => rest = behind,
            _ => return Err(Reason::NotIp),
        }
    }
    Err(Reason::Vlan)
}

/// What is behind a packet may only be what pads a short frame. Tags may have come later than that (IEEE 802.1Q): they do not
/// count.
#[inline]
fn cut(packet: &[u8], len: usize) -> Result<&[u8], Reason> {
    if packet.len() != len && (packet.len() < len || packet.len() > MIN_FRAME - ETHERNET_LEN) {
        return Err(Reason::Length);
    }
    packet.get(..len).ok_or(Reason::Length)
}

#[inline(always)]
fn v4(packet: &[u8]) -> Result<Ends, Reason> {
    let header = packet.first_chunk::<20>().ok_or(Reason::Length)?;
    if header[0] >> 4 != 4 {
        return Err(Reason::Headers);
    }
    let header_len = usize::from(header[0] & 0xf) * 4;
    let packet = cut(packet, usize::from(u16::from_be_bytes([header[2], header[3]])))?;
    // Options lie between both.
    let (head, payload) = match header_len {
        20.. if header_len <= packet.len() => packet.split_at(header_len),
        _ => return Err(Reason::Length),
    };
    // Most have no options: the compiler knows the length then.
    let sum = if header_len == 20 { Sum::new().bytes(header) } else { Sum::new().bytes(head) };
    if !sum.is_intact() {
        return Err(Reason::Checksum);
    }
    // More Fragments, or an offset (RFC 791, Section 3.1).
    if u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0 {
        return Err(Reason::Fragment);
    }
    if header_len > 20 {
        check_options(&head[20..])?;
    }
    let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
    let protocol = header[9];
    let pseudo = Sum::new().bytes(&header[12..]);
    let (from, to) = transport(true, protocol, payload, pseudo)?;
    Ok(Ends {
        source: Key::v4([s0, s1, s2, s3], protocol, from),
        destination: Key::v4([d0, d1, d2, d3], protocol, to),
    })
}

/// Options of IPv4 are whole, and none is a source route (RFC 791, Section 3.1): it would lead elsewhere than
/// the destination says.
#[cold]
fn check_options(mut options: &[u8]) -> Result<(), Reason> {
    const END: u8 = 0;
    const NOTHING: u8 = 1;
    const LOOSE: u8 = 131;
    const STRICT: u8 = 137;
    // Each turn takes at least one of forty octets.
    while let [kind, rest @ ..] = options {
        match *kind {
            END => return Ok(()),
            NOTHING => options = rest,
            LOOSE | STRICT => return Err(Reason::Headers),
            _ => {
                let len = usize::from(*rest.first().ok_or(Reason::Headers)?);
                if len < 2 {
                    return Err(Reason::Headers);
                }
                options = options.get(len..).ok_or(Reason::Headers)?;
            }
        }
    }
    Ok(())
}

#[inline]
fn v6(packet: &[u8]) -> Result<Ends, Reason> {
    let header = packet.first_chunk::<40>().ok_or(Reason::Length)?;
    if header[0] >> 4 != 6 {
        return Err(Reason::Headers);
    }
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let packet = cut(packet, 40 + len)?;
    let (protocol, payload) = match header[6] {
        TCP | UDP => (header[6], &packet[40..]),
        first => step_over(first, &packet[40..])?,
    };
    let address = |at: usize| header[at..].first_chunk::<16>().copied().ok_or(Reason::Length);
    let (source, destination) = (address(8)?, address(24)?);
    let pseudo = Sum::new().bytes(&header[8..]);
    let (from, to) = transport(false, protocol, payload, pseudo)?;
    Ok(Ends {
        source: Key::v6(source, protocol, from).ok_or(Reason::Address)?,
        destination: Key::v6(destination, protocol, to).ok_or(Reason::Address)?,
    })
}

/// Steps over extension headers (RFC 8200, Section 4.1): what is at the end of the chain. Hop-by-hop options come
/// first or not at all; a routing header leads elsewhere than the destination says.
#[cold]
pub(crate) fn step_over(first: u8, mut rest: &[u8]) -> Result<(u8, &[u8]), Reason> {
    let mut kind = first;
    for at in 0..=MAX_EXTENSIONS {
        match kind {
            FRAGMENT => return Err(Reason::Fragment),
            HOP_BY_HOP if at > 0 => return Err(Reason::Headers),
            ROUTING => return Err(Reason::Headers),
            HOP_BY_HOP | DESTINATION => {
                let [next, len, ..] = *rest else { return Err(Reason::Headers) };
                kind = next;
                rest = rest.get((usize::from(len) + 1) * 8..).ok_or(Reason::Headers)?;
            }
            _ => return Ok((kind, rest)),
        }
    }
    Err(Reason::Headers)
}

/// The ports of a transport header, whose lengths and checksum are checked. `pseudo` is the sum of both addresses.
#[inline(always)]
fn transport(is_v4: bool, protocol: u8, payload: &[u8], pseudo: Sum) -> Result<(u16, u16), Reason> {
    let is_intact = match protocol {
        UDP | TCP | ICMPV6 => pseudo.add_u16(protocol.into()).add_u32(payload.len() as u32),
        // That of ICMPv6 has the addresses in it (RFC 4443, Section 2.3), and this one has not.
        ICMP => Sum::new(),
        _ => return portless(protocol),
    };
    let is_intact = is_intact.bytes(payload).is_intact();
    let port = |high: u8, low: u8| u16::from_be_bytes([high, low]);
    match protocol {
        UDP => {
            let [s0, s1, d0, d1, l0, l1, c0, c1] =
                *payload.first_chunk::<8>().ok_or(Reason::Length)?;
            // Less would leave room for something that the checksum does not see.
            if usize::from(u16::from_be_bytes([l0, l1])) != payload.len() {
                return Err(Reason::Length);
            }
            // None at all is allowed with IPv4 (RFC 768), and not with IPv6 (RFC 8200, Section 8.1).
            let is_right = if (c0, c1) == (0, 0) { is_v4 } else { is_intact };
            if is_right { Ok((port(s0, s1), port(d0, d1))) } else { Err(Reason::Checksum) }
        }
        TCP => {
            let header = payload.first_chunk::<20>().ok_or(Reason::Length)?;
            let len = usize::from(header[12] >> 4) * 4;
            if len < 20 || len > payload.len() {
                return Err(Reason::Length);
            }
            if !is_intact {
                return Err(Reason::Checksum);
            }
            Ok((port(header[0], header[1]), port(header[2], header[3])))
        }
        _ if is_v4 != (protocol == ICMP) => portless(protocol),
        _ if payload.len() < 4 => Err(Reason::Length),
        _ => is_intact.then_some((0, 0)).ok_or(Reason::Checksum),
    }
}

/// Protocols without ports, and those whose ports are not seen.
#[cold]
fn portless(protocol: u8) -> Result<(u16, u16), Reason> {
    match protocol {
        _ if is_portless(protocol) => Ok((0, 0)),
        HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION => Err(Reason::Headers),
        _ => Err(Reason::Protocol),
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
