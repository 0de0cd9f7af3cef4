//! Programs with ports that keep to the rules.

mod common;

use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::Switch;
use quicket_packets::client::Port;
use quicket_packets::{Layout, Reason};
use socket2::{Domain, Protocol, Socket, Type};

#[test]
fn frames_come_to_who_owns_their_destination() {
    let switch = Switch::start();
    for address in ["127.0.0.1", "::1"] {
        let (mut one, mut other) = (switch.stack(address), switch.stack(address));
        for n in 0..1000_u32 {
            one.send(other.address, &n.to_ne_bytes());
            let (from, payload) = other.receive();
            assert_eq!((from, payload), (one.address, n.to_ne_bytes().to_vec()));
            other.send(from, b"back");
            assert_eq!(one.receive(), (other.address, b"back".to_vec()));
        }
        let counters = one.port.counters().unwrap();
        assert_eq!((counters.sent, counters.received), (1000, 1000));
        // To itself.
        one.send(one.address, b"me");
        assert_eq!(one.receive(), (one.address, b"me".to_vec()));
    }
    assert_eq!(switch.end().sent, 4002);
}

#[test]
fn a_batch_is_one_publication_and_none_of_it_is_lost() {
    let switch = Switch::start();
    let (mut one, mut other) = (switch.stack("127.0.0.1"), switch.stack("127.0.0.1"));
    let (from, to) = (one.address, other.address);
    let (mut sent, mut received) = (0_u64, 0_u64);
    let begun = std::time::Instant::now();
    while received < 50_000 {
        assert!(begun.elapsed() < 3 * common::PATIENCE, "{received} have come");
        if sent - received < 64 {
            let room = 64 - (sent - received);
            let end = sent + room;
            let frame = |slot: &mut [u8]| {
                if sent == end {
                    return None;
                }
                sent += 1;
                quicket_packets::compose::udp(slot, from, to, &(sent - 1).to_ne_bytes())
            };
            one.port.send(frame).unwrap();
        }
        assert!(other.port.wait(Some(common::PATIENCE)).unwrap());
        let check = |frame: &[u8]| {
            assert_eq!(frame[42..50], received.to_ne_bytes());
            received += 1;
        };
        other.port.receive(64, check).unwrap();
    }
    assert_eq!(one.port.counters().unwrap().sent, sent);
}

