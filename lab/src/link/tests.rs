//! Datagrams over a running link, between sockets of the test.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use quicket_wire::EcnCodepoint;

use super::namespace::Namespace;
use super::socket::{Buffers, Socket};
use super::*;
use crate::netns::{self, End, VethPair};

/// Longer than any of this can take on any machine.
const PATIENCE_MS: u16 = 60_000;

fn socket() -> Socket {
    Socket::bind("127.0.0.1:0".parse().unwrap()).unwrap()
}

fn link(to: SocketAddr, scenario: &str) -> RunningLink {
    RunningLink::start(&Options::new(to, scenario.parse().unwrap())).unwrap()
}

fn wait(fd: BorrowedFd<'_>) {
    let mut ready = [PollFd::new(fd, PollFlags::POLLIN)];
    assert_eq!(nix::poll::poll(&mut ready, PATIENCE_MS), Ok(1), "nothing came");
}

/// The next datagram: from where, with which mark, and what.
fn next(socket: &Socket) -> (SocketAddr, EcnCodepoint, Vec<u8>) {
    wait(socket.as_fd());
    let mut buffers = Buffers::new();
    let mut trains = buffers.receive(socket).unwrap().unwrap();
    let train = trains.next().unwrap();
    (train.from, train.ecn, train.bytes.to_vec())
}

#[test]
fn marks_pass_both_ways_and_clients_hear_the_link_alone() {
    let (client, server) = (socket(), socket());
    let link = link(server.local(), "delay=1ms");
    for mark in [EcnCodepoint::Ect0, EcnCodepoint::Ce, EcnCodepoint::Ect1, EcnCodepoint::NotEct] {
        assert_eq!(client.send(link.address(), mark, 4, b"ping"), 0);
        let (outside, ecn, bytes) = next(&server);
        assert_eq!((ecn, bytes.as_slice()), (mark, b"ping".as_slice()));
        assert_eq!(server.send(outside, mark, 4, b"pong"), 0);
        assert_eq!(next(&client), (link.address(), mark, b"pong".to_vec()));
    }
    let report = link.finish().unwrap();
    assert_eq!((report.up.delivered, report.down.delivered), (4, 4));
    assert_eq!((report.nat.bindings, report.nat.unknown), (1, 0));
    assert!(report.seconds >= 0.008, "four round trips of 2 ms, which is what the link adds");
}

#[test]
fn a_client_reaches_each_address_of_the_server_through_its_own_gate() {
    let (client, server, preferred) = (socket(), socket(), socket());
    let mut options = Options::new(server.local(), "ideal".parse().unwrap());
    options.also = vec![("127.0.0.1:0".parse().unwrap(), preferred.local())];
    let link = RunningLink::start(&options).unwrap();
    assert_eq!(link.addresses().len(), 2);
    let mut outsides = Vec::new();
    for (gate, end) in link.addresses().iter().zip([&server, &preferred]) {
        assert_eq!(client.send(*gate, EcnCodepoint::Ect0, 4, b"ping"), 0);
        let (outside, _, bytes) = next(end);
        assert_eq!(bytes, b"ping");
        assert_eq!(end.send(outside, EcnCodepoint::NotEct, 4, b"pong"), 0);
        assert_eq!(next(&client).0, *gate);
        outsides.push(outside);
    }
    assert_eq!(outsides[0], outsides[1], "one client is behind one address");
}

#[test]
fn clients_do_not_hear_each_other() {
    let (a, b, server) = (socket(), socket(), socket());
    let link = link(server.local(), "");
    for (client, name) in [(&a, b"a"), (&b, b"b")] {
        client.send(link.address(), EcnCodepoint::NotEct, 1, name);
        let (outside, ecn, bytes) = next(&server);
        server.send(outside, ecn, 1, &bytes);
        assert_eq!(next(client).2, name);
    }
    assert_eq!(link.finish().unwrap().nat.bindings, 2);
}

