//! IP headers, as far as a tunnel looks at what it carries.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{DecodeError, Ecn, Sum};

/// Extension headers of IPv6 that are stepped over to find the transport header. A packet with
/// more is carried; its ports are not seen.
pub const MAX_EXTENSION_HEADERS: usize = 8;

/// Extension headers (RFC 8200, Section 4).
pub(crate) const HOP_BY_HOP: u8 = 0;
pub(crate) const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
pub(crate) const DESTINATION: u8 = 60;

/// A checked view of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The packet, without what may follow its end.
    pub bytes: &'a [u8],
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// Type of service or traffic class: DSCP and ECN.
    pub tos: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// What comes after the IP header and the extension headers that were stepped over.
    pub protocol: u8,
    /// Where that begins.
    pub transport: usize,
    /// The flow label of IPv6; 0 with IPv4.
    pub flow_label: u32,
    /// Whether it may not be fragmented: Don't Fragment, or IPv6.
    pub dont_fragment: bool,
    /// Whether it is a fragment, the first or another.
    pub fragment: bool,
    /// Whether it is a fragment other than the first: without a transport header.
    pub later_fragment: bool,
}

impl<'a> Packet<'a> {
    /// Reads the IP header. The checksum of an IPv4 header is left to whoever the packet is for.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        match bytes.first().ok_or(DecodeError::Truncated)? >> 4 {
            4 => Self::parse_v4(bytes),
            6 => Self::parse_v6(bytes),
            _ => Err(DecodeError::InvalidValue("neither IPv4 nor IPv6")),
        }
    }

    fn parse_v4(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let header = bytes.first_chunk::<20>().ok_or(DecodeError::Truncated)?;
        let [first, tos, l0, l1, _, _, f0, f1, ttl, protocol, _, _, s0, s1, s2, s3, d0, d1, d2, d3] =
            *header;
        let header_len = usize::from(first & 0xf).saturating_mul(4);
        let len = usize::from(u16::from_be_bytes([l0, l1]));
        if header_len < 20 || len < header_len {
            return Err(DecodeError::InvalidValue(
                "lengths of an IPv4 header contradict each other",
            ));
        }
        let bytes = bytes.get(..len).ok_or(DecodeError::Truncated)?;
        let fragment = u16::from_be_bytes([f0, f1]);
        Ok(Self {
            bytes,
            source: Ipv4Addr::new(s0, s1, s2, s3).into(),
            destination: Ipv4Addr::new(d0, d1, d2, d3).into(),
            tos,
            ttl,
            protocol,
            transport: header_len,
            flow_label: 0,
            dont_fragment: fragment & 0x4000 != 0,
            fragment: fragment & 0x3fff != 0,
            later_fragment: fragment & 0x1fff != 0,
        })
    }

    fn parse_v6(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (header, _) = bytes.split_first_chunk::<40>().ok_or(DecodeError::Truncated)?;
        let (first, rest) = header.split_at(8);
        let [b0, b1, b2, b3, l0, l1, next, ttl] =
            *first.first_chunk::<8>().ok_or(DecodeError::Truncated)?;
        let source = *rest.first_chunk::<16>().ok_or(DecodeError::Truncated)?;
        let destination = *rest.last_chunk::<16>().ok_or(DecodeError::Truncated)?;
        let len = usize::from(u16::from_be_bytes([l0, l1])).saturating_add(40);
        let bytes = bytes.get(..len).ok_or(DecodeError::Truncated)?;
        let word = u32::from_be_bytes([b0, b1, b2, b3]);
        let mut packet = Self {
            bytes,
            source: Ipv6Addr::from(source).into(),
            destination: Ipv6Addr::from(destination).into(),
            tos: (word >> 20) as u8,
            ttl,
            protocol: next,
            transport: 40,
            flow_label: word & 0xf_ffff,
            dont_fragment: true,
            fragment: false,
            later_fragment: false,
        };
        packet.skip_extension_headers();
        Ok(packet)
    }

    /// Steps over the extension headers of RFC 8200, Section 4, as far as they are whole.
    fn skip_extension_headers(&mut self) {
        for _ in 0..MAX_EXTENSION_HEADERS {
            let rest = self.bytes.get(self.transport..).unwrap_or_default();
            let Some([next, len, o0, o1, ..]) = rest.first_chunk::<8>().copied() else { return };
            let len = match self.protocol {
                HOP_BY_HOP | ROUTING | DESTINATION => {
                    usize::from(len).saturating_add(1).saturating_mul(8)
                }
                FRAGMENT => {
                    self.fragment = true;
                    self.later_fragment = u16::from_be_bytes([o0, o1]) & 0xfff8 != 0;
                    8
                }
                _ => return,
            };
            if len > rest.len() {
                return;
            }
            self.transport = self.transport.saturating_add(len);
            self.protocol = next;
            if self.later_fragment {
                return;
            }
        }
    }

    /// Whether it is IPv4.
    #[inline]
    #[must_use]
    pub const fn is_v4(&self) -> bool {
        self.source.is_ipv4()
    }

    /// What comes after the headers of IP.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(self.transport..).unwrap_or_default()
    }

    /// The ports, of what has ports at its beginning (TCP, UDP, DCCP, SCTP, UDP-Lite) and is here.
    #[must_use]
    pub fn ports(&self) -> Option<(u16, u16)> {
        if self.later_fragment || !matches!(self.protocol, 6 | 17 | 33 | 132 | 136) {
            return None;
        }
        let [s0, s1, d0, d1] = *self.payload().first_chunk::<4>()?;
        Some((u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1])))
    }
}

