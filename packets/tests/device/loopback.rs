//! Programs of this host come by the loopback device.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;

use quicket_packets::control::Control;
use quicket_packets::device::{Attached, Loopback, Mode};
use quicket_packets::icmp::{Failure, Report};
use quicket_packets::{Reason, compose};

use crate::common::{PATIENCE, Stack, Switch};
use crate::traffic::exchange;
use crate::wire::{HERE, THERE, Wire, ip, receive, socket, until};

const LOOPBACK: [&str; 2] = ["127.0.0.1", "::1"];
/// The longest packet.
const MOST: usize = 3818;

fn attach(switch: &Switch) -> Attached {
    Control::connect(&switch.path).unwrap().attach("lo", Mode::Best).unwrap()
}

/// As it is listed.
fn lo(switch: &Switch) -> Attached {
    let all = Control::connect(&switch.path).unwrap().devices().unwrap();
    all.into_iter().find(|device| device.name == "lo").unwrap()
}

/// What attaching changes, as the system's own programs show it: whether there is a program, how many segments may be a frame, and
/// both sysctls.
pub(crate) fn settings() -> (bool, String, [String; 2]) {
    let text = ip("-d link show dev lo");
    let segments = text.split_once("gso_max_segs ").unwrap().1.split(' ').next().unwrap();
    let sysctl = |name: &str| {
        let value = std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/lo/{name}"));
        value.unwrap().trim().to_owned()
    };
    let sysctls = ["accept_local", "route_localnet"].map(sysctl);
    (text.contains("prog/xdp"), segments.to_owned(), sysctls)
}

