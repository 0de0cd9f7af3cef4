//! The kernel's program and user space decide alike, packet by packet. Needs root, for a network
//! namespace of its own and BPF.

mod both;
mod packets;
#[path = "../../../fuzz/replay.rs"]
mod replay;
mod run;
#[path = "../../src/testing.rs"]
mod testing;

use std::sync::atomic::{AtomicU64, Ordering};

use both::{Both, LONGEST, SERVERS, address, config, config_of, device, ip};
use quicket_balancer::{
    Config, Decision, Device, Health, Kernel, Numbers, Offload, Site, Snapshot, Way, XdpMode,
};
use quicket_bpf::Verdict;
use quicket_steering::{Place, ServerId};
use quicket_testing::Rng;
use testing::toy_cipher;

/// Whether there is a network namespace for this test alone.
fn namespace() -> bool {
    let Err(error) = both::namespace() else { return true };
    quicket_testing::leave_out(error);
    false
}

#[test]
fn the_kernel_decides_as_user_space_does() {
    if !namespace() {
        return;
    }
    let mut both = Both::new();
    let mut rng = Rng::new(17);
    let (mut forwarded, mut passed, mut ways) = ([0_u64; 2], 0, [0; 4]);
    for round in 0..30_000 {
        let id = both.id(&mut rng);
        // What user space reads, the kernel is told, at times.
        if id[0] >> 5 == 1 && rng.index(2) == 0 {
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
                both.learn(&id, server);
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
                ways[usize::from(packet.is_v6()) * 2 + usize::from(to.is_ipv6())] += 1;
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

#[test]
fn bytes_of_strangers_are_decided_alike() {
    if !namespace() {
        return;
    }
    let counts = [const { AtomicU64::new(0) }; 2];
    let count = |forwarded: bool| {
        counts[usize::from(forwarded)].fetch_add(1, Ordering::Relaxed);
    };
    let mut inputs = replay::replay("xdp", |input| count(run::run(input)));
    // Those of the target `balancer` are payloads.
    inputs += replay::replay("balancer", |input| {
        count(run::judge(&packets::with(input[0] & 1 == 1, &input[1..])));
    });
    let counts = counts.map(AtomicU64::into_inner);
    assert_eq!(counts[0] + counts[1], inputs);
    assert!(counts.iter().all(|count| *count > inputs / 50), "both are met: {counts:?}");
}

#[test]
fn the_kernel_learns_enciphered_connection_ids_and_no_others() {
    if !namespace() {
        return;
    }
    let mut both = Both::new();
    let mut rng = Rng::new(5);
    let enciphered = both.codecs[1].clone();
    let place = Place { server_id: ServerId::new(&[0, 0, 0, 2]).unwrap(), owner: None };
    let id = enciphered.mint(&place, &mut |out| rng.fill(out)).unwrap();
    let packet = packets::with(false, &packets::short(id.as_slice(), 100));
    assert!(!both.check(&packet), "not known yet");
    both.learn(id.as_slice(), 1);
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
    let mut rng = Rng::new(9);
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
    let mut rng = Rng::new(3);
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
    let reader = Site::parse(&site).unwrap().reader(&|key| toy_cipher(*key));
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
        let reader = Site::parse("config 0 server-id 2 nonce 14 plain\n")
            .unwrap()
            .reader(&|key| toy_cipher(*key));
        let snapshot = Snapshot::new(&config, reader, &Health::new(0), &mut Numbers::default(), 0);
        Kernel::attach(&config, &snapshot).map(|kernel| kernel.unwrap().offload().left_out())
    };
    assert_eq!((attach(text).unwrap(), attach(&mixed).unwrap()), (0, 0));
    std::fs::write("/proc/sys/net/ipv6/conf/va/forwarding", "0").unwrap();
    assert_eq!(attach(&mixed).unwrap(), 1, "the server with IPv4 gets its own");
    let error = attach(text).unwrap_err().to_string();
    assert!(error.contains("sysctl net.ipv6.conf.va.forwarding=1"), "{error}");
}
