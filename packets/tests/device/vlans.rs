//! Tags: those of priority alone are stepped over, one or two of them; VLANs are the system's.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::process::Command;

use quicket_packets::{Reason, compose, tuples};
use rustix::net::SendFlags;

use crate::common::{PATIENCE, Stack, Switch, tuple};
use crate::traffic::{MODES, attach, exchange, listed};
use crate::wire::{DEVICE, HERE, THERE, Wire, ip, receive, socket, until};

/// 802.1Q and 802.1ad, with what is behind the protocol's number: priority, and the number of the VLAN.
const CUSTOMER: [u8; 2] = [0x81, 0];
const SERVICE: [u8; 2] = [0x88, 0xa8];
type Tag = ([u8; 2], u16);

/// The far end, which writes whole frames.
struct Far {
    socket: OwnedFd,
    /// The addresses of Ethernet to and from which they are.
    addresses: [u8; 12],
}

/// The number and the address of a device.
fn link(device: &str) -> (u32, [u8; 6]) {
    let text = ip(&format!("-o link show dev {device}"));
    let index = text.split(':').next().unwrap().trim().parse().unwrap();
    let mut words = text.split_whitespace();
    assert!(words.any(|word| word == "link/ether"), "{text}");
    let octets = words.next().unwrap().split(':').map(|octet| u8::from_str_radix(octet, 16));
    let octets: Vec<u8> = octets.map(Result::unwrap).collect();
    (index, octets.try_into().unwrap())
}

impl Far {
    fn new(wire: &Wire) -> Self {
        let (_, here) = link(DEVICE);
        let (socket, there) = wire.there(|| {
            let (index, there) = link("vb");
            // Any packet socket of the device sends whole frames.
            (quicket_bpf::error_socket(index, true).unwrap(), there)
        });
        Self { socket, addresses: [here, there].concat().try_into().unwrap() }
    }

    /// Sends a datagram with tags. Returns the frame.
    fn send(&self, from: SocketAddr, to: SocketAddr, payload: &[u8], tags: &[Tag]) -> Vec<u8> {
        let mut frame = tagged(from, to, payload, tags);
        frame[..12].copy_from_slice(&self.addresses);
        let sent = rustix::net::send(&self.socket, &frame, SendFlags::empty()).unwrap();
        assert_eq!(sent, frame.len());
        frame
    }
}

/// A frame of UDP with tags.
fn tagged(from: SocketAddr, to: SocketAddr, payload: &[u8], tags: &[Tag]) -> Vec<u8> {
    let mut slot = vec![0; 2048];
    let len = compose::udp(&mut slot, from, to, payload).unwrap();
    let mut frame = slot[..12].to_vec();
    for (kind, tag) in tags {
        frame.extend(kind);
        frame.extend(tag.to_be_bytes());
    }
    frame.extend(&slot[12..len]);
    frame
}

/// Sends a frame as it is.
fn send_from(stack: &mut Stack, frame: &[u8]) {
    let mut once = Some(());
    let sent = stack.port.send(|slot| {
        once.take()?;
        slot[..frame.len()].copy_from_slice(frame);
        Some(frame.len())
    });
    assert_eq!(sent.unwrap(), 1);
}

/// Adds a device for a VLAN, if the kernel has such; says so if not.
fn add_vlan() -> bool {
    let words = ["link", "add", "link", DEVICE, "name", "vlan5", "type", "vlan", "id", "5"];
    let output = Command::new("ip").args(words).output().unwrap();
    if !output.status.success() {
        quicket_testing::tell_left_out(format_args!(
            "no VLAN of the system: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
        return false;
    }
    ip("addr add 198.18.5.1/24 dev vlan5");
    ip("link set vlan5 up");
    true
}

#[test]
fn a_tuple_is_found_behind_one_or_two_tags_of_priority_and_behind_no_vlan() {
    if !crate::is_permitted() {
        return;
    }
    let wire = Wire::new("");
    // The system's own VLAN beside the ports.
    let vlan = add_vlan().then(|| socket("198.18.5.1"));
    for mode in MODES {
        let switch = Switch::start();
        attach(&switch, mode);
        let far = Far::new(&wire);
        for at in 0..2 {
            let (mut stack, there) = (switch.stack(HERE[at]), wire.socket(THERE[at]));
            exchange(&mut stack, &there, b"before");
            let (here, stranger) = (stack.address, there.local_addr().unwrap());
            for tags in [
                &[(CUSTOMER, 0xe000)][..],
                &[(CUSTOMER, 0)],
                &[(SERVICE, 0x2000)],
                &[(SERVICE, 0), (CUSTOMER, 0x6000)],
                &[(CUSTOMER, 0), (CUSTOMER, 0)],
            ] {
                let sent = far.send(stranger, here, b"a tag of priority alone", tags);
                assert!(stack.port.wait(Some(PATIENCE)).unwrap(), "{tags:x?} is not stepped over");
                let came = stack.port.receive(1, |frame| {
                    assert!(frame == sent, "{tags:x?}: with all tags, as it came");
                    let ends = tuples(frame).unwrap();
                    assert_eq!(ends, (tuple(stranger), tuple(here)));
                });
                assert_eq!(came.unwrap(), 1);
                // And back: the system steps over them, too.
                send_from(&mut stack, &tagged(here, stranger, b"back", tags));
                assert_eq!(receive(&there), (here, b"back".to_vec()), "{tags:x?}");
            }
            let received = listed(&switch).counters.received;
            let vlans: [&[Tag]; 5] = [
                &[(CUSTOMER, 5)],
                &[(SERVICE, 7)],
                &[(CUSTOMER, 0), (CUSTOMER, 5)],
                &[(SERVICE, 5), (CUSTOMER, 0)],
                &[(SERVICE, 0), (CUSTOMER, 0), (CUSTOMER, 0)],
            ];
            for tags in vlans {
                far.send(stranger, here, b"of a VLAN, or with three tags", tags);
                // Such are not sent either.
                send_from(&mut stack, &tagged(here, stranger, b"of a VLAN", tags));
            }
            // What comes next is the next that was sent, in both directions.
            exchange(&mut stack, &there, b"after");
            let counters = stack.until(|counters| counters.dropped(Reason::Vlan) == 5);
            assert_eq!((counters.sent, counters.received), (7, 7));
            assert_eq!(listed(&switch).counters.received, received + 1);
        }
        // The system's VLAN has its own, though a port has a tuple with that number of a port.
        if let Some(vlan) = &vlan {
            let to = vlan.local_addr().unwrap();
            let from = SocketAddr::new("198.18.5.2".parse::<IpAddr>().unwrap(), 9);
            far.send(from, to, b"the system's", &[(CUSTOMER, 5)]);
            assert_eq!(receive(vlan), (from, b"the system's".to_vec()));
        }
        drop(switch);
        until("the program is still there", || !crate::wire::has_program());
    }
}
