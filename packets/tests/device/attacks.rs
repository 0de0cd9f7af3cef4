//! Frames from outside and from ports that are not what they say.

use std::net::{Ipv4Addr, SocketAddr};

use quicket_packets::{Reason, compose};
use socket2::{Domain, Protocol, Socket, Type};

use crate::common::Switch;
use crate::traffic::{MODES, attach, exchange, listed};
use crate::wire::{HERE, THERE, Wire, receive, until};

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
            // The kernel makes it as small as possible for the switch; here it is to take datagrams.
            let mut port = switch.open();
            port.register(&socket).unwrap();
            rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 1 << 20).unwrap();
            let there = wire.socket(there);
            let long: Vec<u8> = (0..4000).map(|n| n as u8).collect();
            there.send_to(&long, socket.local_addr().unwrap()).unwrap();
            assert_eq!(receive(&socket).1, long, "in fragments, to the system's socket");
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
