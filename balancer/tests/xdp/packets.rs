//! Packets as they come by Ethernet: whole, unusual and damaged.

use std::net::{IpAddr, SocketAddr};

use quicket_balancer::Flow;
use quicket_gue::{Sum, pseudo_header};

/// SplitMix64.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        out.fill_with(|| self.next() as u8);
    }
}

/// The device that packets are for.
pub(crate) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// A packet from the header of Ethernet on.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) bytes: Vec<u8>,
}

pub(crate) fn flow() -> Flow {
    Flow { client: "198.51.100.7:50001".parse().unwrap(), local: super::SITE.parse().unwrap() }
}

/// A packet with a short header and a connection ID, of so many octets.
pub(crate) fn short(id: &[u8], len: usize) -> Vec<u8> {
    let mut payload = [&[0x41], id].concat();
    payload.resize(len, 0xa5);
    payload
}

fn long(rng: &mut Rng, id: &[u8]) -> Vec<u8> {
    let version: [u8; 4] = [[0, 0, 0, 1], [0, 0, 0, 0], [0x6b, 0x33, 0x43, 0xcf]][rng.below(3)];
    let source = rng.below(22);
    let form = 0x80 | rng.below(128) as u8;
    let mut payload = [&[form], &version[..], &[id.len() as u8], id, &[source as u8]].concat();
    let rest = rng.below(60);
    let len = payload.len() + source + rest;
    // At times it is not whole.
    payload.resize(if rng.below(5) == 0 { len.min(30) } else { len }, 0x5a);
    payload
}

/// A datagram of a client to the site.
pub(crate) fn with(payload: &[u8]) -> Made {
    made(payload, 0, 64, &flow())
}

/// The same, of another client.
pub(crate) fn from(client: &str, payload: &[u8]) -> Made {
    made(payload, 0, 64, &Flow { client: client.parse().unwrap(), ..flow() })
}

fn made(payload: &[u8], tos: u8, ttl: u8, flow: &Flow) -> Made {
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (flow.client.ip(), flow.local.ip()) else {
        panic!("the tests have IPv4");
    };
    let total = (28 + payload.len()) as u16;
    let [l0, l1] = total.to_be_bytes();
    let mut ip = vec![0x45, tos, l0, l1, 0x12, 0x34, 0, 0, ttl, 17, 0, 0];
    ip.extend(source.octets());
    ip.extend(destination.octets());
    let checksum = Sum::new().bytes(&ip).checksum().to_be_bytes();
    ip[10..12].copy_from_slice(&checksum);
    let len = (8 + payload.len()) as u16;
    let ports = [flow.client.port().to_be_bytes(), flow.local.port().to_be_bytes()].concat();
    let mut udp = [&ports[..], &len.to_be_bytes(), &[0, 0], payload].concat();
    let sum = pseudo_header(source.into(), destination.into(), 17, len.into()).bytes(&udp);
    let checksum = match sum.checksum() {
        0 => 0xffff,
        checksum => checksum,
    };
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    let ethernet = [2, 0, 0, 0, 0, 8, 8, 0];
    Made { bytes: [&MAC[..], &ethernet, &ip, &udp].concat() }
}

/// A frame for the device of octets that anybody may send; if the first one is even, with the lengths
/// and the checksum of IPv4 that it should have.
pub(crate) fn frame(input: &[u8]) -> Made {
    let (choice, rest) = input.split_first().unwrap_or((&1, &[]));
    let mut made = Made { bytes: [&MAC[..], rest].concat() };
    // The kernel takes nothing without a header of Ethernet.
    made.bytes.resize(made.bytes.len().max(14), 0);
    if choice % 2 == 0 && made.bytes.len() >= 42 {
        let len = made.bytes.len() as u16;
        made.bytes[16..18].copy_from_slice(&(len - 14).to_be_bytes());
        made.bytes[38..40].copy_from_slice(&(len - 34).to_be_bytes());
        made.set_checksum();
    }
    made
}

