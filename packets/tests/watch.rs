//! Programs that watch a port: what they see, and whose.

mod common;

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use common::{PATIENCE, Switch, layout, see, tuple};
use quicket_packets::client::Port;
use quicket_packets::{Layout, Reason};
use rustix::process::{Uid, getuid};

const NOBODY: u32 = 65534;

#[test]
fn both_directions_are_seen_until_the_port_ends() {
    let switch = Switch::start();
    let (mut one, mut other) = (switch.stack("127.0.0.1"), switch.stack("127.0.0.1"));
    let mut watcher = switch.open();
    watcher.watch(tuple(one.address)).unwrap();
    one.send(other.address, &[1; 100]);
    other.receive();
    other.send(other.address, &[2; 100]);
    other.receive();
    other.send(one.address, &[3; 200]);
    one.receive();
    one.send_as(other.address, other.address, &[4; 100]);
    one.until(|counters| counters.dropped(Reason::Source) == 1);
    // Longer than there is room for, with what is before it: the beginning.
    other.send(one.address, &[5; 2000]);
    one.receive();
    let expected = [(142, Some(1)), (242, Some(3)), (2042, Some(5))];
    assert_eq!(see(&mut watcher, 3), expected);
    drop(one);
    let begun = Instant::now();
    while watcher.counters().is_ok() {
        assert!(begun.elapsed() < PATIENCE, "the port that is watched has ended");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn who_does_not_look_loses_frames_and_nobody_else_does() {
    let switch = Switch::start();
    let (mut one, mut other) = (switch.stack("127.0.0.1"), switch.stack("127.0.0.1"));
    let mut watcher = Port::open(&switch.path, Layout::new(16, 16, 128).unwrap()).unwrap();
    watcher.watch(tuple(one.address)).unwrap();
    for n in 0..100 {
        one.send(other.address, &[n; 100]);
        assert_eq!(other.receive().1, [n; 100]);
    }
    assert_eq!(watcher.counters().unwrap().dropped(Reason::Full), 84);
    let mut lost = Vec::new();
    watcher
        .see(u32::MAX, |frame| {
            // What has room in a slot.
            assert_eq!((frame.len, frame.octets.len()), (142, 112));
            lost.push(frame.lost);
        })
        .unwrap();
    assert_eq!(lost, [0; 16]);
    one.send(other.address, b"then");
    let mut lost = 0;
    assert!(watcher.wait(Some(PATIENCE)).unwrap());
    watcher.see(1, |frame| lost = frame.lost).unwrap();
    assert_eq!(lost, 84);
}

#[test]
fn a_port_has_one_watcher_which_is_nothing_else() {
    let switch = Switch::start();
    let mut one = switch.stack("127.0.0.1");
    let mut watcher = switch.open();
    let watch = |port: &mut Port, address: SocketAddr| {
        port.watch(tuple(address)).map_err(|error| error.kind())
    };
    assert_eq!(watch(&mut watcher, "127.0.0.1:9".parse().unwrap()), Err(ErrorKind::NotFound));
    assert_eq!(watch(&mut watcher, one.address), Ok(()));
    assert_eq!(watch(&mut watcher, one.address), Err(ErrorKind::InvalidInput));
    assert_eq!(watch(&mut switch.open(), one.address), Err(ErrorKind::ResourceBusy));
    let address = one.address;
    assert_eq!(watch(&mut one.port, address), Err(ErrorKind::InvalidInput));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    assert_eq!(watcher.register(&socket).unwrap_err().kind(), ErrorKind::InvalidInput);
    // Another one may when the first has gone.
    drop(watcher);
    let (begun, mut next) = (Instant::now(), switch.open());
    while watch(&mut next, address) == Err(ErrorKind::ResourceBusy) {
        assert!(begun.elapsed() < PATIENCE);
    }
    let mut other = switch.stack("127.0.0.1");
    other.send(address, b"still here");
    assert_eq!(one.receive().1, b"still here");
    assert_eq!(see(&mut next, 1), [(60, Some(0))]);
}

/// Does something as another user, on a thread of its own: the system has users of threads.
fn as_user<T: Send>(user: u32, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let user = Uid::from_raw(user);
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            act()
        });
        thread.join().unwrap()
    })
}

#[test]
fn users_see_their_own_ports_and_root_sees_all() {
    if !getuid().is_root() {
        println!("left out: only root can be several users");
        return;
    }
    let switch = Switch::start_for_all();
    let mut ours = switch.stack("127.0.0.1");
    let mut theirs = as_user(NOBODY, || switch.stack("127.0.0.1"));
    let watch = |address: SocketAddr| {
        let mut port = Port::open(&switch.path, layout()).unwrap();
        port.watch(tuple(address)).map(|()| port).map_err(|error| error.kind())
    };
    assert_eq!(as_user(NOBODY, || watch(ours.address)).err(), Some(ErrorKind::NotFound));
    assert_eq!(as_user(NOBODY - 1, || watch(theirs.address)).err(), Some(ErrorKind::NotFound));
    drop(as_user(NOBODY, || watch(theirs.address)).unwrap());
    let begun = Instant::now();
    let mut root = loop {
        match watch(theirs.address) {
            Err(ErrorKind::ResourceBusy) => assert!(begun.elapsed() < PATIENCE),
            result => break result.unwrap(),
        }
    };
    theirs.send(ours.address, &[9; 50]);
    ours.receive();
    assert_eq!(see(&mut root, 1), [(92, Some(9))]);
}
