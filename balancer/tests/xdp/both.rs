//! The kernel's program and user space: the same packets, and whether both decide alike.

use std::collections::HashSet;
use std::process::Command;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use quicket_balancer::{
    Config, Decision, Device, Flows, Health, Numbers, Offload, Site, Snapshot, Way, XdpMode,
    encapsulate,
};
use quicket_bpf::{Counts, Run, Verdict};
use quicket_gue::{Packet, Sum, decode, pseudo_header};
use quicket_steering::{Codec, Place, ServerId};

use crate::packets::{self, Made};
use crate::testing::toy_cipher;
use quicket_testing::Rng;

pub(crate) const SERVERS: u8 = 5;
const FILE: &str = "config 0 server-id 2 nonce 14 plain\n\
                    config 1 server-id 4 nonce 12 key 8f95f09245765f80256934e50c66207f\n\
                    config 5 server-id 3 nonce 13 plain\nissue 0\n";
/// The longest payload of `mtu 1500` from IPv4 over IPv4: IPv6 takes 20 more on either side.
pub(crate) const LONGEST: usize = 1440;

/// Those with an even number have IPv6.
pub(crate) fn address(number: u8) -> String {
    match number % 2 {
        0 => format!("fd00::{}", 10 + number),
        _ => format!("10.0.0.{}", 10 + number),
    }
}

pub(crate) fn config() -> Config {
    config_of(SERVERS)
}

/// The first of the servers only.
pub(crate) fn config_of(servers: u8) -> Config {
    let listen = packets::LISTEN.map(|address| format!("listen {address}\n")).concat();
    let mut file = format!("{listen}connection-ids site\nxdp va\n");
    for number in 1..=servers {
        file += &format!(
            "server s{number} {} id 00{number:02x} id 000000{number:02x} id 0000{number:02x}\n",
            address(number)
        );
    }
    Config::parse(&file).unwrap()
}

/// A network namespace of this thread's own, with ways to the servers.
///
/// # Errors
/// What the system does not permit.
pub(crate) fn namespace() -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWNET)
        .map_err(|error| format!("XDP needs a network namespace: {error}"))?;
    match Counts::new(1) {
        Err(error) if error.raw_os_error() == Some(Errno::EPERM as i32) => {
            return Err(format!("XDP needs CAP_BPF: {error}"));
        }
        counts => drop(counts.unwrap()),
    }
    ip("link set lo up");
    ip("link add va address 02:00:00:00:00:01 type veth peer name vb");
    ip("addr add 10.0.0.1/24 dev va");
    ip("addr add fd00::1/64 dev va nodad");
    ip("link set va up");
    ip("link set vb up");
    for number in 1..=SERVERS {
        let host = address(number);
        ip(&format!("neigh add {host} lladdr 02:00:00:00:01:{number:02x} dev va"));
    }
    for family in ["ipv4", "ipv6"] {
        std::fs::write(format!("/proc/sys/net/{family}/conf/all/forwarding"), "1").unwrap();
    }
    Ok(())
}

/// Has ip(8) do what it should.
pub(crate) fn ip(words: &str) {
    let status = Command::new("ip").args(words.split_whitespace()).status().unwrap();
    assert!(status.success(), "ip {words}");
}

/// What decides, in both places.
pub(crate) struct Both {
    pub(crate) snapshot: Snapshot,
    pub(crate) offload: Offload,
    pub(crate) counts: Counts,
    pub(crate) flows: Flows,
    pub(crate) codecs: Vec<Codec>,
    pub(crate) learned: HashSet<Vec<u8>>,
}

/// The device that packets are for; frames leave by `va`.
pub(crate) fn device() -> Device {
    let found = Device::find("va", XdpMode::Generic).unwrap();
    assert_eq!(found.mac, [2, 0, 0, 0, 0, 1]);
    Device { mac: packets::MAC, ..found }
}

impl Both {
    pub(crate) fn new() -> Self {
        Self::on(&device(), &config())
    }

    pub(crate) fn on(device: &Device, config: &Config) -> Self {
        let site = Site::parse(FILE).unwrap();
        let reader = site.reader(&|key| toy_cipher(*key)).unwrap();
        let ids = [0, 1, 5].map(|number| quicket_steering::ConfigId::new(number).unwrap());
        let codecs = ids.map(|id| reader.get(id).unwrap().clone());
        let snapshot =
            Snapshot::new(config, Some(reader), &Health::new(0), &mut Numbers::default(), 0);
        let counts = Counts::new(16).unwrap();
        let offload = Offload::new(device, config, &snapshot, &counts, |at| Some(at as u32));
        Self {
            snapshot,
            offload: offload.unwrap(),
            counts,
            flows: Flows::new(100, 60, [1; 16]),
            codecs: codecs.into(),
            learned: HashSet::new(),
        }
    }

    /// A connection ID of a configuration: of a server, or of one that there is not.
    pub(crate) fn id(&self, rng: &mut Rng) -> Vec<u8> {
        let codec = &self.codecs[rng.index(3)];
        let server = rng.index(usize::from(SERVERS) + 2) as u32;
        let octets = server.to_be_bytes();
        let len = codec.format().server_id_len();
        let server_id = ServerId::new(&octets[4 - len..]).unwrap();
        let place = Place { server_id, owner: None };
        codec.mint(&place, &mut |out| rng.fill(out)).unwrap().as_slice().to_vec()
    }

