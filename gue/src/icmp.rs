//! What a tunnel tells the sender of a packet that does not fit (RFC 792 and 1191 for IPv4, RFC
//! 4443 and 8201 for IPv6), or that has been in too many tunnels (RFC 2473).

use crate::error::write;
use crate::{Full, MIN_MTU_V4, MIN_MTU_V6, Packet, Sum, protocol, pseudo_header};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest error: that of IPv6 fills its smallest MTU (RFC 4443, Section 2.4 (c)). That of IPv4
/// is at most 576 bytes (RFC 1812, Section 4.3.2.3).
pub const MAX_ICMP: usize = 1280;
const MAX_ICMP_V4: usize = 576;

/// Writes the error that `packet` is longer than `mtu` bytes, addressed to its sender, and returns
/// its length; 0 if no error may be sent for such a packet (RFC 1122, Section 3.2.2; RFC 4443,
/// Section 2.4 (e)).
///
/// The error comes from the address that the packet was for: the only one that is known to be
/// routed into the tunnel, so that the sender's check of the reverse path passes.
pub fn too_big(packet: &Packet<'_>, mtu: u16, out: &mut [u8]) -> Result<usize, Full> {
    if !may_answer(packet) {
        return Ok(0);
    }
    match (packet.source, packet.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mtu = mtu.max(MIN_MTU_V4);
            error_v4(packet, (source, destination), [3, 4], mtu.into(), out)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mtu = u32::from(mtu.max(MIN_MTU_V6));
            error_v6(packet, (source, destination), [2, 0], mtu, out)
        }
        _ => Ok(0),
    }
}

/// Writes the error that the host `packet` is for cannot be reached (RFC 792; RFC 4443, Section 3.1);
/// as [`too_big`] does.
pub fn unreachable(packet: &Packet<'_>, out: &mut [u8]) -> Result<usize, Full> {
    match (packet.source, packet.destination) {
        _ if !may_answer(packet) => Ok(0),
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            error_v4(packet, (source, destination), [3, 1], 0, out)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            error_v6(packet, (source, destination), [1, 3], 0, out)
        }
        _ => Ok(0),
    }
}

/// Writes the error that a byte of `packet`, which is IPv6, has a value that forbids to carry it
/// (RFC 4443, Section 3.4; RFC 2473, Section 4.1.1 (a)); as [`too_big`] does.
pub fn parameter_problem(packet: &Packet<'_>, pointer: u32, out: &mut [u8]) -> Result<usize, Full> {
    match (packet.source, packet.destination) {
        (IpAddr::V6(source), IpAddr::V6(destination)) if may_answer(packet) => {
            error_v6(packet, (source, destination), [4, 0], pointer, out)
        }
        _ => Ok(0),
    }
}

/// An error of ICMP: type and code, and the word that follows.
fn error_v4(
    packet: &Packet<'_>,
    (source, destination): (Ipv4Addr, Ipv4Addr),
    [kind, code]: [u8; 2],
    word: u32,
    out: &mut [u8],
) -> Result<usize, Full> {
    let quoted = quote(packet, MAX_ICMP_V4 - 28);
    let [w0, w1, w2, w3] = word.to_be_bytes();
    let mut icmp = [kind, code, 0, 0, w0, w1, w2, w3];
    let sum = Sum::new().bytes(&icmp).bytes(quoted).checksum().to_be_bytes();
    [icmp[2], icmp[3]] = sum;
    let len = quoted.len().saturating_add(28);
    let mut header = [0u8; 20];
    [header[0], header[8], header[9]] = [0x45, 64, protocol::ICMP];
    [header[2], header[3]] = (len as u16).to_be_bytes();
    let ([d0, d1, d2, d3], [s0, s1, s2, s3]) = (source.octets(), destination.octets());
    [header[12], header[13], header[14], header[15]] = [s0, s1, s2, s3];
    [header[16], header[17], header[18], header[19]] = [d0, d1, d2, d3];
    [header[10], header[11]] = Sum::new().bytes(&header).checksum().to_be_bytes();
    put(out, &header, &icmp, quoted)
}

