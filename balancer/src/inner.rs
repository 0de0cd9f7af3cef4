//! The packet that a server gets: that of the client, rebuilt, in GUE.
//!
//! A UDP socket hands over what was in a datagram, without its headers. They are written anew: the
//! client's address and ours, the time to live as it arrived less one (so that two balancers that
//! send to each other do not do so for ever), DSCP and ECN as they arrived, and the checksum of UDP
//! over the payload, which the system had checked. What is lost are options of IPv4, extension
//! headers and the flow label of IPv6. The packet may not be fragmented, so its identification means
//! nothing (RFC 6864, Section 4.1).

use std::net::IpAddr;

use quicket_gue::{Gue, Outer, Overhead, Shim, Sum, protocol, pseudo_header};

use crate::flows::Flow;

/// The longest headers: GUE, IPv6 and UDP.
pub const MAX_HEADER: usize = 4 + 40 + 8;

/// The octets of GUE, IP and UDP in front of a payload.
#[must_use]
pub const fn header_len(flow: &Flow) -> usize {
    if flow.local.is_ipv4() { 32 } else { MAX_HEADER }
}

/// What a payload grows by on the way to a server, in bytes.
pub(crate) fn overhead(flow: &Flow, server_is_v4: bool) -> usize {
    let outer = if server_is_v4 { Outer::V4 } else { Outer::V6 { encapsulation_limit: false } };
    let outer = Overhead { outer, shim: Shim::Gue { remote_checksum: false }, gre: 0 };
    // GUE's four octets are in both.
    usize::from(outer.bytes()) + header_len(flow) - 4
}

/// Writes the headers in front of a payload, and returns how long they are: [`header_len`]. The
/// payload and they have at most 65,535 octets.
pub fn encapsulate(
    flow: &Flow,
    tos: u8,
    ttl: u8,
    payload: &[u8],
    out: &mut [u8; MAX_HEADER],
) -> usize {
    Headers::new(flow, tos, ttl).write(payload, out)
}

/// The headers of a client's packets, but for what differs with the payload: for many in a row.
pub(crate) struct Headers {
    octets: [u8; MAX_HEADER],
    len: usize,
    is_v4: bool,
    /// What the checksum of IPv4's header is made of, without the length.
    ip: Sum,
    /// What that of UDP is made of, without lengths and payload.
    udp: Sum,
}

