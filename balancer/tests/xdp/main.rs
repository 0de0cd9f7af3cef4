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
use quicket_gue::{Packet, Sum, decode, pseudo_header};
use quicket_steering::{Block, BlockCipher, Codec, Place, ServerId};

const SERVERS: u8 = 5;
const FILE: &str = "config 0 server-id 2 nonce 14 plain\n\
                    config 1 server-id 4 nonce 12 key 8f95f09245765f80256934e50c66207f\n\
                    config 5 server-id 3 nonce 13 plain\nissue 0\n";
/// The longest payload of `mtu 1500` from IPv4 over IPv4: IPv6 takes 20 more on either side.
const LONGEST: usize = 1440;

/// Those with an even number have IPv6.
fn address(number: u8) -> String {
    match number % 2 {
        0 => format!("fd00::{}", 10 + number),
        _ => format!("10.0.0.{}", 10 + number),
    }
}

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
        let (v6, server_v6) =
            (packet.udp() == 54, self.snapshot.members()[server].address.is_ipv6());
        let longest = LONGEST - 20 * (usize::from(v6) + usize::from(server_v6));
        // The first octet's form says where the connection ID is.
        let at = if payload[0] & 0x80 == 0 { 1 } else { 6 };
        let id = &payload[at..at + 17];
        let readable = id[0] >> 5 != 1 || self.learned.contains(id);
        (readable && payload.len() <= longest).then_some(server)
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