/// An error of ICMPv6: type and code, and the word that follows.
fn error_v6(
    packet: &Packet<'_>,
    (source, destination): (Ipv6Addr, Ipv6Addr),
    [kind, code]: [u8; 2],
    word: u32,
    out: &mut [u8],
) -> Result<usize, Full> {
    let quoted = quote(packet, MAX_ICMP - 48);
    let [w0, w1, w2, w3] = word.to_be_bytes();
    let mut icmp = [kind, code, 0, 0, w0, w1, w2, w3];
    let len = quoted.len().saturating_add(8);
    let pseudo = pseudo_header(packet.destination, packet.source, protocol::ICMPV6, len as u32);
    [icmp[2], icmp[3]] = pseudo.bytes(&icmp).bytes(quoted).checksum().to_be_bytes();
    let mut header = [0u8; 40];
    [header[0], header[6], header[7]] = [0x60, protocol::ICMPV6, 64];
    [header[4], header[5]] = (len as u16).to_be_bytes();
    if let Some((_, addresses)) = header.split_first_chunk_mut::<8>() {
        let (from, to) = addresses.split_at_mut(16);
        from.copy_from_slice(&destination.octets());
        to.copy_from_slice(&source.octets());
    }
    put(out, &header, &icmp, quoted)
}

/// The beginning of the packet.
fn quote<'a>(packet: &Packet<'a>, max: usize) -> &'a [u8] {
    packet.bytes.get(..max).unwrap_or(packet.bytes)
}

fn put(out: &mut [u8], header: &[u8], icmp: &[u8], quoted: &[u8]) -> Result<usize, Full> {
    let len = header.len().saturating_add(icmp.len()).saturating_add(quoted.len());
    let mut rest = out.get_mut(..len).ok_or(Full)?;
    for part in [header, icmp, quoted] {
        let written = write(rest, part)?;
        rest = rest.get_mut(written..).ok_or(Full)?;
    }
    Ok(len)
}