#[test]
fn who_is_dropped_or_gives_a_tuple_back_owns_it_no_more() {
    let switch = Switch::start();
    let (mut one, mut other) = (switch.stack("127.0.0.1"), switch.stack("127.0.0.1"));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let tuple = other.port.register(&socket).unwrap();
    let error = one.port.register(&socket).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
    assert_eq!(one.port.remove(tuple).unwrap_err().kind(), ErrorKind::NotFound);
    other.port.remove(tuple).unwrap();
    assert_eq!(other.port.remove(tuple).unwrap_err().kind(), ErrorKind::NotFound);
    one.send((tuple.address, tuple.port).into(), b"");
    one.until(|counters| counters.dropped(Reason::Destination) == 1);
    assert_eq!(one.port.register(&socket).unwrap(), tuple);
    // The system has it taken as long as the switch keeps the socket, and no longer.
    let address = (tuple.address, tuple.port);
    drop(socket);
    assert_eq!(UdpSocket::bind(address).unwrap_err().kind(), ErrorKind::AddrInUse);
    drop(one);
    let begun = std::time::Instant::now();
    while UdpSocket::bind(address).is_err() {
        assert!(begun.elapsed() < common::PATIENCE, "the switch keeps a dead port's socket");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn only_a_socket_that_proves_something_is_a_tuple() {
    let switch = Switch::start();
    let mut port = switch.open();
    let mut refused = |socket: &dyn std::os::fd::AsFd, kind: ErrorKind, why: &str| {
        let error = port.register(socket.as_fd()).unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(why), "{error:?}, not {why}");
    };
    let udp = |address: &str| UdpSocket::bind(address).unwrap();
    refused(&udp("0.0.0.0:0"), ErrorKind::InvalidInput, "all addresses");
    refused(&udp("[::]:0"), ErrorKind::InvalidInput, "all addresses");
    let connected = udp("127.0.0.1:0");
    connected.connect("127.0.0.1:9").unwrap();
    refused(&connected, ErrorKind::InvalidInput, "connected");
    let new = |kind, protocol| Socket::new(Domain::IPV4, kind, Some(protocol)).unwrap();
    refused(&new(Type::DGRAM, Protocol::UDP), ErrorKind::InvalidInput, "not bound");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    refused(&listener, ErrorKind::InvalidInput, "SO_REUSEADDR");
    let address = "127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into();
    let listens = new(Type::STREAM, Protocol::TCP);
    listens.bind(&address).unwrap();
    listens.listen(1).unwrap();
    refused(&listens, ErrorKind::InvalidInput, "listens");
    let shared = new(Type::DGRAM, Protocol::UDP);
    shared.set_reuse_port(true).unwrap();
    shared.bind(&address).unwrap();
    refused(&shared, ErrorKind::InvalidInput, "SO_REUSEPORT");
    let elsewhere = new(Type::DGRAM, Protocol::UDP);
    elsewhere.set_freebind_v4(true).unwrap();
    let nowhere = "192.0.2.1:5000".parse::<std::net::SocketAddr>().unwrap();
    elsewhere.bind(&nowhere.into()).unwrap();
    elsewhere.set_freebind_v4(false).unwrap();
    refused(&elsewhere, ErrorKind::AddrNotAvailable, "no address of this host");
    let (local, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    refused(&local, rustix::io::Errno::AFNOSUPPORT.kind(), "none of IP");
    let file = std::fs::File::open("/dev/null").unwrap();
    let error = port.register(&file).unwrap_err();
    assert!(error.to_string().contains("cannot look into"), "{error}");
    // And those that do.
    let tcp = new(Type::STREAM, Protocol::TCP);
    tcp.bind(&address).unwrap();
    let tuple = port.register(&tcp).unwrap();
    assert_eq!(
        (tuple.protocol, Some(tuple.port)),
        (6, tcp.local_addr().unwrap().as_socket().map(|a| a.port()))
    );
    let mapped = Socket::new(Domain::IPV6, Type::DGRAM, None).unwrap();
    mapped.set_only_v6(false).unwrap();
    mapped.bind(&"[::ffff:127.0.0.1]:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    assert!(port.register(&mapped).unwrap().address.is_ipv4());
}

/// Whoever registers a socket keeps another descriptor of it. The system takes a port that it has chosen itself back from a socket
/// that is connected to nobody, or listens no more, and lets sockets with SO_REUSEADDR share one.
#[test]
fn a_tuple_is_its_owners_whatever_he_does_with_the_socket_that_proved_it() {
    let switch = Switch::start();
    let address = "127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into();
    for kind in [Type::DGRAM, Type::STREAM] {
        let new = || Socket::new(Domain::IPV4, kind, None).unwrap();
        let (socket, mut port) = (new(), switch.open());
        socket.bind(&address).unwrap();
        let bound = socket.local_addr().unwrap();
        let tuple = port.register(&socket).unwrap();
        let is_taken = |why: &str| {
            for is_shared in [false, true] {
                let another = new();
                another.set_reuse_address(is_shared).unwrap();
                let error = another.bind(&bound).expect_err(why);
                assert_eq!(error.kind(), ErrorKind::AddrInUse, "{why}: {error}");
            }
        };
        is_taken("it is registered");
        socket.set_reuse_address(true).unwrap();
        is_taken("its owner would share it");
        match kind {
            Type::DGRAM => rustix::net::connect_unspec(&socket).unwrap(),
            _ => {
                // Nobody is let in beside the switch's socket.
                assert!(socket.listen(1).is_err());
                let _ = socket.shutdown(std::net::Shutdown::Both);
            }
        }
        is_taken("its owner has given it up");
        drop(socket);
        is_taken("its owner has closed it");
        port.remove(tuple).unwrap();
        new().bind(&bound).expect("it is given back once that is answered");
    }
}

/// Raw sockets need CAP_NET_RAW, and another network namespace CAP_SYS_ADMIN.
#[test]
fn raw_sockets_are_protocols_and_other_namespaces_prove_nothing() {
    let switch = Switch::start();
    let mut port = switch.open();
    let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(47)));
    let Ok(raw) = raw else {
        quicket_testing::leave_out("raw sockets need CAP_NET_RAW");
        return;
    };
    raw.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    let tuple = port.register(&raw).unwrap();
    assert_eq!((tuple.protocol, tuple.port), (47, 0));
    let sctp = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(132))).unwrap();
    let unknown = rustix::io::Errno::PROTONOSUPPORT.kind();
    assert_eq!(port.register(&sctp).unwrap_err().kind(), unknown);
    let elsewhere = std::thread::spawn(|| {
        let flags = rustix::thread::UnshareFlags::NEWNET;
        // SAFETY: only the network namespace of this thread, which makes one socket and ends.
        #[allow(unsafe_code, reason = "unshare is unsafe for other flags than this")]
        let unshared = unsafe { rustix::thread::unshare_unsafe(flags) };
        unshared.ok()?;
        UdpSocket::bind("127.0.0.1:0").ok()
    });
    let Some(elsewhere) = elsewhere.join().unwrap() else {
        quicket_testing::leave_out("a network namespace needs CAP_SYS_ADMIN");
        return;
    };
    let error = port.register(&elsewhere).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}

