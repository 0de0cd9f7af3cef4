//! Headers of IP and UDP (RFC 791, RFC 8200, RFC 768): written as datagrams had them on the wire as far as that is known, and
//! read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use quicket_gue::{Sum, pseudo_header};
use quicket_wire::EcnCodepoint;

const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
/// What the headers of other programs have most often; that of a packet is not known.
const HOP_LIMIT: u8 = 64;
const DO_NOT_FRAGMENT: u16 = 0x4000;
/// More fragments, and where this one lies (RFC 791, Section 3.1).
const FRAGMENT: u16 = 0x3fff;

/// A datagram on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// When it was seen, since 1970.
    pub at: Duration,
    /// Who has sent it.
    pub from: SocketAddr,
    /// Whom it is for.
    pub to: SocketAddr,
    /// The ECN field.
    pub ecn: EcnCodepoint,
    /// Bytes of payload that it had.
    pub len: usize,
    /// As many of them as were kept.
    pub payload: Vec<u8>,
}

/// Writes the headers of a datagram into `out`, and as much of its payload as is kept. `len` is the length that the
/// payload had. Returns the length of the whole packet on the wire.
pub fn write(
    out: &mut Vec<u8>,
    (from, to): (SocketAddr, SocketAddr),
    ecn: EcnCodepoint,
    kept: &[u8],
    len: usize,
) -> usize {
    out.clear();
    let (source, destination) = of_one_family(from.ip(), to.ip());
    let length = UDP_HEADER + len;
    // Neither length goes beyond 16 bits: datagrams of UDP have none that are longer.
    let udp_length = u16::try_from(length).unwrap_or(u16::MAX);
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let total = u16::try_from(IPV4_HEADER + length).unwrap_or(u16::MAX);
            out.extend([0x45, ecn.bits()]);
            out.extend(total.to_be_bytes());
            out.extend([0, 0]);
            out.extend(DO_NOT_FRAGMENT.to_be_bytes());
            out.extend([HOP_LIMIT, UDP, 0, 0]);
            out.extend(source.octets());
            out.extend(destination.octets());
            let sum = Sum::new().bytes(out).checksum().to_be_bytes();
            if let Some(place) = out.get_mut(10..12) {
                place.copy_from_slice(&sum);
            }
        }
        (source, destination) => {
            out.extend([0x60 | ecn.bits() >> 4, ecn.bits() << 4, 0, 0]);
            out.extend(udp_length.to_be_bytes());
            out.extend([UDP, HOP_LIMIT]);
            out.extend(octets(source));
            out.extend(octets(destination));
        }
    }
    let ip_header = out.len();
    let ports = [from.port(), to.port()];
    let mut sum = pseudo_header(source, destination, UDP, u32::from(udp_length));
    for word in [ports[0], ports[1], udp_length] {
        sum = sum.add_u16(word);
    }
    // Zero stands for none (RFC 768): of a datagram that is cut it is not known.
    let sum = match sum.bytes(kept).checksum() {
        _ if kept.len() < len => 0,
        0 => u16::MAX,
        sum => sum,
    };
    for word in [ports[0], ports[1], udp_length, sum] {
        out.extend(word.to_be_bytes());
    }
    out.extend(kept);
    ip_header + length
}

/// Reads a packet of IP that was seen at a time; none if it has no datagram of UDP, or a fragment of one. What follows the
/// datagram, as where Ethernet fills frames up, is left out.
#[must_use]
pub fn read(at: Duration, packet: &[u8]) -> Option<Datagram> {
    let (class, from, to, udp) = match packet.first()? >> 4 {
        4 => ipv4(packet)?,
        6 => ipv6(packet)?,
        _ => return None,
    };
    let (header, payload) = udp.split_first_chunk::<UDP_HEADER>()?;
    let [source, destination, length, _] = words(header);
    let len = usize::from(length).checked_sub(UDP_HEADER)?;
    Some(Datagram {
        at,
        from: SocketAddr::new(from, source),
        to: SocketAddr::new(to, destination),
        ecn: EcnCodepoint::from_bits(class),
        len,
        payload: payload.get(..len).unwrap_or(payload).to_vec(),
    })
}

/// The four words of a header of UDP.
fn words(header: &[u8; UDP_HEADER]) -> [u16; 4] {
    let &[a, b, c, d, e, f, g, h] = header;
    [[a, b], [c, d], [e, f], [g, h]].map(u16::from_be_bytes)
}

/// Traffic class, source, destination, and what follows the header.
type Unpacked<'a> = (u8, IpAddr, IpAddr, &'a [u8]);

fn ipv4(packet: &[u8]) -> Option<Unpacked<'_>> {
    let header = packet.first_chunk::<IPV4_HEADER>()?;
    let words = usize::from(header[0] & 0x0f);
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & FRAGMENT != 0;
    if header[9] != UDP || is_fragment || 4 * words < IPV4_HEADER {
        return None;
    }
    let address = |at: usize| Some(Ipv4Addr::from(*header.get(at..)?.first_chunk::<4>()?));
    Some((header[1], address(12)?.into(), address(16)?.into(), packet.get(4 * words..)?))
}

