//! Errors of ICMP, by a host and a router of the system: the port whose packet they quote gets a copy, the system all of them.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use quicket_packets::icmp::{Failure, Report};
use quicket_packets::udp::UdpPort;
use quicket_packets::{
    ERRORS_OF_EACH_PORT, ERRORS_PER_SECOND, ERRORS_PER_SECOND_OF_DEVICE, Reason, Tuple, compose,
};
use quicket_udp::{Arrival, Outgoing, Port, Unreachable};
use quicket_wire::EcnCodepoint;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, Socket, Type};

use crate::common::{PATIENCE, Stack, Switch, tuple};
use crate::traffic::{MODES, attach, exchange, listed};
use crate::wire::{HERE, THERE, Wire, ip, socket, until};

/// Behind the router.
const BEHIND: [&str; 2] = ["198.51.100.7", "2001:db8:7::7"];

/// The far end forwards to a network whose packets are 1,300 octets long at most.
fn make_router(wire: &Wire) {
    wire.there(|| {
        for (file, value) in [("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")] {
            std::fs::write(format!("/proc/sys/net/{file}"), value).unwrap();
        }
        // All errors are said, however many.
        for (file, value) in [("ipv4/icmp_ratemask", "0"), ("ipv6/icmp/ratelimit", "0")] {
            std::fs::write(format!("/proc/sys/net/{file}"), value).unwrap();
        }
        ip("link add far mtu 1300 type veth peer name end mtu 1300");
        ip("link set far up");
        ip("link set end up");
        ip("addr add 198.51.100.1/24 dev far");
        ip("addr add 2001:db8:7::1/64 dev far nodad");
    });
    ip(&format!("route add 198.51.100.0/24 via {}", THERE[0]));
    ip(&format!("route add 2001:db8:7::/64 via {}", THERE[1]));
}

/// The next frame, which is an error of ICMP: what it means, who says so, to where the packet went, how much is quoted.
fn report(stack: &mut Stack) -> (Failure, IpAddr, Tuple, usize) {
    assert!(stack.port.wait(Some(PATIENCE)).unwrap(), "no error has come");
    let (ours, mut came) = (tuple(stack.address), None);
    stack
        .port
        .receive(1, |frame| {
            let report = Report::read(frame).expect("it is no error of ICMP");
            assert_eq!(report.source, ours);
            // The payload is quoted behind the header of UDP.
            assert!(report.quoted[8..].iter().all(|octet| *octet == 0x55));
            came = Some((report.failure, report.reporter, report.destination, report.quoted.len()));
        })
        .unwrap();
    came.unwrap()
}

/// Sends a frame with that time to live.
fn send_with(stack: &mut Stack, to: SocketAddr, payload: &[u8], ttl: u8) {
    let (from, mut once) = (stack.address, Some(()));
    let write = |slot: &mut [u8]| {
        once.take()?;
        let len = compose::udp(slot, from, to, payload)?;
        if from.is_ipv4() {
            slot[22] = ttl;
            slot[24..26].fill(0);
            let words =
                slot[14..34].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
            let sum: u32 = words.sum();
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            slot[24..26].copy_from_slice(&sum.to_be_bytes());
        } else {
            slot[21] = ttl;
        }
        Some(len)
    };
    assert_eq!(stack.port.send(write).unwrap(), 1);
}

/// A port of the far end where nobody listens.
fn closed(wire: &Wire, there: &str) -> SocketAddr {
    wire.socket(there).local_addr().unwrap()
}