#[test]
fn the_kernel_decides_as_user_space_does() {
    if !namespace() {
        return;
    }
    let mut both = Both::new();
    let mut rng = Rng(17);
    let (mut forwarded, mut passed, mut ways) = ([0_u64; 2], 0, [0; 4]);
    for round in 0..30_000 {
        let id = both.id(&mut rng);
        // What user space reads, the kernel is told, at times.
        if id[0] >> 5 == 1 && rng.below(2) == 0 {
            let server = match both.snapshot.decide(
                &mut both.flows,
                &packets::flow(false),
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
        let expected = both.expected(&packet);
        match both.check(&packet) {
            true => {
                let to = both.snapshot.members()[expected.unwrap()].address;
                ways[usize::from(packet.udp() == 54) * 2 + usize::from(to.is_ipv6())] += 1;
                forwarded[0] += 1;
                forwarded[1] += packet.forwardable().unwrap().len() as u64;
            }
            false => passed += 1,
        }
    }
    assert!(forwarded[0] > 3000 && passed > 3000, "{forwarded:?} {passed}");
    assert!(ways.iter().all(|count| *count > 500), "{ways:?}");
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
    let mut inputs = replay::replay("xdp", |input| check(&packets::frame(input)));
    inputs += replay::replay("balancer", |input| {
        check(&packets::with(input[0] & 1 == 1, &input[1..]));
    });
    let (_, counts) = both.into_inner().unwrap();
    assert_eq!(u64::from(counts[0] + counts[1]), inputs);
    let some = |count: &u32| *count > 1 && u64::from(*count) > inputs / 50;
    assert!(counts.iter().all(some), "both are met: {counts:?}");
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
    let packet = packets::with(false, &packets::short(id.as_slice(), 100));
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
    // Over IPv4 and over IPv6, for clients with either.
    for (server, v6, longest) in
        [(3, false, LONGEST), (3, true, 1420), (2, false, 1420), (2, true, 1400)]
    {
        let place = Place { server_id: ServerId::new(&[0, server]).unwrap(), owner: None };
        let id = both.codecs[0].mint(&place, &mut |out| rng.fill(out)).unwrap();
        for len in [20, 21, 22, 1200, longest - 1, longest, longest + 1, 1452] {
            let packet = packets::with(v6, &packets::short(id.as_slice(), len));
            assert_eq!(both.check(&packet), (21..=longest).contains(&len), "{server} {v6} {len}");
        }
        let packet = packets::with(v6, &packets::short(id.as_slice(), 100));
        let ip = |words: &str| {
            let status = Command::new("ip").args(words.split_whitespace()).status().unwrap();
            assert!(status.success(), "ip {words}");
        };
        let neighbour = address(server);
        ip(&format!("neigh del {neighbour} dev va"));
        assert_eq!(both.offload.run(&packet.bytes, 1).unwrap().verdict, Verdict::Pass);
        ip(&format!("neigh add {neighbour} lladdr 02:00:00:00:01:{server:02x} dev va"));
        assert!(both.check(&packet));
    }
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
    let packet = packets::with(false, &packets::short(id.as_slice(), 100));
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
    let sources = ["::", "::1", "::ffff:1.2.3.4", "fe80::1", "ff02::1", "ff0e::1"];
    for source in sources.iter().chain(&["2001:db8:1::1", "2001:db8:1::2"]) {
        let packet = packets::from(&format!("[{source}]:5000"), &packets::short(id.as_slice(), 99));
        assert!(!both.check(&packet), "nobody has {source}");
    }
    for source in ["100::1", "2001:db8:1::3", "fd00::7", "fdff::1"] {
        let packet = packets::from(&format!("[{source}]:5000"), &packets::short(id.as_slice(), 99));
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
        let packet = packets::with(false, &packets::short(id.as_slice(), 100));
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
    let packet = packets::with(false, &packets::short(id.as_slice(), 100));
    assert!(both.offload.learn(id.as_slice(), usize::from(SERVERS) - 1));
    assert_eq!(both.offload.run(&packet.bytes, 1).unwrap().verdict, Verdict::Redirect);
    let fewer = Both::on(&device(), &config_of(SERVERS - 1));
    assert_eq!(fewer.offload.run(&packet.bytes, 1).unwrap().verdict, Verdict::Pass);
    assert!(!fewer.offload.learn(id.as_slice(), usize::from(SERVERS) - 1), "there is none");
    assert_eq!(fewer.offload.left_out(), 0);
}

/// A snapshot of servers of these names, with addresses and IDs in their order.
fn named(names: &[&str], key: &str, numbers: &mut Numbers) -> (Config, Snapshot) {
    let mut file = "listen 192.0.2.1:443\nconnection-ids site\nxdp va\n".to_owned();
    for (at, name) in (1..).zip(names) {
        // Neighbours of IPv4: see `address`.
        file += &format!("server {name} 10.0.0.{} id 0000000{at}\n", 9 + 2 * at);
    }
    let config = Config::parse(&file).unwrap();
    let site = format!("config 1 server-id 4 nonce 12 key {key}\nissue 1\n");
    let reader = Site::parse(&site).unwrap().reader(&toy);
    let snapshot = Snapshot::new(&config, reader, &Health::new(0), numbers, 0);
    (config, snapshot)
}

const KEYS: [&str; 2] = ["8f95f09245765f80256934e50c66207f", "9f95f09245765f80256934e50c66207f"];

/// A packet to the device `va` itself.
fn to_va(id: &[u8]) -> Vec<u8> {
    let mut packet = packets::with(false, &packets::short(id, 100));
    packet.bytes[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    packet.bytes
}

#[test]
fn another_key_under_the_same_number_is_another_program() {
    if !namespace() {
        return;
    }
    let mut numbers = Numbers::default();
    let (config, snapshot) = named(&["one", "two"], KEYS[0], &mut numbers);
    let mut kernel = Kernel::attach(&config, &snapshot).unwrap().unwrap();
    let id = [&[0x20], &[7; 16][..]].concat();
    let verdict = |kernel: &Kernel| kernel.offload().run(&to_va(&id), 1).unwrap().verdict;
    assert!(kernel.offload().learn(&id, 1));
    assert_eq!(verdict(&kernel), Verdict::Redirect);
    let (config, snapshot) = named(&["one", "two"], KEYS[0], &mut numbers);
    kernel.replace(&config, &snapshot).unwrap();
    assert_eq!(verdict(&kernel), Verdict::Redirect, "the same site knows what it knew");
    let (config, snapshot) = named(&["one", "two"], KEYS[1], &mut numbers);
    kernel.replace(&config, &snapshot).unwrap();
    assert_eq!(verdict(&kernel), Verdict::Pass, "it means somebody else now");
}

#[test]
fn what_a_replaced_program_still_forwards_is_counted_where_it_went() {
    if !namespace() {
        return;
    }
    let mut numbers = Numbers::default();
    let (config, snapshot) = named(&["one", "two"], KEYS[0], &mut numbers);
    let sent = |snapshot: &Snapshot| {
        let members = snapshot.members().iter();
        members.map(|member| member.counters.values()[0].1).collect::<Vec<_>>()
    };
    let mut kernel = Kernel::attach(&config, &snapshot).unwrap().unwrap();
    let id = [&[0x20], &[7; 16][..]].concat();
    let old = kernel.offload().clone();
    assert!(old.learn(&id, 1));
    let send = || assert_eq!(old.run(&to_va(&id), 1).unwrap().verdict, Verdict::Redirect);
    send();
    assert_eq!((kernel.count()[0], sent(&snapshot)), (1, vec![0, 1]));
    send();
    let (config, after) = named(&["one", "three"], KEYS[0], &mut numbers);
    kernel.replace(&config, &after).unwrap();
    // On another processor it is at work until the kernel is done with it.
    send();
    assert_eq!(kernel.count()[0], 3);
    assert_eq!((sent(&snapshot), sent(&after)), (vec![0, 3], vec![0, 0]));
    // A replacement that fails loses nothing either.
    let mut gone = config.clone();
    gone.xdp.as_mut().unwrap().device = "none".to_owned();
    assert!(kernel.replace(&gone, &after).is_err());
    let (config, last) = named(&["one", "four"], KEYS[0], &mut numbers);
    kernel.replace(&config, &last).unwrap();
    assert_eq!((kernel.detach()[0], sent(&last)), (3, vec![0, 0]));
}

#[test]
fn a_site_of_ipv6_alone_is_forwarded_where_the_system_forwards_ipv6() {
    if !namespace() {
        return;
    }
    let text = "listen [2001:db8::1]:443\nconnection-ids site\nxdp va\nserver a fd00::12 id 0001\n";
    let mixed = format!("{text}server b 10.0.0.11 id 0002\n");
    let attach = |text: &str| {
        let config = Config::parse(text).unwrap();
        let reader = Site::parse("config 0 server-id 2 nonce 14 plain\n").unwrap().reader(&toy);
        let snapshot = Snapshot::new(&config, reader, &Health::new(0), &mut Numbers::default(), 0);
        Kernel::attach(&config, &snapshot).map(|kernel| kernel.unwrap().offload().left_out())
    };
    assert_eq!((attach(text).unwrap(), attach(&mixed).unwrap()), (0, 0));
    std::fs::write("/proc/sys/net/ipv6/conf/va/forwarding", "0").unwrap();
    assert_eq!(attach(&mixed).unwrap(), 1, "the server with IPv4 gets its own");
    let error = attach(text).unwrap_err().to_string();
    assert!(error.contains("sysctl net.ipv6.conf.va.forwarding=1"), "{error}");
}