/// What a program prints.
fn python(program: &str, words: &[&str]) -> String {
    let output = Command::new("python3").args(["-c", program]).args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn programs_of_this_host_and_stacks_exchange_datagrams_by_all_of_its_addresses() {
    if !crate::is_permitted() {
        return;
    }
    let _wire = Wire::new("");
    let switch = Switch::start();
    let attached = attach(&switch);
    assert!(!attached.is_native);
    assert_eq!((attached.queues, attached.mtu), (1, MOST as u32));
    let mut exchanged = 0;
    for at in 0..2 {
        for stack in [LOOPBACK[at], HERE[at]] {
            let mut stack = switch.stack(stack);
            for program in [LOOPBACK[at], HERE[at]] {
                let program = socket(program);
                let most = 2048 - 14 - if at == 0 { 28 } else { 48 };
                for len in [0, 1, 17, 18, 19, 1000, most] {
                    exchange(&mut stack, &program, &vec![len as u8; len]);
                    exchanged += 1;
                }
                // Nobody has sent to it before.
                let program = socket(&program.local_addr().unwrap().ip().to_string());
                stack.send(program.local_addr().unwrap(), b"first");
                assert_eq!(receive(&program), (stack.address, b"first".to_vec()));
            }
        }
    }
    let counters = lo(&switch).counters;
    assert_eq!((counters.received, counters.sent), (exchanged, exchanged + 8));
    // Of a packet that is longer the port hears nothing, and what comes next comes.
    let (mut stack, program) = (switch.stack("127.0.0.1"), socket("127.0.0.1"));
    program.send_to(&[7; MOST], stack.address).unwrap();
    exchange(&mut stack, &program, b"after");
    let counters = stack.port.counters().unwrap();
    assert_eq!((counters.received, counters.dropped(Reason::Slot)), (1, 0));
    // It is counted at the device, and what is the system's is not, however long it is.
    let other = socket("127.0.0.1");
    program.send_to(&[7; 60_000], other.local_addr().unwrap()).unwrap();
    receive(&other);
    for longer in 1..3 {
        assert_eq!(lo(&switch).counters.dropped(Reason::Length), longer);
        program.send_to(&[7; MOST], stack.address).unwrap();
        exchange(&mut stack, &program, b"after");
    }
    assert_eq!(lo(&switch).counters.received, exchanged + 3);
}

#[test]
fn datagrams_that_a_program_leaves_to_the_device_to_cut_come_one_by_one() {
    if !crate::is_permitted() {
        return;
    }
    let _wire = Wire::new("");
    let switch = Switch::start();
    attach(&switch);
    // UDP_SEGMENT of linux/udp.h.
    let program = "import socket, sys\nhost, port = sys.argv[1:]\n\
                   s = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET, socket.SOCK_DGRAM)\n\
                   s.setsockopt(17, 103, 1000)\ns.sendto(b''.join(bytes([n]) * 1000 for n in range(20)), (host, int(port)))";
    for address in [LOOPBACK, HERE].concat() {
        let mut stack = switch.stack(address);
        python(program, &[address, &stack.address.port().to_string()]);
        for n in 0..20 {
            assert_eq!(stack.receive().1, vec![n; 1000]);
        }
    }
}

#[test]
fn what_attaching_changes_is_listed_and_set_back_where_nobody_else_has_set_it() {
    if !crate::is_permitted() {
        return;
    }
    let _wire = Wire::new("");
    let before = settings();
    assert_eq!(before, (false, "65535".to_owned(), ["0", "0"].map(str::to_owned)));
    let during = (true, "1".to_owned(), ["1", "1"].map(str::to_owned));
    let all = Loopback { segments: true, accept_local: true, route_localnet: true };
    let switch = Switch::start();
    let mut control = Control::connect(&switch.path).unwrap();
    // No driver has the program in it: nothing has changed then.
    assert!(control.attach("lo", Mode::Native).is_err());
    assert_eq!(settings(), before);
    assert_eq!(attach(&switch).loopback, all);
    assert_eq!((settings(), lo(&switch).loopback), (during.clone(), all));
    control.detach("lo").unwrap();
    assert_eq!(settings(), before);
    // Some of it was so before, and somebody changes something meanwhile.
    std::fs::write("/proc/sys/net/ipv4/conf/lo/accept_local", "1").unwrap();
    attach(&switch);
    assert_eq!(lo(&switch).loopback, Loopback { accept_local: false, ..all });
    ip("link set lo gso_max_segs 7");
    control.detach("lo").unwrap();
    assert_eq!(settings(), (false, "7".to_owned(), ["1", "0"].map(str::to_owned)));
    // The end of the switch is one of the attachment, too.
    ip("link set lo gso_max_segs 65535");
    std::fs::write("/proc/sys/net/ipv4/conf/lo/accept_local", "0").unwrap();
    attach(&switch);
    switch.end();
    assert_eq!(settings(), before);
    // Its MTU is that of all programs here.
    assert!(ip("link show dev lo").contains("mtu 65536"));
}

#[test]
fn the_systems_own_connections_go_on_beside_those_of_ports() {
    if !crate::is_permitted() {
        return;
    }
    let _wire = Wire::new("");
    let switch = Switch::start();
    let mut control = Control::connect(&switch.path).unwrap();
    for address in ["127.0.0.1", "::1", HERE[0], HERE[1]] {
        let mut stack = switch.stack(address);
        let program = socket(address);
        let listener = TcpListener::bind((address, 0)).unwrap();
        let mut kept = connect(&listener);
        attach(&switch);
        exchange(&mut stack, &program, b"beside");
        transfer(&mut kept);
        transfer(&mut connect(&listener));
        // And datagrams that are longer than frames of the switch.
        let (one, other) = (socket(address), socket(address));
        one.send_to(&[9; 60_000], other.local_addr().unwrap()).unwrap();
        assert_eq!(receive(&other), (one.local_addr().unwrap(), vec![9; 60_000]));
        control.detach("lo").unwrap();
        transfer(&mut kept);
    }
}

fn connect(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    for end in [&client, &server] {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    (client, server)
}

/// Some megabytes one way, and back.
fn transfer((client, server): &mut (TcpStream, TcpStream)) {
    let data: Vec<u8> = (0..3 << 20).map(|n: u32| (n ^ n >> 8) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut all = vec![0; data.len()];
            server.read_exact(&mut all).unwrap();
            server.write_all(&all).unwrap();
        });
        client.write_all(&data).unwrap();
        let mut back = vec![0; data.len()];
        client.read_exact(&mut back).unwrap();
        assert!(back == data);
    });
}

/// Frames of UDP that somebody puts on a device, as if they had come by it.
fn inject(device: &str, mac: [u8; 6], from: SocketAddr, to: SocketAddr) {
    let mut slot = vec![0; 128];
    let len = compose::udp(&mut slot, from, to, b"forged").unwrap();
    slot[..6].copy_from_slice(&mac);
    let hex: String = slot[..len].iter().map(|octet| format!("{octet:02x}")).collect();
    let program = "import socket, sys\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
                   s.bind((sys.argv[1], 0))\ns.send(bytes.fromhex(sys.argv[2]))";
    python(program, &[device, &hex]);
}

