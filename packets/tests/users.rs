//! A switch for all users, in a process of its own, and what of it is one user's and no other one's. These tests need root, to be several
//! users: without it they say LEFT OUT, and fail where [`quicket_testing::leave_out`] does.

mod common;

use std::fs::Permissions;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::users::{ATTACKER, COLLECTOR, DESCRIPTORS, GLUTTON, HOST, Of, SPY, VICTIM, as_user};
use common::{PATIENCE, Stack};
use quicket_packets::client::{Opening, Port};
use quicket_packets::daemon::{Daemon, MAX_CONNECTIONS_PER_USER};
use quicket_packets::{Layout, compose};
use rustix::process::Uid;

#[test]
fn who_takes_all_tuples_that_he_gets_leaves_room_for_others() {
    let Some(switch) = Of::all("who_takes_all_tuples_that_he_gets_leaves_room_for_others") else {
        return;
    };
    let _ports = as_user(COLLECTOR, || {
        let mut port = Port::open(&switch.path, common::layout()).unwrap();
        // He has room for fewer than the switch may have.
        let refused = (0..DESCRIPTORS)
            .find_map(|_| port.register(UdpSocket::bind("127.0.0.1:0").unwrap()).err());
        let error = refused.unwrap();
        assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
        let error = Port::open(&switch.path, common::layout()).unwrap_err();
        assert!(error.kind() != ErrorKind::TimedOut, "{error}");
        port
    });
    assert!(switch.descriptors() < DESCRIPTORS / 2, "{}", switch.descriptors());
    switch.serves();
}

