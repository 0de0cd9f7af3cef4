//! The kernel's program and user space decide alike, packet by packet. Needs root, for a network
//! namespace of its own and BPF.

mod packets;
#[path = "../../../fuzz/replay.rs"]
mod replay;

use std::collections::HashSet;
use std::io::Write;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use nix::sched::{CloneFlags, unshare};
use packets::{Made, Rng};
use quicket_balancer::{
    Config, Decision, Device, Flows, Health, Kernel, Numbers, Offload, Site, Snapshot, Way,
    XdpMode, encapsulate,
};
use quicket_bpf::{Counts, Run, Verdict};
use quicket_gue::{Packet, Sum, decode};
use quicket_steering::{Block, BlockCipher, Codec, Place, ServerId};

const SERVERS: u8 = 5;
const SITE: &str = "192.0.2.1:443";
const FILE: &str = "config 0 server-id 2 nonce 14 plain\n\
                    config 1 server-id 4 nonce 12 key 8f95f09245765f80256934e50c66207f\n\
                    config 5 server-id 3 nonce 13 plain\nissue 0\n";
/// The longest payload of `mtu 1500`.
const LONGEST: usize = 1440;

#[derive(Debug)]
struct Toy([u8; 16]);

impl BlockCipher for Toy {
    fn encrypt(&self, block: &mut Block) {
        block.iter_mut().zip(self.0).for_each(|(octet, key)| *octet = octet.wrapping_add(key));
    }

    fn decrypt(&self, block: &mut Block) {
        block.iter_mut().zip(self.0).for_each(|(octet, key)| *octet = octet.wrapping_sub(key));
    }
}

fn toy(key: &[u8; 16]) -> Arc<dyn BlockCipher> {
    Arc::new(Toy(*key))
}

fn config() -> Config {
    config_of(SERVERS)
}

/// The first of the servers only.
fn config_of(servers: u8) -> Config {
    let mut file = format!("listen {SITE}\nlisten 192.0.2.2:8443\nconnection-ids site\n");
    for number in 1..=servers {
        file += &format!(
            "server s{number} 10.0.0.{} id 00{number:02x} id 000000{number:02x} id 0000{number:02x}\n",
            10 + number
        );
    }
    Config::parse(&file).unwrap()
}

/// A thread's own network namespace, with ways to the servers; none where that is not permitted.
fn namespace() -> bool {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        assert!(std::env::var_os("CI").is_none(), "needs network namespaces: {error}");
        let line = format!("LEFT OUT: XDP needs a network namespace: {error}\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
        return false;
    }
    let ip = |words: &str| {
        let status = Command::new("ip").args(words.split_whitespace()).status().unwrap();
        assert!(status.success(), "ip {words}");
    };
    ip("link set lo up");
    ip("link add va address 02:00:00:00:00:01 type veth peer name vb");
    ip("addr add 10.0.0.1/24 dev va");
    ip("link set va up");
    ip("link set vb up");
    for number in 1..=SERVERS {
        let host = 10 + number;
        ip(&format!("neigh add 10.0.0.{host} lladdr 02:00:00:00:01:{number:02x} dev va"));
    }
    std::fs::write("/proc/sys/net/ipv4/conf/all/forwarding", "1").unwrap();
    true
}

/// What decides, in both places.
struct Both {
    snapshot: Snapshot,
    offload: Offload,
    counts: Counts,
    flows: Flows,
    codecs: Vec<Codec>,
    learned: HashSet<Vec<u8>>,
}

/// The device that packets are for; frames leave by `va`.
fn device() -> Device {
    let found = Device::find("va", XdpMode::Generic).unwrap();
    assert_eq!(found.mac, [2, 0, 0, 0, 0, 1]);
    Device { mac: packets::MAC, ..found }
}

impl Both {
    fn new() -> Self {
        Self::on(&device(), &config())
    }