/// Not for errors, for later fragments, nor from or to addresses that are not of one host.
fn may_answer(packet: &Packet<'_>) -> bool {
    let one_host = |address: IpAddr| match address {
        IpAddr::V4(address) => {
            !(address.is_unspecified()
                || address.is_multicast()
                || address.is_broadcast()
                || address.is_loopback())
        }
        IpAddr::V6(address) => {
            !(address.is_unspecified() || address.is_multicast() || address.is_loopback())
        }
    };
    let kind = packet.payload().first().copied();
    let error = match packet.protocol {
        protocol::ICMP => !matches!(kind, Some(0 | 8 | 13..=18)),
        protocol::ICMPV6 => kind.is_none_or(|kind| kind < 128),
        _ => false,
    };
    // RFC 4443 makes an exception for multicast and Packet Too Big, which a tunnel needs not use.
    !packet.later_fragment && !error && one_host(packet.source) && one_host(packet.destination)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::tests::{v4, v6};
    use quicket_testing::Rng;

    #[test]
    fn the_sender_learns_the_mtu_from_an_intact_error() {
        let mut out = [0; MAX_ICMP];
        let bytes = v4(6, 9, 0, &[5; 1480]);
        let packet = Packet::parse(&bytes).unwrap();
        let len = too_big(&packet, 1400, &mut out).unwrap();
        assert_eq!(len, 576);
        let error = Packet::parse(&out[..len]).unwrap();
        assert_eq!((error.source, error.destination), (packet.destination, packet.source));
        assert!(Sum::new().bytes(&out[..20]).is_intact());
        assert!(Sum::new().bytes(error.payload()).is_intact());
        assert_eq!(error.payload()[..2], [3, 4]);
        assert_eq!(error.payload()[6..8], 1400u16.to_be_bytes());
        assert_eq!(error.payload()[8..], bytes[..548]);

        let bytes = v6(17, 9, 0, &[5; 1480]);
        let packet = Packet::parse(&bytes).unwrap();
        let len = too_big(&packet, 1400, &mut out).unwrap();
        assert_eq!(len, 1280);
        let error = Packet::parse(&out[..len]).unwrap();
        assert_eq!((error.source, error.destination), (packet.destination, packet.source));
        let payload = error.payload();
        let pseudo = pseudo_header(error.source, error.destination, 58, payload.len() as u32);
        assert!(pseudo.bytes(payload).is_intact());
        assert_eq!((payload[0], &payload[4..8]), (2, &1400u32.to_be_bytes()[..]));
        assert_eq!(too_big(&packet, 1400, &mut [0; 1279]), Err(Full));
    }

    #[test]
    fn mtus_below_the_least_are_not_announced() {
        let mut out = [0; MAX_ICMP];
        let bytes = v6(17, 9, 0, &[5; 1480]);
        too_big(&Packet::parse(&bytes).unwrap(), 600, &mut out).unwrap();
        assert_eq!(out[44..48], 1280u32.to_be_bytes());
    }

    #[test]
    fn errors_and_groups_are_not_answered() {
        let mut out = [0; MAX_ICMP];
        let mut answers =
            |bytes: &[u8]| too_big(&Packet::parse(bytes).unwrap(), 1000, &mut out).unwrap() > 0;
        assert!(answers(&v4(1, 9, 0, &[8, 0, 0, 0])), "an echo request");
        assert!(!answers(&v4(1, 9, 0, &[3, 1, 0, 0])), "an error");
        assert!(!answers(&v4(1, 9, 0, &[])), "nothing to tell from");
        assert!(answers(&v6(58, 9, 0, &[128, 0, 0, 0])));
        assert!(!answers(&v6(58, 9, 0, &[1, 0, 0, 0])));
        let mut group = v4(17, 9, 0, &[0; 8]);
        group[16] = 224;
        assert!(!answers(&group));
        let mut later = v4(17, 9, 0, &[0; 8]);
        later[7] = 1;
        assert!(!answers(&later));
    }

    #[test]
    fn the_sender_learns_which_byte_forbids_to_carry_its_packet() {
        let mut out = [0; MAX_ICMP];
        let bytes = v6(17, 9, 0, &[5; 100]);
        let packet = Packet::parse(&bytes).unwrap();
        let len = parameter_problem(&packet, 44, &mut out).unwrap();
        let error = Packet::parse(&out[..len]).unwrap();
        let payload = error.payload();
        let pseudo = pseudo_header(error.source, error.destination, 58, payload.len() as u32);
        assert!(pseudo.bytes(payload).is_intact());
        assert_eq!((&payload[..2], &payload[4..8]), (&[4, 0][..], &44u32.to_be_bytes()[..]));
        assert_eq!(payload[8..], bytes);
        let v4 = v4(17, 9, 0, &[0; 8]);
        assert_eq!(parameter_problem(&Packet::parse(&v4).unwrap(), 1, &mut out), Ok(0));
    }

    #[test]
    fn the_sender_learns_that_nobody_is_there() {
        let mut out = [0; MAX_ICMP];
        for (bytes, kind) in [(v4(17, 9, 0, &[5; 100]), [3, 1]), (v6(17, 9, 0, &[5; 100]), [1, 3])]
        {
            let packet = Packet::parse(&bytes).unwrap();
            let len = unreachable(&packet, &mut out).unwrap();
            let error = Packet::parse(&out[..len]).unwrap();
            assert_eq!((error.source, error.destination), (packet.destination, packet.source));
            let payload = error.payload();
            assert_eq!((&payload[..2], &payload[4..8]), (&kind[..], &[0; 4][..]));
            assert_eq!(payload[8..], bytes);
            let pseudo = pseudo_header(error.source, error.destination, 58, payload.len() as u32);
            let sum = if error.is_v4() { Sum::new() } else { pseudo };
            assert!(sum.bytes(payload).is_intact());
        }
        let error = v4(1, 9, 0, &[3, 1, 0, 0]);
        assert_eq!(unreachable(&Packet::parse(&error).unwrap(), &mut out), Ok(0));
    }

    #[test]
    fn no_packet_makes_it_panic() {
        let mut rng = Rng::new(11);
        let mut out = [0; MAX_ICMP];
        for _ in 0..20_000 {
            let mut bytes = rng.bytes_up_to(200);
            if let Some(first) = bytes.first_mut() {
                *first = if rng.below(2) == 0 { 0x45 } else { 0x60 };
            }
            if let Ok(packet) = Packet::parse(&bytes) {
                let room = rng.below(MAX_ICMP as u64 + 1) as usize;
                let _ = too_big(&packet, rng.next() as u16, &mut out[..room]);
            }
        }
    }
}