/// Each has his own part of connections with queues, and of memory; and turns, while others send without end.
#[test]
fn what_a_user_takes_is_no_other_ones_share() {
    let Some(switch) = Of::all("what_a_user_takes_is_no_other_ones_share") else {
        return;
    };
    let small = Layout::new(16, 16, 128).unwrap();
    // Two of these are nearly all that a user may have.
    let large = Layout::new(2048, 4096, 16384).unwrap();
    let kept = as_user(GLUTTON, || {
        let memory = [large; 2].map(|layout| Port::open(&switch.path, layout).unwrap());
        let error = Port::open(&switch.path, large).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        memory
    });
    as_user(VICTIM, || drop(Port::open(&switch.path, large).unwrap()));
    drop(kept);
    let all = || {
        let mut first = Port::open(&switch.path, small).unwrap();
        let queues: Vec<_> = (0..20).map(|_| first.add_queue(small).unwrap()).collect();
        let begun = Instant::now();
        let mut ports: Vec<Port> = Vec::new();
        // What was his before is given back some time.
        while ports.len() + queues.len() + 1 < MAX_CONNECTIONS_PER_USER {
            ports.extend(Port::open(&switch.path, small).ok());
            assert!(begun.elapsed() < PATIENCE, "{} ports, {} queues", ports.len(), queues.len());
        }
        assert!(Port::open(&switch.path, small).is_err(), "he has more than he may");
        let error = first.add_queue(small).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
        (first, queues, ports)
    };
    let kept = as_user(GLUTTON, all);
    drop(as_user(VICTIM, all));
    drop(kept);
    let (is_over, begun) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        let ports = as_user(GLUTTON, || [(); 16].map(|()| switch.stack()));
        scope.spawn(|| {
            let mut ports = ports;
            let addresses = ports.each_ref().map(|stack| stack.address);
            // Also when the others fail.
            while !is_over.load(Ordering::Relaxed) && begun.elapsed() < 3 * PATIENCE {
                for (n, stack) in ports.iter_mut().enumerate() {
                    let (from, to) = (stack.address, addresses[(n + 1) % addresses.len()]);
                    stack.port.receive(u32::MAX, |_| ()).unwrap();
                    stack.port.send(|slot| compose::udp(slot, from, to, b"more")).unwrap();
                }
            }
        });
        switch.serves();
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_connection_that_was_handed_on_is_charged_to_who_has_opened_it() {
    let Some(switch) = Of::all("a_connection_that_was_handed_on_is_charged_to_who_has_opened_it")
    else {
        return;
    };
    // Root binds the addresses, and another user has the port.
    let open = |socket: &UdpSocket| {
        let mut opening = as_user(HOST, || Opening::connect(&switch.path).unwrap());
        opening.reserve(socket).unwrap();
        opening.confine().unwrap()
    };
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let large = Layout::new(2048, 4096, 16384).unwrap();
    let mut port = Port::open_on(open(&socket), large).unwrap();
    port.claim(common::tuple(address)).unwrap();
    let _second = as_user(HOST, || Port::open(&switch.path, large).unwrap());
    let third = UdpSocket::bind("127.0.0.1:0").unwrap();
    let error = Port::open_on(open(&third), large).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    switch.serves();
}

#[test]
fn a_user_has_nothing_of_another_ones() {
    let Some(switch) = Of::all("a_user_has_nothing_of_another_ones") else {
        return;
    };
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let mut victims = as_user(VICTIM, || {
        let mut port = Port::open(&switch.path, common::layout()).unwrap();
        // The socket is root's; who has it has its address.
        port.register(&socket).unwrap();
        Stack { port, address }
    });
    drop(socket);
    as_user(SPY, || {
        let mut port = Port::open(&switch.path, common::layout()).unwrap();
        let error = port.watch(common::tuple(address)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        let error = port.remove(common::tuple(address)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        for (reuse_address, reuse_port) in
            [(false, false), (true, false), (false, true), (true, true)]
        {
            let thief = new(socket2::Type::DGRAM);
            thief.set_reuse_address(reuse_address).unwrap();
            thief.set_reuse_port(reuse_port).unwrap();
            let error = thief.bind(&address.into()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
        }
    });
    let mut other = switch.stack();
    other.send(address, b"his");
    assert_eq!(victims.receive(), (other.address, b"his".to_vec()));
}

fn new(kind: socket2::Type) -> socket2::Socket {
    socket2::Socket::new(socket2::Domain::IPV4, kind, None).unwrap()
}

/// By SO_REUSEADDR, which the one who registers it has taken back, whatever the other one has beside it.
#[test]
fn an_address_that_two_users_have_is_no_tuple() {
    let Some(switch) = Of::all("an_address_that_two_users_have_is_no_tuple") else {
        return;
    };
    let of = |user: u32, kind| {
        let socket = new(kind);
        rustix::fs::fchown(&socket, Some(Uid::from_raw(user)), None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket
    };
    let mut port = Port::open(&switch.path, common::layout()).unwrap();
    for kind in [socket2::Type::DGRAM, socket2::Type::STREAM] {
        for has_reuse_port in [false, true] {
            let (mine, theirs) = (of(ATTACKER, kind), of(VICTIM, kind));
            mine.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
            theirs.set_reuse_port(has_reuse_port).unwrap();
            theirs.bind(&mine.local_addr().unwrap()).unwrap();
            mine.set_reuse_address(false).unwrap();
            let error = port.register(&mine).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
            drop(theirs);
            // A process that another test is just starting may have it for a moment.
            let begun = Instant::now();
            while let Err(error) = port.register(&mine) {
                assert!(begun.elapsed() < PATIENCE, "{error}");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// A switch of a user was killed, and another user may write in that folder.
#[test]
fn what_another_user_has_to_set_back_is_not_removed_with_his_lock() {
    if !rustix::process::geteuid().is_root() {
        quicket_testing::leave_out("being several users needs root");
        return;
    }
    let folder = std::env::temp_dir().join(format!("quicket-left-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
    let (path, lock) = (folder.join("packets"), folder.join("packets.lock"));
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let notes = format!("quicket-packets-altered 1 {} 7\n7 eth0 vlan - - -\nend\n", boot.trim());
    as_user(VICTIM, || {
        std::fs::write(&lock, &notes).unwrap();
        std::fs::set_permissions(&lock, Permissions::from_mode(0o600)).unwrap();
    });
    let error = as_user(HOST, || Daemon::bind(&path, false).err().unwrap());
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.to_string().contains(&format!("as user {VICTIM}")), "{error}");
    assert_eq!(std::fs::read_to_string(&lock).unwrap(), notes);
    // Where there is nothing in it, he may.
    std::fs::write(&lock, "").unwrap();
    as_user(HOST, || {
        let daemon = Daemon::bind(&path, false).unwrap();
        assert_eq!(std::fs::metadata(&lock).unwrap().uid(), HOST);
        drop(daemon);
    });
    assert!(!lock.exists());
    std::fs::remove_dir_all(folder).unwrap();
}
