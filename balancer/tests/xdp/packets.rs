//! Packets as they come by Ethernet: whole, unusual and damaged.

use std::net::{IpAddr, SocketAddr};

use quicket_balancer::Flow;
use quicket_gue::{Sum, pseudo_header};

use quicket_testing::Rng;

/// The device that packets are for.
pub(crate) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// A packet from the header of Ethernet on.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) bytes: Vec<u8>,
}

/// The addresses of the site, the first two of IPv4.
pub(crate) const LISTEN: [&str; 4] =
    ["192.0.2.1:443", "192.0.2.2:8443", "[2001:db8:1::1]:443", "[2001:db8:1::2]:8443"];

pub(crate) fn flow(v6: bool) -> Flow {
    let (client, local) = match v6 {
        false => ("198.51.100.7:50001", LISTEN[0]),
        true => ("[2001:db8:9::7]:50001", LISTEN[2]),
    };
    Flow { client: client.parse().unwrap(), local: local.parse().unwrap() }
}

/// A packet with a short header and a connection ID, of so many octets.
pub(crate) fn short(id: &[u8], len: usize) -> Vec<u8> {
    let mut payload = [&[0x41], id].concat();
    payload.resize(len, 0xa5);
    payload
}

fn long(rng: &mut Rng, id: &[u8]) -> Vec<u8> {
    let version: [u8; 4] = [[0, 0, 0, 1], [0, 0, 0, 0], [0x6b, 0x33, 0x43, 0xcf]][rng.index(3)];
    let source = rng.index(22);
    let form = 0x80 | rng.index(128) as u8;
    let mut payload = [&[form], &version[..], &[id.len() as u8], id, &[source as u8]].concat();
    let rest = rng.index(60);
    let len = payload.len() + source + rest;
    // At times it is not whole.
    payload.resize(if rng.index(5) == 0 { len.min(30) } else { len }, 0x5a);
    payload
}

/// A datagram of a client to the site.
pub(crate) fn with(v6: bool, payload: &[u8]) -> Made {
    made(payload, 0, 64, &flow(v6))
}

/// The same, of another client.
pub(crate) fn from(client: &str, payload: &[u8]) -> Made {
    let client: SocketAddr = client.parse().unwrap();
    made(payload, 0, 64, &Flow { client, ..flow(client.is_ipv6()) })
}

fn made(payload: &[u8], tos: u8, ttl: u8, flow: &Flow) -> Made {
    let (source, destination) = (flow.client.ip(), flow.local.ip());
    let len = (8 + payload.len()) as u16;
    let (kind, ip) = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let [l0, l1] = (20 + len).to_be_bytes();
            let mut ip = vec![0x45, tos, l0, l1, 0x12, 0x34, 0, 0, ttl, 17, 0, 0];
            ip.extend(source.octets());
            ip.extend(destination.octets());
            let checksum = Sum::new().bytes(&ip).checksum().to_be_bytes();
            ip[10..12].copy_from_slice(&checksum);
            ([8, 0], ip)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let [l0, l1] = len.to_be_bytes();
            // With a flow label.
            let mut ip = vec![0x60 | tos >> 4, tos << 4 | 0xa, 0xbc, 0xde, l0, l1, 17, ttl];
            ip.extend(source.octets());
            ip.extend(destination.octets());
            ([0x86, 0xdd], ip)
        }
        _ => panic!("a flow has one version of IP"),
    };
    let ports = [flow.client.port().to_be_bytes(), flow.local.port().to_be_bytes()].concat();
    let mut udp = [&ports[..], &len.to_be_bytes(), &[0, 0], payload].concat();
    let sum = pseudo_header(source, destination, 17, len.into()).bytes(&udp);
    let checksum = match sum.checksum() {
        0 => 0xffff,
        checksum => checksum,
    };
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    let source = [2, 0, 0, 0, 0, 8];
    Made { bytes: [&MAC[..], &source, &kind, &ip, &udp].concat() }
}

