//! A protocol that has no ports: GRE, as raw sockets of the system send and receive it.

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use quicket_gue::Sum;
use quicket_packets::client::Port;
use quicket_packets::{Tuple, compose};
use socket2::{Domain, Protocol, Socket, Type};

use crate::common::{PATIENCE, Switch};
use crate::traffic::{MODES, attach, listed};
use crate::wire::{DEVICE, HERE, THERE, Wire, ip};

const GRE: u8 = 47;
/// A second address for each version of IP.
const ALSO_HERE: [&str; 2] = ["192.0.2.3", "2001:db8::3"];

/// A raw socket, which needs CAP_NET_RAW.
fn raw(address: IpAddr) -> Socket {
    let domain = if address.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(i32::from(GRE)))).unwrap();
    socket.bind(&SocketAddr::new(address, 0).into()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// A port that has the protocol at this address.
fn open(switch: &Switch, address: IpAddr) -> Port {
    let mut port = switch.open();
    let tuple = port.register(raw(address).as_fd()).unwrap();
    assert_eq!(tuple, Tuple { address, protocol: GRE, port: 0 });
    port
}

/// A packet of GRE (RFC 2784): its header, and what would be IPv4.
fn packet(len: usize) -> Vec<u8> {
    let mut packet = vec![0, 0, 8, 0];
    packet.extend((0..len).map(|n| n as u8 ^ 0x5a));
    packet
}

/// Sends a frame with that packet: one of UDP, whose header is overwritten.
fn send(port: &mut Port, from: IpAddr, to: IpAddr, packet: &[u8]) {
    let [begin, end] = [from, to].map(|address| SocketAddr::new(address, 0));
    let mut once = Some(());
    let sent = port.send(|slot| {
        once.take()?;
        let len = compose::udp(slot, begin, end, &packet[8..])?;
        let at = transport(from);
        slot[at..at + 8].copy_from_slice(&packet[..8]);
        if from.is_ipv4() {
            slot[23] = GRE;
            slot[24..26].fill(0);
            let sum = Sum::new().bytes(&slot[14..34]).checksum();
            slot[24..26].copy_from_slice(&sum.to_be_bytes());
        } else {
            slot[20] = GRE;
        }
        Some(len)
    });
    assert_eq!(sent.unwrap(), 1);
}

/// Where in a frame the packet begins.
const fn transport(address: IpAddr) -> usize {
    if address.is_ipv4() { 34 } else { 54 }
}

/// The next frame is one with that packet.
fn expect(port: &mut Port, from: IpAddr, packet: &[u8]) {
    assert!(port.wait(Some(PATIENCE)).unwrap(), "no frame has come");
    let at = transport(from);
    let mut count = 0;
    port.receive(1, |frame| {
        let (protocol, source) = match from {
            IpAddr::V4(_) => (frame[23], <[u8; 4]>::try_from(&frame[26..30]).unwrap().into()),
            IpAddr::V6(_) => (frame[20], <[u8; 16]>::try_from(&frame[22..38]).unwrap().into()),
        };
        assert_eq!((protocol, source), (GRE, from));
        assert_eq!(&frame[at..at + packet.len()], packet);
        // Perhaps padded.
        assert!(frame.len() == (at + packet.len()).max(frame.len().min(60)), "{}", frame.len());
        count += 1;
    })
    .unwrap();
    assert_eq!(count, 1);
}

#[test]
fn a_protocol_without_ports_goes_between_ports_and_to_raw_sockets() {
    if !crate::is_permitted() {
        return;
    }
    let wire = Wire::new("");
    ip(&format!("addr add {}/24 dev {DEVICE}", ALSO_HERE[0]));
    ip(&format!("addr add {}/64 dev {DEVICE} nodad", ALSO_HERE[1]));
    for mode in MODES {
        let switch = Switch::start();
        attach(&switch, mode);
        for n in 0..2 {
            let [one, other, far] =
                [HERE[n], ALSO_HERE[n], THERE[n]].map(|text| text.parse::<IpAddr>().unwrap());
            let (mut here, mut also) = (open(&switch, one), open(&switch, other));
            let there = wire.there(|| raw(far));
            for len in [8, 30, 1000, 1400] {
                let packet = packet(len);
                send(&mut here, one, other, &packet);
                expect(&mut also, one, &packet);
                send(&mut also, other, one, &packet);
                expect(&mut here, other, &packet);
                // By the device. The neighbour is known from the first one that comes from there.
                there.send_to(&packet, &SocketAddr::new(one, 0).into()).unwrap();
                expect(&mut here, far, &packet);
                send(&mut here, one, far, &packet);
                // Of IPv4, a raw socket receives the header, too (raw(7)).
                let mut buffer = [0; 2048];
                let count = (&there).read(&mut buffer).expect("no packet has come");
                let header = if one.is_ipv4() { 20 } else { 0 };
                assert_eq!(buffer[header..count], packet);
            }
        }
        let counters = listed(&switch).counters;
        assert_eq!((counters.sent, counters.received), (8, 8));
    }
}
