//! Frames from outside and from ports that are not what they say.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use quicket_packets::{Reason, compose};
use socket2::{Domain, Protocol, Socket, Type};

use crate::common::Switch;
use crate::traffic::{MODES, attach, exchange, listed};
use crate::wire::{HERE, THERE, Wire, ip, receive, until};

/// Sends a packet there as it is.
fn send(raw: &Socket, packet: &[u8], to: SocketAddr) {
    raw.send_to(packet, &to.into()).unwrap();
}

/// The packet of a frame of UDP over IPv4, without padding.
fn packet(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let mut slot = vec![0; 2048];
    let len = compose::udp(&mut slot, from, to, payload).unwrap();
    slot.truncate(len.min(14 + 28 + payload.len()));
    slot.split_off(14)
}

#[test]
fn forged_sources_and_broken_frames_reach_nobody() {
    if !crate::is_permitted() {
        return;
    }
    let wire = Wire::new("");
    for mode in MODES {
        let switch = Switch::start();
        attach(&switch, mode);
        let (mut one, mut other) = (switch.stack(HERE[0]), switch.stack(HERE[0]));
        let raw = wire.there(|| {
            let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255))).unwrap();
            raw.set_header_included_v4(true).unwrap();
            raw
        });
        let dropped = |reason: Reason| listed(&switch).counters.dropped(reason);
        let there = wire.socket(THERE[0]);
        let stranger = there.local_addr().unwrap();
        exchange(&mut one, &there, b"honest");
        // From outside, as if a port had sent it.
        send(&raw, &packet(other.address, one.address, b"forged"), one.address);
        until("the forged source is not counted", || dropped(Reason::Source) == 1);
        // A wrong checksum.
        let mut wrong = packet(stranger, one.address, b"wrong");
        *wrong.last_mut().unwrap() ^= 1;
        send(&raw, &wrong, one.address);
        until("the wrong checksum is not counted", || dropped(Reason::Checksum) == 1);
        assert!(one.has_nothing());
        // From a port, as if the system or somebody outside had sent it.
        for from in [other.address, (HERE[0].parse::<Ipv4Addr>().unwrap(), 22).into(), stranger] {
            one.send_as(from, stranger, b"forged");
        }
        one.until(|counters| counters.dropped(Reason::Source) == 3);
        // Nothing of that was sent: what comes next is the next that was.
        exchange(&mut one, &there, b"honest");
        exchange(&mut other, &there, b"honest");
        assert_eq!(listed(&switch).counters.sent, 3);
    }
}

/// Datagrams that the system has put together, of the version of IP of an address.
fn put_together(address: &str) -> u64 {
    let read =
        |file: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
    if address.contains(':') {
        let all = read("snmp6");
        let line = all.lines().find_map(|line| line.strip_prefix("Ip6ReasmOKs")).unwrap();
        return line.trim().parse().unwrap();
    }
    let all = read("snmp");
    let mut lines = all.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let (names, numbers) = (lines.next().unwrap(), lines.next().unwrap());
    let mut pairs = names.split(' ').zip(numbers.split(' '));
    pairs.find(|(name, _)| *name == "ReasmOKs").unwrap().1.parse().unwrap()
}

/// RFC 1812, Section 5.3.7: what no host sends by a wire.
#[test]
fn frames_of_loopback_and_with_sources_of_this_host_come_to_nobody() {
    if !crate::is_permitted() {
        return;
    }
    let wire = Wire::new("");
    for mode in MODES {
        let switch = Switch::start();
        attach(&switch, mode);
        let mut one = switch.stack(HERE[0]);
        let mut inner = switch.stack("127.0.0.1");
        let stranger: SocketAddr = (THERE[0].parse::<Ipv4Addr>().unwrap(), 9).into();
        let here = |n: u16| SocketAddr::from((HERE[0].parse::<Ipv4Addr>().unwrap(), n));
        let dropped = || listed(&switch).counters.dropped(Reason::Source);
        let sources = ["127.0.0.1", "192.0.2.255", "255.255.255.255", "0.0.0.0", "224.0.0.1"];
        let sources = sources.map(|source| SocketAddr::new(source.parse().unwrap(), 9));
        for from in [here(22)].into_iter().chain(sources) {
            let before = dropped();
            send_frame(&wire, from, one.address);
            until("the source is not counted", || dropped() == before + 1);
        }
        // An address that this host gets while the device is attached.
        ip("addr add 192.0.2.77/24 dev va");
        let later = SocketAddr::from(([192, 0, 2, 77], 9));
        let before = dropped();
        until("a new address is not known", || {
            send_frame(&wire, later, one.address);
            dropped() > before
        });
        until("there is something all the time", || one.has_nothing());
        ip("addr del 192.0.2.77/24 dev va");
        // None of these is the switch's.
        let before = listed(&switch).counters;
        for from in [stranger, here(22), inner.address] {
            send_frame(&wire, from, inner.address);
        }
        send_frame(&wire, stranger, one.address);
        until("what is in order does not come", || !one.has_nothing());
        assert!(inner.has_nothing());
        assert_eq!(listed(&switch).counters.received, before.received + 1);
        // Nor does it leave.
        inner.send(stranger, b"out");
        inner.until(|counters| counters.dropped(Reason::Route) == 1);
        let mut other = switch.stack("127.0.0.1");
        inner.send(other.address, b"within");
        assert_eq!(other.receive(), (inner.address, b"within".to_vec()));
    }
}