/// Any packet with this connection ID, or with another one.
pub(crate) fn any(rng: &mut Rng, id: &[u8]) -> Made {
    let mut random = vec![0; rng.below(21)];
    rng.fill(&mut random);
    let payload = match rng.below(8) {
        0..3 => {
            let len = 18 + rng.below(120);
            short(id, len)
        }
        3..6 => long(rng, id),
        6 => long(rng, &random),
        _ => {
            let mut payload = vec![0; rng.below(80)];
            rng.fill(&mut payload);
            payload
        }
    };
    let mut flow = flow();
    let clients = ["198.51.100.7", "127.0.0.1", "0.1.2.3", "224.0.0.5", "192.0.2.2"];
    flow.client.set_ip(clients[rng.below(24).saturating_sub(19)].parse().unwrap());
    flow.client.set_port([50001, 1, 0][rng.below(20).saturating_sub(17)]);
    let site = ["192.0.2.1:443", "192.0.2.2:8443", "192.0.2.1:8443", "192.0.2.3:443"];
    flow.local = site[rng.below(12).saturating_sub(8)].parse().unwrap();
    let ttl = [64, 1, 0, 2][rng.below(20).saturating_sub(16)];
    let tos = rng.below(256) as u8;
    let mut packet = made(&payload, tos, ttl, &flow);
    match rng.below(20) {
        // Without a checksum.
        0 => packet.bytes[40..42].fill(0),
        // With what Ethernet fills short frames up with.
        1 => packet.bytes.extend([0; 6]),
        // A fragment, or one that must not become one.
        2 => packet.set_fragment([0x20, 0x40, 0x60, 0x01][rng.below(4)]),
        // For another machine.
        3 => packet.bytes[rng.below(6)] ^= 1 << rng.below(8),
        _ => {}
    }
    packet
}

impl Made {
    /// Changes an octet or two, mostly of headers, or cuts the end off.
    pub(crate) fn damage(&mut self, rng: &mut Rng) {
        if rng.below(4) == 0 {
            self.bytes.truncate((self.bytes.len() - rng.below(20)).max(14));
        }
        for _ in 0..=rng.below(2) {
            let at = 12 + rng.below(self.bytes.len().min(70) - 12);
            self.bytes[at] ^= 1 << rng.below(8);
        }
        if rng.below(2) == 0 && self.bytes.len() >= 34 {
            self.set_checksum();
        }
    }

    fn set_fragment(&mut self, octet: u8) {
        self.bytes[20] = octet;
        self.set_checksum();
    }

    fn set_checksum(&mut self) {
        self.bytes[24..26].fill(0);
        let checksum = Sum::new().bytes(&self.bytes[14..34]).checksum().to_be_bytes();
        self.bytes[24..26].copy_from_slice(&checksum);
    }

    /// The client and the address that it sent to.
    pub(crate) fn flow(&self) -> Option<Flow> {
        let address = |ip: usize, port: usize| {
            let ip: [u8; 4] = self.bytes.get(ip..ip + 4)?.try_into().ok()?;
            let port = u16::from_be_bytes(self.bytes.get(port..port + 2)?.try_into().ok()?);
            Some(SocketAddr::from((ip, port)))
        };
        Some(Flow { client: address(26, 34)?, local: address(30, 36)? })
    }

    /// The payload, if the packet is one that the kernel may carry: docs/balancer.md lists them.
    pub(crate) fn forwardable(&self) -> Option<&[u8]> {
        let bytes = &self.bytes;
        let header = bytes.get(14..34)?;
        let half = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        let listen = ["192.0.2.1:443", "192.0.2.2:8443"].map(|address| address.parse().unwrap());
        let source = self.flow()?.client.ip();
        let may_come = match source {
            IpAddr::V4(ip) => {
                !ip.is_loopback()
                    && (1..224).contains(&ip.octets()[0])
                    && listen.iter().all(|own: &SocketAddr| own.ip() != source)
            }
            IpAddr::V6(_) => false,
        };
        let good = bytes.starts_with(&MAC)
            && may_come
            && half(12)? == 0x0800
            && *bytes.get(14)? == 0x45
            && bytes[23] == 17
            && half(20)? & 0x3fff == 0
            && Sum::new().bytes(header).is_intact()
            && bytes[22] >= 2
            && half(34)? != 0
            && half(40)? != 0
            && usize::from(half(16)?) + 14 == bytes.len()
            && usize::from(half(38)?) + 34 == bytes.len()
            && listen.contains(&self.flow()?.local);
        // A packet of QUIC with a long header is at least as long as those with a short one.
        let payload = bytes.get(42..).filter(|payload| payload.len() >= 21);
        if good { payload } else { None }
    }
}