/// Sets the ECN field of a packet, and its header's checksum with it. What is no IP packet is left
/// as it is.
pub fn set_ecn(packet: &mut [u8], ecn: Ecn) {
    match packet {
        [first, second, ..] if *first >> 4 == 6 => {
            *second = *second & !0x30 | ecn.bits() << 4;
        }
        [first, tos, _, _, _, _, _, _, _, _, c0, c1, ..] if *first >> 4 == 4 => {
            let before = u16::from_be_bytes([*first, *tos]);
            *tos = *tos & !0b11 | ecn.bits();
            let after = u16::from_be_bytes([*first, *tos]);
            // RFC 1624, equation 3: the complement of the sum that had the old word.
            let sum = Sum::new().add_u16(!u16::from_be_bytes([*c0, *c1]));
            [*c0, *c1] = sum.without(before).add_u16(after).checksum().to_be_bytes();
        }
        _ => {}
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use quicket_testing::Rng;
    use std::vec::Vec;

    pub(crate) fn v4(protocol: u8, ttl: u8, tos: u8, payload: &[u8]) -> Vec<u8> {
        let len = (20 + payload.len()) as u16;
        let mut bytes = std::vec![0x45, tos, 0, 0, 1, 2, 0x40, 0, ttl, protocol, 0, 0];
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
        bytes.extend([192, 0, 2, 1, 198, 51, 100, 7]);
        let sum = Sum::new().bytes(&bytes).checksum();
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    pub(crate) fn v6(next: u8, ttl: u8, tos: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = (6u32 << 28 | u32::from(tos) << 20 | 0x12345).to_be_bytes().to_vec();
        bytes.extend((payload.len() as u16).to_be_bytes());
        bytes.extend([next, ttl]);
        bytes.extend("2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend("2001:db8:7::2".parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn fields_are_where_they_should_be() {
        let bytes = v4(17, 63, 0xb9, &[0x12, 0x34, 0x56, 0x78, 0]);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.source, IpAddr::from([192, 0, 2, 1]));
        assert_eq!(packet.destination, IpAddr::from([198, 51, 100, 7]));
        assert_eq!((packet.tos, packet.ttl, packet.protocol), (0xb9, 63, 17));
        assert!(packet.dont_fragment && !packet.fragment);
        assert_eq!(packet.ports(), Some((0x1234, 0x5678)));

        let bytes = v6(6, 62, 0xb9, &[0x12, 0x34, 0x56, 0x78, 0]);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!((packet.tos, packet.ttl, packet.protocol), (0xb9, 62, 6));
        assert_eq!(packet.flow_label, 0x12345);
        assert_eq!(packet.destination, "2001:db8:7::2".parse::<IpAddr>().unwrap());
        assert_eq!(packet.ports(), Some((0x1234, 0x5678)));
    }

    #[test]
    fn what_follows_the_end_of_a_packet_is_not_part_of_it() {
        for mut bytes in [v4(17, 1, 0, b"abcd"), v6(17, 1, 0, b"abcd")] {
            let len = bytes.len();
            bytes.extend(b"trailer");
            assert_eq!(Packet::parse(&bytes).unwrap().bytes.len(), len);
            assert_eq!(Packet::parse(&bytes[..len - 1]), Err(DecodeError::Truncated));
        }
    }

    #[test]
    fn extension_headers_are_stepped_over_up_to_a_limit() {
        let mut headers = Vec::new();
        for count in 0..=MAX_EXTENSION_HEADERS {
            let mut payload = headers.clone();
            payload.extend([0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0]);
            let bytes = v6(if count == 0 { 17 } else { 60 }, 1, 0, &payload);
            let packet = Packet::parse(&bytes).unwrap();
            assert_eq!(packet.ports(), Some((0x1234, 0x5678)), "{count}");
            // The header that comes first says what comes after it.
            headers.splice(0..0, [if count == 0 { 17 } else { 60 }, 0, 1, 4, 0, 0, 0, 0]);
        }
        headers.extend([0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0]);
        let bytes = v6(60, 1, 0, &headers);
        assert_eq!(Packet::parse(&bytes).unwrap().ports(), None, "one too many");
    }

    #[test]
    fn later_fragments_have_no_ports() {
        let bytes = v6(44, 1, 0, &[17, 0, 0x01, 0x48, 0, 0, 0, 1, 0x12, 0x34, 0x56, 0x78]);
        let packet = Packet::parse(&bytes).unwrap();
        assert!(packet.fragment && packet.later_fragment);
        assert_eq!((packet.protocol, packet.ports()), (17, None));
        let mut bytes = v4(17, 1, 0, &[1; 8]);
        bytes[6..8].copy_from_slice(&[0x20, 0]);
        let packet = Packet::parse(&bytes).unwrap();
        assert!(packet.fragment && !packet.later_fragment && !packet.dont_fragment);
    }

    #[test]
    fn setting_ecn_keeps_the_header_intact() {
        for tos in 0..=255 {
            for bits in 0..4 {
                let ecn = Ecn::from_bits(bits);
                let mut bytes = v4(17, 9, tos, b"abc");
                set_ecn(&mut bytes, ecn);
                assert_eq!(bytes, v4(17, 9, tos & !3 | bits, b"abc"));
                let mut bytes = v6(17, 9, tos, b"abc");
                set_ecn(&mut bytes, ecn);
                assert_eq!(bytes, v6(17, 9, tos & !3 | bits, b"abc"));
            }
        }
    }

    #[test]
    fn no_input_makes_it_panic() {
        let mut rng = Rng::new(7);
        for _ in 0..50_000 {
            let mut bytes = rng.bytes_up_to(120);
            if let Some(first) = bytes.first_mut() {
                *first = if rng.below(2) == 0 { 0x40 | *first & 0xf } else { 0x60 };
            }
            if let Ok(packet) = Packet::parse(&bytes) {
                assert!(
                    packet.bytes.len() <= bytes.len() && packet.transport <= packet.bytes.len()
                );
                let _ = (packet.ports(), packet.payload());
            }
            set_ecn(&mut bytes, Ecn::Ce);
        }
    }
}