/// A packet of octets that anybody may send. The first one says what the others are: a frame for the
/// device without its first address, as it is (1) or with the lengths and the checksum of IPv4 that it
/// should have (0); or the payload of a datagram over IPv4 (2) or IPv6 (3).
pub(crate) fn of(input: &[u8]) -> Made {
    let (choice, rest) = input.split_first().unwrap_or((&1, &[]));
    match choice % 4 {
        0 => frame(rest, true),
        1 => frame(rest, false),
        2 => with(false, rest),
        _ => with(true, rest),
    }
}

fn frame(rest: &[u8], right: bool) -> Made {
    let mut made = Made { bytes: [&MAC[..], rest].concat() };
    // The kernel takes nothing without a header of Ethernet.
    made.bytes.resize(made.bytes.len().max(14), 0);
    let udp = made.udp();
    if right && made.bytes.len() >= udp + 8 {
        let len = (made.bytes.len() - udp) as u16;
        let (at, ip) = if made.is_v6() { (18, len) } else { (16, len + 20) };
        made.bytes[at..at + 2].copy_from_slice(&ip.to_be_bytes());
        made.bytes[udp + 4..udp + 6].copy_from_slice(&len.to_be_bytes());
        made.set_checksum();
    }
    made
}

/// Any packet with this connection ID, or with another one.
pub(crate) fn any(rng: &mut Rng, id: &[u8]) -> Made {
    let mut random = vec![0; rng.index(21)];
    rng.fill(&mut random);
    let payload = match rng.index(8) {
        0..3 => {
            let len = 18 + rng.index(120);
            short(id, len)
        }
        3..6 => long(rng, id),
        6 => long(rng, &random),
        _ => {
            let mut payload = vec![0; rng.index(80)];
            rng.fill(&mut payload);
            payload
        }
    };
    let v6 = rng.index(2) == 0;
    let mut flow = flow(v6);
    let (clients, site) = match v6 {
        false => (
            ["198.51.100.7", "127.0.0.1", "0.1.2.3", "224.0.0.5", "192.0.2.2"],
            [LISTEN[0], LISTEN[1], "192.0.2.1:8443", "192.0.2.3:443"],
        ),
        true => (
            ["2001:db8:9::7", "::1", "fe80::5", "ff02::1", "2001:db8:1::2"],
            [LISTEN[2], LISTEN[3], "[2001:db8:1::1]:8443", "[2001:db8:1::3]:443"],
        ),
    };
    flow.client.set_ip(clients[rng.index(24).saturating_sub(19)].parse().unwrap());
    flow.client.set_port([50001, 1, 0][rng.index(20).saturating_sub(17)]);
    flow.local = site[rng.index(12).saturating_sub(8)].parse().unwrap();
    let ttl = [64, 1, 0, 2][rng.index(20).saturating_sub(16)];
    let tos = rng.index(256) as u8;
    let mut packet = made(&payload, tos, ttl, &flow);
    match rng.index(20) {
        // Without a checksum.
        0 => {
            let at = packet.udp() + 6;
            packet.bytes[at..at + 2].fill(0);
        }
        // With what Ethernet fills short frames up with.
        1 => packet.bytes.extend([0; 6]),
        // A fragment, or one that must not become one.
        2 => packet.set_fragment([0x20, 0x40, 0x60, 0x01][rng.index(4)]),
        // For another machine.
        3 => packet.bytes[rng.index(6)] ^= 1 << rng.index(8),
        _ => {}
    }
    packet
}

impl Made {
    /// Changes an octet or two, mostly of headers, or cuts the end off.
    pub(crate) fn damage(&mut self, rng: &mut Rng) {
        if rng.index(4) == 0 {
            self.bytes.truncate((self.bytes.len() - rng.index(20)).max(14));
        }
        for _ in 0..=rng.index(2) {
            let at = 12 + rng.index(self.bytes.len().min(90) - 12);
            self.bytes[at] ^= 1 << rng.index(8);
        }
        if rng.index(2) == 0 {
            self.set_checksum();
        }
    }