/// Sends a frame of UDP as it is, by the other end's device.
fn send_frame(wire: &Wire, from: SocketAddr, to: SocketAddr) {
    let mut slot = vec![0; 128];
    let len = compose::udp(&mut slot, from, to, b"martian").unwrap();
    slot.truncate(len);
    let link = ip("-o link show dev va");
    let (_, mac) = link.split_once("link/ether ").unwrap();
    let mac = mac.split(' ').next().unwrap().split(':');
    for (to, octet) in slot.iter_mut().zip(mac) {
        *to = u8::from_str_radix(octet, 16).unwrap();
    }
    let program = "import socket, sys\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\ns.bind(('vb', 0))\n\
                   s.send(bytes.fromhex(sys.argv[1]))";
    let hex: String = slot.iter().map(|octet| format!("{octet:02x}")).collect();
    let status = wire.there(|| Command::new("python3").args(["-c", program, &hex]).status());
    assert!(status.unwrap().success(), "python3 sends no frame");
}

#[test]
fn fragments_and_other_tuples_are_those_of_the_system() {
    if !crate::is_permitted() {
        return;
    }
    let wire = Wire::new("");
    for mode in MODES {
        let switch = Switch::start();
        attach(&switch, mode);
        for (here, there) in HERE.into_iter().zip(THERE) {
            let socket = crate::wire::socket(here);
            let mut port = switch.open();
            port.register(&socket).unwrap();
            let before = put_together(here);
            let there = wire.socket(there);
            let long: Vec<u8> = (0..4000).map(|n| n as u8).collect();
            there.send_to(&long, socket.local_addr().unwrap()).unwrap();
            until("the system has not put fragments together", || put_together(here) > before);
            // Another port of the same address, and back.
            let system = crate::wire::socket(here);
            there.send_to(b"system", system.local_addr().unwrap()).unwrap();
            let (from, _) = receive(&system);
            system.send_to(b"answer", from).unwrap();
            assert_eq!(receive(&there).1, b"answer");
            assert_eq!(port.receive(1, |_| ()).unwrap(), 0, "nothing of that is the port's");
        }
        let counters = listed(&switch).counters;
        assert_eq!((counters.sent, counters.received), (0, 0));
    }
}

/// What came by a queue without a socket would be the system's.
#[test]
fn a_device_with_more_queues_than_sockets_is_refused() {
    if !crate::is_permitted() {
        return;
    }
    let _wire = Wire::new("numrxqueues 65 numtxqueues 65");
    let switch = Switch::start();
    let mut control = quicket_packets::control::Control::connect(&switch.path).unwrap();
    let error = control.attach("va", quicket_packets::device::Mode::Generic).unwrap_err();
    assert!(error.to_string().contains("ethtool -L va"), "{error}");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
    assert!(!crate::wire::has_program());
}

/// Each frame is to a neighbour that the system has not heard of, and all are there when the switch looks.
#[test]
fn of_ever_new_addresses_eight_are_looked_up_in_a_turn() {
    if !crate::is_permitted() {
        return;
    }
    let wire = Wire::new("");
    let switch = Switch::start();
    attach(&switch, MODES[0]);
    let (mut one, mut other) = (switch.stack(HERE[0]), switch.stack(HERE[0]));
    let there = wire.socket(THERE[0]);
    exchange(&mut other, &there, b"before");
    for round in 0..3_u8 {
        let mut hosts = 0..60_u8;
        let from = one.address;
        assert!(one.port.room(60).unwrap() >= 60);
        let sent = one.port.send(|slot| {
            let to = Ipv4Addr::new(192, 0, 2, 10 + round * 60 + hosts.next()?);
            compose::udp(slot, from, (to, 53).into(), b"who is there?")
        });
        assert_eq!(sent.unwrap(), 60);
        // Of those that were looked up the system knows that they are at the device, and asks for their addresses of Ethernet.
        let (asked, others) = (8 * (u64::from(round) + 1), 52 * (u64::from(round) + 1));
        let counters = one.until(|counters| counters.dropped(Reason::Route) == others);
        assert_eq!((counters.dropped(Reason::Neighbour), counters.sent), (asked, 0));
        exchange(&mut other, &there, b"meanwhile");
    }
}