fn ipv6(packet: &[u8]) -> Option<Unpacked<'_>> {
    let (header, udp) = packet.split_first_chunk::<IPV6_HEADER>()?;
    // Extension headers stand before no datagram of a QUIC that is in use.
    if header[6] != UDP {
        return None;
    }
    let address = |at: usize| Some(Ipv6Addr::from(*header.get(at..)?.first_chunk::<16>()?));
    Some((header[0] << 4 | header[1] >> 4, address(8)?.into(), address(24)?.into(), udp))
}

/// Addresses as they are on the wire: those of IPv4 that IPv6 sockets show are of IPv4. The one that is not known is of
/// the other's family.
fn of_one_family(one: IpAddr, other: IpAddr) -> (IpAddr, IpAddr) {
    let (one, other) = (one.to_canonical(), other.to_canonical());
    let nowhere = |like: IpAddr| match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    match (one.is_ipv4() == other.is_ipv4(), one.is_unspecified()) {
        (true, _) => (one, other),
        (false, true) => (nowhere(other), other),
        (false, false) => (one, nowhere(one)),
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_add_up() {
        let mut out = Vec::new();
        for (from, to, header) in [
            ("192.0.2.7:5000", "192.0.2.1:443", 20),
            ("[2001:db8::7]:5000", "[2001:db8::1]:443", 40),
            ("[::ffff:192.0.2.7]:5000", "192.0.2.1:443", 20),
            ("192.0.2.7:5000", "[::]:443", 20),
        ] {
            let addresses = (from.parse().unwrap(), to.parse().unwrap());
            let len = write(&mut out, addresses, EcnCodepoint::Ce, &[1, 2, 3], 3);
            assert_eq!((len, out.len()), (header + 11, header + 11), "{from}");
            if header == 20 {
                assert!(Sum::new().bytes(&out[..20]).is_intact());
                assert_eq!(out[1], 3);
            } else {
                assert_eq!(out[1] >> 4, 3);
            }
            let at = if header == 20 { 12 } else { 8 };
            let sum = Sum::new().bytes(&out[at..header]).bytes(&[0, UDP, 0, 11]);
            assert!(sum.bytes(&out[header..]).is_intact(), "{from}");
        }
    }

    #[test]
    fn of_what_is_cut_the_length_is_told_and_no_checksum() {
        let mut out = Vec::new();
        let addresses = ("192.0.2.7:5000".parse().unwrap(), "192.0.2.1:443".parse().unwrap());
        let len = write(&mut out, addresses, EcnCodepoint::NotEct, &[1, 2, 3], 1200);
        assert_eq!((len, out.len()), (1228, 31));
        assert_eq!(out[24..28], [0x04, 0xb8, 0, 0]);
    }

    #[test]
    fn what_was_written_is_read_back_in_both_families() {
        let mut out = Vec::new();
        for (from, to) in [("127.0.0.1:5", "127.64.0.1:6"), ("[::1]:7", "[2001:db8::1]:8")] {
            for ecn in [EcnCodepoint::NotEct, EcnCodepoint::Ect1, EcnCodepoint::Ce] {
                let at = Duration::new(1_800_000_000, 123_456_789);
                let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
                for kept in [100, 30] {
                    let payload = vec![7; kept];
                    write(&mut out, (from, to), ecn, &payload, 100);
                    let expected = Datagram { at, from, to, ecn, len: 100, payload };
                    assert_eq!(read(at, &out), Some(expected));
                }
                write(&mut out, (from, to), ecn, b"whole", 5);
                // As where frames of Ethernet are filled up.
                out.extend([0; 20]);
                assert_eq!(read(at, &out).unwrap().payload, b"whole");
            }
        }
    }

    #[test]
    fn what_is_no_datagram_of_udp_is_none() {
        let mut packet = Vec::new();
        let addresses = ("192.0.2.7:5000".parse().unwrap(), "192.0.2.1:443".parse().unwrap());
        write(&mut packet, addresses, EcnCodepoint::NotEct, &[1; 50], 50);
        let at = Duration::ZERO;
        for len in 0..28 {
            assert_eq!(read(at, &packet[..len]), None, "{len}");
        }
        // Version, length of the header, a fragment, another protocol, a length that is too short.
        for (place, byte) in [(0, 0x55), (0, 0x44), (0, 0x4f), (6, 0x20), (7, 1), (9, 6), (25, 7)] {
            let mut wrong = packet.clone();
            wrong[place] = byte;
            if (place, byte) != (0, 0x4f) {
                assert_eq!(read(at, &wrong), None, "{place}");
            } else {
                // Options that reach into the payload: some datagram, and no panic.
                let _ = read(at, &wrong);
            }
        }
    }
}