#[test]
fn the_scenario_marks_corrupts_drops_and_duplicates() {
    let (client, server) = (socket(), socket());
    let link = link(server.local(), "up drop=1 mark=100% corrupt=100% duplicate=100%");
    for _ in 0..2 {
        client.send(link.address(), EcnCodepoint::Ect0, 100, &[0; 100]);
    }
    let (_, ecn, bytes) = next(&server);
    assert_eq!(ecn, EcnCodepoint::Ce);
    // The copy comes with it in one train, if the kernel joins them.
    assert_ne!(bytes[..100], [0; 100]);
    let up = link.finish().unwrap().up;
    assert_eq!((up.offered, up.dropped_by_number), (2, 1));
    assert_eq!((up.delivered, up.duplicated, up.corrupted, up.marked), (2, 1, 1, 1));
}

#[test]
fn after_a_rebinding_the_server_sees_another_address_and_the_old_one_is_dead() {
    let (client, server) = (socket(), socket());
    let link = link(server.local(), "");
    let mut seen = Vec::new();
    for rebind in [None, Some(Rebind::Port), Some(Rebind::Address)] {
        if let Some(rebind) = rebind {
            link.rebind(rebind);
        }
        client.send(link.address(), EcnCodepoint::NotEct, 1, b"?");
        seen.push(next(&server).0);
    }
    let [first, port, address] = seen[..] else { panic!("{seen:?}") };
    assert_eq!(first.ip(), port.ip());
    assert_ne!(first.port(), port.port());
    assert_eq!(address.ip().to_string(), "127.64.0.1");
    // What goes to the old addresses vanishes, what goes to the present one arrives after it.
    for (to, text) in [(first, b"1"), (port, b"2"), (address, b"3")] {
        server.send(to, EcnCodepoint::NotEct, 1, text);
    }
    assert_eq!(next(&client).2, b"3");
    let nat = link.finish().unwrap().nat;
    assert_eq!((nat.bindings, nat.rebindings), (3, 2));
}

#[test]
fn errors_say_what_to_do() {
    let taken = socket();
    let error = |listen: SocketAddr, to: &str| {
        let options = Options { listen, ..Options::new(to.parse().unwrap(), Scenario::default()) };
        RunningLink::start(&options).unwrap_err().to_string()
    };
    let any = "127.0.0.1:0".parse().unwrap();
    assert!(error(taken.local(), "127.0.0.1:9").contains("any free port"));
    assert!(error(any, "0.0.0.0:9").contains("`--to`"));
    assert!(error("0.0.0.0:0".parse().unwrap(), "127.0.0.1:9").contains("`--listen`"));
}

#[test]
fn a_link_joins_namespaces_that_have_no_other_connection() {
    let Some(pair) = netns::unless_denied(VethPair::new(1500)) else { return };
    let [left, right] = [End::Left, End::Right].map(|end| pair.name(end).to_owned());
    let inside = |name: &str| {
        let namespace = Namespace::open(Some(name)).unwrap();
        let bound: io::Result<UdpSocket> =
            namespace.inside(|| UdpSocket::bind("127.0.0.1:0")).unwrap();
        bound.unwrap()
    };
    let (client, server) = (inside(&left), inside(&right));
    for socket in [&client, &server] {
        socket.set_read_timeout(Some(Duration::from_millis(PATIENCE_MS.into()))).unwrap();
    }
    let options = Options {
        listen_in: Some(left),
        send_in: Some(right),
        ..Options::new(server.local_addr().unwrap(), Scenario::default())
    };
    let link = RunningLink::start(&options).unwrap();
    client.send_to(b"ping", link.address()).unwrap();
    let mut buffer = [0; 8];
    let (len, outside) = server.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"ping");
    server.send_to(b"pong", outside).unwrap();
    assert_eq!(client.recv_from(&mut buffer).unwrap(), (4, link.address()));
    link.finish().unwrap();
}
