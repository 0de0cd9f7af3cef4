//! A connection that one program opens, with tuples that it proves, and another one has a port by.

mod common;

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

use common::{PATIENCE, Stack, Switch, layout, tuple};
use quicket_packets::client::{Opening, Port, inherited};
use quicket_packets::control::Control;
use quicket_packets::daemon::MAX_RESERVED;
use quicket_packets::device::Mode;
use quicket_packets::{Layout, Tuple};

const UDP: u8 = 17;

/// A connection for which so many addresses are reserved.
fn opened(switch: &Switch, count: usize) -> (OwnedFd, Vec<SocketAddr>) {
    let mut opening = Opening::connect(&switch.path).unwrap();
    let addresses = (0..count).map(|_| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        assert_eq!(opening.reserve(&socket).unwrap(), tuple(address));
        address
    });
    let addresses = addresses.collect();
    (opening.confine().unwrap(), addresses)
}

fn has(port: Port, address: SocketAddr) -> Stack {
    let mut port = port;
    assert_eq!(port.claim_one(UDP, address).unwrap(), tuple(address));
    Stack { port, address }
}

/// Waits until the system has an address again.
fn until_free(address: SocketAddr) {
    let begun = Instant::now();
    while UdpSocket::bind(address).is_err() {
        assert!(begun.elapsed() < PATIENCE, "{address} is still kept");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn what_is_reserved_is_kept_until_the_connection_ends_and_no_other_port_has_it() {
    let switch = Switch::start();
    let (control, addresses) = opened(&switch, 2);
    // The sockets are closed, and there is no port yet.
    let taken = |address: SocketAddr| UdpSocket::bind(address).unwrap_err().kind();
    assert_eq!(taken(addresses[0]), ErrorKind::AddrInUse);
    let port = Port::open_on(control, layout()).unwrap();
    assert_eq!(port.reserved(), [tuple(addresses[0]), tuple(addresses[1])]);
    let mut peer = switch.stack("127.0.0.1");
    // It is nobody's before it is claimed.
    peer.send(addresses[0], b"early");
    peer.until(|counters| counters.dropped(quicket_packets::Reason::Destination) == 1);
    let mut other = switch.open();
    for (error, kind) in [
        (other.claim(tuple(addresses[0])).unwrap_err(), ErrorKind::NotFound),
        (other.claim_one(UDP, addresses[0]).unwrap_err(), ErrorKind::AddrNotAvailable),
    ] {
        assert_eq!(error.kind(), kind, "{error}");
    }
    let mut handed = has(port, addresses[0]);
    handed.send(peer.address, b"there");
    assert_eq!(peer.receive(), (handed.address, b"there".to_vec()));
    peer.send(handed.address, b"back");
    assert_eq!(handed.receive(), (peer.address, b"back".to_vec()));
    // The next free one, and then none.
    let any = SocketAddr::new(addresses[0].ip(), 0);
    assert_eq!(handed.port.claim_one(UDP, any).unwrap(), tuple(addresses[1]));
    for address in [any, addresses[0]] {
        let error = handed.port.claim_one(UDP, address).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
    }
    let tcp = Tuple { protocol: 6, ..tuple(addresses[0]) };
    assert_eq!(handed.port.claim(tcp).unwrap_err().kind(), ErrorKind::NotFound);
    // Given back, it is reserved as before.
    handed.port.remove(tuple(addresses[0])).unwrap();
    assert_eq!(taken(addresses[0]), ErrorKind::AddrInUse);
    let error = handed.port.remove(tuple(addresses[0])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    handed.port.claim(tuple(addresses[0])).unwrap();
    // One that is registered as usual is none of these.
    let own = UdpSocket::bind("127.0.0.1:0").unwrap();
    let own_address = own.local_addr().unwrap();
    handed.port.register(own).unwrap();
    handed.port.remove(tuple(own_address)).unwrap();
    until_free(own_address);
    drop(handed);
    addresses.into_iter().for_each(until_free);
}

#[test]
fn who_was_handed_a_connection_has_none_of_the_powers_of_who_opened_it() {
    let switch = Switch::start();
    let mut stack = switch.stack("127.0.0.1");
    let (control, addresses) = opened(&switch, 1);
    let port = Port::open_on(control.try_clone().unwrap(), layout());
    let mut port = port.unwrap();
    // Others of the user watch what they like of his.
    switch.open().watch(tuple(stack.address)).unwrap();
    let error = port.watch(tuple(stack.address)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    let mut control = Control::from(control);
    for error in [
        control.attach("lo", Mode::Generic).unwrap_err(),
        control.detach("lo").unwrap_err(),
        control.devices().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(error.to_string().contains("was handed to a program"), "{error}");
    }
    drop((control, port));
    until_free(addresses[0]);
    let mut peer = switch.stack("127.0.0.1");
    peer.send(stack.address, b"still");
    assert_eq!(stack.receive().1, b"still");
}

/// All of them are charged to one user.
#[test]
fn who_was_handed_a_connection_leaves_something_to_those_who_come_later() {
    let switch = Switch::start();
    let small = Layout::new(16, 16, 128).unwrap();
    let greedy = |layout| {
        let mut port = Port::open_on(opened(&switch, 1).0, layout).unwrap();
        let mut queues = Vec::new();
        let error = loop {
            match port.add_queue(layout) {
                Ok(queue) => queues.push(queue),
                Err(error) => break error,
            }
        };
        (port, queues, error)
    };
    let all = [(); 3].map(|()| greedy(small));
    assert_eq!(all.each_ref().map(|(_, queues, _)| queues.len()), [63, 31, 15]);
    assert!(all.iter().all(|(_, _, error)| error.kind() == ErrorKind::QuotaExceeded));
    // Who has opened them has what is left.
    drop(switch.stack("127.0.0.1"));
    drop(all);
    // The same of memory: a little more than 8 MiB each.
    let large = Layout::new(256, 256, 16384).unwrap();
    let begun = Instant::now();
    // What there was before is given back some time.
    let all = loop {
        let first = greedy(large);
        if first.1.len() == 14 {
            break [first, greedy(large)];
        }
        assert!(begun.elapsed() < PATIENCE, "{} queues", first.1.len());
    };
    assert_eq!(all[1].1.len(), 7);
    assert!(all.iter().all(|(_, _, error)| error.kind() == ErrorKind::OutOfMemory));
    drop(switch.open());
}

#[test]
fn so_many_are_reserved_and_by_nobody_who_has_a_port() {
    let switch = Switch::start();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut opening = Opening::connect(&switch.path).unwrap();
    opening.reserve(&socket).unwrap();
    let error = opening.reserve(&socket).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
    let error = switch.open().register(&socket).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
    // Nor what a port has.
    let registered = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut port = switch.open();
    port.register(&registered).unwrap();
    let error = opening.reserve(&registered).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
    // What proves nothing reserves nothing.
    let error = opening.reserve(UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    for _ in 1..MAX_RESERVED {
        opening.reserve(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    }
    let error = opening.reserve(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let control = opening.confine().unwrap();
    // Claimed without a port, by hand: CLAIM, and the tuple.
    let address = socket.local_addr().unwrap();
    let octets = [[0; 10].as_slice(), &[255; 2], &[127, 0, 0, 1], &[UDP]].concat();
    let claim = [&[13], &octets[..], &address.port().to_ne_bytes()].concat();
    let (answer, _) = common::ask(&control, &claim, None);
    assert!(answer[0] == 1 && String::from_utf8_lossy(&answer).contains("open one first"));
    let port = Port::open_on(control.try_clone().unwrap(), layout()).unwrap();
    assert_eq!(port.reserved().len(), MAX_RESERVED);
    // RESERVE.
    let late = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (answer, _) = common::ask(&control, &[10], Some(&late));
    assert!(answer[0] == 1 && String::from_utf8_lossy(&answer).contains("before there is a port"));
    let error = Port::open_on(control, layout()).unwrap_err();
    assert!(error.to_string().contains("has a port"), "{error}");
}

#[test]
fn a_descriptor_that_was_inherited_is_known_by_its_number() {
    let switch = Switch::start();
    let (control, addresses) = opened(&switch, 1);
    let mut handed = has(
        Port::open_on(inherited(control.as_raw_fd()).unwrap(), layout()).unwrap(),
        addresses[0],
    );
    let mut peer = switch.stack("127.0.0.1");
    peer.send(handed.address, b"there");
    assert_eq!(handed.receive().1, b"there");
    for none in [-1, 1 << 20] {
        assert_eq!(inherited(none).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
    let file = std::fs::File::open("/dev/null").unwrap();
    let error = Port::open_on(file.into(), layout()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTSOCK), "{error}");
}

/// Another network namespace takes CAP_SYS_ADMIN.
#[test]
fn a_program_of_another_network_namespace_has_a_port_by_what_it_was_handed() {
    let switch = Switch::start();
    let mut peer = switch.stack("127.0.0.1");
    let (control, addresses) = opened(&switch, 1);
    let (address, to) = (addresses[0], peer.address);
    let elsewhere = std::thread::spawn(move || {
        let flags = rustix::thread::UnshareFlags::NEWNET;
        // SAFETY: only the network namespace of this thread, which ends with the test.
        #[allow(unsafe_code, reason = "unshare of what is not the descriptors")]
        unsafe { rustix::thread::unshare_unsafe(flags) }.ok()?;
        let mut handed = has(Port::open_on(control, layout()).unwrap(), address);
        // What is bound here proves nothing.
        let other = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let error = handed.port.register(other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        handed.send(to, b"from elsewhere");
        let (from, payload) = handed.receive();
        handed.send(from, &payload);
        Some(())
    });
    if !rustix::process::geteuid().is_root() {
        quicket_testing::leave_out("a network namespace needs CAP_SYS_ADMIN");
        return;
    }
    assert_eq!(peer.receive(), (address, b"from elsewhere".to_vec()));
    peer.send(address, b"heard");
    assert_eq!(peer.receive(), (address, b"heard".to_vec()));
    elsewhere.join().unwrap().expect("a network namespace");
}