#[test]
fn only_sources_of_this_host_come_by_loopback_and_none_by_other_devices() {
    if !crate::is_permitted() {
        return;
    }
    let wire = Wire::new("");
    let switch = Switch::start();
    attach(&switch);
    let mut control = Control::connect(&switch.path).unwrap();
    control.attach(crate::wire::DEVICE, Mode::Best).unwrap();
    let (mut inner, mut outer) = (switch.stack("127.0.0.1"), switch.stack(HERE[0]));
    let port = |address: &str| SocketAddr::new(address.parse().unwrap(), 9);
    let dropped = || lo(&switch).counters.dropped(Reason::Source);
    // Of nobody here, of a group, a broadcast, and of another port, which would not come by a device.
    let strangers = ["203.0.113.9", THERE[0], "224.0.0.1", "192.0.2.255", "127.255.255.255"];
    for from in strangers.map(port).into_iter().chain([outer.address]) {
        let before = dropped();
        inject("lo", [0; 6], from, inner.address);
        until("the source is not counted", || dropped() == before + 1);
    }
    for from in ["127.0.0.1", "127.1.2.3", HERE[0]].map(port) {
        inject("lo", [0; 6], from, inner.address);
        assert_eq!(
            inner.receive(),
            (from, b"forged".to_vec()),
            "it is root's word, as by the system"
        );
    }
    // By another device nothing of that comes.
    let va = link_address();
    let counted = || {
        let all = Control::connect(&switch.path).unwrap().devices().unwrap();
        all.into_iter().find(|device| device.name == crate::wire::DEVICE).unwrap().counters
    };
    let before = counted();
    for from in ["127.0.0.1", HERE[0], THERE[0]].map(port) {
        wire.there(|| inject("vb", va, from, inner.address));
    }
    for from in ["127.0.0.1", HERE[0]].map(port) {
        wire.there(|| inject("vb", va, from, outer.address));
    }
    let there = wire.socket(THERE[0]);
    exchange(&mut outer, &there, b"honest");
    let after = counted();
    assert_eq!(after.received, before.received + 1);
    assert_eq!(after.dropped(Reason::Source), before.dropped(Reason::Source) + 2);
    assert!(inner.has_nothing() && outer.has_nothing());
    // What an address of loopback sends leaves by no other device.
    let routes = inner.port.counters().unwrap().dropped(Reason::Route);
    inner.send(there.local_addr().unwrap(), b"out");
    inner.until(|counters| counters.dropped(Reason::Route) == routes + 1);
    exchange(&mut inner, &socket("127.0.0.1"), b"within");
}

fn link_address() -> [u8; 6] {
    let link = ip(&format!("-o link show dev {}", crate::wire::DEVICE));
    let mac = link.split_once("link/ether ").unwrap().1.split(' ').next().unwrap().to_owned();
    let octets: Vec<u8> = mac.split(':').map(|n| u8::from_str_radix(n, 16).unwrap()).collect();
    octets.try_into().unwrap()
}

#[test]
fn a_port_hears_that_nobody_of_this_host_listens() {
    if !crate::is_permitted() {
        return;
    }
    let _wire = Wire::new("");
    let switch = Switch::start();
    attach(&switch);
    for address in [LOOPBACK, HERE].concat() {
        let mut stack: Stack = switch.stack(address);
        // It is closed, and its number not given to anybody else so soon.
        let closed = UdpSocket::bind((address, 0)).unwrap().local_addr().unwrap();
        // The system says so seldom.
        until("nothing is said of it", || {
            stack.send(closed, b"anybody?");
            stack.port.wait(Some(std::time::Duration::from_millis(200))).unwrap()
        });
        let mut heard = None;
        stack
            .port
            .receive(1, |frame| {
                let report = Report::read(frame).expect("it is no error of ICMP");
                heard = Some((report.failure, report.destination.port));
            })
            .unwrap();
        let (failure, port) = heard.unwrap();
        assert_eq!((failure, port), (Failure::Port, closed.port()), "{address}");
    }
}

#[test]
fn nothing_comes_and_nothing_leaves_once_it_is_detached() {
    if !crate::is_permitted() {
        return;
    }
    let _wire = Wire::new("");
    let switch = Switch::start();
    attach(&switch);
    let (mut stack, program) = (switch.stack("127.0.0.1"), socket("127.0.0.1"));
    exchange(&mut stack, &program, b"attached");
    Control::connect(&switch.path).unwrap().detach("lo").unwrap();
    program.send_to(b"detached", stack.address).unwrap();
    stack.send(program.local_addr().unwrap(), b"detached");
    stack.until(|counters| counters.dropped(Reason::Destination) == 1);
    assert!(stack.has_nothing());
}
