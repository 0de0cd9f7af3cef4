//! Ports that carry the datagrams of QUIC sockets: trains, marks, room, and a switch that goes and comes.

mod common;

use std::io::{ErrorKind, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use common::{PATIENCE, Switch};
use quicket_packets::daemon::Daemon;
use quicket_packets::udp::UdpPort;
use quicket_udp::{Arrival, Outgoing, Port};
use quicket_wire::EcnCodepoint;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const ADDRESSES: [&str; 2] = ["127.0.0.1", "::1"];
/// The smallest rings: 64 frames.
const SMALL: usize = 1;

fn open(switch: &Switch, address: &str) -> UdpPort {
    let socket = UdpSocket::bind((address, 0)).unwrap();
    UdpPort::open(&switch.path, socket, SMALL, SMALL).unwrap()
}

fn burst(remote: SocketAddr, segment_size: usize, bytes: &[u8]) -> Outgoing<'_> {
    Outgoing { remote, local: None, ecn: EcnCodepoint::Ect0, segment_size, bytes }
}

fn is_ready(port: &UdpPort, what: PollFlags, time: Duration) -> bool {
    let fd = if what == PollFlags::IN { port.readable() } else { port.writable() };
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    poll(&mut [PollFd::new(&fd, what)], Some(&time)).unwrap() > 0
}

/// What has come, with so many buffers of so many octets.
fn receive(
    port: &UdpPort,
    buffers: usize,
    room: usize,
) -> Result<Vec<(Arrival, Vec<u8>)>, ErrorKind> {
    let mut bytes = vec![vec![0; room]; buffers];
    let mut slices: Vec<_> = bytes.iter_mut().map(|bytes| IoSliceMut::new(bytes)).collect();
    let mut arrivals = vec![Arrival::default(); buffers];
    let count = port.receive(&mut slices, &mut arrivals).map_err(|error| error.kind())?;
    let all = arrivals.into_iter().zip(bytes).take(count);
    Ok(all.map(|(arrival, bytes)| (arrival, bytes[..arrival.len].to_vec())).collect())
}

/// Waits until something has come, and takes it.
fn await_trains(port: &UdpPort) -> Vec<(Arrival, Vec<u8>)> {
    loop {
        match receive(port, 8, 65536) {
            Ok(trains) => return trains,
            Err(kind) => assert_eq!(kind, ErrorKind::WouldBlock),
        }
        assert!(is_ready(port, PollFlags::IN, PATIENCE), "nothing has come");
    }
}

#[test]
fn a_burst_arrives_as_it_was_sent_with_its_mark() {
    let switch = Switch::start();
    for address in ADDRESSES {
        let (one, other) = (open(&switch, address), open(&switch, address));
        assert_eq!(receive(&other, 8, 65536), Err(ErrorKind::WouldBlock));
        for ecn in [EcnCodepoint::Ect0, EcnCodepoint::Ce, EcnCodepoint::NotEct] {
            let bytes: Vec<u8> = (0..5000).map(|n| (n % 251) as u8).collect();
            let train = Outgoing { ecn, ..burst(other.local_addr(), 1200, &bytes) };
            assert_eq!(one.send_through(&train).unwrap(), 5000);
            let mut came = Vec::new();
            while came.len() < bytes.len() {
                for (arrival, bytes) in await_trains(&other) {
                    let Arrival { remote, local, ecn: mark, .. } = arrival;
                    assert_eq!((remote, local), (one.local_addr(), Some(other.local_addr())));
                    assert!(mark == ecn && arrival.stride <= 1200);
                    came.extend(bytes);
                }
            }
            assert_eq!(came, bytes);
        }
        // From another address than its own, to another family, and longer than a slot.
        let to = other.local_addr();
        let strange = Outgoing { local: Some("192.0.2.9".parse().unwrap()), ..burst(to, 9, b"x") };
        assert_eq!(one.send_through(&strange).unwrap_err().kind(), ErrorKind::AddrNotAvailable);
        let family = if to.is_ipv4() { "[::1]:9" } else { "127.0.0.1:9" };
        assert!(one.send_through(&burst(family.parse().unwrap(), 9, b"x")).is_err());
        let long = one.send_through(&burst(to, 3000, &[0; 3000])).unwrap_err();
        assert_eq!(long.raw_os_error(), Some(rustix::io::Errno::MSGSIZE.raw_os_error()));
    }
}