impl Headers {
    pub(crate) fn new(flow: &Flow, tos: u8, ttl: u8) -> Self {
        let (source, destination) = (flow.client.ip(), flow.local.ip());
        let (sp, dp) = (flow.client.port(), flow.local.port());
        let udp = pseudo_header(source, destination, protocol::UDP, 0).add_u16(sp).add_u16(dp);
        let (is_v4, ip) = (destination.is_ipv4(), Sum::new());
        let mut this = Self { octets: [0; MAX_HEADER], len: 0, is_v4, ip, udp };
        let inside = if is_v4 { protocol::IPIP } else { protocol::IPV6 };
        this.len = Gue::data(inside).encode(&mut this.octets).unwrap_or(0);
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header = [0; 20];
                // Without identification, not to be fragmented.
                header[..10].copy_from_slice(&[0x45, tos, 0, 0, 0, 0, 0x40, 0, ttl, protocol::UDP]);
                header[12..16].copy_from_slice(&source.octets());
                header[16..].copy_from_slice(&destination.octets());
                this.ip = Sum::new().bytes(&header);
                this.put(&header);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                this.put(&[0x60 | tos >> 4, tos << 4, 0, 0, 0, 0, protocol::UDP, ttl]);
                this.put(&source.octets());
                this.put(&destination.octets());
            }
            // A socket has addresses of one family.
            _ => {}
        }
        this.put(&sp.to_be_bytes());
        this.put(&dp.to_be_bytes());
        this.put(&[0; 4]);
        this
    }

    fn put(&mut self, part: &[u8]) {
        self.octets.iter_mut().skip(self.len).zip(part).for_each(|(to, from)| *to = *from);
        self.len += part.len();
    }

    /// See [`encapsulate`].
    pub(crate) fn write(&self, payload: &[u8], out: &mut [u8; MAX_HEADER]) -> usize {
        *out = self.octets;
        let udp_len = (payload.len() + 8) as u16;
        // The length is in the pseudo-header as well.
        let sum = self.udp.add_u16(udp_len).add_u16(udp_len).bytes(payload);
        // A sum of zero is sent as ones (RFC 768; RFC 8200, Section 8.1).
        let checksum = match sum.checksum() {
            0 => 0xffff,
            checksum => checksum,
        };
        let mut put = |at: usize, word: u16| out[at..at + 2].copy_from_slice(&word.to_be_bytes());
        if self.is_v4 {
            put(6, udp_len + 20);
            put(14, self.ip.add_u16(udp_len + 20).checksum());
            put(28, udp_len);
            put(30, checksum);
        } else {
            put(8, udp_len);
            put(48, udp_len);
            put(50, checksum);
        }
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quicket_gue::{Kind, Packet, decode};

    fn flow(v4: bool) -> Flow {
        let (client, local) = match v4 {
            true => ("198.51.100.7:50001", "192.0.2.1:443"),
            false => ("[2001:db8::7]:50001", "[2001:db8::1]:443"),
        };
        Flow { client: client.parse().unwrap(), local: local.parse().unwrap() }
    }

    #[test]
    fn a_server_gets_the_packet_of_the_client_with_intact_checksums() {
        for v4 in [true, false] {
            for len in [0, 1, 21, 1200, 1201] {
                let payload: Vec<u8> = (0..len).map(|n| (n * 7) as u8).collect();
                let mut header = [0; MAX_HEADER];
                let written = encapsulate(&flow(v4), 0xb9, 63, &payload, &mut header);
                assert_eq!(written, header_len(&flow(v4)));
                let datagram = [&header[..written], &payload].concat();
                let decoded = decode(&datagram).unwrap();
                assert_eq!(decoded.kind, Kind::Data(if v4 { 4 } else { 41 }));
                let packet = Packet::parse(decoded.payload).unwrap();
                assert_eq!((packet.tos, packet.ttl, packet.protocol), (0xb9, 63, 17));
                assert_eq!(packet.source, flow(v4).client.ip());
                assert_eq!(packet.destination, flow(v4).local.ip());
                assert_eq!(packet.ports(), Some((50001, 443)));
                assert!(packet.dont_fragment && !packet.fragment);
                assert_eq!(&packet.payload()[8..], payload);
                if v4 {
                    assert!(Sum::new().bytes(&packet.bytes[..20]).is_intact());
                }
                let udp = packet.payload();
                let len = udp.len() as u32;
                let sum = pseudo_header(packet.source, packet.destination, 17, len);
                assert!(sum.bytes(udp).is_intact(), "{v4} {len}");
            }
        }
    }

    #[test]
    fn a_checksum_of_zero_is_sent_as_ones() {
        // Two octets that bring the sum to all ones.
        let mut header = [0; MAX_HEADER];
        encapsulate(&flow(true), 0, 64, &[0, 0], &mut header);
        let rest = u16::from_be_bytes([header[30], header[31]]);
        encapsulate(&flow(true), 0, 64, &rest.to_be_bytes(), &mut header);
        assert_eq!(header[30..32], [0xff, 0xff]);
    }

    #[test]
    fn what_a_payload_grows_by_is_what_mtus_are_counted_with() {
        assert_eq!(1500 - overhead(&flow(true), true), 1440);
        assert_eq!(1500 - overhead(&flow(false), true), 1420);
        assert_eq!(1500 - overhead(&flow(true), false), 1420);
        assert_eq!(1500 - overhead(&flow(false), false), 1400);
    }
}