#[test]
fn ports_are_refused_beyond_their_bounds_with_a_reason() {
    let switch = Switch::start();
    // 4096 positions each way of 16 KiB are 128 MiB.
    let large = Layout::new(2048, 4096, 16384).unwrap();
    let first = Port::open(&switch.path, large).unwrap();
    let second = Port::open(&switch.path, large).unwrap();
    let error = Port::open(&switch.path, large).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    drop((first, second));
    let begun = std::time::Instant::now();
    while Port::open(&switch.path, large).is_err() {
        assert!(begun.elapsed() < common::PATIENCE, "the memory of dead ports is still counted");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(quicket_packets::daemon::Daemon::bind(&switch.path, false).is_err());
}

/// A child that has not called exec yet has all descriptors of this process, also those that the switch has closed.
#[test]
fn children_that_begin_meanwhile_cost_no_port() {
    let switch = Switch::start();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let spawning = scope.spawn(|| {
            let begun = std::time::Instant::now();
            while !is_over.load(Ordering::Relaxed) {
                assert!(begun.elapsed() < 6 * common::PATIENCE, "ports are not opened");
                assert!(Command::new("true").status().unwrap().success());
            }
        });
        let opened = (0..2000).find_map(|_| Port::open(&switch.path, common::layout()).err());
        is_over.store(true, Ordering::Relaxed);
        spawning.join().unwrap();
        assert!(opened.is_none(), "{opened:?}");
    });
}

/// ... also a program that only sends, and never waits.
#[test]
fn who_sends_hears_that_the_switch_has_gone() {
    let switch = Switch::start();
    let mut port = Port::open(&switch.path, common::layout()).unwrap();
    switch.end();
    // More than the ring has room for.
    let most = 128 + 2 * quicket_packets::LOOKS;
    let failed = (0..most).find_map(|_| {
        let mut left = Some(60);
        port.send(|_| left.take()).err()
    });
    let kind = failed.expect("it sends for ever").kind();
    assert!(matches!(kind, ErrorKind::ConnectionReset), "{kind}");
}

/// The switch may see that a program has gone before it has looked at what that has sent.
#[test]
fn who_sends_and_goes_has_sent() {
    let switch = Switch::start();
    let mut receiver = switch.stack("127.0.0.1");
    for _ in 0..300 {
        let mut sender = switch.stack("127.0.0.1");
        (0..20_u32).for_each(|n| sender.send(receiver.address, &n.to_ne_bytes()));
        let from = sender.address;
        drop(sender);
        for n in 0..20_u32 {
            assert_eq!(receiver.receive(), (from, n.to_ne_bytes().to_vec()));
        }
    }
}