/// What is left for want of buffers is told of again, whoever asks, and nothing is told of twice.
#[test]
fn it_is_readable_as_long_as_something_is_there() {
    let switch = Switch::start();
    let (one, other) = (open(&switch, "127.0.0.1"), open(&switch, "127.0.0.1"));
    // Whoever has not looked yet is told to.
    assert!(is_ready(&other, PollFlags::IN, Duration::ZERO));
    assert_eq!(receive(&other, 1, 100), Err(ErrorKind::WouldBlock));
    assert!(!is_ready(&other, PollFlags::IN, Duration::ZERO));
    assert_eq!(one.send_through(&burst(other.local_addr(), 100, &[7; 1000])).unwrap(), 1000);
    for left in (0..10).rev() {
        assert!(is_ready(&other, PollFlags::IN, PATIENCE), "{left} are left");
        let came = loop {
            match receive(&other, 1, 100) {
                Ok(came) => break came,
                Err(_) => assert!(is_ready(&other, PollFlags::IN, PATIENCE)),
            }
        };
        assert_eq!(came[0].1, [7; 100]);
    }
    assert_eq!(receive(&other, 1, 100), Err(ErrorKind::WouldBlock));
    assert!(!is_ready(&other, PollFlags::IN, Duration::ZERO));
}

/// One that sends faster than the switch takes it is told to wait, and when to go on: nothing of what was taken is lost
/// but by a receiver that does not read.
#[test]
fn without_room_it_is_not_writable_until_there_is_some() {
    let switch = Switch::start();
    let (one, other) = (open(&switch, "127.0.0.1"), open(&switch, "127.0.0.1"));
    let (mut sent, mut blocked, mut parts) = (0, 0, 0);
    let bytes = [1; 4800];
    let begun = Instant::now();
    while blocked < 20 || parts == 0 {
        assert!(begun.elapsed() < PATIENCE, "it has had room all the time");
        match one.send_through(&burst(other.local_addr(), 100, &bytes)) {
            Ok(taken) => {
                sent += taken / 100;
                if taken == bytes.len() {
                    continue;
                }
                assert_eq!(taken % 100, 0);
                parts += 1;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        blocked += 1;
        // Who reads sees that there is room, as in an endpoint.
        while !is_ready(&one, PollFlags::OUT, Duration::ZERO) {
            assert!(is_ready(&one, PollFlags::IN, PATIENCE), "nobody has rung");
            assert_eq!(receive(&one, 1, 100), Err(ErrorKind::WouldBlock));
        }
    }
    // The receiver has not read: what had no room there is lost, and only that.
    let mut came = 0;
    while let Ok(trains) = receive(&other, 8, 65536) {
        came += trains.iter().map(|(train, _)| train.len / 100).sum::<usize>();
    }
    assert!((64..sent).contains(&came), "{came} of {sent} have come");
}

#[test]
fn another_switch_at_the_path_has_the_address_again() {
    let switch = Switch::start();
    let (one, other) = (open(&switch, "127.0.0.1"), open(&switch, "127.0.0.1"));
    let path = switch.path.clone();
    switch.end();
    for port in [&one, &other] {
        assert!(is_ready(port, PollFlags::IN, PATIENCE));
        assert_eq!(receive(port, 1, 100), Err(ErrorKind::ConnectionReset));
    }
    // What is sent meanwhile is lost, and then has to wait.
    let begun = Instant::now();
    while one.send_through(&burst(other.local_addr(), 100, &[0; 6400])).is_ok() {
        assert!(begun.elapsed() < PATIENCE);
    }
    assert!(!is_ready(&one, PollFlags::OUT, Duration::ZERO));
    let daemon = Daemon::bind(&path, false).unwrap();
    let (stop, stopped) = std::os::unix::net::UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || daemon.run(std::os::fd::AsFd::as_fd(&stopped)));
    for port in [&one, &other] {
        let begun = Instant::now();
        while receive(port, 1, 100) != Err(ErrorKind::WouldBlock) {
            assert!(begun.elapsed() < PATIENCE, "the switch is not found");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert!(is_ready(&one, PollFlags::OUT, Duration::ZERO));
    assert_eq!(one.send_through(&burst(other.local_addr(), 100, b"again")).unwrap(), 5);
    assert_eq!(await_trains(&other)[0].1, b"again");
    drop(stop);
    let counters = thread.join().unwrap().unwrap();
    assert_eq!(counters.received, 1);
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let switch = Switch::start();
    let bind = |address: &str| UdpSocket::bind((address, 0)).unwrap();
    let refused =
        |path: &std::path::Path, socket| UdpPort::open(path, socket, SMALL, SMALL).unwrap_err();
    let error = refused(std::path::Path::new("/nowhere/packets"), bind("127.0.0.1"));
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("quicket switch packets starts one"), "{error}");
    let error = refused(&switch.path, bind("0.0.0.0"));
    assert!(error.to_string().contains("bound to all addresses"), "{error}");
}