    fn set_fragment(&mut self, octet: u8) {
        match self.is_v6() {
            // The next header is that of fragments.
            true => self.bytes[20] = 44,
            false => self.bytes[20] = octet,
        }
        self.set_checksum();
    }

    fn set_checksum(&mut self) {
        if !self.is_v6() && self.bytes.len() >= 34 {
            self.bytes[24..26].fill(0);
            let checksum = Sum::new().bytes(&self.bytes[14..34]).checksum().to_be_bytes();
            self.bytes[24..26].copy_from_slice(&checksum);
        }
    }

    pub(crate) fn is_v6(&self) -> bool {
        self.bytes[12..14] == [0x86, 0xdd]
    }

    /// Where the header of UDP is.
    pub(crate) fn udp(&self) -> usize {
        if self.is_v6() { 54 } else { 34 }
    }

    /// The client and the address that it sent to.
    pub(crate) fn flow(&self) -> Option<Flow> {
        let address = |at: usize| -> Option<IpAddr> {
            Some(match self.is_v6() {
                false => self.bytes.get(at..)?.first_chunk::<4>().copied()?.into(),
                true => self.bytes.get(at..)?.first_chunk::<16>().copied()?.into(),
            })
        };
        let (source, destination) = if self.is_v6() { (22, 38) } else { (26, 30) };
        let end = |ip: usize, port: usize| Some(SocketAddr::new(address(ip)?, self.half(port)?));
        let udp = self.udp();
        Some(Flow { client: end(source, udp)?, local: end(destination, udp + 2)? })
    }

    fn half(&self, at: usize) -> Option<u16> {
        Some(u16::from_be_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }

    /// Whether the checksum of UDP is right.
    pub(crate) fn is_intact(&self) -> bool {
        let (flow, udp) = (self.flow().unwrap(), &self.bytes[self.udp()..]);
        let len = udp.len() as u32;
        pseudo_header(flow.client.ip(), flow.local.ip(), 17, len).bytes(udp).is_intact()
    }

    /// The payload, if the packet is one that the kernel may carry: docs/balancer.md lists them.
    pub(crate) fn forwardable(&self) -> Option<&[u8]> {
        let bytes = &self.bytes;
        let listen = LISTEN.map(|address| address.parse::<SocketAddr>().unwrap());
        let source = self.flow()?.client.ip();
        let may_come = match source {
            IpAddr::V4(ip) => !ip.is_loopback() && (1..224).contains(&ip.octets()[0]),
            IpAddr::V6(ip) => (1..0xfe).contains(&ip.octets()[0]),
        };
        let header = match self.is_v6() {
            false => {
                self.half(12)? == 0x0800
                    && bytes[14] == 0x45
                    && bytes[23] == 17
                    && self.half(20)? & 0x3fff == 0
                    && Sum::new().bytes(bytes.get(14..34)?).is_intact()
                    && bytes[22] >= 2
                    && usize::from(self.half(16)?) + 14 == bytes.len()
            }
            true => {
                bytes[14] >> 4 == 6
                    && bytes[20] == 17
                    && bytes[21] >= 2
                    && usize::from(self.half(18)?) + 54 == bytes.len()
            }
        };
        let udp = self.udp();
        let good = header
            && bytes.starts_with(&MAC)
            && may_come
            && listen.iter().all(|own| own.ip() != source)
            && self.half(udp)? != 0
            && self.half(udp + 6)? != 0
            && usize::from(self.half(udp + 4)?) + udp == bytes.len()
            && listen.contains(&self.flow()?.local);
        // A packet of QUIC with a long header is at least as long as those with a short one.
        let payload = bytes.get(udp + 8..).filter(|payload| payload.len() >= 21);
        if good { payload } else { None }
    }
}