    /// The server that user space reads in a packet which the kernel may forward, and the connection
    /// ID that names it.
    fn named<'a>(&mut self, packet: &'a Made) -> Option<(usize, &'a [u8])> {
        let payload = packet.forwardable()?;
        let decision = self.snapshot.decide(&mut self.flows, &packet.flow()?, payload, 1);
        let Decision::Forward { server, way: Way::Named } = decision else { return None };
        // The first octet's form says where the connection ID is.
        let at = if payload[0] & 0x80 == 0 { 1 } else { 6 };
        Some((server, &payload[at..at + 17]))
    }

    /// Whether the kernel can read a connection ID, as it is told in time.
    fn readable(&self, id: &[u8]) -> bool {
        id[0] >> 5 != 1 || self.learned.contains(id)
    }

    /// The server that the kernel should forward a packet to, and user space would.
    pub(crate) fn expected(&mut self, packet: &Made) -> Option<usize> {
        let (server, id) = self.named(packet)?;
        let server_v6 = self.snapshot.members()[server].address.is_ipv6();
        let longest = LONGEST - 20 * (usize::from(packet.is_v6()) + usize::from(server_v6));
        (self.readable(id) && packet.forwardable()?.len() <= longest).then_some(server)
    }

    /// Tells the kernel whose connection ID it is, as workers do.
    pub(crate) fn learn(&mut self, id: &[u8], server: usize) {
        assert!(self.offload.learn(id, server));
        self.learned.insert(id.to_vec());
    }

    /// Checks a packet, and once more when the kernel has been told what user space read of it; says
    /// whether it was forwarded in the end.
    pub(crate) fn judge(&mut self, packet: &Made) -> bool {
        let forwarded = self.check(packet);
        match self.named(packet) {
            Some((server, id)) if !self.readable(id) => {
                self.learn(id, server);
                self.check(packet)
            }
            _ => forwarded,
        }
    }

    /// Has both decide; says whether the packet was forwarded.
    pub(crate) fn check(&mut self, packet: &Made) -> bool {
        let expected = self.expected(packet);
        let run = self.offload.run(&packet.bytes, 1).unwrap();
        match expected {
            None => {
                assert_eq!(run.verdict, Verdict::Pass, "{packet:02x?}");
                assert_eq!(run.packet, packet.bytes, "what goes up is as it came");
            }
            Some(server) => self.check_forwarded(packet, server, &run),
        }
        expected.is_some()
    }

    fn check_forwarded(&self, packet: &Made, server: usize, run: &Run) {
        assert_eq!(run.verdict, Verdict::Redirect, "{packet:02x?}");
        let (ethernet, outer) = run.packet.split_at(14);
        let number = server as u8 + 1;
        let to = self.snapshot.members()[server].address;
        let kind = if to.is_ipv6() { [0x86, 0xdd] } else { [8, 0] };
        let addresses = [2, 0, 0, 0, 1, number, 2, 0, 0, 0, 0, 1];
        assert_eq!(ethernet, [&addresses[..], &kind].concat());
        let len = outer.len();
        let outer = Packet::parse(outer).unwrap();
        assert_eq!(outer.bytes.len(), len, "nothing behind it");
        let from = if to.is_ipv6() { "fd00::1" } else { "10.0.0.1" };
        assert_eq!((outer.destination, outer.source), (to.ip(), from.parse().unwrap()));
        let (source_port, port) = outer.ports().unwrap();
        assert!(port == to.port() && source_port >= 0xc000, "{source_port} {port}");
        let inner = Packet::parse(&packet.bytes[14..]).unwrap();
        assert_eq!((outer.tos, outer.ttl, outer.dont_fragment), (inner.tos & 3, 64, true));
        let udp = outer.payload();
        let len = udp.len() as u32;
        assert_eq!(u32::from(u16::from_be_bytes([udp[4], udp[5]])), len);
        if to.is_ipv6() {
            let sum = pseudo_header(outer.source, outer.destination, 17, len).bytes(udp);
            assert_eq!(sum.is_intact(), packet.is_intact(), "right outside if it is inside");
            assert_ne!(udp[6..8], [0, 0]);
            let label = u32::from_be_bytes(*outer.bytes.first_chunk().unwrap()) & 0xf_ffff;
            assert_eq!(u32::from(source_port) & 0x3fff, label >> 6, "of the same hash");
        } else {
            assert!(Sum::new().bytes(&outer.bytes[..20]).is_intact());
            assert_eq!(udp[6..8], [0, 0], "no checksum outside");
        }
        // What user space would have sent, but for a checksum that was wrong when it came.
        let payload = packet.forwardable().unwrap();
        let mut header = [0; quicket_balancer::MAX_HEADER];
        let flow = packet.flow().unwrap();
        let len = encapsulate(&flow, inner.tos, inner.ttl - 1, payload, &mut header);
        header[len - 2..len].copy_from_slice(&packet.bytes[packet.udp() + 6..][..2]);
        assert_eq!(&udp[8..], [&header[..len], payload].concat(), "{packet:02x?}");
        assert!(decode(&udp[8..]).is_ok());
    }
}