    fn on(device: &Device, config: &Config) -> Self {
        let site = Site::parse(FILE).unwrap();
        let reader = site.reader(&toy).unwrap();
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
    fn id(&self, rng: &mut Rng) -> Vec<u8> {
        let codec = &self.codecs[rng.below(3)];
        let server = rng.below(usize::from(SERVERS) + 2) as u32;
        let octets = server.to_be_bytes();
        let len = codec.format().server_id_len();
        let server_id = ServerId::new(&octets[4 - len..]).unwrap();
        let place = Place { server_id, owner: None };
        codec.mint(&place, &mut |out| rng.fill(out)).unwrap().as_slice().to_vec()
    }

    /// The server that the kernel should forward a packet to, and user space would.
    fn expected(&mut self, packet: &Made) -> Option<usize> {
        let payload = packet.forwardable()?;
        let decision = self.snapshot.decide(&mut self.flows, &packet.flow()?, payload, 1);
        let Decision::Forward { server, way: Way::Named } = decision else { return None };
        // The first octet's form says where the connection ID is.
        let at = if payload[0] & 0x80 == 0 { 1 } else { 6 };
        let id = &payload[at..at + 17];
        let readable = id[0] >> 5 != 1 || self.learned.contains(id);
        (readable && payload.len() <= LONGEST).then_some(server)
    }

    fn check(&mut self, packet: &Made) -> bool {
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
        let addresses = [2, 0, 0, 0, 1, number, 2, 0, 0, 0, 0, 1, 8, 0];
        assert_eq!(ethernet, addresses);
        assert!(Sum::new().bytes(&outer[..20]).is_intact());
        let outer = Packet::parse(outer).unwrap();
        let to = self.snapshot.members()[server].address;
        assert_eq!((outer.destination, outer.source), (to.ip(), "10.0.0.1".parse().unwrap()));
        let (source_port, port) = outer.ports().unwrap();
        assert!(port == to.port() && source_port >= 0xc000, "{source_port} {port}");
        let inner = Packet::parse(&packet.bytes[14..]).unwrap();
        assert_eq!((outer.tos, outer.ttl, outer.dont_fragment), (inner.tos & 3, 64, true));
        let udp = outer.payload();
        assert_eq!(usize::from(u16::from_be_bytes([udp[4], udp[5]])), udp.len());
        assert_eq!(udp[6..8], [0, 0], "no checksum outside");
        // What user space would have sent, but for a checksum that was wrong when it came.
        let payload = packet.forwardable().unwrap();
        let mut header = [0; quicket_balancer::MAX_HEADER];
        let flow = packet.flow().unwrap();
        let len = encapsulate(&flow, inner.tos, inner.ttl - 1, payload, &mut header);
        let checksum = [packet.bytes[40], packet.bytes[41]];
        header[len - 2..len].copy_from_slice(&checksum);
        assert_eq!(&udp[8..], [&header[..len], payload].concat(), "{packet:02x?}");
        assert!(decode(&udp[8..]).is_ok());
    }
}

#[test]
fn the_kernel_decides_as_user_space_does() {
    if !namespace() {
        return;
    }
    let mut both = Both::new();
    let mut rng = Rng(17);
    let (mut forwarded, mut passed) = ([0_u64; 2], 0);
    for round in 0..30_000 {
        let id = both.id(&mut rng);
        // What user space reads, the kernel is told, at times.
        if id[0] >> 5 == 1 && rng.below(2) == 0 {
            let server = match both.snapshot.decide(
                &mut both.flows,
                &packets::flow(),
                &packets::short(&id, 30),
                1,
            ) {
                Decision::Forward { server, way: Way::Named } => Some(server),
                _ => None,
            };
            if let Some(server) = server {
                assert!(both.offload.learn(&id, server));
                both.learned.insert(id.clone());
            }
        }
        let mut packet = packets::any(&mut rng, &id);
        if round % 3 == 0 {
            packet.damage(&mut rng);
        }
        match both.check(&packet) {
            true => {
                forwarded[0] += 1;
                forwarded[1] += packet.forwardable().unwrap().len() as u64;
            }
            false => passed += 1,
        }
    }
    assert!(forwarded[0] > 3000 && passed > 3000, "{forwarded:?} {passed}");
    let slots = (0..u32::from(SERVERS)).map(|slot| both.counts.of(slot).unwrap());
    let counted = slots.fold([0, 0], |all, one| [all[0] + one[0], all[1] + one[1]]);
    assert_eq!(counted, forwarded, "each is counted once");
}

/// Inputs are frames without their first address, as they are or with the lengths and the checksum of
/// IPv4 that they should have; those of the target `balancer` are payloads.
#[test]
fn bytes_of_strangers_are_decided_alike() {
    if !namespace() {
        return;
    }
    let both = Mutex::new((Both::new(), [0_u32; 2]));
    let check = |packet: &Made| {
        let mut both = both.lock().unwrap_or_else(PoisonError::into_inner);
        let forwarded = both.0.check(packet);
        both.1[usize::from(forwarded)] += 1;
    };
    replay::replay("xdp", |input| check(&packets::frame(input)));
    replay::replay("balancer", |input| check(&packets::with(&input[1..])));
    let (_, counts) = both.into_inner().unwrap();
    assert!(counts.iter().all(|count| *count > 1000), "both are met: {counts:?}");
}

#[test]
fn the_kernel_learns_enciphered_connection_ids_and_no_others() {
    if !namespace() {
        return;
    }
    let mut both = Both::new();
    let mut rng = Rng(5);
    let enciphered = both.codecs[1].clone();
    let place = Place { server_id: ServerId::new(&[0, 0, 0, 2]).unwrap(), owner: None };
    let id = enciphered.mint(&place, &mut |out| rng.fill(out)).unwrap();
    let packet = packets::with(&packets::short(id.as_slice(), 100));
    assert!(!both.check(&packet), "not known yet");
    assert!(both.offload.learn(id.as_slice(), 1));
    both.learned.insert(id.as_slice().to_vec());
    assert!(both.check(&packet));
    let plain = both.codecs[0].clone();
    let place = Place { server_id: ServerId::new(&[0, 2]).unwrap(), owner: None };
    let id = plain.mint(&place, &mut |out| rng.fill(out)).unwrap();
    assert!(!both.offload.learn(id.as_slice(), 1), "it reads those itself");
    assert!(!both.offload.learn(&[0xff; 17], 1) && !both.offload.learn(&[], 1));
}

#[test]
fn lengths_around_the_limit_and_without_a_neighbour() {
    if !namespace() {
        return;
    }
    let mut both = Both::new();
    let mut rng = Rng(9);
    let place = Place { server_id: ServerId::new(&[0, 3]).unwrap(), owner: None };
    let id = both.codecs[0].mint(&place, &mut |out| rng.fill(out)).unwrap();
    for len in [20, 21, 22, 1200, LONGEST - 1, LONGEST, LONGEST + 1, 1472] {
        let packet = packets::with(&packets::short(id.as_slice(), len));
        assert_eq!(both.check(&packet), (21..=LONGEST).contains(&len), "{len}");
    }
    let packet = packets::with(&packets::short(id.as_slice(), 100));
    let status =
        Command::new("ip").args(["neigh", "del", "10.0.0.13", "dev", "va"]).status().unwrap();
    assert!(status.success());
    assert_eq!(both.offload.run(&packet.bytes, 1).unwrap().verdict, Verdict::Pass);
}

#[test]
fn what_the_system_would_discard_goes_up() {
    if !namespace() {
        return;
    }
    let mut both = Both::new();
    let mut rng = Rng(3);
    let place = Place { server_id: ServerId::new(&[0, 3]).unwrap(), owner: None };
    let id = both.codecs[0].mint(&place, &mut |out| rng.fill(out)).unwrap();
    let packet = packets::with(&packets::short(id.as_slice(), 100));
    assert!(both.check(&packet));
    for mac in [[2, 0, 0, 0, 0, 8], [3, 0, 0, 0, 0, 9], [0xff; 6]] {
        let mut foreign = packet.clone();
        foreign.bytes[..6].copy_from_slice(&mac);
        assert!(!both.check(&foreign), "a frame for another machine, {mac:02x?}");
    }
    let sources = ["127.0.0.1", "0.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"];
    for source in sources.iter().chain(&["192.0.2.1", "192.0.2.2"]) {
        let packet = packets::from(&format!("{source}:5000"), &packets::short(id.as_slice(), 100));
        assert!(!both.check(&packet), "nobody has {source}");
    }
    for source in ["1.0.0.1", "126.0.0.1", "128.0.0.1", "223.255.255.255", "192.0.2.3"] {
        let packet = packets::from(&format!("{source}:5000"), &packets::short(id.as_slice(), 100));
        assert!(both.check(&packet), "a client may have {source}");
    }
}

#[test]
fn frames_leave_by_devices_that_can_send_them() {
    if !namespace() {
        return;
    }
    let place = Place { server_id: ServerId::new(&[0, 3]).unwrap(), owner: None };
    let ip = |words: &str| {
        let status = Command::new("ip").args(words.split_whitespace()).status().unwrap();
        assert!(status.success(), "ip {words}");
    };
    ip("tuntap add tun9 mode tun");
    let index = |name: &str| nix::net::if_::if_nametoindex(name).unwrap();
    let (va, vb) = (index("va"), index("vb"));
    let generic = Device::find("va", XdpMode::Generic).unwrap();
    assert_eq!(generic.egress, [va, vb], "neither the loopback nor a tunnel");
    let native = Device::find("va", XdpMode::Native).unwrap();
    assert_eq!((native.index, native.egress), (va, vec![va]));
    let error = Device::find("tun9", XdpMode::Generic).unwrap_err();
    assert!(error.to_string().contains("not of type Ethernet"), "{error}");
    for (egress, verdict) in [
        (vec![va], Verdict::Redirect),
        (vec![vb, va], Verdict::Redirect),
        (vec![vb], Verdict::Pass),
    ] {
        let both = Both::on(&Device { egress, ..device() }, &config());
        let id = both.codecs[0].mint(&place, &mut |out| out.fill(1)).unwrap();
        let packet = packets::with(&packets::short(id.as_slice(), 100));
        assert_eq!(both.offload.run(&packet.bytes, 1).unwrap().verdict, verdict);
    }
    let (none, both) = (Device { egress: Vec::new(), ..device() }, Both::new());
    let refused = Offload::new(&none, &config(), &both.snapshot, &both.counts, |_| Some(0));
    assert!(refused.unwrap_err().to_string().contains("a device to send by"));
}

#[test]
fn nothing_that_was_learned_outlives_its_server() {
    if !namespace() {
        return;
    }
    let both = Both::new();
    let server_id = ServerId::new(&[0, 0, 0, SERVERS]).unwrap();
    let place = Place { server_id, owner: None };
    let id = both.codecs[1].mint(&place, &mut |out| out.fill(7)).unwrap();
    let packet = packets::with(&packets::short(id.as_slice(), 100));
    assert!(both.offload.learn(id.as_slice(), usize::from(SERVERS) - 1));
    assert_eq!(both.offload.run(&packet.bytes, 1).unwrap().verdict, Verdict::Redirect);
    let fewer = Both::on(&device(), &config_of(SERVERS - 1));
    assert_eq!(fewer.offload.run(&packet.bytes, 1).unwrap().verdict, Verdict::Pass);
    assert!(!fewer.offload.learn(id.as_slice(), usize::from(SERVERS) - 1), "there is none");
    assert_eq!(fewer.offload.left_out(), 0);
}

#[test]
fn a_site_without_ipv4_is_refused_with_words() {
    let text =
        "listen [2001:db8::1]:443\nconnection-ids site\nxdp va\nserver a 10.0.0.11 id 0001\n";
    let config = Config::parse(text).unwrap();
    let reader = Site::parse("config 0 server-id 2 nonce 14 plain\n").unwrap().reader(&toy);
    let snapshot = Snapshot::new(&config, reader, &Health::new(0), &mut Numbers::default(), 0);
    let error = Kernel::attach(&config, &snapshot).unwrap_err();
    assert!(error.to_string().contains("no listen address over IPv4"), "{error}");
}
