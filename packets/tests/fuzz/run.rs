//! What the switch does with frames and rings of a program that writes what it likes, and what must hold whatever
//! that is.

use std::net::IpAddr;
use std::os::fd::AsFd;

use quicket_gue::{Packet, Sum};
use quicket_packets::icmp::Report;
use quicket_packets::{Bell, Forwarder, Layout, Memory, Tuple, tuples};
use quicket_ring::program::{Receiver, halves};
use quicket_ring::{Consumer, Descriptor, Producer, Way};

const UDP: u8 = 17;

/// The first byte chooses whether it is a frame, one whose checksum is mended, or what is done to a ring.
pub(crate) fn run(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else { return };
    match choice % 3 {
        0 => frame(bytes),
        1 => frame(&mended(bytes)),
        _ => rings(bytes),
    }
}

/// With a right checksum of IPv4 and none of UDP, so that more than the checksums is tried.
fn mended(bytes: &[u8]) -> Vec<u8> {
    let mut frame = bytes.to_vec();
    let header = frame.get(14).map_or(0, |first| usize::from(first & 0xf) * 4);
    if frame.get(12..14) != Some(&[8, 0]) || header < 20 || frame.len() < 14 + header + 8 {
        return frame;
    }
    frame[24..26].fill(0);
    let sum = Sum::new().bytes(&frame[14..14 + header]).checksum();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    if frame[23] == UDP {
        frame[14 + header + 6..14 + header + 8].fill(0);
    }
    frame
}

/// What is accepted is understood by another reader in the same way.
fn frame(bytes: &[u8]) {
    // What a stack reads of an error of ICMP, whoever has made it.
    let report = Report::read(bytes);
    let Ok((source, destination)) = tuples(bytes) else { return };
    if let Some(report) = report {
        assert_eq!(report.reporter, source.address);
        assert_eq!(report.source.protocol, report.destination.protocol);
        assert!(matches!(source.protocol, 1 | 58) && report.quoted.len() < bytes.len());
    }
    let mut at = 12;
    while bytes[at..at + 2] == [0x81, 0] || bytes[at..at + 2] == [0x88, 0xa8] {
        at += 4;
    }
    let packet = Packet::parse(&bytes[at + 2..]).expect("it has been accepted");
    assert!(!packet.fragment, "a fragment");
    assert_eq!((packet.source, packet.destination), (source.address, destination.address));
    assert_eq!((packet.protocol, packet.protocol), (source.protocol, destination.protocol));
    match packet.protocol {
        6 | UDP => assert_eq!(packet.ports(), Some((source.port, destination.port))),
        _ => assert_eq!((source.port, destination.port), (0, 0)),
    }
}

/// Two ports: what one of them does to its memory, and what the other one gets of it.
fn rings(bytes: &[u8]) {
    let mut forwarder = Forwarder::new([1, 2, 3]);
    let layout = Layout::new(16, 16, 128).expect("a layout");
    let port = |forwarder: &mut Forwarder, last: u8| {
        let memory = Memory::create(layout).expect("memory");
        let theirs = memory.as_fd().try_clone_to_owned().expect("a descriptor");
        let (ours, bell) = Bell::pair().expect("a bell");
        let number = forwarder.add(memory, ours);
        let address = IpAddr::from([10, 0, 0, last]);
        let tuple = Tuple { address, protocol: UDP, port: 1000 };
        assert_eq!(forwarder.register(number, tuple), Ok(()));
        (Memory::open(theirs, layout).expect("memory"), bell, tuple)
    };
    let (liar, _bell, his) = port(&mut forwarder, 1);
    let (honest, _other_bell, _) = port(&mut forwarder, 2);
    let (_, mut receiver) = halves(honest);
    // A frame that could go, in each of his slots.
    let mut frame = [0; 128];
    let (from, to) = ("10.0.0.1:1000", "10.0.0.2:1000");
    let (from, to) = (from.parse().expect("it is one"), to.parse().expect("it is one"));
    let len = quicket_packets::compose::udp(&mut frame, from, to, &[7; 20]).expect("room") as u16;
    (0..32).for_each(|slot| assert!(liar.store(slot, &mut frame, len.into())));
    for step in bytes.chunks(8) {
        let mut number = [0; 8];
        number[..step.len()].copy_from_slice(step);
        let [what, place, a, b, c, d, e, f] = number;
        let count = u32::from_le_bytes([a, b, c, d]);
        let way = if what & 8 == 0 { Way::Send } else { Way::Receive };
        let lines = liar.lines(way);
        match what & 7 {
            0 | 1 => {
                let slot = if what & 16 == 0 { count % 40 } else { count };
                let len = if what & 32 == 0 { len } else { u16::from_le_bytes([e, f]) };
                Producer::new().put(lines, place.into(), Descriptor { slot, len });
            }
            2 => {
                let _ = Producer::new().publish(lines, count);
            }
            3 => {
                let _ = Producer::new().publish(lines, u32::from(place & 31));
            }
            4 => {
                let _ = Consumer::new().release(lines, count);
            }
            5 => {
                let _ = Consumer::new().sleep(lines);
            }
            6 => {
                let _ = Producer::new().wait(lines);
            }
            _ => {
                assert!(liar.store(u32::from(place & 31), &mut [a, b, c, d].repeat(32), 128));
            }
        }
        forwarder.turn();
        check(&mut receiver, his);
        if forwarder.take_broken().is_some() {
            break;
        }
    }
    assert!(forwarder.tuples() == 2);
}

/// Whatever has come is whole, and has the source of who sent it.
fn check(receiver: &mut Receiver, his: Tuple) {
    let ready = receiver.ready().expect("the switch does not lie");
    for at in 0..ready {
        let frame = receiver.frame(at).expect("it is there");
        let (source, destination) = tuples(frame).expect("it has been checked");
        assert_eq!(source, his);
        assert_eq!(destination.address, IpAddr::from([10, 0, 0, 2]));
    }
    receiver.release(ready);
}