#[test]
fn errors_come_to_who_has_sent_the_packet_and_to_nobody_else() {
    if !crate::is_permitted() {
        return;
    }
    for mode in MODES {
        // With another one, routes would have learned their MTU.
        let wire = Wire::new("");
        make_router(&wire);
        let switch = Switch::start();
        attach(&switch, mode);
        for at in 0..2 {
            let (mut one, mut other) = (switch.stack(HERE[at]), switch.stack(HERE[at]));
            let there = wire.socket(THERE[at]);
            // The neighbour is known then.
            exchange(&mut one, &there, b"before");
            exchange(&mut other, &there, b"before");
            let router: IpAddr = THERE[at].parse().unwrap();
            let nobody = closed(&wire, THERE[at]);
            one.send(nobody, &[0x55; 100]);
            let (failure, reporter, to, _) = report(&mut one);
            assert_eq!((failure, reporter, to), (Failure::Port, router, tuple(nobody)));
            let behind = SocketAddr::new(BEHIND[at].parse().unwrap(), 9);
            send_with(&mut one, behind, &[0x55; 100], 1);
            let (failure, reporter, to, quoted) = report(&mut one);
            assert_eq!((failure, reporter, to), (Failure::TimeExceeded, router, tuple(behind)));
            assert!(quoted >= 8);
            send_with(&mut one, behind, &[0x55; 1400], 64);
            let (failure, reporter, to, _) = report(&mut one);
            let too_big = Failure::TooBig { mtu: 1300 };
            assert_eq!((failure, reporter, to), (too_big, router, tuple(behind)));
            // The system has heard it, too: it is the route's MTU for all now.
            one.until(|_| ip(&format!("route get {}", BEHIND[at])).contains("mtu 1300"));
            // Nobody has that address: who is asked for it says so, after a while.
            if at == 0 {
                ip("route add 203.0.113.0/24 via 192.0.2.2");
                let lost = SocketAddr::new("203.0.113.1".parse().unwrap(), 9);
                send_with(&mut one, lost, &[0x55; 100], 64);
                let (failure, ..) = report(&mut one);
                assert_eq!(failure, Failure::Host);
            }
            // A socket of the system hears of its own.
            let own = socket(HERE[at]);
            own.connect(nobody).unwrap();
            own.send(b"own").unwrap();
            assert_eq!(own.recv(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
            let counters = one.port.counters().unwrap();
            assert_eq!(counters.received, if at == 0 { 5 } else { 4 });
            assert!(one.has_nothing() && other.has_nothing());
        }
        assert_eq!(listed(&switch).counters.dropped(Reason::Icmp), 0);
    }
}

/// A message of ICMP that a raw socket of the far end sends.
fn forge(wire: &Wire, quoted: &[u8], head: [u8; 8], times: u32) {
    wire.there(|| {
        let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap();
        raw.bind(&SocketAddr::new(THERE[0].parse().unwrap(), 0).into()).unwrap();
        let to = SocketAddr::new(HERE[0].parse().unwrap(), 0).into();
        let mut message = [&head[..], quoted].concat();
        let words = message
            .chunks(2)
            .map(|two| u32::from(two[0]) << 8 | two.get(1).copied().map_or(0, u32::from));
        let mut sum: u32 = words.sum();
        while sum >> 16 > 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        message[2..4].copy_from_slice(&(!sum as u16).to_be_bytes());
        for _ in 0..times {
            raw.send_to(&message, &to).unwrap();
        }
    });
}

#[test]
fn forged_errors_reach_only_whom_they_quote_and_not_without_end() {
    if !crate::is_permitted() {
        return;
    }
    let wire = Wire::new("");
    let switch = Switch::start();
    attach(&switch, MODES[1]);
    let (mut one, mut other) = (switch.stack(HERE[0]), switch.stack(HERE[0]));
    let there = wire.socket(THERE[0]);
    exchange(&mut one, &there, b"before");
    exchange(&mut other, &there, b"before");
    let packet = |from: SocketAddr, to: SocketAddr| {
        let mut slot = vec![0; 2048];
        let len = compose::udp(&mut slot, from, to, &[0x55; 40]).unwrap();
        slot[14..len].to_vec()
    };
    let far = there.local_addr().unwrap();
    let port = [3, 3, 0, 0, 0, 0, 0, 0];
    // Nobody's; of one local port to another; of another address than it goes to; no error; too short; another protocol.
    let nobody = SocketAddr::new(one.address.ip(), 9);
    let strange = "192.0.2.77:7".parse().unwrap();
    forge(&wire, &packet(nobody, far), port, 1);
    forge(&wire, &packet(one.address, other.address), port, 1);
    forge(&wire, &packet(strange, far), port, 1);
    forge(&wire, &packet(one.address, far), [8, 0, 0, 0, 0, 0, 0, 0], 1);
    forge(&wire, &packet(one.address, far)[..22], port, 1);
    let mut tcp = packet(one.address, far);
    tcp[9] = 6;
    forge(&wire, &tcp, port, 1);
    // And one that is in order, behind all of those.
    forge(&wire, &packet(one.address, far), port, 1);
    assert_eq!(report(&mut one).0, Failure::Port);
    assert!(one.has_nothing() && other.has_nothing());
    // A flood of them: some are lost in between, and no more than so many come in a second.
    let (begun, mut came) = (Instant::now(), 0);
    while other.port.counters().unwrap().dropped(Reason::Icmp) == 0 {
        assert!(begun.elapsed() < PATIENCE, "all have come");
        forge(&wire, &packet(other.address, far), port, 500);
        came += other.port.receive(u32::MAX, |_| ()).unwrap();
    }
    let seconds = begun.elapsed().as_secs() as u32 + 1;
    assert!(came <= seconds * ERRORS_PER_SECOND, "{came} in {seconds} s");
    // Datagrams come as before.
    until("they come all the time", || other.port.receive(u32::MAX, |_| ()).unwrap() == 0);
    exchange(&mut one, &there, b"after");
    assert!(one.has_nothing());
}

/// Each of more ports than have a full share together.
#[test]
fn a_device_has_a_bound_for_all_ports_that_is_counted_there() {
    if !crate::is_permitted() {
        return;
    }
    let wire = Wire::new("");
    let switch = Switch::start();
    attach(&switch, MODES[1]);
    let mut stacks: Vec<Stack> = (0..8).map(|_| switch.stack(HERE[0])).collect();
    let there = wire.socket(THERE[0]);
    let far = there.local_addr().unwrap();
    let quoted: Vec<Vec<u8>> = stacks
        .iter()
        .map(|stack| {
            let mut slot = vec![0; 2048];
            let len = compose::udp(&mut slot, stack.address, far, &[0x55; 40]).unwrap();
            slot[14..len].to_vec()
        })
        .collect();
    let begun = Instant::now();
    while listed(&switch).counters.dropped(Reason::Icmp) == 0 {
        assert!(begun.elapsed() < PATIENCE, "all are copied");
        quoted.iter().for_each(|quoted| forge(&wire, quoted, [3, 3, 0, 0, 0, 0, 0, 0], 50));
    }
    let seconds = begun.elapsed().as_secs() + 1;
    let copied = listed(&switch).counters.received;
    let most = ERRORS_PER_SECOND_OF_DEVICE + stacks.len() as u32 * ERRORS_OF_EACH_PORT;
    assert!(copied <= seconds * u64::from(most), "{copied} in {seconds} s");
    // No port had more than its own, and what it had no room for is counted there.
    for stack in &mut stacks {
        let counters = stack.port.counters().unwrap();
        assert!(counters.received <= seconds * u64::from(ERRORS_PER_SECOND), "{counters:?}");
        until("they come all the time", || stack.port.receive(u32::MAX, |_| ()).unwrap() == 0);
    }
    exchange(&mut stacks[0], &there, b"after");
}

#[test]
fn a_socket_by_a_port_hears_what_one_of_the_system_does() {
    if !crate::is_permitted() {
        return;
    }
    let wire = Wire::new("");
    make_router(&wire);
    let switch = Switch::start();
    attach(&switch, MODES[1]);
    for at in 0..2 {
        let port = UdpPort::open(&switch.path, UdpSocket::bind((HERE[at], 0)).unwrap(), 1, 1);
        let port = port.unwrap();
        let nobody = closed(&wire, THERE[at]);
        let behind = SocketAddr::new(BEHIND[at].parse().unwrap(), 9);
        let send = |remote, bytes: &[u8]| {
            let ecn = EcnCodepoint::NotEct;
            let burst = Outgoing { remote, local: None, ecn, segment_size: bytes.len(), bytes };
            assert_eq!(port.send_through(&burst).unwrap(), bytes.len());
        };
        let receive = || {
            let mut bytes = vec![0; 65536];
            let mut slices = [std::io::IoSliceMut::new(&mut bytes)];
            let result = port.receive(&mut slices, &mut [Arrival::default()]);
            assert_eq!(result.unwrap_err().kind(), ErrorKind::WouldBlock);
        };
        let wait = || {
            let time = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            let readable = port.readable();
            poll(&mut [PollFd::new(&readable, PollFlags::IN)], Some(&time)).unwrap();
        };
        port.keep_errors(true);
        let mut heard = Vec::new();
        until("it hears nothing", || {
            // The first ones are lost while the neighbour is not known.
            send(nobody, b"hello");
            wait();
            receive();
            if port.has_errors() {
                port.take_errors(&mut |error| {
                    assert_eq!((error.remote, error.quoted), (nobody, &b"hello"[..]));
                    heard.push(error.what);
                });
            }
            !heard.is_empty()
        });
        assert!(heard.iter().all(|what| *what == Unreachable::Port));
        // What comes late of those is taken first: one for each that was sent.
        let quiet = Instant::now();
        while quiet.elapsed() < Duration::from_millis(200) {
            wait();
            receive();
        }
        port.take_errors(&mut |_| ());
        // What concerns the MTU is left to probes. It is copied to the port, as its counters say.
        let counters = || listed(&switch).counters.received;
        let before = counters();
        until("the system hears nothing", || {
            send(behind, &[1; 1400]);
            wait();
            receive();
            ip(&format!("route get {}", BEHIND[at])).contains("mtu 1300") && counters() > before
        });
        receive();
        assert!(!port.has_errors(), "it heard of the MTU");
        // So is what nobody asks for.
        port.keep_errors(false);
        let before = counters();
        until("nothing comes", || {
            send(nobody, b"unheard");
            wait();
            receive();
            counters() > before
        });
        receive();
        assert!(!port.has_errors(), "it heard what nobody asks for");
    }
}
