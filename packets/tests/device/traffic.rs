//! Stacks that exchange datagrams with programs of the system at the other end.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use quicket_packets::control::Control;
use quicket_packets::device::{Attached, Mode};
use quicket_packets::{Reason, compose};

use crate::common::{Stack, Switch, see, tuple};
use crate::wire::{DEVICE, HERE, THERE, Wire, has_program, ip, receive, until};

pub(crate) const MODES: [Mode; 2] = [Mode::Generic, Mode::Native];

pub(crate) fn attach(switch: &Switch, mode: Mode) -> Attached {
    Control::connect(&switch.path).unwrap().attach(DEVICE, mode).unwrap()
}

pub(crate) fn listed(switch: &Switch) -> Attached {
    let mut all = Control::connect(&switch.path).unwrap().devices().unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// A datagram there and back, by who is at `address` there.
pub(crate) fn exchange(stack: &mut Stack, there: &UdpSocket, payload: &[u8]) {
    there.send_to(payload, stack.address).unwrap();
    let (from, came) = stack.receive();
    assert_eq!((from, &came[..]), (there.local_addr().unwrap(), payload));
    stack.send(from, payload);
    assert_eq!(receive(there), (stack.address, payload.to_vec()));
}

#[test]
fn a_stack_answers_programs_of_the_system() {
    if !crate::is_permitted() {
        return;
    }
    let wire = Wire::new("");
    for mode in MODES {
        let switch = Switch::start();
        let attached = attach(&switch, mode);
        assert_eq!(attached.is_native, mode == Mode::Native);
        assert_eq!((attached.queues, attached.mtu), (1, 1500));
        for (here, there) in HERE.into_iter().zip(THERE) {
            let (mut stack, there) = (switch.stack(here), wire.socket(there));
            let most = 1500 - if there.local_addr().unwrap().is_ipv4() { 28 } else { 48 };
            for len in [0, 1, 17, 18, 19, 100, 1000, most - 1, most] {
                exchange(&mut stack, &there, &vec![len as u8; len]);
            }
            // However long the switch has had nothing to do: it waits for devices in another way then.
            for pause in [1, 10, 100] {
                std::thread::sleep(Duration::from_millis(pause));
                exchange(&mut stack, &there, b"after a pause");
            }
            // Longer than packets may be there.
            let to = there.local_addr().unwrap();
            stack.send(to, &vec![1; most + 1]);
            let counters = stack.until(|counters| counters.dropped(Reason::Mtu) == 1);
            assert_eq!((counters.sent, counters.received), (12, 12));
        }
        let counters = listed(&switch).counters;
        assert_eq!((counters.sent, counters.received), (24, 24));
    }
}

#[test]
fn what_stays_and_what_leaves_keeps_its_order_and_who_watches_sees_both() {
    if !crate::is_permitted() {
        return;
    }
    let wire = Wire::new("");
    for mode in MODES {
        let switch = Switch::start();
        attach(&switch, mode);
        for (here, there) in HERE.into_iter().zip(THERE) {
            let (mut one, mut other) = (switch.stack(here), switch.stack(here));
            let there = wire.socket(there);
            // From now on the neighbour is known.
            exchange(&mut one, &there, b"before");
            let mut watcher = switch.open();
            watcher.watch(tuple(one.address)).unwrap();
            let (from, to) = (one.address, [other.address, there.local_addr().unwrap()]);
            // All at once, some of them with a source of the other one.
            let mut all = 0..60_u8;
            let is_forged = |n: &u8| n % 7 == 6;
            let sent = one.port.send(|slot| {
                let n = all.next()?;
                let from = if is_forged(&n) { other.address } else { from };
                compose::udp(slot, from, to[usize::from(n / 3 % 2)], &[n; 100])
            });
            assert_eq!(sent.unwrap(), 60);
            let honest: Vec<u8> = (0..60).filter(|n| !is_forged(n)).collect();
            for n in &honest {
                let came = if n / 3 % 2 == 0 { other.receive() } else { receive(&there) };
                assert_eq!(came, (from, vec![*n; 100]));
            }
            let counters = one.until(|counters| counters.dropped(Reason::Source) == 8);
            assert_eq!(counters.sent, 1 + honest.len() as u64);
            let seen = |watcher: &mut _, count| -> Vec<u8> {
                see(watcher, count).into_iter().filter_map(|(_, last)| last).collect()
            };
            assert_eq!(seen(&mut watcher, honest.len()), honest);
            for n in 100..140 {
                there.send_to(&[n; 100], one.address).unwrap();
            }
            for n in 100..140 {
                assert_eq!(one.receive(), (to[1], vec![n; 100]));
            }
            assert!(seen(&mut watcher, 40).into_iter().eq(100..140));
        }
    }
}

#[test]
fn the_way_out_is_that_of_the_system() {
    if !crate::is_permitted() {
        return;
    }
    let wire = Wire::new("");
    let switch = Switch::start();
    let mut stack = switch.stack(HERE[0]);
    let there: SocketAddr = (THERE[0].parse::<std::net::IpAddr>().unwrap(), 7).into();
    // Without a device nobody has the destination.
    stack.send(there, b"");
    stack.until(|counters| counters.dropped(Reason::Destination) == 1);
    attach(&switch, Mode::Best);
    stack.send("198.51.100.1:7".parse().unwrap(), b"");
    stack.until(|counters| counters.dropped(Reason::Route) == 1);
    // By the loopback device, which is not attached.
    stack.send("127.0.0.1:7".parse().unwrap(), b"");
    stack.until(|counters| counters.dropped(Reason::Route) == 2);
    // To a group.
    stack.send("224.0.0.251:5353".parse().unwrap(), b"");
    stack.until(|counters| counters.dropped(Reason::Route) == 3);
    // A neighbour that is not there, until it is: the system asks for its address.
    let absent: SocketAddr = "192.0.2.77:7".parse().unwrap();
    stack.send(absent, b"");
    stack.until(|counters| counters.dropped(Reason::Neighbour) == 1);
    wire.there(|| ip("addr add 192.0.2.77/24 dev vb"));
    let socket = wire.there(|| crate::wire::socket("192.0.2.77"));
    let absent = socket.local_addr().unwrap();
    until("the neighbour is not found", || {
        stack.send(absent, b"found");
        stack.port.counters().unwrap().sent > 0
    });
    assert_eq!(receive(&socket), (stack.address, b"found".to_vec()));
    // One that an administrator has entered stays so, though it answers to nobody.
    ip("neigh add 192.0.2.78 lladdr 02:00:00:00:00:78 dev va");
    let sent = stack.port.counters().unwrap().sent;
    stack.send("192.0.2.78:7".parse().unwrap(), b"entered");
    stack.until(|counters| counters.sent > sent);
    assert!(ip("neigh show 192.0.2.78 dev va").contains("PERMANENT"));
    // By a gateway, as soon as there is one.
    wire.there(|| ip("addr add 198.51.100.1/32 dev lo"));
    let far = wire.there(|| crate::wire::socket("198.51.100.1"));
    ip("route add 198.51.100.0/24 via 192.0.2.2 mtu 1000");
    let sent = stack.port.counters().unwrap().sent;
    until("the route is not followed", || {
        stack.send(far.local_addr().unwrap(), b"far");
        stack.port.counters().unwrap().sent > sent
    });
    assert_eq!(receive(&far), (stack.address, b"far".to_vec()));
    // The route's MTU is less than that of the device.
    let mtu = stack.port.counters().unwrap().dropped(Reason::Mtu);
    stack.send(far.local_addr().unwrap(), &[0; 973]);
    stack.until(|counters| counters.dropped(Reason::Mtu) == mtu + 1);
    stack.send(far.local_addr().unwrap(), &[0; 972]);
    // Behind those that were sent before it was counted that one was.
    until("it has not come", || receive(&far).1.len() == 972);
}

#[test]
fn each_queue_has_a_socket_and_changes_of_the_device_are_followed() {
    if !crate::is_permitted() {
        return;
    }
    let wire = Wire::new("numrxqueues 4 numtxqueues 4");
    for mode in MODES {
        let switch = Switch::start();
        let attached = attach(&switch, mode);
        assert_eq!(attached.queues, 4);
        // Flows are spread over the queues, at either end.
        let there: Vec<_> = (0..32).map(|_| wire.socket(THERE[0])).collect();
        let mut stacks: Vec<_> = (0..8).map(|_| switch.stack(HERE[0])).collect();
        for (n, there) in there.iter().enumerate() {
            exchange(&mut stacks[n % 8], there, &[n as u8; 100]);
        }
        // Another address of Ethernet: the program takes no others' frames.
        let mac = format!("02:00:00:00:00:0{}", mode as u8);
        ip(&format!("link set {DEVICE} address {mac}"));
        wire.there(|| ip("neigh flush all"));
        let (stack, there) = (&mut stacks[0], &there[0]);
        until("the new address is not followed", || {
            there.send_to(b"again", stack.address).unwrap();
            stack.port.wait(Some(std::time::Duration::from_millis(20))).unwrap()
        });
        assert_eq!(stack.receive().1, b"again");
    }
}

#[test]
fn detaching_leaves_nothing_behind() {
    if !crate::is_permitted() {
        return;
    }
    let wire = Wire::new("");
    let switch = Switch::start();
    let mut control = Control::connect(&switch.path).unwrap();
    let features = || {
        let output = std::process::Command::new("ethtool").args(["-k", DEVICE]).output();
        output.map(|output| String::from_utf8(output.stdout).unwrap()).unwrap_or_default()
    };
    let link = || {
        let text = ip(&format!("-d link show dev {DEVICE}"));
        text.lines().next().unwrap().to_owned()
    };
    let before = (features(), link());
    // Programs that other tests are just starting have all descriptors of this process for a moment: hence `until`.
    let there = wire.socket(THERE[0]);
    for mode in [MODES, MODES].concat() {
        let socket = crate::wire::socket(HERE[0]);
        let mut port = switch.open();
        let tuple = port.register(&socket).unwrap();
        let mut stack = Stack { port, address: (tuple.address, tuple.port).into() };
        // The system's, as long as nothing is attached.
        there.send_to(b"system", stack.address).unwrap();
        assert_eq!(receive(&socket).1, b"system");
        let attached = control.attach(DEVICE, mode).unwrap();
        assert!(attached.changed.vlan, "tags of VLANs are left in frames");
        let error = control.attach(DEVICE, mode).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
        assert!(has_program());
        exchange(&mut stack, &there, b"stack");
        control.detach(DEVICE).unwrap();
        until("the program is still there", || !has_program());
        assert_eq!((features(), link()), before);
        there.send_to(b"system", stack.address).unwrap();
        assert_eq!(receive(&socket).1, b"system");
        let error = control.detach(DEVICE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert_eq!(control.devices().unwrap(), []);
    }
    // The end of the switch is one, too; and so is that of the device.
    control.attach(DEVICE, Mode::Best).unwrap();
    switch.end();
    until("the program is still there", || !has_program());
    assert_eq!((features(), link()), before);
    let switch = Switch::start();
    let mut control = Control::connect(&switch.path).unwrap();
    control.attach(DEVICE, Mode::Best).unwrap();
    ip(&format!("link del {DEVICE}"));
    until("the device is still listed", || control.devices().unwrap().is_empty());
}

#[test]
fn what_cannot_be_attached_is_refused_with_a_reason() {
    if !crate::is_permitted() {
        return;
    }
    let _wire = Wire::new("");
    let switch = Switch::start();
    let mut control = Control::connect(&switch.path).unwrap();
    let mut refused = |device: &str, mode, kind: ErrorKind, why: &str| {
        let error = control.attach(device, mode).unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(why), "{error:?}, not {why}");
    };
    refused("nothing", Mode::Best, ErrorKind::NotFound, "no such device");
    ip("tuntap add mode tun name tun0");
    refused("tun0", Mode::Best, ErrorKind::InvalidInput, "not of type Ethernet");
    refused("a/b", Mode::Best, ErrorKind::InvalidInput, "no name");
    ip(&format!("link set {DEVICE} mtu 9000"));
    refused(DEVICE, Mode::Best, ErrorKind::InvalidInput, "MTU");
    ip(&format!("link set {DEVICE} mtu 1500"));
    // Another switch has it.
    let other = Switch::start();
    attach(&other, Mode::Generic);
    refused(DEVICE, Mode::Generic, ErrorKind::ResourceBusy, "somebody else");
    refused(DEVICE, Mode::Best, ErrorKind::ResourceBusy, "somebody else");
    drop(other);
    control.attach(DEVICE, Mode::Best).unwrap();
}
